"""URLs of servers with all that a connection needs: password, certificates, verification.

Such a URL is complete, so everyone who gets it connects in the same way: a connection over TLS
always verifies the certificate and the name of the server.
"""

import re
from pathlib import Path
from urllib.parse import quote, urlencode, urlsplit

from pydantic import Field

from workloads.input_file import open_input, read_input
from workloads.protocol.base import WireModel
from workloads.protocol.faults import InvalidRequest

SECRET_BYTES_MAX = 4096
VERIFIED = {"ssl_cert_reqs": "required", "ssl_check_hostname": "true"}


class BadSettings(InvalidRequest):
    """the settings are invalid; correct lab.toml"""


class ServerSettings(WireModel):
    """The settings of a server that this computer connects to."""

    url: str = ""
    password_file: str = Field(
        default="", description="file with the password, instead of one in the URL"
    )
    ca_file: str = Field(
        default="",
        description="certificate of the authority that issued the server's certificate (PEM)",
    )
    cert_file: str = Field(
        default="", description="certificate of this computer, if the server asks for one (PEM)"
    )
    key_file: str = Field(default="", description="private key of that certificate (PEM)")


def without_password(url: str) -> str:
    """Return a URL without user, password and options, for display.

    A password may contain any character, so everything up to the last @ is left out.
    """
    place, _, options = url.partition("?")
    if "@" in options:  # the question mark was part of the password
        place, options = url, ""
    return re.sub(r"//.*@", "//***@", place) + "?***" * bool(options)


def without_user(url: str) -> str:
    """Return a complete URL without user and password."""
    return re.sub(r"//[^?]*@", "//", url)


def broker_connection(settings: ServerSettings, folder: Path) -> str:
    """Return the complete URL of a broker; paths of files are relative to a folder."""
    url = settings.url
    if "?" in url:
        raise BadSettings(
            "broker.url has a '?'; set broker.ca_file instead of options, write %3F in a password"
        )
    files = _certificates(settings, "broker", folder)
    if not url.startswith("rediss:"):
        if files:
            raise BadSettings("broker.ca_file and broker.cert_file need a URL with rediss://")
        return _with_password(settings, "broker", folder)
    names = {"ca": "ssl_ca_certs", "cert": "ssl_certfile", "key": "ssl_keyfile"}
    options = VERIFIED | {names[kind]: file for kind, file in files.items()}
    return f"{_with_password(settings, 'broker', folder)}?{urlencode(options)}"


def refuse_unverified(url: str) -> None:
    """Refuse a broker over TLS that could be any server; it would get the password."""
    options = url.partition("?")[2].split("&")
    if url.startswith("rediss:") and not {f"{k}={v}" for k, v in VERIFIED.items()} <= {*options}:
        shown = without_password(url)
        raise BadSettings(f"the certificate of {shown} would not be verified; use broker.ca_file")


def store_connection(settings: ServerSettings, folder: Path) -> str:
    """Return the complete URL of a database; paths of files are relative to a folder."""
    url, files = settings.url, _certificates(settings, "store", folder)
    if not files:
        return _with_password(settings, "store", folder)
    if "ssl" in urlsplit(url).query or not url.startswith("postgresql"):
        raise BadSettings(
            "store.ca_file needs a PostgreSQL URL without ssl options; it sets sslmode=verify-full"
        )
    if "ca" not in files:
        raise BadSettings("store.cert_file is set without store.ca_file; set both")
    names = {"ca": "sslrootcert", "cert": "sslcert", "key": "sslkey"}
    options = {"sslmode": "verify-full"} | {names[kind]: file for kind, file in files.items()}
    separator = "&" if urlsplit(url).query else "?"
    return f"{_with_password(settings, 'store', folder)}{separator}{urlencode(options)}"


def _certificates(settings: ServerSettings, section: str, folder: Path) -> dict[str, str]:
    """Return the paths of the certificate files that are set; each has to be readable."""
    named = {"ca": settings.ca_file, "cert": settings.cert_file, "key": settings.key_file}
    files = {kind: str(folder / name) for kind, name in named.items() if name}
    if ("cert" in files) != ("key" in files):
        raise BadSettings(f"{section}.cert_file and {section}.key_file need each other; set both")
    for kind, file in files.items():
        try:
            open_input(Path(file)).close()
        except InvalidRequest as error:
            raise BadSettings(f"{section}.{kind}_file {error}") from error
    return files


def _with_password(settings: ServerSettings, section: str, folder: Path) -> str:
    """Return the URL with the password of its file, if it has one."""
    if not settings.password_file:
        return settings.url
    scheme, mark, rest = settings.url.partition("://")
    if not mark:
        raise BadSettings(f"{section}.password_file needs {section}.url")
    password = quote(read_secret(folder / settings.password_file), safe="")
    user, _, place = rest.rpartition("@")
    return f"{scheme}://{user.partition(':')[0]}:{password}@{place}"


def read_secret(file: Path) -> str:
    """Return the secret in a file, without the end of its line."""
    try:
        secret = read_input(file, SECRET_BYTES_MAX).decode().strip()
    except UnicodeDecodeError as error:
        raise BadSettings(f"{file} is not a text; write the secret alone to it") from error
    except InvalidRequest as error:
        raise BadSettings(f"the secret in {error}") from error
    if not secret:
        raise BadSettings(f"{file} is empty; write the secret to it")
    return secret
