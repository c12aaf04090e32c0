"""The lab folder: where a lab keeps its data, and its settings file lab.toml.

lab/lab.toml          settings, all optional
    farm.db           the store, unless store.url is set
    broker/           the embedded broker's socket and append-only file
    agents/HOST/      an agent's spool, journals and adb home
    files/DIGEST      files of external programs, for the agents that use this folder
    logs/             one file per service
    run/              where each service answers about its health
"""

import functools
import os
import re
import sys
import tomllib
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, ValidationError

from workloads.input_file import read_input
from workloads.lab.connection_url import (
    BadSettings,
    ServerSettings,
    broker_connection,
    store_connection,
)
from workloads.lab.service_settings import (
    LISTEN_PATTERN,
    HealthSettings,
    LogSettings,
    NoticeSettings,
)
from workloads.protocol.base import WireModel
from workloads.protocol.faults import InvalidRequest
from workloads.protocol.messages import HOST_PATTERN
from workloads.protocol.phone_address import TcpAddress

SETTINGS_FILE = "lab.toml"
SOCKET_PATH_BYTES_MAX = 100
_NOT_IN_URL = re.compile(r"[%?#\x00-\x20\x7f-\uffff]")
DAYS_MAX = 10_000
# Variables that override a setting; those that name a file are relative to the current folder.
VARIABLES = {
    "FARM_BROKER": ("broker", "url"),
    "FARM_BROKER_PASSWORD_FILE": ("broker", "password_file"),
    "FARM_STORE": ("store", "url"),
    "FARM_STORE_PASSWORD_FILE": ("store", "password_file"),
    "FARM_LOG": ("log", "format"),
    "FARM_HEALTH": ("health", "listen"),
}


class StoreSettings(ServerSettings):
    """[store]"""

    url: str = Field(
        default="",
        description="URL of the database, postgresql+psycopg://...; empty: farm.db in the lab",
    )
    ca_file: str = Field(
        default="",
        description="certificate of the authority that issued PostgreSQL's certificate (PEM); "
        "it sets sslmode=verify-full",
    )
    keep_telemetry_days: float = Field(
        default=0,
        ge=0,
        le=DAYS_MAX,
        description="age at which 'farm store prune' removes the telemetry of an ended sweep; 0: "
        "never",
    )
    keep_metrics_days: float = Field(
        default=0,
        ge=0,
        le=DAYS_MAX,
        description="age at which 'farm store prune' removes an ended sweep with its results; 0: "
        "never",
    )


class BrokerSettings(ServerSettings):
    """[broker]"""

    url: str = Field(
        default="",
        pattern=r"^$|^(redis|rediss|unix)://",
        description="URL of Redis, rediss://user@host:6379/0; empty: an embedded broker",
    )
    public_url: str = Field(
        default="",
        pattern=r"^$|^rediss?://[^\s/@?]+(/0)?$",
        description="URL by which other hosts reach the broker, rediss://centre.lab:6379/0, "
        "without a user; empty: as in broker.url",
    )
    ca_file: str = Field(
        default="",
        description="certificate of the authority that issued the broker's certificate (PEM); "
        "empty: every authority that this computer trusts",
    )


class SchedulerSettings(WireModel):
    """[scheduler]"""

    lease_timeout_s: float = Field(
        default=30.0,
        ge=1,
        le=3600,
        description="seconds without a heartbeat after which a run is dispatched again",
    )
    hosts: tuple[Annotated[str, Field(pattern=HOST_PATTERN)], ...] = Field(
        default=(),
        description="names of hosts of this lab, besides those of 'farm host add'; others are "
        "shown and get no runs; empty, and no host was added: every host",
    )


class AgentSettings(WireModel):
    """[agent]"""

    host: str = Field(
        default="",
        pattern=rf"^$|{HOST_PATTERN}",
        description="name of this host; empty: the name of the machine",
    )
    adb_port: int = Field(default=5037, ge=1, le=65535, description="TCP port of the adb server")
    connect: tuple[TcpAddress, ...] = Field(
        default=(),
        max_length=300,
        description="addresses of phones that adb reaches over TCP, HOST or HOST:PORT "
        "(without a port: 5555), or the mDNS names of paired phones",
    )
    max_parallel: int = Field(
        default=60,
        ge=1,
        le=300,
        description="largest number of phones that run jobs at the same time",
    )
    commission: bool = Field(
        default=True,
        description="whether a physical phone that never was is commissioned before its first run",
    )


class ApiSettings(WireModel):
    """[api]"""

    listen: str = Field(
        default="127.0.0.1:8400",
        pattern=LISTEN_PATTERN,
        description="address of the API, ADDRESS:PORT; beyond loopback it needs a certificate",
    )
    names: tuple[str, ...] = Field(
        default=(),
        description="names by which clients reach the API; a request for another name is refused",
    )
    cert_file: str = Field(default="", description="certificate of the API, with its chain (PEM)")
    key_file: str = Field(default="", description="private key of that certificate (PEM)")
    upload_mb_max: int = Field(
        default=1024, ge=1, le=1_000_000, description="largest file that the API accepts, in MB"
    )


class LabSettings(WireModel):
    """All settings of lab.toml."""

    store: StoreSettings = StoreSettings()
    broker: BrokerSettings = BrokerSettings()
    scheduler: SchedulerSettings = SchedulerSettings()
    agent: AgentSettings = AgentSettings()
    api: ApiSettings = ApiSettings()
    log: LogSettings = LogSettings()
    health: HealthSettings = HealthSettings()
    notices: NoticeSettings = NoticeSettings()


def read_toml(path: Path) -> dict[str, Any]:
    """Read a settings file."""
    try:
        return tomllib.loads(read_input(path).decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadSettings(f"{path}: {error}") from error
    except RecursionError:
        raise BadSettings(f"{path}: it is nested too deeply") from None


class Lab:
    """A lab folder and its settings."""

    def __init__(self, root: Path, settings: LabSettings) -> None:
        self.root = root
        self.settings = settings

    @classmethod
    def read(cls, root: Path, environment: dict[str, str]) -> "Lab":
        """Read the settings of a folder; variables of the environment override them."""
        path = root / SETTINGS_FILE
        content: dict[str, Any] = {}
        if path.exists():
            content = read_toml(path)
        for variable, (section, key) in VARIABLES.items():
            value = environment.get(variable)
            if value and isinstance(content.get(section, {}), dict):
                value = str(Path(value).absolute()) if key.endswith("_file") else value
                content.setdefault(section, {})[key] = value
        try:
            return cls(root.absolute(), LabSettings.model_validate(content))
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(str(part) for part in first["loc"])
            text = first["msg"].removeprefix("Value error, ")
            raise BadSettings(f"{path}: {where}: {text}") from error

    @property
    def store_url(self) -> str:
        """The URL of the store, complete with password and certificates."""
        store = self.settings.store
        if not store.url:
            return f"sqlite:///{self.store_file}"
        return store_connection(store, self.root)

    @property
    def store_file(self) -> Path:
        """The file of the embedded store."""
        return self.root / "farm.db"

    @property
    def has_embedded_store(self) -> bool:
        """Whether the store is a file in the lab folder."""
        return not self.settings.store.url

    @property
    def broker_url(self) -> str:
        """The complete URL of the configured broker, or of the embedded broker's socket."""
        if not self.settings.broker.url:
            return f"unix://{_socket_folder(self.root / 'broker')}/broker.sock"
        return broker_connection(self.settings.broker, self.root)

    @property
    def has_embedded_broker(self) -> bool:
        """Whether the lab runs its own broker."""
        return not self.settings.broker.url

    def agent_folder(self, host: str) -> Path:
        """Return the folder of an agent's persistent files."""
        return self.root / "agents" / host

    @property
    def files_folder(self) -> Path:
        """The folder of the files of external programs, each named by its digest."""
        return self.root / "files"

    def host_name(self, requested: str) -> str:
        """Return the requested name of this host, else the setting, else the machine's name."""
        name = requested or self.settings.agent.host or default_host_name()
        if re.fullmatch(HOST_PATTERN, name) is None:
            raise InvalidRequest(f"'{name}' is not a valid host name; use a-z, 0-9, '.' and '-'")
        return name

    def health_file(self, service: str) -> Path:
        """Return the file that names the address of a service's health."""
        return self.root / "run" / f"{service}.json"

    def log_file(self, service: str) -> Path:
        return self.root / "logs" / f"{service}.log"


def default_host_name() -> str:
    """Return this machine's name in the form of a host name."""
    name = os.uname().nodename.lower().split(".")[0]
    plain = "".join(letter if letter.isalnum() and letter.isascii() else "-" for letter in name)
    return plain.strip("-") or "host"


@functools.cache
def _socket_folder(folder: Path) -> Path:
    """Return a path to the folder that suits a socket in it and fits into a URL.

    The path of a Unix socket has at most 107 bytes. A longer one, or one with characters that have
    a meaning in a URL, is reached through an open file descriptor of the folder.
    """
    is_long = len(os.fsencode(folder)) > SOCKET_PATH_BYTES_MAX - len("/broker.sock")
    is_usable = not is_long and _NOT_IN_URL.search(str(folder)) is None
    if is_usable or sys.platform != "linux":
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    return Path(f"/proc/self/fd/{os.open(folder, os.O_PATH | os.O_DIRECTORY)}")
