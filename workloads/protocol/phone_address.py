"""Addresses of phones as adb uses them: normalised, and distinguished by transport. Pure.

A phone is never identified by its address; two addresses may be two transports of one phone.
"""

import ipaddress
import re
from typing import Annotated

from pydantic import AfterValidator, Field

from workloads.text import safe_text

DEFAULT_PORT = 5555  # adb's own
_HOST_NAME = re.compile(
    r"(?=.{1,253}$)[A-Za-z0-9_]([A-Za-z0-9_-]*[A-Za-z0-9_])?(\.[A-Za-z0-9_-]+)*"
)
# Wireless debugging (Android 11): adb lists the phone under the name of its mDNS service. A name
# that is taken on the network gets a number in brackets.
_SERVICE = re.compile(r"[A-Za-z0-9_-]{1,63}( \(\d+\))?\._adb(-tls-connect)?\._tcp\.?")


def is_over_network(address: str) -> bool:
    """Whether adb reaches a phone over Wi-Fi or another network, by the phone's address."""
    return ":" in address or _SERVICE.fullmatch(address) is not None


def is_wireless(address: str) -> bool:
    """Whether a radio of the phone carries the connection; virtual phones are on this computer."""
    host = address.rpartition(":")[0]
    return is_over_network(address) and not host.startswith(("127.", "localhost", "[::1]"))


def parse_phone_address(text: str) -> str:
    """Return HOST:PORT as adb lists it, or the name of an mDNS service; port 5555 is the default.

    Raise ValueError with the reason.
    """
    if _SERVICE.fullmatch(text):
        return text
    bracketed = re.fullmatch(r"\[(.*)\](?::(.*))?", text)
    if bracketed:
        host, port = bracketed[1], bracketed[2]
    elif text.count(":") > 1:
        host, port = text, None
    else:
        host, _, port = text.partition(":")
        port = port if ":" in text else None
    number = int(port) if port and re.fullmatch(r"[0-9]{1,5}", port) else 0
    if port is not None and not 1 <= number <= 65535:
        raise ValueError(
            f"'{safe_text(text, 80)}' has no valid port; use HOST or HOST:PORT with port 1 to 65535"
        )
    try:
        is_ipv6 = bracketed or ":" in host
        shown = f"[{ipaddress.IPv6Address(host)}]" if is_ipv6 else _host(host)
    except ValueError:
        raise ValueError(
            f"'{safe_text(text, 80)}' is not an address of a phone; use HOST or HOST:PORT"
        ) from None
    return f"{shown}:{number or DEFAULT_PORT}"


def _host(host: str) -> str:
    if re.fullmatch(r"[0-9.]+", host):
        return str(ipaddress.IPv4Address(host))
    if _HOST_NAME.fullmatch(host) is None:
        raise ValueError
    return host


TcpAddress = Annotated[str, Field(max_length=300), AfterValidator(parse_phone_address)]
