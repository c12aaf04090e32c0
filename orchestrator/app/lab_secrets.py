"""The secrets of a lab that other hosts can reach: its authority, certificates and passwords.

tls/ca, tls/server, tls/client   certificates (.pem) and private keys (.key)
secrets/                         passwords of the broker and the database
servers/broker.conf, broker.acl  settings and users of Redis or Valkey
"""

import secrets
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from orchestrator.store.enrolments import secret_digest
from workloads.lab.certificates import (
    KeyPair,
    check_server_name,
    create_authority,
    create_certificate,
    expires_at,
    write_private,
)
from workloads.lab.connection_url import read_secret
from workloads.protocol.faults import InvalidRequest

TLS, AUTHORITY, CENTRE_USER = "tls", "ca", "farm"
RENEW = timedelta(days=30)
LOCAL_NAMES = ("localhost", "127.0.0.1", "::1")
# Beyond its memory the broker refuses messages, and agents keep them; the units and containers of
# deploy/ would end a broker that takes more than 512 MB.
BROKER_SETTINGS = """\
port 0
tls-port 6379
tls-cert-file {root}/tls/server.pem
tls-key-file {root}/tls/server.key
tls-ca-cert-file {root}/tls/ca.pem
tls-auth-clients yes
aclfile {root}/servers/broker.acl
appendonly yes
appendfsync everysec
maxmemory 384mb
maxmemory-policy noeviction
proto-max-bulk-len 16mb
"""


def create_secrets(root: Path, names: Sequence[str], renew: bool = False) -> Iterator[Path]:
    """Create what is missing, and renew certificates that end soon; yield what was written."""
    tls = root / TLS
    for name in names:
        check_server_name(name)
    if not (tls / f"{AUTHORITY}.key").exists():
        if not names:
            raise InvalidRequest("a new lab needs the name of its servers; use --name")
        create_authority(f"lab {names[0]}").write(tls, AUTHORITY)
        yield tls / f"{AUTHORITY}.pem"
    authority = KeyPair.read(tls, AUTHORITY)
    for name, alternatives in (("server", (*names, *LOCAL_NAMES)), ("client", ())):
        file = tls / f"{name}.pem"
        is_kept = file.exists() and not _ends_soon(file) and not (renew or (names and alternatives))
        if not is_kept and (names or not alternatives):
            create_certificate(authority, f"lab {name}", alternatives).write(tls, name)
            yield file
        elif not is_kept:
            raise InvalidRequest(f"{file} expires soon; pass its server names with --name")
    yield from _passwords(root)


def _ends_soon(file: Path) -> bool:
    return expires_at(file.read_bytes()) - datetime.now(UTC) < RENEW


def _passwords(root: Path) -> Iterator[Path]:
    for name in ("broker_password", "store_password"):
        file = root / "secrets" / name
        if not file.exists():
            write_private(file, secrets.token_urlsafe(32).encode() + b"\n")
            yield file
    users, settings = root / "servers" / "broker.acl", root / "servers" / "broker.conf"
    if not users.exists():
        digest = secret_digest(read_secret(root / "secrets" / "broker_password"))
        lines = ("user default off", f"user {CENTRE_USER} on #{digest} ~* &* +@all")
        write_private(users, "".join(f"{line}\n" for line in lines).encode())
        yield users
    if not settings.exists():
        write_private(settings, BROKER_SETTINGS.format(root=root.absolute()).encode())
        yield settings


def secure_settings(name: str, broker: str, store: str) -> dict[str, object]:
    """Return the settings of a lab with these servers that use its secrets, by name."""
    tls = {"ca_file": "tls/ca.pem", "cert_file": "tls/client.pem", "key_file": "tls/client.key"}
    settings: dict[str, object] = {
        "broker.url": f"rediss://{CENTRE_USER}@{broker}:6379/0",
        "broker.public_url": f"rediss://{name}:6379/0",
        "broker.password_file": "secrets/broker_password",
        "api.listen": "0.0.0.0:8400",
        "api.names": [name],
        "api.cert_file": "tls/server.pem",
        "api.key_file": "tls/server.key",
    }
    settings |= {f"broker.{key}": value for key, value in tls.items()}
    if store:
        settings |= {f"store.{key}": value for key, value in tls.items()}
        settings["store.url"] = f"postgresql+psycopg://{CENTRE_USER}@{store}/{CENTRE_USER}"
        settings["store.password_file"] = "secrets/store_password"
    return settings
