"""The probe: what a phone is and how much of it the farm can hold. It changes nothing but files
of its own."""

import re
from collections.abc import Callable, Mapping

from agent.deadline import Deadline
from agent.phone.install import ask_runner, install_runner
from agent.phone.nodes import (
    CPU,
    CPUFREQ,
    SUPPLY,
    THERMAL,
    choose_cpu_zones,
    choose_slow_zone,
    first_number,
    parse_clusters,
    parse_zones,
)
from agent.phone.phone import UPTIME, Command, Phone, phone_clock_ratio
from kernels.manifest import RunnerBuild
from workloads.fault import PhoneTrouble
from workloads.phone import Cluster, ControlLevel, PhoneFacts, ThermalZone
from workloads.text import safe_text

PROBE_S = 60.0
CLOCKS_FIXED = "the clocks cannot be written"
_SERIAL = re.compile(r"[A-Za-z0-9._:-]{1,64}")
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
)
_NODES = (
    "/proc/meminfo",
    UPTIME,
    f"{CPUFREQ}/policy*/related_cpus",
    f"{CPUFREQ}/policy*/scaling_available_frequencies",
    f"{CPUFREQ}/policy*/cpuinfo_max_freq",
    f"{CPUFREQ}/policy*/stats/time_in_state",
    f"{CPU}/cpu*/cpu_capacity",
    f"{THERMAL}/thermal_zone*/type",
    f"{THERMAL}/thermal_zone*/temp",
    f"{SUPPLY}/battery/capacity",
)


def probe(
    phone: Phone, runner_for: Callable[[str], RunnerBuild], deadline: Deadline | None = None
) -> PhoneFacts:
    """Learn what a phone is, install the runner of its ABI, and keep the facts on the phone."""
    deadline = deadline or Deadline.after(PROBE_S)
    properties = read_properties(phone, deadline)
    nodes = phone.find_nodes(_NODES, deadline)
    clusters = parse_clusters(nodes)
    if not clusters:
        raise PhoneTrouble(f"{phone.address} shows no CPU clusters under {CPUFREQ}")
    zones = parse_zones(nodes)
    cpu_zones = choose_cpu_zones(zones)
    control, why = judge_control(phone.link.root, _writable(phone, clusters, deadline), cpu_zones)
    build = runner_for(properties["ro.product.cpu.abi"])
    info = ask_runner(phone, install_runner(phone, build, deadline), deadline)
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
        slow_zone=choose_slow_zone(zones),
        rooted=phone.link.root,
        control=control,
        uncontrolled=why,
        runner=build.digest,
        runner_absent=info if isinstance(info, str) else None,
        provenance=None if isinstance(info, str) else info.provenance,
    )
    return phone.facts


def read_properties(phone: Phone, deadline: Deadline) -> dict[str, str]:
    """Read the properties that name the phone; unset ones are empty."""
    answers = phone.batch([Command(["getprop", name]) for name in _PROPERTIES], deadline)
    texts = [safe_text(answer.text, 64) if answer.status == 0 else "" for answer in answers]
    return dict(zip(_PROPERTIES, texts, strict=True))


def serial_of(properties: Mapping[str, str], address: str) -> str:
    """The phone's own serial; an address moves with the cable, so it never stands in."""
    serial = properties["ro.serialno"] or properties["ro.boot.serialno"]
    if _SERIAL.fullmatch(serial) is None:
        raise PhoneTrouble(f"{address} has no usable serial: '{safe_text(serial)}'")
    return serial


def judge_control(
    root: bool, clocks_writable: bool, cpu_zones: tuple[ThermalZone, ...]
) -> tuple[ControlLevel, tuple[str, ...]]:
    """How much of this phone the farm can hold, and why not more."""
    reasons = []
    if not root:
        reasons.append("the shell is not root")
    if not clocks_writable:
        reasons.append(CLOCKS_FIXED)
    if not cpu_zones:
        reasons.append("no CPU temperature can be read")
    if not reasons:
        return ControlLevel.CONTROLLED, ()
    partial = clocks_writable or root
    return (ControlLevel.PARTIAL if partial else ControlLevel.OBSERVED), tuple(reasons)


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


def _writable(phone: Phone, clusters: tuple[Cluster, ...], deadline: Deadline) -> bool:
    paths = [f"{CPUFREQ}/policy{cluster.policy}/scaling_max_freq" for cluster in clusters]
    answers = phone.batch([Command(["test", "-w", path]) for path in paths], deadline)
    return all(answer.status == 0 for answer in answers)
