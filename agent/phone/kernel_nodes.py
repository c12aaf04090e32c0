"""Parsers for kernel nodes (clocks, thermal zones, battery). Pure: no input makes them fail."""

import re
from collections.abc import Mapping

from workloads.protocol.phone_facts import Cluster, CoreSet, PhoneFacts, ThermalZone
from workloads.text import safe_text

CPUFREQ = "/sys/devices/system/cpu/cpufreq"
CPU = "/sys/devices/system/cpu"
THERMAL = "/sys/class/thermal"
SUPPLY = "/sys/class/power_supply"
# Where the fuel gauge may be: on most phones; on Huawei phones; on some Qualcomm kernels. Elsewhere
# the type of a supply tells: MainBattery, cw2015-battery, axp20x-battery.
_GAUGE_SUPPLIES = ("battery", "Battery", "bms")
SUPPLY_KINDS = (f"{SUPPLY}/*/type", f"{SUPPLY}/*/scope")
_USB_SUPPLY = "usb"
# A Raspberry Pi lowers its clocks below what cpufreq shows; only its firmware knows.
FIRMWARE_THROTTLING = "/sys/devices/platform/soc/soc:firmware/get_throttled"
FULL_CAPACITY = 1024  # cpu_capacity of the strongest core
GPU_POLICY = -1  # stands for the GPU where clocks are listed by policy

# More than any phone has; longer lists are cut. A computer may have a policy per core.
STEPS_MAX, CLUSTERS_MAX, ZONES_MAX = 128, 64, 256
_NODE = re.compile(r"(/[^\n]*?)(\d+)/([a-z_/]+)")
_KIND = re.compile(rf"{SUPPLY}/([A-Za-z0-9_.-]{{1,64}})/type")
_TEMP_MIN_C, _TEMP_MAX_C = -20.0, 115.0
WHOLE_DEGREES_MAX = 90
# Values that sensors give when they measure nothing, in any unit.
_SENTINELS = {-40000, -40, -400, 0, 125, 1250, 125000, 65535, -273, -273150}


def first_number(text: str) -> int | None:
    """The integer that a node begins with."""
    match = re.match(r"\s*(-?\d+)", text)
    return int(match[1]) if match and len(match[1]) < 19 else None


def whole_number(text: str) -> int | None:
    """The integer that a node consists of; None if there is anything else in it."""
    match = re.fullmatch(r"\s*(-?\d{1,18})\s*", text, re.ASCII)
    return int(match[1]) if match else None


def all_numbers(text: str) -> list[int]:
    """Every non-negative integer of a node, in order."""
    return [int(word) for word in text.split() if word.isdecimal() and len(word) < 19]


def parse_cpus(text: str) -> tuple[int, ...]:
    """Parse a list of CPUs: '0 1 2 3' (related_cpus), '0-3', '0,2-3' (everywhere else)."""
    cpus: set[int] = set()
    for word in re.split(r"[\s,]+", text.strip()):
        match = re.fullmatch(r"(\d{1,3})(?:-(\d{1,3}))?", word)
        if match:
            cpus.update(range(int(match[1]), int(match[2] or match[1]) + 1))
    return tuple(sorted(cpus))


def parse_time_in_state(text: str) -> dict[int, int]:
    """Ticks of 10 ms spent at each clock, in kHz."""
    ticks: dict[int, int] = {}
    for line in text.splitlines():
        pair = all_numbers(line)
        if len(pair) == 2:
            ticks[pair[0]] = pair[1]
    return ticks


def ticks_between(before: str, after: str) -> dict[int, int]:
    """Ticks at each clock between two readings; empty if the counter was reset."""
    first, last = parse_time_in_state(before), parse_time_in_state(after)
    elapsed = {khz: ticks - first.get(khz, 0) for khz, ticks in last.items()}
    return {} if any(ticks < 0 for ticks in elapsed.values()) else elapsed


def clock_node(cluster: Cluster, name: str) -> str:
    """The path of a cpufreq node of a cluster."""
    return f"{cluster.folder or f'{CPUFREQ}/policy{cluster.policy}'}/{name}"


def policy_node(facts: PhoneFacts, policy: int, name: str) -> str:
    """The path of a cpufreq node of a phone's policy."""
    paths = (clock_node(at, name) for at in facts.clusters if at.policy == policy)
    return next(paths, f"{CPUFREQ}/policy{policy}/{name}")


def used_clusters(facts: PhoneFacts, cores: CoreSet) -> tuple[Cluster, ...]:
    """The clusters that the requested cores belong to."""
    return tuple(cluster for cluster in facts.clusters if set(cluster.cpus) & set(cores.cpus))


def zone_scale(raw: int) -> float | None:
    """Infer the unit of a sensor from one value: thousandths, tenths or whole degrees."""
    for scale, least in ((0.001, 1000), (0.1, 150), (1.0, 1)):
        if abs(raw) >= least:
            # 91 to 149 could also be tenths; no idle phone is that hot or that cold.
            is_clear = scale < 1 or abs(raw) <= WHOLE_DEGREES_MAX
            return scale if is_clear and plausible_temp_c(raw, scale) is not None else None
    return None


def plausible_temp_c(raw: int | None, scale: float) -> float | None:
    """The temperature in °C; None for a sentinel and for values that no running phone has."""
    if raw is None or raw in _SENTINELS:
        return None
    temp_c = raw * scale
    return temp_c if _TEMP_MIN_C <= temp_c <= _TEMP_MAX_C else None


def hottest_c(zones: tuple[ThermalZone, ...], nodes: Mapping[str, str]) -> float | None:
    """The highest plausible temperature of some zones; None if there is none."""
    temps = [plausible_temp_c(whole_number(nodes.get(zone.path, "")), zone.scale) for zone in zones]
    return max((temp for temp in temps if temp is not None), default=None)


def supply_node(path: str, supply: str) -> str:
    """The path of a node of the supply `battery` on a phone that names it differently."""
    return path.replace(f"{SUPPLY}/battery/", f"{SUPPLY}/{supply}/", 1)


def usual_supply_node(path: str) -> str:
    """The path that a node of the battery has on most phones; a run reads no third supply."""
    if not path.startswith(f"{SUPPLY}/"):
        return path
    supply, _, name = path.removeprefix(f"{SUPPLY}/").partition("/")
    return f"{SUPPLY}/battery/{name}" if name and supply != _USB_SUPPLY else path


def gauge_supply(nodes: Mapping[str, str]) -> str:
    """The supply that shows the battery's current, or else its level."""
    for name in ("current_now", "capacity"):
        for supply in (*_GAUGE_SUPPLIES, *_battery_supplies(nodes)):
            if whole_number(nodes.get(f"{SUPPLY}/{supply}/{name}", "")) is not None:
                return supply
    return _GAUGE_SUPPLIES[0]


def _battery_supplies(nodes: Mapping[str, str]) -> list[str]:
    """The supplies of the type Battery; the scope of a pen or a game pad is Device."""
    kinds = {match[1]: nodes[match[0]] for path in nodes if (match := _KIND.fullmatch(path))}
    return [
        name
        for name, kind in sorted(kinds.items())
        if kind.strip() == "Battery" and nodes.get(f"{SUPPLY}/{name}/scope", "").strip() != "Device"
    ]


def with_usual_supply(nodes: Mapping[str, str]) -> dict[str, str]:
    """The nodes with those of the battery under their usual names."""
    supply = gauge_supply(nodes)
    chosen = {
        usual_supply_node(path): text for path, text in nodes.items() if f"/{supply}/" in path
    }
    return {**nodes, **chosen}


def parse_cpu_coolers(nodes: Mapping[str, str]) -> dict[str, str]:
    """What limits the CPUs while they are hot: the path of its state, and its name."""
    coolers = {}
    for path, text in nodes.items():
        match = _NODE.fullmatch(path)
        if match and match[1] == f"{THERMAL}/cooling_device" and match[3] == "type":
            name = text.strip().lower()
            limits_cpu = "cpu" in name or name == "processor"  # the latter is ACPI's name
            if limits_cpu and not re.search(r"hotplug|isolate|idle", name):
                coolers[path.removesuffix("type") + "cur_state"] = safe_text(text, 64)
        if path == FIRMWARE_THROTTLING:
            coolers[path] = "the firmware's throttling"
    return coolers


def is_cooler_active(path: str, value: int | str | None) -> bool:
    """Whether a cooling device limits the CPUs, by the value of its state."""
    text = "" if value is None else str(value)
    if path != FIRMWARE_THROTTLING:
        return bool(first_number(text))
    # Hexadecimal. The lowest bits are the present: too little voltage, clock capped, throttled,
    # soft temperature limit. Higher bits mean that it happened since the boot.
    digits = text.strip().lower().removeprefix("0x")
    return re.fullmatch(r"[0-9a-f]{1,8}", digits) is not None and bool(int(digits, 16) & 0xF)


def parse_level_pct(text: str) -> int | None:
    """The battery level in percent; None if the text gives none."""
    level = first_number(text)
    return level if level is not None and 0 <= level <= 100 else None


def dumpsys_battery_level_pct(text: str) -> int | None:
    """The level that `dumpsys battery` prints, for phones that hide the nodes from the shell."""
    level, scale = (_dumpsys_number(text, name) for name in ("level", "scale"))
    full = 100 if scale is None else scale
    return parse_level_pct(str(level * 100 // full)) if level is not None and full else None


def dumpsys_battery_temp_c(text: str) -> float | None:
    """The temperature that `dumpsys battery` prints, in tenths of a degree."""
    return plausible_temp_c(_dumpsys_number(text, "temperature"), 0.1)


def _dumpsys_number(text: str, name: str) -> int | None:
    # Some vendors do not indent, others append a history with levels of the past.
    found = re.search(rf"^\s*{name}: ?(\d{{1,4}})\s*$", text, re.MULTILINE | re.ASCII)
    return int(found[1]) if found else None
