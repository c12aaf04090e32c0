"""Capture: read everything that a probe could want from a phone, without what identifies it.

Only listed properties, nodes and rows are kept. Serial numbers, accounts and addresses are not
among them; one that appears in a text or in a path is replaced.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from agent.deadline import Deadline
from agent.phone.cpu_clusters import CPUINFO
from agent.phone.facts_file import (
    SCHEMA,
    FactsFile,
    ServiceFacts,
    ServiceRow,
    ZoneFacts,
    as_paths,
    group_clocks,
)
from agent.phone.kernel_nodes import CPU, SUPPLY, THERMAL
from agent.phone.phone_driver import Phone
from agent.phone.phone_paths import UPTIME
from agent.phone.phone_reading import (
    PROBE_NODES,
    PROPERTIES,
    SERIAL_PROPERTIES,
    PhoneReading,
    read_phone,
)
from agent.phone.thermalservice import FROM_HAL, NEXT_PART, TEMPERATURE
from workloads.text import safe_text

REMOVED = "removed"
_MORE_NODES = (
    f"{THERMAL}/cooling_device*/type",
    *(f"{SUPPLY}/*/{name}" for name in ("voltage_now", "charge_counter", "status")),
    f"{CPU}/cpu*/cpufreq/scaling_governor",
    f"{CPU}/cpu*/cpufreq/scaling_driver",
    f"{CPU}/cpu*/cpufreq/scaling_cur_freq",
    f"{CPU}/cpu*/cpufreq/cpuinfo_min_freq",
)
_CLOCK = re.compile(rf"{CPU}/((?:cpufreq/policy|cpu)\d{{1,3}}(?:/cpufreq)?)/([a-z_]+(?:/[a-z_]+)?)")
_FOLDER = re.compile(r"cpufreq/policy\d+|cpu\d+/cpufreq")
_ZONE = re.compile(rf"{THERMAL}/thermal_zone(\d{{1,4}})/(type|temp)")
_CPUINFO_LINES = re.compile(r"(processor|CPU (implementer|part|architecture)|Hardware)\s*:")
_STATUS_LINES = re.compile(r"Cpus_allowed_list:")
_CONNECTION = re.compile(r"^\s*(\S[^\n]{0,40}?)\s+connected: yes\s*$", re.MULTILINE)
# Of BatteryService.java in Android 6 to 16; vendors append rows of their own, and a history.
_BATTERY_ROWS = (
    *("AC powered", "USB powered", "Wireless powered", "Dock powered", "Max charging current"),
    *("Max charging voltage", "Charge counter", "status", "health", "present", "level", "scale"),
    *("voltage", "temperature", "technology", "current now", "Capacity level", "Charging state"),
    *("Charging policy",),
)
_BATTERY_ROW = re.compile(
    rf"^\s*({'|'.join(_BATTERY_ROWS)}): ([A-Za-z0-9.-]{{1,20}})\s*$", re.MULTILINE
)
_UNIQUE_CHARS = 8  # shorter identifiers may be parts of other words and numbers
_NOT_FROM_PHONE = {"schema", "sources", "root", "power_stats", "expected"}
_GROUP = "[0-9A-Fa-f]{1,4}"
_PRIVATE = (
    # hardware addresses, with or without separators; e-mail addresses; UUIDs
    r"(?:[0-9A-Fa-f]{2}[:_-]){5}[0-9A-Fa-f]{2}|[\w.+-]+@[\w-]+\.[\w.]+"
    r"|[0-9A-Fa-f]{8}-(?:[0-9A-Fa-f]{4}-){3}[0-9A-Fa-f]{12}"
    r"|(?<![0-9A-Za-z])(?=\d*[A-Fa-f])(?=[A-Fa-f]*\d)(?:[0-9A-Fa-f]{12}|[0-9A-Fa-f]{14}"
    r"|[0-9A-Fa-f]{16})(?![0-9A-Za-z])"  # of a radio, a phone, an Android id
    # internet addresses
    r"|(?<![\d.])(?:\d{1,3}\.){3}\d{1,3}(?![\d.])"
    rf"|(?<![\w:])(?:{_GROUP}:){{7}}{_GROUP}(?![\w:])"
    rf"|(?<![\w:])(?:{_GROUP}:){{1,6}}:(?:{_GROUP}(?::{_GROUP}){{0,5}})?(?![\w:])"
    # numbers as long as those of a phone, a SIM or a subscriber, and telephone numbers
    r"|(?<!\d)\d{15,22}(?!\d)|(?<!\d)\d{2}[ -]\d{6}[ -]\d{6}[ -]\d{1,2}(?!\d)"
    r"|\+\d[\d ().-]{6,16}\d"
    r"|(?<=SSID[:=])\s*(?:\"[^\"\n]*\"|\S+)"
)


def capture_phone(phone: Phone, deadline: Deadline) -> FactsFile:
    """Read a phone into facts; raise if the phone is lost, so that no file is written."""
    reading = read_phone(phone, deadline, everything=True)
    more = phone.find_nodes(_MORE_NODES, deadline)
    battery = phone.shell(["dumpsys", "battery"], deadline).text
    unreadable = _unreadable_nodes(phone, {**reading.nodes, **more}, deadline)
    serials = [reading.property(name) for name in SERIAL_PROPERTIES]
    facts = facts_of(reading, {**more, **reading.nodes}, battery, unreadable)
    return remove_private(facts, [*serials, phone.address, *reading.identifiers])


def facts_of(
    reading: PhoneReading, nodes: Mapping[str, str], battery: str, unreadable: tuple[str, ...] = ()
) -> FactsFile:
    """Arrange what was read as a facts file."""
    clocks: dict[str, dict[str, str]] = {}
    zones: dict[int, dict[str, str]] = {}
    others: dict[str, str] = {}
    for path, text in nodes.items():
        clock, zone = _CLOCK.fullmatch(path), _ZONE.fullmatch(path)
        if clock and _FOLDER.fullmatch(clock[1]):
            clocks.setdefault(clock[1], {})[clock[2]] = text
        elif zone:
            zones.setdefault(int(zone[1]), {})[zone[2]] = text
        elif path != UPTIME:
            others[path] = _without_needless_lines(path, text)
    if any(folder.startswith("cpufreq/") for folder in clocks):
        clocks = {name: texts for name, texts in clocks.items() if name.startswith("cpufreq/")}
    maker = reading.property("ro.product.manufacturer")
    model = reading.property("ro.product.marketname") or reading.property("ro.product.model")
    return FactsFile(
        schema=SCHEMA,
        name=f"{maker} {model}".strip() or "unknown",
        sources=("farm phone capture",),
        root="su" if reading.root else "none",
        fixed_performance=reading.fixed_performance,
        power_stats=reading.power_stats,
        rails=reading.rails,
        services=reading.services,
        writable=tuple(sorted(reading.writable)),
        unreadable=unreadable,
        properties={name: reading.property(name) for name in PROPERTIES if reading.property(name)},
        clock=group_clocks(clocks),
        nodes=others,
        zone=tuple(
            ZoneFacts(number=number, type=texts["type"], temp=texts.get("temp"))
            for number, texts in sorted(zones.items())
            if "type" in texts
        ),
        thermalservice=service_facts(reading.thermalservice),
        battery=dict(_BATTERY_ROW.findall(battery)[:30]),
    )


def service_facts(text: str) -> ServiceFacts | None:
    """The facts of `dumpsys thermalservice`; None if the phone has no such service."""
    status = re.search(r"Thermal Status: (\d)", text)
    if status is None:
        return None
    cached, _, current = text.partition(FROM_HAL)
    connection = _CONNECTION.search(cached)
    return ServiceFacts(
        connection=safe_text(connection[1], 40) if connection else "",
        status=int(status[1]),
        current=_rows(current.partition(NEXT_PART)[0]),
        cached=_rows(cached),
    )


def remove_private(facts: FactsFile, identifiers: Iterable[str]) -> FactsFile:
    """Replace identifiers and addresses in every text and path that a phone printed."""
    words = [text for text in identifiers if len(text) > 3]
    in_texts = _private_pattern(words)
    # A phone may be called 'battery', which is also a part of paths.
    in_paths = _private_pattern(text for text in words if not text.isalpha())

    def clean(value: Any) -> Any:
        if isinstance(value, str):
            pattern = in_paths if value.startswith(("/sys/", "/proc/")) else in_texts
            return pattern.sub(REMOVED, value)
        if isinstance(value, dict):
            return {key: clean(item) for key, item in value.items()}
        if isinstance(value, list):
            return [clean(item) for item in value]
        return value

    content = facts.model_dump(mode="json", by_alias=True)
    cleaned = {
        key: value if key in _NOT_FROM_PHONE else clean(value) for key, value in content.items()
    }
    nodes = {clean(path): text for path, text in cleaned["nodes"].items()}
    return FactsFile.model_validate(cleaned | {"nodes": nodes})


def _private_pattern(words: Iterable[str]) -> re.Pattern[str]:
    known = []
    for word in words:
        is_unique = len(word) >= _UNIQUE_CHARS and re.search(r"\d", word) is not None
        edges = ("", "") if is_unique else ("(?<![0-9A-Za-z])", "(?![0-9A-Za-z])")
        known.append(edges[0] + re.escape(word) + edges[1])
    return re.compile("|".join([*known, _PRIVATE]), re.IGNORECASE)


def _rows(text: str) -> tuple[ServiceRow, ...]:
    return tuple(
        ServiceRow(name=safe_text(name, 64), type=int(kind), value=float(value))
        for value, kind, name in TEMPERATURE.findall(text)[:256]
    )


def _without_needless_lines(path: str, text: str) -> str:
    """The lines that a probe uses: /proc/cpuinfo may contain the serial of the processor."""
    keep = {CPUINFO: _CPUINFO_LINES, "/proc/self/status": _STATUS_LINES}.get(path)
    if keep is None:
        return text
    return "\n".join(line for line in text.splitlines() if keep.match(line))


def _unreadable_nodes(
    phone: Phone, nodes: Mapping[str, str], deadline: Deadline
) -> tuple[str, ...]:
    """Nodes that exist, and of which nothing was read."""
    patterns = " ".join((*PROBE_NODES, *_MORE_NODES))
    line = f"for node in {patterns}; do [ -e $node ] && [ ! -r $node ] && echo $node; done"
    listing = phone.shell(["sh", "-c", line], deadline).text
    return tuple(path for path in as_paths(listing.splitlines()) if path not in nodes)[:2000]
