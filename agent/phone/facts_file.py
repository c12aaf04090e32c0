"""Facts files: what a phone shows to a probe, as TOML of a documented schema.

A capture writes one, a bug report carries it, and it is read back into what a probe would have
read. agent/virtual has its own reader. The schema is documented in
docs/reference/phone-facts-file.md.
"""

import re
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from agent.phone.kernel_nodes import CPU, THERMAL
from agent.phone.phone_reading import PROPERTIES, PhoneReading, plain_property
from workloads.protocol.faults import InvalidRequest
from workloads.protocol.phone_facts import ControlLevel, PowerStatsHal
from workloads.text import format_toml, safe_text

SCHEMA = 1
FILE_BYTES_MAX = 4 * 2**20
_NODE = re.compile(r"/(sys|proc)/[A-Za-z0-9_./:,@-]{1,200}")
_FOLDER = re.compile(r"(cpufreq/policy\d{1,3}|cpu\d{1,3}/cpufreq)")
_NAME = re.compile(r"[a-z_]{1,40}(/[a-z_]{1,40})?")
_CHANGING = {"stats/time_in_state", "scaling_cur_freq"}


class _Table(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ClockFacts(_Table):
    """The nodes of one or several cpufreq folders that show the same."""

    folders: tuple[str, ...] = Field(min_length=1, description="below /sys/devices/system/cpu")
    nodes: dict[str, str] = Field(description="text by name: related_cpus, stats/time_in_state")

    @field_validator("folders")
    @classmethod
    def _known_folders(cls, folders: tuple[str, ...]) -> tuple[str, ...]:
        for folder in folders:
            if _FOLDER.fullmatch(folder) is None or folder.count("..") > 0:
                raise ValueError(f"'{safe_text(folder, 60)}' is not a cpufreq folder")
        return folders

    @field_validator("nodes")
    @classmethod
    def _known_names(cls, nodes: dict[str, str]) -> dict[str, str]:
        for name in nodes:
            if _NAME.fullmatch(name) is None:
                raise ValueError(f"'{safe_text(name, 60)}' is not the name of a node")
        return nodes


class ZoneFacts(_Table):
    """A thermal zone."""

    number: int = Field(ge=0, le=9999, description="of thermal_zoneN")
    type: str = Field(description="the name that the driver gives")
    temp: str | None = Field(default=None, description="as the node reads; none: unreadable")


class ServiceRow(_Table):
    """One temperature of `dumpsys thermalservice`."""

    name: str = Field(description="of the sensor")
    type: int = Field(description="as the phone numbers it; Sdhms counts from 1")
    value: float = Field(description="°C")


class ServiceFacts(_Table):
    """What `dumpsys thermalservice` shows."""

    connection: str = Field(default="", description="such as 'ThermalHAL 2.0' or 'Sdhms'")
    status: int = Field(default=0, description="above 0: the framework throttles the phone")
    current: tuple[ServiceRow, ...] = Field(default=(), description="from the HAL")
    cached: tuple[ServiceRow, ...] = Field(default=(), description="may be hours old")


class ExpectedProbe(_Table):
    """The expected result of a probe of this file; for tests of the probe."""

    soc: str | None = Field(default=None, description="name of the SoC")
    clusters: tuple[str, ...] = Field(default=(), description="cores, weakest kind first")
    offline: str = Field(default="", description="cores without a clock because they were offline")
    cpu_zones: tuple[str, ...] = Field(default=(), description="types of the zones at the CPU")
    body_zone: str = Field(default="", description="type of the zone that shows the body")
    cpu_c: float | None = Field(default=None, description="of the hottest CPU zone")
    body_c: float | None = Field(default=None, description="of the body zone")
    gauge: bool = Field(default=False, description="whether the battery's current can be read")
    supply: str = Field(default="battery", description="folder of the fuel gauge")
    gpu: str = Field(default="", description="name of the GPU whose clock is shown")
    gpu_khz: tuple[int, ...] = Field(default=(), description="lowest and highest step of its clock")
    charging: str = Field(default="", description="node that stops charging")
    control: ControlLevel = Field(default=ControlLevel.OBSERVED, description="control level")
    daemons: tuple[str, ...] = Field(default=(), description="daemons that change clocks")


class FactsFile(_Table):
    """A facts file."""

    schema_: int = Field(alias="schema", description="version of this format: 1")
    name: str = Field(description="maker and model")
    sources: tuple[str, ...] = Field(default=(), description="addresses of the facts")
    notes: str = Field(default="", description="what is special about this phone")
    values: Literal["printed", "typical"] = Field(
        default="printed", description="whether the phone printed the temperatures, or others did"
    )
    root: Literal["none", "su", "adb"] = Field(default="none", description="how to become root")
    fixed_performance: bool = Field(
        default=False, description="whether Android offers a fixed-performance mode"
    )
    power_stats: PowerStatsHal | None = Field(default=None, description="how rails can be read")
    rails: tuple[str, ...] = Field(default=(), description="their names")
    services: tuple[str, ...] = Field(default=(), description="services of init that run")
    writable: tuple[str, ...] = Field(default=(), description="nodes that can be written")
    unreadable: tuple[str, ...] = Field(default=(), description="nodes that the shell cannot read")
    properties: dict[str, str] = Field(description="properties that name model, SoC and release")
    clock: tuple[ClockFacts, ...] = Field(default=(), description="cpufreq folders")
    nodes: dict[str, str] = Field(default_factory=dict, description="text by path")
    zone: tuple[ZoneFacts, ...] = Field(default=(), description="thermal zones")
    thermalservice: ServiceFacts | None = Field(
        default=None, description="none: the phone has no such service"
    )
    battery: dict[str, str] = Field(default_factory=dict, description="rows of `dumpsys battery`")
    expected: ExpectedProbe | None = Field(default=None, description="for tests of the probe")

    @field_validator("nodes")
    @classmethod
    def _kernel_nodes(cls, nodes: dict[str, str]) -> dict[str, str]:
        for path in nodes:
            if _NODE.fullmatch(path) is None or "/../" in path:
                raise ValueError(f"'{safe_text(path, 80)}' is not a kernel node")
        return nodes


def read_facts_file(path: Path) -> FactsFile:
    """Read a facts file; every error is one sentence."""
    try:
        if path.stat().st_size > FILE_BYTES_MAX:
            raise InvalidRequest(f"{path} is larger than {FILE_BYTES_MAX // 2**20} MB")
        return parse_facts(path.read_text(encoding="utf-8"), str(path))
    except OSError as error:
        raise InvalidRequest(f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InvalidRequest(f"{path} is not a text file") from error


def parse_facts(text: str, where: str) -> FactsFile:
    """Parse the text of a facts file."""
    try:
        content = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise InvalidRequest(f"{where} is not TOML: {safe_text(error, 120)}") from error
    schema = content.get("schema")
    if not isinstance(schema, int) or isinstance(schema, bool) or schema < 1:
        raise InvalidRequest(f"{where} is not a facts file: it has no number `schema`")
    if schema > SCHEMA:
        raise InvalidRequest(
            f"{where} has schema {schema}, and this version reads {SCHEMA}; update Farmhand"
        )
    try:
        return FactsFile.model_validate(content)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        text = f"{where}: {safe_text(place, 80)}: {safe_text(first['msg'], 120)}"
        raise InvalidRequest(text) from error


def reading_of(facts: FactsFile) -> PhoneReading:
    """What a probe would have read from this phone."""
    nodes = dict(facts.nodes)
    for clock in facts.clock:
        for folder in clock.folders:
            nodes |= {f"{CPU}/{folder}/{name}": text for name, text in clock.nodes.items()}
    for zone in facts.zone:
        folder = f"{THERMAL}/thermal_zone{zone.number}"
        nodes[f"{folder}/type"] = zone.type
        if zone.temp is not None:
            nodes[f"{folder}/temp"] = zone.temp
    return PhoneReading(
        properties={name: plain_property(facts.properties.get(name, "")) for name in PROPERTIES},
        nodes=nodes,
        services=facts.services,
        thermalservice=service_text(facts.thermalservice),
        writable=frozenset(facts.writable),
        root=facts.root != "none",
        fixed_performance=facts.fixed_performance,
        power_stats=facts.power_stats,
        rails=facts.rails,
        battery="".join(f"  {name}: {value}\n" for name, value in facts.battery.items()),
    )


def service_text(service: ServiceFacts | None) -> str:
    """`dumpsys thermalservice` as Android prints these facts."""
    if service is None:
        return "Can't find service: thermalservice\n"
    current, cached = (
        "".join(
            f"\tTemperature{{mValue={row.value}, mType={row.type}, mName={row.name}, mStatus=0}}\n"
            for row in rows
        )
        for rows in (service.current, service.cached)
    )
    ready = str(bool(service.connection)).lower()
    connection = f"\t{service.connection} connected: yes\n" if service.connection else ""
    head = f"IsStatusOverride: false\nThermal Status: {service.status}\nCached temperatures:\n"
    current = f"Current temperatures from HAL:\n{current}Current cooling devices from HAL:\n"
    return f"{head}{cached}HAL Ready: {ready}\nHAL connection:\n{connection}" + (
        current if service.connection else ""
    )


def format_facts(facts: FactsFile) -> str:
    """The text of a facts file, in the order of the schema, without what has its default."""
    return format_toml(facts.model_dump(mode="json", by_alias=True, exclude_defaults=True))


def group_clocks(folders: Mapping[str, Mapping[str, str]]) -> tuple[ClockFacts, ...]:
    """Join the folders that show the same nodes, apart from those that change all the time."""
    groups: dict[tuple[tuple[str, str], ...], list[str]] = {}
    for folder, nodes in folders.items():
        steady = {name: text for name, text in nodes.items() if name not in _CHANGING}
        groups.setdefault(tuple(sorted(steady.items())), []).append(folder)
    return tuple(
        ClockFacts(folders=tuple(names), nodes=dict(folders[names[0]])) for names in groups.values()
    )


def as_paths(lines: Iterable[str]) -> tuple[str, ...]:
    """The lines that are paths of kernel nodes."""
    return tuple(line.strip() for line in lines if _NODE.fullmatch(line.strip()))
