"""The port of the API; one that is taken, or open to other computers without TLS, is refused."""

import errno
import ipaddress
import socket

from orchestrator.app.app_errors import InvalidState
from workloads.lab.connection_url import BadSettings
from workloads.lab.settings import ApiSettings

CONNECT_TIMEOUT_S = 2.0


def open_port(settings: ApiSettings) -> socket.socket:
    """Open the port; a port that is taken, or an open one without TLS, is refused."""
    address, _, port = settings.listen.rpartition(":")
    if not is_loopback(address) and not settings.cert_file:
        raise BadSettings(
            f"api.listen '{settings.listen}' is reachable from other computers; set api.cert_file "
            "and api.key_file, or listen on 127.0.0.1"
        )
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        return socket.create_server((address.strip("[]"), int(port)), family=family)
    except (OSError, OverflowError) as error:
        number = getattr(error, "errno", None)
        taken = "the port is in use" if number == errno.EADDRINUSE else str(error)
        raise InvalidState(
            f"the API cannot listen on {settings.listen}: {taken}; set api.listen in lab.toml"
        ) from error


def is_listening(settings: ApiSettings) -> bool:
    """Return whether a program of this computer accepts connections on the port."""
    address, _, port = settings.listen.rpartition(":")
    try:
        socket.create_connection((address.strip("[]"), int(port)), CONNECT_TIMEOUT_S).close()
    except OSError:
        return False
    return True


def is_loopback(address: str) -> bool:
    """Return whether an address is reachable from this computer alone."""
    try:
        return ipaddress.ip_address(address.strip("[]")).is_loopback
    except ValueError:
        return address == "localhost"


def public_url(settings: ApiSettings) -> str:
    """Return the URL of the API as clients on other computers use it."""
    address, _, port = settings.listen.rpartition(":")
    if not settings.names and not is_loopback(address):
        raise InvalidState("the name of this computer is not known; set api.names in lab.toml")
    name = settings.names[0] if settings.names else address
    return f"{'https' if settings.cert_file else 'http'}://{name}:{port}"


def api_url(settings: ApiSettings) -> str:
    """Return the URL of the API as clients on this computer use it."""
    return f"{'https' if settings.cert_file else 'http'}://{settings.listen}"
