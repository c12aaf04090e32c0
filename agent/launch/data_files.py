"""Data files of workloads: stored on the host by digest, pushed to a phone once."""

from hashlib import sha256
from pathlib import Path

from agent.phone.phone_driver import Phone
from agent.phone.phone_paths import HOME
from workloads.protocol.faults import InvalidRequest

FILE_BYTES_MAX = 512 * 1024 * 1024


def install_data_file(phone: Phone, digest: str, files_dir: Path) -> str:
    """Push exactly this data file unless the phone has it, and return its path."""
    path = f"{HOME}/data-{digest[:16]}"

    def content() -> bytes:
        return _read_from_host(digest, files_dir)

    installed = phone.shell_batch([phone.digest_command(path)])[0]
    if not phone.has_printed_digest(installed, digest, content):
        phone.push(content(), path)
    return path


def _read_from_host(digest: str, files_dir: Path) -> bytes:
    file = files_dir / digest
    try:
        if file.stat().st_size > FILE_BYTES_MAX:
            raise InvalidRequest(
                f"the data file {digest[:12]}... is larger than {FILE_BYTES_MAX >> 20} MB; "
                "make it smaller"
            )
        content = file.read_bytes()
    except OSError:
        raise InvalidRequest(
            f"the data file {digest[:12]}... is not on this host; add it with "
            "'farm workload add --dataset' to the lab folder that this agent uses"
        ) from None
    if sha256(content).hexdigest() != digest:
        raise InvalidRequest(
            f"{files_dir.name}/{digest[:12]}... is damaged (its SHA-256 is not its name); "
            "add it again"
        )
    return content
