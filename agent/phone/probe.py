"""The probe: what a phone is and how much of it the farm can hold. It changes nothing but files
of its own."""

import re
from collections.abc import Callable, Mapping, Sequence

from agent.deadline import Deadline
from agent.phone.daemons import find_opponents
from agent.phone.framework import framework_zones
from agent.phone.gpu import GPU_NODES, parse_gpu
from agent.phone.install import install_one_that_starts
from agent.phone.nodes import (
    CPU,
    CPUFREQ,
    SUPPLY,
    THERMAL,
    choose_cpu_zones,
    choose_slow_zone,
    first_number,
    parse_clusters,
    parse_cores,
    parse_cpus,
    parse_zones,
    zone_scale,
)
from agent.phone.phone import UPTIME, Command, Phone, phone_clock_ratio
from agent.phone.reach import Reach, judge_control
from kernels.manifest import RunnerBuild
from workloads.fault import PhoneTrouble
from workloads.phone import Gpu, PhoneFacts, Switch, ThermalZone
from workloads.text import safe_text

PROBE_S = 60.0
SDK_FIXED_PERFORMANCE = 30
_BATTERY = f"{SUPPLY}/battery"
# Vendors' ways to keep the charger out while the cable stays in, surest first.
CHARGING_SWITCHES = (
    Switch(path=f"{_BATTERY}/input_suspend", off="1", on="0"),
    Switch(path=f"{_BATTERY}/charge_disable", off="1", on="0"),
    Switch(path=f"{_BATTERY}/batt_slate_mode", off="1", on="0"),
    Switch(path=f"{_BATTERY}/charging_enabled", off="0", on="1"),
    Switch(path=f"{_BATTERY}/battery_charging_enabled", off="0", on="1"),
)
_SERIAL = re.compile(r"[A-Za-z0-9._:-]{1,64}")
_ODD = re.compile(r"[^\w .,:()/+'-]")
_PROPERTIES = (
    "ro.serialno",
    "ro.boot.serialno",
    "ro.product.manufacturer",
    "ro.product.model",
    "ro.product.marketname",
    "ro.config.marketing_name",
    "ro.soc.model",
    "ro.board.platform",
    "ro.product.cpu.abi",
    "ro.build.version.release",
    "ro.build.version.sdk",
)
_NODES = (
    "/proc/meminfo",
    UPTIME,
    f"{CPUFREQ}/policy*/related_cpus",
    f"{CPUFREQ}/policy*/scaling_available_frequencies",
    f"{CPUFREQ}/policy*/cpuinfo_max_freq",
    f"{CPUFREQ}/policy*/stats/time_in_state",
    f"{CPU}/cpu*/cpu_capacity",
    f"{CPU}/present",
    f"{THERMAL}/thermal_zone*/type",
    f"{THERMAL}/thermal_zone*/temp",
    f"{_BATTERY}/capacity",
    f"{_BATTERY}/temp",
    f"{_BATTERY}/current_now",
    "/proc/self/status",
    *GPU_NODES,
)


def probe(
    phone: Phone, runner_for: Callable[[str], RunnerBuild], deadline: Deadline | None = None
) -> PhoneFacts:
    """Learn what a phone is, install the runner of its ABI, and keep the facts on the phone."""
    deadline = deadline or Deadline.after(PROBE_S)
    properties = read_properties(phone, deadline)
    nodes = phone.find_nodes(_NODES, deadline)
    clusters = parse_clusters(nodes) or parse_cores(nodes)
    if not clusters:
        raise PhoneTrouble(f"{phone.address} shows no cores under {CPU}")
    zones = parse_zones(nodes)
    cpu_zones, slow_zone = choose_cpu_zones(zones), choose_slow_zone(zones)
    if not cpu_zones:
        cpu_zones, slow_zone = _closed_zones(phone, nodes, deadline)
    limits = [f"{CPUFREQ}/policy{cluster.policy}/scaling_max_freq" for cluster in clusters]
    gpu = parse_gpu(nodes)
    writable = _writable(phone, [*limits, *_knobs(gpu)], deadline)
    gpu = gpu and gpu.model_copy(update={"writable": writable.issuperset(_knobs(gpu))})
    reach = Reach(
        root=phone.link.root,
        clocks_writable=writable.issuperset(limits),
        cpu_zones=cpu_zones,
        cpus=tuple(cpu for cluster in clusters for cpu in cluster.cpus),
        shell_cpus=_shell_cpus(nodes),
        gpu=gpu,
        charging=next((each for each in CHARGING_SWITCHES if each.path in writable), None),
        gauge_readable=bool(nodes.get(f"{_BATTERY}/current_now", "").strip()),
        fixed_performance=_offers_fixed_performance(phone, properties, deadline),
    )
    control = judge_control(reach)
    first = runner_for(properties["ro.product.cpu.abi"])
    build, info = install_one_that_starts(phone, first, deadline)
    phone_clock_ratio(phone, deadline)
    phone.facts = PhoneFacts(
        serial=serial_of(properties, phone.address),
        model=_model(properties),
        soc=properties["ro.soc.model"] or properties["ro.board.platform"] or "unknown",
        abi=properties["ro.product.cpu.abi"],
        android=properties["ro.build.version.release"] or "unknown",
        ram_mb=(first_number(memory_total(nodes)) or 0) // 1024,
        clusters=clusters,
        cpu_zones=cpu_zones,
        slow_zone=slow_zone,
        zones=zones,
        gpu=gpu,
        charging=reach.charging,
        shell_cpus=reach.shell_cpus,
        fixed_performance=reach.fixed_performance,
        opponents=find_opponents(phone.shell(["getprop"], deadline).text),
        rooted=phone.link.root,
        control=control.level,
        controlled=control.held,
        uncontrolled=control.missing,
        runner=build.digest,
        runner_absent=info if isinstance(info, str) else None,
        provenance=None if isinstance(info, str) else info.provenance,
    )
    return phone.facts


def read_properties(phone: Phone, deadline: Deadline) -> dict[str, str]:
    """Read the properties that name the phone; unset ones are empty."""
    answers = phone.batch([Command(["getprop", name]) for name in _PROPERTIES], deadline)
    texts = [_plain(answer.text) if answer.status == 0 else "" for answer in answers]
    return dict(zip(_PROPERTIES, texts, strict=True))


def _plain(text: str) -> str:
    """A property in letters, digits and the few signs that names are made of."""
    return _ODD.sub("?", safe_text(text, 64))


def serial_of(properties: Mapping[str, str], address: str) -> str:
    """The phone's own serial; an address moves with the cable, so it never stands in."""
    serial = properties["ro.serialno"] or properties["ro.boot.serialno"]
    if _SERIAL.fullmatch(serial) is None:
        raise PhoneTrouble(f"{address} has no usable serial: '{safe_text(serial)}'")
    return serial


def memory_total(nodes: Mapping[str, str]) -> str:
    """The MemTotal line's number, in kB."""
    for line in nodes.get("/proc/meminfo", "").splitlines():
        name, _, value = line.partition(":")
        if name == "MemTotal":
            return value
    return ""


def _model(properties: Mapping[str, str]) -> str:
    """The name people know, where the maker tells it; else the maker's code, TAS-AL00 and such."""
    maker = properties["ro.product.manufacturer"]
    told = properties["ro.product.marketname"] or properties["ro.config.marketing_name"]
    model = told or properties["ro.product.model"]
    if maker and not model.lower().startswith(maker.lower()):
        return f"{maker} {model}".strip()
    return model or "unknown"


def _closed_zones(
    phone: Phone, nodes: Mapping[str, str], deadline: Deadline
) -> tuple[tuple[ThermalZone, ...], ThermalZone | None]:
    """The zones of a phone that hides them: the framework's, and the battery's own thermometer."""
    told = phone.shell(["dumpsys", "thermalservice"], deadline)
    cpu_zones, slow_zone = framework_zones(told.text)
    # The sampler cannot ask the framework, so a slow node is worth more than a slow service.
    raw = first_number(nodes.get(f"{_BATTERY}/temp", ""))
    scale = zone_scale(raw) if raw is not None else None
    if scale is not None:
        slow_zone = ThermalZone(path=f"{_BATTERY}/temp", type="battery", scale=scale)
    return cpu_zones, slow_zone


def _shell_cpus(nodes: Mapping[str, str]) -> tuple[int, ...]:
    """The cores that a child of the shell may run on: what its cpuset leaves."""
    found = re.search(r"^Cpus_allowed_list:\s*(\S+)", nodes.get("/proc/self/status", ""), re.M)
    return parse_cpus(found[1]) if found else ()


def _knobs(gpu: Gpu | None) -> list[str]:
    return [f"{gpu.folder}/{name}" for name in ("min_freq", "max_freq")] if gpu else []


def _writable(phone: Phone, nodes: Sequence[str], deadline: Deadline) -> set[str]:
    paths = [*nodes, *(switch.path for switch in CHARGING_SWITCHES)]
    answers = phone.batch([Command(["test", "-w", path]) for path in paths], deadline)
    return {path for path, answer in zip(paths, answers, strict=True) if answer.status == 0}


def _offers_fixed_performance(
    phone: Phone, properties: Mapping[str, str], deadline: Deadline
) -> bool:
    if (first_number(properties["ro.build.version.sdk"]) or 0) < SDK_FIXED_PERFORMANCE:
        return False
    help_ = phone.shell(["cmd", "power", "help"], deadline)
    return "set-fixed-performance-mode-enabled" in help_.text
