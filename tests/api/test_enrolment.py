"""Hosts join a lab through its API: once, in time, and only the lab that the command names."""

import http.client
import http.server
import json
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest
import redis
import uvicorn
from sqlalchemy import update

from agent.join_lab import JoinAnswer, check_answer
from orchestrator.api.open_connections import OpenConnections
from orchestrator.api.service_routes import build_app
from orchestrator.app.lab_connection import LabConnection
from orchestrator.app.lab_secrets import create_secrets, secure_settings
from orchestrator.commands.lab import commented_settings
from orchestrator.dispatch.central_broker import CentralBroker
from orchestrator.store.database import Database
from orchestrator.store.tables import enrolment
from tests.api.conftest import free_port, is_open
from tests.farm.conftest import wait_for
from tests.farm.farm_command import run_in_process
from tests.tls_broker import tls_front
from workloads.lab.certificates import (
    KeyPair,
    create_authority,
    create_certificate,
    create_request,
    fingerprint,
    sign_request,
)
from workloads.lab.connection_url import read_secret
from workloads.lab.redis_connection import RedisConnection
from workloads.lab.settings import Lab
from workloads.protocol.faults import InvalidRequest


@contextmanager
def serve(lab: Lab, port: int, pair: str = "server") -> Iterator[None]:
    """Serve the API of a lab over TLS in this process."""
    tls = lab.root / "tls"
    with LabConnection(lab) as connection:
        config = uvicorn.Config(
            build_app(connection, OpenConnections()),
            port=port,
            log_config=None,
            ssl_certfile=tls / f"{pair}.pem",
            ssl_keyfile=tls / f"{pair}.key",
        )
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run)
        thread.start()
        wait_for(lambda: is_open(("127.0.0.1", port)), "the API listens")
        try:
            yield
        finally:
            server.should_exit = True
            thread.join()


@dataclass
class ClosedLab:
    """A lab with TLS, a user at the broker, and an API."""

    lab: Lab
    port: int

    def run(self, *words: str) -> tuple[int, str, str]:
        """Run a command of the lab's admin."""
        return run_in_process(*words, "--lab", str(self.lab.root))

    def offer(self, word: str, host: str, *options: str) -> tuple[str, list[str]]:
        """Return the secret and the words of a printed enrolment command."""
        code, out, err = self.run("host", word, host, *options)
        assert code == 0, err
        secret, *words = out.split()
        return secret.removeprefix("FARM_TOKEN="), words


@pytest.fixture
def closed(tmp_path: Path, broker_url: str) -> Iterator[ClosedLab]:
    """A closed lab, served."""
    root, port = tmp_path / "centre", free_port()
    list(create_secrets(root, ["localhost"]))
    with redis.Redis.from_url(broker_url) as admin:
        for line in (root / "servers" / "broker.acl").read_text().splitlines():
            admin.execute_command("ACL", "SETUSER", *line.split()[1:])
    server = KeyPair.read(root / "tls", "server")
    socket = broker_url.removeprefix("unix://")
    with tls_front(tmp_path, server, socket, ca=root / "tls" / "ca.pem") as front:
        settings = secure_settings("localhost", "localhost", "") | {
            "broker.url": f"rediss://farm@localhost:{front.port}/0",
            "broker.public_url": "",
            "api.listen": f"127.0.0.1:{port}",
        }
        (root / "lab.toml").write_text("\n".join(commented_settings(settings)))
        lab = Lab.read(root, {})
        Database(lab.store_url).migrate()
        with serve(lab, port):
            yield ClosedLab(lab, port)


def join(folder: Path, secret: str, words: list[str], **variables: str) -> tuple[int, str, str]:
    """Run an enrolment command on a host."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {"FARM_TOKEN": secret, **variables}.items():
            patch.setenv(name, value)
        return run_in_process(*words[1:], "--lab", str(folder))


def test_a_host_joins_once_works_is_rotated_and_revoked(closed: ClosedLab, tmp_path: Path) -> None:
    secret, words = closed.offer("add", "host-a")
    assert words[:4] == ["farm", "host", "join", f"https://localhost:{closed.port}"]
    folder = tmp_path / "host-a"
    code, out, err = join(folder, secret, words)
    assert (code, "This computer is host-a" in out) == (0, True), err
    host = Lab.read(folder, {})
    assert host.settings.agent.host == "host-a"
    for file in ("tls/host.key", "secrets/broker_password", "lab.toml"):
        assert (folder / file).stat().st_mode & 0o077 == 0, file
    with RedisConnection(host.broker_url) as broker:
        broker.check()
    code, _, err = join(folder, secret, words)  # a refused offer does not harm what is there
    assert (code, "was already used" in err) == (2, True)
    with RedisConnection(host.broker_url) as broker:
        broker.check()
    assert "\tenrolled\t" in closed.run("host", "list")[1]
    code, _, err = closed.run("host", "add", "host-a")
    assert (code, "farm host add host-a --renew" in err) == (2, True)
    before = read_secret(folder / "secrets" / "broker_password")
    assert join(folder, *closed.offer("add", "host-a", "--renew"))[0] == 0
    assert read_secret(folder / "secrets" / "broker_password") != before
    with RedisConnection(host.broker_url) as broker:
        broker.check()
    assert closed.run("host", "revoke", "host-a")[0] == 0
    with CentralBroker(closed.lab.broker_url) as centre:
        assert not [user for user in centre._redis.acl_users() if user.startswith("host.")]
    audit = json.loads(closed.run("lab", "audit", "--json")[1])
    actions = {"add-host", "join", "rotate-host", "revoke-host"}
    assert actions <= {entry["action"] for entry in audit}
    assert secret not in json.dumps(audit)


def test_an_offer_that_is_late_wrong_or_of_another_lab_gives_nothing(
    closed: ClosedLab, tmp_path: Path
) -> None:
    secret, words = closed.offer("add", "host-a")
    other = [*words[:-1], "0" * 64]
    code, _, err = join(tmp_path / "host", secret, other)
    assert (code, "another authority" in err) == (2, True)
    for wrong in ("x" * 43, "\u00e9", "' OR 1=1"):
        code, _, err = join(tmp_path / "host", wrong, words)
        assert (code, "was already used" in err) == (2, True), err
    store = Database(closed.lab.store_url)
    with store.write() as connection:
        connection.execute(update(enrolment).values(offer_until_s=time.time() - 1))
    store.close()
    code, _, err = join(tmp_path / "host", secret, words)
    assert (code, "or has expired" in err) == (2, True)
    assert not (tmp_path / "host" / "lab.toml").exists()
    code, _, err = join(tmp_path / "host", secret, ["farm", "host", "join", "http://192.0.2.1:1"])
    assert (code, "is not encrypted" in err) == (2, True)
    code, _, err = join(tmp_path / "host", "", words)
    assert (code, "FARM_TOKEN is not set" in err) == (2, True)


def test_a_server_between_host_and_lab_gets_no_secret(closed: ClosedLab, tmp_path: Path) -> None:
    """It can show the right authority, which is public, but has no certificate of it."""
    secret, words = closed.offer("add", "host-a")
    stranger = create_authority("stranger")
    create_certificate(stranger, "localhost", ["localhost"]).write(
        closed.lab.root / "tls", "stranger"
    )
    port = free_port()
    with serve(closed.lab, port, "stranger"):
        asked = [word.replace(str(closed.port), str(port)) for word in words]
        code, _, err = join(tmp_path / "host", secret, asked)
    assert (code, "verify failed" in err) == (4, True), err
    assert join(tmp_path / "host", secret, words)[0] == 0, "the secret was not spent"


class Interceptor(http.server.BaseHTTPRequestHandler):
    """A server between host and lab: it shows the lab's authority with its own behind it."""

    authorities = b""
    asked: ClassVar[list[bytes]] = []

    def do_GET(self) -> None:
        self._answer({"certificate": self.authorities.decode()})

    def do_POST(self) -> None:
        self.asked.append(self.rfile.read(int(self.headers["Content-Length"])))
        self._answer({"host": "host-a", "broker": "rediss://host.host-a@evil:6379/0"})

    def _answer(self, content: object) -> None:
        body = json.dumps(content).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.mark.parametrize("order", [(0, 1), (1, 0), (0, 0)])
def test_a_second_authority_behind_the_right_one_is_not_trusted(
    closed: ClosedLab, tmp_path: Path, order: tuple[int, ...]
) -> None:
    secret, words = closed.offer("add", "host-a")
    own, stranger = (closed.lab.root / "tls" / "ca.pem").read_bytes(), create_authority("stranger")
    Interceptor.authorities = b"".join((own, stranger.certificate)[index] for index in order)
    create_certificate(stranger, "localhost", ["localhost"]).write(tmp_path, "evil")
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Interceptor)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "evil.pem", tmp_path / "evil.key")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        asked = [word.replace(str(closed.port), str(server.server_port)) for word in words]
        code, _, err = join(tmp_path / "host", secret, asked)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
    assert (code, "do not join it" in err) == (2, True), err
    assert not Interceptor.asked, "the secret was not sent"
    assert not (tmp_path / "host" / "lab.toml").exists()
    assert join(tmp_path / "host", secret, words)[0] == 0, "the secret was not spent"


def test_an_answer_has_to_be_vouched_for_by_the_authority() -> None:
    lab, stranger = create_authority("lab"), create_authority("stranger")
    request, other = create_request("host"), create_request("host")
    issued = sign_request(lab, request.certificate, "host-a")
    good = {
        "host": "host-a",
        "broker": "rediss://host.host-a@centre.lab:6379/0",
        "password": "x" * 20,
        "authority": lab.certificate.decode(),
        "certificate": issued.decode(),
    }
    digest = fingerprint(lab.certificate)
    check_answer(JoinAnswer.model_validate(good), digest, request.key)
    open_lab = good | {"authority": "", "certificate": ""}
    check_answer(JoinAnswer.model_validate(open_lab), "", request.key)
    for changed, reason in (
        ({"authority": stranger.certificate.decode()}, "another authority"),
        ({"authority": good["authority"] + stranger.certificate.decode()}, "has 2"),
        ({"authority": ""}, "another authority"),
        ({"authority": "x"}, "not a certificate"),
        ({"broker": "redis://host.host-a@centre.lab:6379/0"}, "not encrypted"),
        ({"broker": "rediss://host.host-b@centre.lab:6379/0"}, "another host"),
        ({"broker": "rediss://centre.lab:6379/0"}, "another host"),
        ({"host": "host-b", "broker": "rediss://host.host-b@centre.lab/0"}, "another host"),
        ({"certificate": sign_request(lab, other.certificate, "host-a").decode()}, "another key"),
        (
            {"certificate": sign_request(stranger, request.certificate, "host-a").decode()},
            "another authority",
        ),
        ({"certificate": "x"}, "not a certificate"),
    ):
        with pytest.raises(InvalidRequest, match=reason):
            check_answer(JoinAnswer.model_validate(good | changed), digest, request.key)


def test_a_malformed_enrolment_is_refused(closed: ClosedLab) -> None:
    context = ssl.create_default_context(cafile=closed.lab.root / "tls" / "ca.pem")
    for body in (
        b"",
        b"[]",
        b"{}",
        b'{"secret": 1, "request": []}',
        b'{"secret": "x"}',
        b"x" * 20_000,
    ):
        client = http.client.HTTPSConnection("localhost", closed.port, context=context)
        client.request("POST", "/v1/enrol", body)
        answer = client.getresponse()
        assert answer.status in (400, 413), body
        assert "bug" not in json.loads(answer.read())["error"]["text"]
        client.close()
