"""Connections to servers: passwords from files, and TLS that verifies on every way."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from orchestrator.store.database import Database
from tests.tls_broker import tls_front
from workloads.lab.celery_setup import broker_errors, celery_app
from workloads.lab.certificates import (
    KeyPair,
    create_authority,
    create_certificate,
    create_request,
    expires_at,
    sign_request,
)
from workloads.lab.connection_url import BadSettings, without_password
from workloads.lab.redis_connection import RedisConnection
from workloads.lab.settings import Lab
from workloads.protocol.faults import BrokerDown, InvalidRequest, StoreDown

SECRET = "s3cret/with@odd?characters"


def send_by_celery(url: str) -> None:
    """Send a command by way of Celery and kombu, once."""
    app = celery_app("test", url)
    with broker_errors(), app.connection_for_write() as connection:
        connection.ensure_connection(max_retries=1, interval_start=0)
        connection.default_channel.client.ping()


def send_by_redis(url: str) -> None:
    """Send a command by way of redis-py."""
    with RedisConnection(url) as broker:
        broker.check()


WAYS = pytest.mark.parametrize("connect", [send_by_celery, send_by_redis])
Connect = Callable[[str], None]


def lab_at(folder: Path, port: int, name: str = "localhost", **settings: str) -> Lab:
    """Return a lab whose broker is at a port, with a password from a file."""
    (folder / "password").write_text(f"{SECRET}\n")
    lines = [f'{key} = "{value}"' for key, value in settings.items()]
    text = "\n".join(["[broker]", f'url = "rediss://farm@{name}:{port}/0"', *lines])
    (folder / "lab.toml").write_text(text)
    return Lab.read(folder, {"FARM_BROKER_PASSWORD_FILE": str(folder / "password")})


@pytest.fixture
def authority(tmp_path: Path) -> KeyPair:
    """The authority of a lab, in ca.pem."""
    made = create_authority("test lab")
    made.write(tmp_path, "ca")
    return made


@WAYS
def test_a_server_of_another_authority_gets_no_password(
    connect: Connect, tmp_path: Path, authority: KeyPair, broker_url: str
) -> None:
    stranger = create_certificate(create_authority("stranger"), "localhost", ["localhost"])
    socket = broker_url.removeprefix("unix://")
    with tls_front(tmp_path, stranger, socket) as front:
        for settings in ({"ca_file": "ca.pem"}, {}):  # the lab's authority, those of the system
            lab = lab_at(tmp_path, front.port, **settings)
            with pytest.raises(BrokerDown, match="certificate verify failed"):
                connect(lab.broker_url)
        assert front.received == []


@WAYS
def test_a_server_with_another_name_or_a_clients_certificate_is_refused(
    connect: Connect, tmp_path: Path, authority: KeyPair, broker_url: str
) -> None:
    socket = broker_url.removeprefix("unix://")
    for pair in (
        create_certificate(authority, "other", ["other.lab"]),
        create_certificate(authority, "localhost"),
    ):
        with tls_front(tmp_path, pair, socket) as front:
            with pytest.raises(BrokerDown, match="certificate verify failed"):
                connect(lab_at(tmp_path, front.port, ca_file="ca.pem").broker_url)
            assert front.received == []


@WAYS
def test_a_broker_with_tls_a_client_certificate_and_a_user_is_used(
    connect: Connect, tmp_path: Path, authority: KeyPair, broker_url: str
) -> None:
    with RedisConnection(broker_url) as admin:
        rights = f"on >{SECRET} ~* &* +@all"
        admin._redis.execute_command("ACL", "SETUSER", "farm", *rights.split())
        admin._redis.execute_command("ACL", "SETUSER", "default", "off")
    request = create_request("whatever")
    KeyPair(sign_request(authority, request.certificate, "host-a"), request.key).write(
        tmp_path, "client"
    )
    pair = create_certificate(authority, "centre", ["localhost"])
    socket = broker_url.removeprefix("unix://")
    with tls_front(tmp_path, pair, socket, ca=tmp_path / "ca.pem") as front:
        files = {"ca_file": "ca.pem", "cert_file": "client.pem", "key_file": "client.key"}
        lab = lab_at(tmp_path, front.port, **files)
        connect(lab.broker_url)
        assert SECRET.encode() in b"".join(front.received)
        with RedisConnection(lab.broker_url) as broker:
            assert not broker.allows_anonymous_access()
        with pytest.raises(BrokerDown, match=r"(?i)tls|ssl|reset|closed"):
            connect(lab_at(tmp_path, front.port, ca_file="ca.pem").broker_url)


@WAYS
def test_a_url_without_verification_is_refused(connect: Connect) -> None:
    for options in ("", "?ssl_cert_reqs=none", "?ssl_cert_reqs=required&ssl_check_hostname=false"):
        with pytest.raises(BadSettings, match="would not be verified"):
            connect(f"rediss://farm:{SECRET[:6]}@localhost:1/0{options}")


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ('[broker]\nurl = "rediss://h:1/0?ssl_cert_reqs=none"', "has a '\\?'"),
        ('[broker]\nurl = "redis://h:1/0"\nca_file = "ca.pem"', "need a URL with rediss"),
        ('[broker]\nurl = "rediss://h:1/0"\nca_file = "no.pem"', "cannot be read"),
        ('[broker]\nurl = "rediss://h:1/0"\ncert_file = "ca.pem"', "need each other"),
        ('[broker]\nurl = "redis://h:1/0"\npassword_file = "none"', "cannot be read"),
        ('[broker]\nurl = "redis://h:1/0"\npassword_file = "empty"', "is empty"),
        ('[broker]\nurl = "redis://h:1/0"\npassword_file = "pipe"', "not an ordinary file"),
        ('[broker]\nurl = "rediss://h:1/0"\nca_file = "pipe"', "not an ordinary file"),
        ('[store]\nurl = "postgresql://h/d?sslmode=require"\nca_file = "ca.pem"', "verify-full"),
        ('[store]\nurl = "sqlite:///x.db"\nca_file = "ca.pem"', "needs a PostgreSQL URL"),
        (
            '[store]\nurl = "postgresql://h/d"\ncert_file = "ca.pem"\nkey_file = "ca.key"',
            "set both",
        ),
    ],
)
def test_settings_that_contradict_each_other_are_refused(
    settings: str, reason: str, tmp_path: Path, authority: KeyPair
) -> None:
    (tmp_path / "empty").touch()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "lab.toml").write_text(settings)
    lab = Lab.read(tmp_path, {})
    with pytest.raises(BadSettings, match=reason):
        assert not (lab.broker_url if "[broker]" in settings else lab.store_url)


def test_the_store_is_verified_and_its_password_comes_from_a_file(
    tmp_path: Path, authority: KeyPair
) -> None:
    (tmp_path / "password").write_text(SECRET)
    (tmp_path / "lab.toml").write_text(
        '[store]\nurl = "postgresql+psycopg://farm@127.0.0.1:1/farm"\nca_file = "ca.pem"\n'
    )
    lab = Lab.read(tmp_path, {"FARM_STORE_PASSWORD_FILE": str(tmp_path / "password")})
    assert f"?sslmode=verify-full&sslrootcert={tmp_path}".replace("/", "%2F")[:40] in lab.store_url
    with pytest.raises(StoreDown) as caught:
        Database(lab.store_url).check()
    assert SECRET[:6] not in str(caught.value)
    assert without_password(lab.store_url) == "postgresql+psycopg://***@127.0.0.1:1/farm?***"


@pytest.mark.parametrize(
    "url",
    [
        "postgresql+psycopg://127.0.0.1:1/farm?user=u&password=secret",
        "postgresql+psycopg://u:p@ss:secret/farm",
        "postgresql+psycopg://u:se:secret",
    ],
)
def test_a_password_of_the_store_is_not_shown(url: str) -> None:
    with pytest.raises((StoreDown, InvalidRequest)) as caught:
        Database(url).check()
    assert "secret" not in str(caught.value)


def test_the_authority_signs_only_what_it_can_read(authority: KeyPair) -> None:
    for request in (b"", b"nonsense", authority.certificate, b"x" * 100_000):
        with pytest.raises(InvalidRequest, match="the request for a certificate"):
            sign_request(authority, request, "host-a")
    assert expires_at(authority.certificate).year >= 2036
