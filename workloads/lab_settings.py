"""The lab folder: where everything that stays is kept, and the one settings file that steers it.

lab/lab.toml          settings, all optional
    farm.db           the store, unless a URL is set
    broker/           the embedded broker's socket and append-only file
    agents/HOST/      an agent's spool, journals and adb home
    files/DIGEST      files of foreign programs, for the agents that use this folder
    logs/             one file per service
"""

import functools
import os
import re
import sys
import tomllib
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError

from workloads.fault import Refused
from workloads.noun import Noun

SETTINGS_FILE = "lab.toml"
SOCKET_PATH_BYTES_MAX = 100
HOST_PATTERN = r"^[a-z0-9][a-z0-9.-]{0,62}$"


class BadSettings(Refused):
    """The settings cannot be used as written."""


class StoreSettings(Noun):
    """[store]"""

    url: str = Field(default="", description="postgresql+psycopg://...; empty: farm.db in here")


class BrokerSettings(Noun):
    """[broker]"""

    url: str = Field(
        default="",
        pattern=r"^$|^(redis|rediss|unix)://",
        description="rediss://user:password@host:6379/0; empty: one of its own on a socket",
    )


class SchedulerSettings(Noun):
    """[scheduler]"""

    lease_s: float = Field(
        default=30.0, gt=0, description="seconds of silence after which a run is given again"
    )


class AgentSettings(Noun):
    """[agent]"""

    host: str = Field(
        default="", pattern=rf"^$|{HOST_PATTERN}", description="its name; empty: the machine's"
    )
    adb_port: int = Field(default=5037, ge=1, le=65535, description="where the adb server listens")
    connect: tuple[str, ...] = Field(default=(), description="phones reached over TCP")
    slots: int = Field(default=60, ge=1, le=300, description="phones that may work at once")


class LabSettings(Noun):
    """What lab.toml may say."""

    store: StoreSettings = StoreSettings()
    broker: BrokerSettings = BrokerSettings()
    scheduler: SchedulerSettings = SchedulerSettings()
    agent: AgentSettings = AgentSettings()


class Lab:
    """A lab folder and its settings."""

    def __init__(self, root: Path, settings: LabSettings) -> None:
        self.root = root
        self.settings = settings

    @classmethod
    def read(cls, root: Path, environment: dict[str, str]) -> "Lab":
        """Read the folder's settings; FARM_BROKER and FARM_STORE in the environment win."""
        path = root / SETTINGS_FILE
        said: dict[str, Any] = {}
        if path.exists():
            try:
                said = tomllib.loads(path.read_text())
            except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
                raise BadSettings(f"{path}: {error}") from error
        for variable, section in (("FARM_BROKER", "broker"), ("FARM_STORE", "store")):
            if environment.get(variable):
                said.setdefault(section, {})["url"] = environment[variable]
        try:
            return cls(root.absolute(), LabSettings.model_validate(said))
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(str(part) for part in first["loc"])
            raise BadSettings(f"{path}: {where}: {first['msg']}") from error

    @property
    def store_url(self) -> str:
        """Where the store is."""
        return self.settings.store.url or f"sqlite:///{self.store_file}"

    @property
    def store_file(self) -> Path:
        """The store of a lab that keeps its own."""
        return self.root / "farm.db"

    @property
    def embedded_store(self) -> bool:
        """Whether the store is a file of the lab's."""
        return not self.settings.store.url

    @property
    def broker_url(self) -> str:
        """Where the broker is: the configured one, or the embedded one's socket."""
        return self.settings.broker.url or f"unix://{_reachable(self.root / 'broker')}/broker.sock"

    @property
    def embedded_broker(self) -> bool:
        """Whether the farm runs its own broker."""
        return not self.settings.broker.url

    def agent_folder(self, host: str) -> Path:
        """Where an agent keeps what must survive it."""
        return self.root / "agents" / host

    @property
    def files_folder(self) -> Path:
        """Where the files of foreign programs lie, each under its digest."""
        return self.root / "files"

    def host_name(self, asked: str) -> str:
        """The name of this host: as asked for, else as the settings say, else the machine's."""
        name = asked or self.settings.agent.host or this_host()
        if re.fullmatch(HOST_PATTERN, name) is None:
            raise Refused(f"'{name}' is no name for a host; use a-z, 0-9, '.' and '-'")
        return name

    def log_file(self, service: str) -> Path:
        """Where a service's words go."""
        return self.root / "logs" / f"{service}.log"


def this_host() -> str:
    """This machine's name, as a host is called."""
    name = os.uname().nodename.lower().split(".")[0]
    plain = "".join(letter if letter.isalnum() and letter.isascii() else "-" for letter in name)
    return plain.strip("-") or "host"


@functools.cache
def _reachable(folder: Path) -> Path:
    """A path to the folder that is short enough for a socket in it.

    A socket's path may have 107 bytes; a longer one is reached through the folder, held open.
    """
    long = len(os.fsencode(folder)) > SOCKET_PATH_BYTES_MAX - len("/broker.sock")
    if not long or sys.platform != "linux":
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    return Path(f"/proc/self/fd/{os.open(folder, os.O_PATH | os.O_DIRECTORY)}")
