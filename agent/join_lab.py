"""Joins a lab through its API: proves the offer, gets a user and a certificate, writes them.

The lab is known by the digest of its authority's certificate, which came with the offer. The
certificate itself is read first, from any server. It is then the only one that is trusted, and what
the lab answers is compared with it before anything is written.
"""

import http.client
import json
import ssl
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from workloads.lab.certificates import (
    KeyPair,
    check_issued,
    create_request,
    fingerprint,
    only_certificate,
    write_private,
)
from workloads.lab.settings import SETTINGS_FILE
from workloads.protocol.faults import BadFile, FarmTrouble, InvalidRequest
from workloads.protocol.host_user import host_user
from workloads.protocol.messages import HOST_PATTERN
from workloads.text import safe_text

TIMEOUT_S = 30.0
ANSWER_BYTES_MAX = 65536
LOOPBACK = ("localhost", "127.0.0.1", "::1")
SETTINGS = """\
[broker]
url = "{broker}"
password_file = "secrets/broker_password"
{tls}
[agent]
host = "{host}"
"""
TLS_SETTINGS = {
    "authority": 'ca_file = "tls/ca.pem"\n',
    "certificate": 'cert_file = "tls/host.pem"\nkey_file = "tls/host.key"\n',
}


class JoinAnswer(BaseModel):
    """What the lab gives to a host that joins."""

    model_config = ConfigDict(strict=True)

    host: str = Field(pattern=HOST_PATTERN)
    broker: str = Field(pattern=r"^rediss?://[^\s\"\\?#]{1,300}$")
    password: str = Field(pattern=r"^[\x21-\x7e]{1,200}$")
    authority: str = Field(max_length=ANSWER_BYTES_MAX)
    certificate: str = Field(max_length=ANSWER_BYTES_MAX)


def join_lab(url: str, authority: str, secret: str, folder: Path) -> tuple[str, bool]:
    """Join; return the name of this host, and whether the settings were written."""
    context = _trusted(url, authority)
    wanted = _digest_text(authority)
    request = create_request("host")
    # Before the secret is used; beside the key in use, because the lab may refuse the offer.
    pending = folder / "tls" / "host.key.new"
    write_private(pending, request.key)
    sent = {"secret": secret, "request": request.certificate.decode()}
    try:
        answer = JoinAnswer.model_validate(_exchange(url, "/v1/enrol", sent, context))
        check_answer(answer, wanted, request.key)
    except ValidationError as error:
        raise _not_a_lab(url) from error
    finally:
        pending.unlink()
    if answer.certificate:
        KeyPair(answer.certificate.encode(), request.key).write(folder / "tls", "host")
    if answer.authority:
        authority_pem = only_certificate(answer.authority.encode())
        write_private(folder / "tls" / "ca.pem", authority_pem, mode=0o644)
    write_private(folder / "secrets" / "broker_password", answer.password.encode() + b"\n")
    tls = "".join(line for name, line in TLS_SETTINGS.items() if getattr(answer, name))
    text = SETTINGS.format(broker=answer.broker, host=answer.host, tls=tls)
    file = folder / SETTINGS_FILE
    is_new = not file.exists()
    if is_new:
        write_private(file, text.encode())
    return answer.host, is_new or file.read_text() == text


def check_answer(answer: JoinAnswer, authority: str, key: bytes) -> None:
    """Refuse an answer that names anything which the authority with this digest does not vouch for.

    Who could read the secret, or change the answer, must not choose the broker of this host.
    """
    scheme, _, place = answer.broker.partition("://")
    try:
        named = only_certificate(answer.authority.encode()) if answer.authority else b""
        if (fingerprint(named) if named else "") != authority:
            raise ValueError("it names another authority than the command")
        if authority and scheme != "rediss":
            raise ValueError("its broker is not encrypted")
        if not place.startswith(f"{host_user(answer.host)}@"):
            raise ValueError("its broker has a user of another host")
        if answer.certificate:
            check_issued(answer.certificate.encode(), key, answer.host, named)
    except (ValueError, BadFile) as error:
        reason = safe_text(error, 200)
        raise InvalidRequest(
            f"the answer of the lab cannot be trusted: {reason}; nothing was written, "
            "so ask an admin for a new command: farm host add NAME --renew"
        ) from error


def _digest_text(digest: str) -> str:
    return digest.lower().replace(":", "")


def _trusted(url: str, authority: str) -> ssl.SSLContext | None:
    """Return what verifies the API; None without TLS, which only this computer may use."""
    try:
        parts = urlsplit(url)
        name, is_web = parts.hostname, parts.scheme in ("http", "https") and parts.port != 0
    except ValueError:
        name, is_web = None, False
    if not name or not is_web:
        raise InvalidRequest(f"'{safe_text(url, 80)}' is not a URL; copy the whole command")
    if parts.scheme == "http":
        if name in LOOPBACK:
            return None
        raise InvalidRequest(f"{safe_text(url, 80)} is not encrypted; the API needs a certificate")
    if not authority:
        return ssl.create_default_context()
    stranger = ssl.create_default_context()
    stranger.check_hostname = False  # nothing secret is sent, and the digest is compared
    stranger.verify_mode = ssl.CERT_NONE
    answer = _exchange(url, "/v1/authority", None, stranger)
    pem = answer.get("certificate") if isinstance(answer, dict) else None
    try:
        certificate = only_certificate(str(pem).encode())
    except BadFile:
        certificate = b""
    if not certificate or fingerprint(certificate) != _digest_text(authority):
        raise InvalidRequest(
            f"the lab at {safe_text(url, 80)} has another authority than the command says, "
            "or more than one; do not join it"
        )
    return ssl.create_default_context(cadata=certificate.decode())


def _exchange(url: str, path: str, sent: object, context: ssl.SSLContext | None) -> Any:
    """Send a request and return the JSON of the answer."""
    parts = urlsplit(url)
    place = (parts.hostname or "", parts.port)
    connection = (
        http.client.HTTPConnection(*place, timeout=TIMEOUT_S)
        if context is None
        else http.client.HTTPSConnection(*place, timeout=TIMEOUT_S, context=context)
    )
    try:
        body = None if sent is None else json.dumps(sent)
        headers = {"Content-Type": "application/json"} if body else {}
        connection.request("GET" if body is None else "POST", path, body, headers)
        response = connection.getresponse()
        answer = json.loads(response.read(ANSWER_BYTES_MAX))
        if response.status != http.client.OK:
            raise InvalidRequest(safe_text(answer["error"]["text"], 500))
    except (OSError, http.client.HTTPException) as error:
        reason = safe_text(getattr(error, "strerror", None) or error, 200)
        raise FarmTrouble(f"the API at {url} cannot be reached: {reason}; check the URL") from error
    except (ValueError, KeyError, TypeError) as error:
        raise _not_a_lab(url) from error
    finally:
        connection.close()
    return answer


def _not_a_lab(url: str) -> FarmTrouble:
    return FarmTrouble(f"{url} does not answer as the API of a lab; check the URL and its version")
