"""Adds hosts to a lab: an offer that works once, the join itself, and its end.

A host gets its own user of the broker, which can use the keys of that host only, a certificate for
a key that it made itself, and a results queue.
"""

import secrets
from dataclasses import dataclass
from pathlib import Path
from time import time

from orchestrator.app.app_errors import InvalidState, NotAuthenticated
from orchestrator.app.control_sweeps import publish_change
from orchestrator.app.lab_connection import LabConnection
from orchestrator.app.operation import Role, operation
from orchestrator.app.remote.api_port import public_url
from orchestrator.store import enrolments
from orchestrator.store.enrolments import HostAccess, secret_digest
from orchestrator.store.operator_change import OperatorChange
from workloads.lab.certificates import (
    KeyPair,
    expires_at,
    fingerprint,
    only_certificate,
    sign_request,
)
from workloads.lab.connection_url import without_user
from workloads.lab.settings import Lab
from workloads.protocol.faults import BadFile, InvalidRequest
from workloads.protocol.host_user import host_user

MINUTES_MAX = 7 * 24 * 60.0


@dataclass(frozen=True)
class HostOffer:
    """What a host needs to join: the address of the API, a secret, the digest of the authority."""

    host: str
    url: str
    secret: str
    authority: str  # empty: the lab has no own authority
    until_s: float


@dataclass(frozen=True)
class HostCredentials:
    """What a host gets when it joins, once."""

    host: str
    broker: str  # the URL of the broker with the host's user
    password: str
    authority: str  # PEM; empty: one that every computer trusts
    certificate: str  # PEM; empty: none


@operation(Role.ADMIN)
def add_host(lab: LabConnection, host: str, minutes: float = 60.0) -> HostOffer:
    """Let a host join the lab, once, within some minutes."""
    return _offer(lab, host, minutes, renewed=False)


@operation(Role.ADMIN)
def rotate_host(lab: LabConnection, host: str, minutes: float = 60.0) -> HostOffer:
    """Let a host join again: its secrets and its certificate are replaced when it does."""
    return _offer(lab, host, minutes, renewed=True)


@operation(Role.ADMIN)
def revoke_host(lab: LabConnection, host: str, dry_run: bool = False) -> OperatorChange:
    """End the access of a host to the lab at once."""
    change = enrolments.revoke(lab.store, host, lab.actor(dry_run))
    if not dry_run:
        lab.broker.set_host_users(enrolments.host_accesses(lab.store))
    return publish_change(lab, change)


@operation(Role.VIEWER)
def list_host_accesses(lab: LabConnection) -> list[HostAccess]:
    """List the hosts that were added to the lab; secrets are not stored."""
    return enrolments.host_accesses(lab.store)


def _offer(lab: LabConnection, host: str, minutes: float, renewed: bool) -> HostOffer:
    if lab.lab.host_name(host) != host or not 0 < minutes <= MINUTES_MAX:
        raise InvalidRequest(f"an offer is for one host, and expires within {MINUTES_MAX:.0f} min")
    settings = lab.lab.settings
    if lab.lab.has_embedded_broker:
        raise InvalidState(
            "the embedded broker serves this computer only; set broker.url, see "
            "'farm lab init --tls'"
        )
    secret, until_s = secrets.token_urlsafe(32), time() + minutes * 60
    enrolments.offer(lab.store, host, secret, until_s, lab.actor(), renewed)
    authority = authority_certificate(lab.lab)
    digest = fingerprint(authority) if authority else ""
    return HostOffer(host, public_url(settings.api), secret, digest, until_s)


def authority_certificate(lab: Lab) -> bytes:
    """Return the certificate of the authority that hosts have to trust; empty if there is none."""
    file = lab.settings.broker.ca_file
    if not file:
        return b""
    try:
        return only_certificate((lab.root / file).read_bytes())
    except BadFile as error:
        raise InvalidState(
            f"broker.ca_file ({file}) cannot be given to hosts: {error}; "
            "leave the authority alone that signed the certificate of the broker"
        ) from error


def enrol_host(lab: LabConnection, secret: str, request: str) -> HostCredentials:
    """Enrol the host that has this secret; the secret cannot be used again."""
    unusable = NotAuthenticated(
        "the enrolment command was already used or has expired; "
        "ask an admin for a new one: farm host add NAME --renew"
    )
    host = enrolments.offered_host(lab.store, secret)
    if host is None:
        raise unusable
    certificate = _certificate(lab.lab.root / "tls", request.encode(), host)
    password = secrets.token_urlsafe(32)
    until_s = expires_at(certificate).timestamp() if certificate else 0.0
    if not enrolments.accept(lab.store, secret, secret_digest(password), until_s):
        raise unusable  # another computer was faster
    lab.broker.set_host_users(enrolments.host_accesses(lab.store))
    return HostCredentials(
        host,
        _url_for(lab.lab, host),
        password,
        authority_certificate(lab.lab).decode(),
        certificate.decode(),
    )


def _certificate(folder: Path, request: bytes, host: str) -> bytes:
    if not (folder / "ca.key").exists():
        return b""
    return sign_request(KeyPair.read(folder, "ca"), request, host)


def _url_for(lab: Lab, host: str) -> str:
    url = lab.settings.broker.public_url or without_user(lab.settings.broker.url)
    scheme, _, place = url.partition("://")
    return f"{scheme}://{host_user(host)}@{place}"
