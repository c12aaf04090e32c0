"""A TLS front of a broker: it ends TLS as a server would, and records what clients send.

python -m tests.tls_broker TLS_FOLDER SOCKET ADDRESS:PORT
"""

import socket
import ssl
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from workloads.lab.certificates import KeyPair


@dataclass
class TlsFront:
    """The port of a TLS front, and all that clients sent through it."""

    port: int
    received: list[bytes] = field(default_factory=list)


@contextmanager
def tls_front(
    folder: Path,
    server: KeyPair,
    target: str,
    ca: Path | None = None,
    address: tuple[str, int] = ("127.0.0.1", 0),
) -> Iterator[TlsFront]:
    """Serve the broker at a unix socket over TLS; with `ca`, clients need a certificate of it."""
    server.write(folder, "front")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "front.pem", folder / "front.key")
    if ca is not None:
        context.load_verify_locations(ca)
        context.verify_mode = ssl.CERT_REQUIRED
    listener = socket.create_server(address)
    front = TlsFront(listener.getsockname()[1])

    def serve(client: socket.socket) -> None:
        with (
            suppress(OSError),
            context.wrap_socket(client, server_side=True) as inner,
            socket.socket(socket.AF_UNIX) as outer,
        ):
            outer.connect(target)
            back = threading.Thread(target=_pipe, args=(outer, inner, []), daemon=True)
            back.start()
            _pipe(inner, outer, front.received)

    def accept() -> None:
        with suppress(OSError):
            while True:
                client, _ = listener.accept()
                threading.Thread(target=serve, args=(client,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield front
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()


def _pipe(source: socket.socket, target: socket.socket, record: list[bytes]) -> None:
    with suppress(OSError):
        while piece := source.recv(65536):
            record.append(piece)
            target.sendall(piece)
    with suppress(OSError):
        target.shutdown(socket.SHUT_RDWR)


def main() -> None:
    """Serve until the process is stopped; clients need a certificate of the lab."""
    tls, target, (host, _, port) = Path(sys.argv[1]), sys.argv[2], sys.argv[3].rpartition(":")
    pair, address = KeyPair.read(tls, "server"), (host, int(port))
    with (
        tempfile.TemporaryDirectory() as folder,
        tls_front(Path(folder), pair, target, tls / "ca.pem", address),
    ):
        threading.Event().wait()


if __name__ == "__main__":
    main()
