"""The checks of `farm doctor` on who can reach a lab: secrets, certificates, broker, store, adb."""

import socket
import stat
from collections.abc import Collection, Iterator
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from orchestrator.app.checks.check_finding import ERROR, OK, WARNING, CheckFinding
from workloads.lab.certificates import expires_at
from workloads.lab.connection_url import without_password
from workloads.lab.settings import SETTINGS_FILE, Lab
from workloads.protocol.faults import FarmError

RENEW_DAYS = 30
LISTENING = "0A"


def check_secrets(lab: Lab) -> Iterator[CheckFinding]:
    """Whether other users can read a password or a private key."""
    files = [file for file in _secret_files(lab) if file.exists()]
    readable = [file for file in files if file.stat().st_mode & (stat.S_IRGRP | stat.S_IROTH)]
    for file in readable:
        text = f"other users can read the secret in {file}"
        yield CheckFinding("secrets", ERROR, text, f"chmod 600 {file}")
    if files and not readable:
        names = ", ".join(file.name for file in files)
        yield CheckFinding("secrets", OK, f"only their owner can read {names}")


def _secret_files(lab: Lab) -> list[Path]:
    servers = (lab.settings.broker, lab.settings.store)
    named = [*(item.password_file for item in servers), *(item.key_file for item in servers)]
    files = [lab.root / name for name in (*named, lab.settings.api.key_file) if name]
    files += [*lab.root.glob("tls/*.key"), *lab.root.glob("secrets/*")]
    if any(urlsplit(item.url).password for item in servers if item.url):
        files.append(lab.root / SETTINGS_FILE)
    return sorted({*files})


def check_certificates(lab: Lab) -> Iterator[CheckFinding]:
    """Whether a certificate has ended, or will soon."""
    settings = lab.settings
    named = {
        f"{section}.{name}": getattr(values, name)
        for section, values in (
            *(("broker", settings.broker), ("store", settings.store)),
            ("api", settings.api),
        )
        for name in ("ca_file", "cert_file")
        if getattr(values, name, "")
    }
    for name, file in named.items():
        try:
            yield judge_certificate(name, expires_at((lab.root / file).read_bytes()))
        except (OSError, FarmError) as error:
            yield CheckFinding(f"certificate {name}", ERROR, f"{file} cannot be read: {error}")


def judge_certificate(name: str, end: datetime) -> CheckFinding:
    """Return whether a certificate has to be renewed."""
    days = (end - datetime.now(UTC)).total_seconds() / 86400
    level = ERROR if days <= 0 else WARNING if days < RENEW_DAYS else OK
    text = f"it {'ended' if days <= 0 else 'ends'} on {end:%Y-%m-%d}"
    fix = (
        ""
        if level == OK
        else "renew it: farm lab init --tls; on another host: farm host add --renew"
    )
    return CheckFinding(f"certificate {name}", level, text, fix)


def judge_broker(url: str, is_open: bool, public_ports: Collection[int]) -> Iterator[CheckFinding]:
    """Yield what is wrong with the access to a broker."""
    if url.startswith("unix:"):
        return
    where, shown = urlsplit(url), without_password(url)
    remote = not is_loopback(where.hostname or "")
    if is_open and (remote or (where.port or 6379) in public_ports):
        text = f"{shown} needs no password, so everyone who reaches it can run jobs on the phones"
        fix = "disable its default user (ACL SETUSER default off), or bind the broker to loopback"
        yield CheckFinding("broker", ERROR, text, fix)
    elif url.startswith("redis:") and remote:
        text = f"{shown} is not encrypted: its password crosses the network in plain text"
        yield CheckFinding("broker", WARNING, text, "use rediss:// and broker.ca_file")


def judge_store(url: str) -> Iterator[CheckFinding]:
    """Yield what is wrong with the connection to a database."""
    if not url.startswith("postgresql"):
        return
    where = urlsplit(url)
    options = parse_qs(where.query)
    mode = options.get("sslmode", ["prefer"])[-1]
    host = where.hostname or options.get("host", [""])[-1]
    if host.startswith("/") or is_loopback(host) or mode == "verify-full":
        return
    weak = mode in ("require", "verify-ca")
    text = (
        f"sslmode={mode} does not verify the name of the database's host"
        if weak
        else f"sslmode={mode} allows a connection to the database that is not encrypted"
    )
    yield CheckFinding("store", WARNING if weak else ERROR, text, "set store.ca_file")


def is_loopback(name: str) -> bool:
    """Return whether a name means this computer alone."""
    if name in ("localhost", ""):
        return True
    try:
        return all(
            str(info[4][0]).startswith(("127.", "::1")) for info in socket.getaddrinfo(name, None)
        )
    except OSError:
        return False


def public_ports() -> set[int]:
    """The TCP ports of this computer that listen on more than loopback."""
    ports = set()
    for name in ("tcp", "tcp6"):
        try:
            lines = Path(f"/proc/net/{name}").read_text().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            fields = line.split()
            address, port = fields[1].split(":")
            local = address.endswith("0100007F") or address == "0" * 24 + "01000000"
            if fields[3] == LISTENING and not local:
                ports.add(int(port, 16))
    return ports
