"""Probe: find out what a phone is and what the farm can control on it.

It installs the runner and changes nothing else.
"""

import re
from collections.abc import Callable, Mapping, Sequence

from agent.deadline import Deadline
from agent.phone.capabilities import Capabilities, summarize_control
from agent.phone.computer_nodes import (
    COMPUTER_NODES,
    adapt_clusters,
    parse_hwmon_zones,
    parse_second_threads,
)
from agent.phone.gpu_probe import GPU_NODES, parse_gpu
from agent.phone.kernel_nodes import (
    CPU,
    CPUFREQ,
    SUPPLY,
    THERMAL,
    choose_body_zone,
    choose_cpu_zones,
    first_number,
    parse_clusters,
    parse_cores,
    parse_cpus,
    parse_zones,
    zone_scale,
)
from agent.phone.phone_driver import Phone, measure_clock_ratio
from agent.phone.phone_paths import UPTIME
from agent.phone.power_meters import METER_NODES, POWERCAP, find_rail_meters
from agent.phone.runner_install import install_working_runner
from agent.phone.shell_command import ShellCommand
from agent.phone.thermalservice import thermalservice_zones
from agent.phone.vendor_daemons import find_perf_daemons
from kernels.runner_builds import RunnerBuild
from workloads.protocol.faults import PhoneTrouble
from workloads.protocol.metrics import Provenances, Source
from workloads.protocol.phone_facts import ChargingSwitch, Cluster, Gpu, PhoneFacts, ThermalZone
from workloads.text import safe_text

SDK_FIXED_PERFORMANCE = 30
_BATTERY = f"{SUPPLY}/battery"
_GAUGES = (f"{_BATTERY}/current_now", f"{_BATTERY}/power_now")
# Vendors' switches that stop charging while the cable stays connected, the most reliable first.
CHARGING_SWITCHES = (
    ChargingSwitch(path=f"{_BATTERY}/input_suspend", off="1", on="0"),
    ChargingSwitch(path=f"{_BATTERY}/charge_disable", off="1", on="0"),
    ChargingSwitch(path=f"{_BATTERY}/batt_slate_mode", off="1", on="0"),
    ChargingSwitch(path=f"{_BATTERY}/charging_enabled", off="0", on="1"),
    ChargingSwitch(path=f"{_BATTERY}/battery_charging_enabled", off="0", on="1"),
)
_SERIAL = re.compile(r"[A-Za-z0-9._:-]{1,64}")
_UNUSUAL = re.compile(r"[^\w .,:()/+'-]")
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
    *_GAUGES,
    "/proc/self/status",
    *GPU_NODES,
    *METER_NODES,
    *COMPUTER_NODES,
)
_ENERGY_COUNTER = f"{POWERCAP}/intel-rapl:0/energy_uj"


def probe(
    phone: Phone, runner_for: Callable[[str], RunnerBuild], deadline: Deadline | None = None
) -> PhoneFacts:
    """Find out what a phone is, install the runner of its ABI, and set the phone's facts."""
    deadline = deadline or Deadline.after(phone.timeouts.probe_timeout_s)
    properties = read_properties(phone, deadline)
    nodes = phone.find_nodes(_NODES, deadline)
    clusters = parse_clusters(nodes) or parse_cores(nodes)
    if not clusters:
        raise PhoneTrouble(f"{phone.address} shows no cores under {CPU}")
    first = runner_for(properties["ro.product.cpu.abi"])
    build, info = install_working_runner(phone, first, deadline)
    provenance = None if isinstance(info, str) else info.provenance
    capabilities, zones, body_zone = _find_capabilities(
        phone, properties, nodes, clusters, provenance, deadline
    )
    control = summarize_control(capabilities)
    measure_clock_ratio(phone, deadline)
    phone.facts = PhoneFacts(
        serial=parse_serial(properties, phone.address),
        model=_model_name(properties),
        soc=properties["ro.soc.model"] or properties["ro.board.platform"] or "unknown",
        abi=properties["ro.product.cpu.abi"],
        android=properties["ro.build.version.release"] or "unknown",
        ram_mb=(first_number(memory_total_kb(nodes)) or 0) // 1024,
        clusters=adapt_clusters(clusters, nodes, capabilities.clocks_writable),
        cpu_zones=capabilities.cpu_zones,
        body_zone=body_zone,
        zones=zones,
        gpu=capabilities.gpu,
        charging=capabilities.charging,
        shell_cpus=capabilities.shell_cpus,
        second_threads=parse_second_threads(nodes),
        fixed_performance=capabilities.fixed_performance,
        perf_daemons=find_perf_daemons(phone.shell(["getprop"], deadline).text),
        rooted=capabilities.root,
        clocks_writable=capabilities.clocks_writable,
        control=control.level,
        controlled=control.controlled,
        uncontrolled=control.uncontrolled,
        runner=build.digest,
        runner_error=info if isinstance(info, str) else None,
        backends=() if isinstance(info, str) else info.backends,
        opencl=None if isinstance(info, str) else info.opencl_facts,
        provenance=provenance and _add_sensors(provenance, capabilities),
    )
    return phone.facts


def _find_capabilities(
    phone: Phone,
    properties: Mapping[str, str],
    nodes: Mapping[str, str],
    clusters: Sequence[Cluster],
    provenance: Provenances | None,
    deadline: Deadline,
) -> tuple[Capabilities, tuple[ThermalZone, ...], ThermalZone | None]:
    """What can be read and written, every thermal zone, and the zone of the body."""
    zones = parse_zones(nodes)
    cpu_zones = choose_cpu_zones(zones) or parse_hwmon_zones(nodes)
    body_zone = choose_body_zone(zones)
    if not cpu_zones:
        cpu_zones, body_zone = _hidden_zones(phone, nodes, deadline)
    limits = [f"{CPUFREQ}/policy{cluster.policy}/scaling_max_freq" for cluster in clusters]
    gpu = parse_gpu(nodes)
    writable = _writable_nodes(phone, [*limits, *_gpu_limits(gpu)], deadline)
    gpu = gpu and gpu.model_copy(update={"writable": writable.issuperset(_gpu_limits(gpu))})
    capabilities = Capabilities(
        root=phone.link.root,
        clocks_writable=writable.issuperset(limits),
        cpu_zones=cpu_zones,
        cpus=tuple(cpu for cluster in clusters for cpu in cluster.cpus),
        shell_cpus=_shell_cpus(nodes),
        gpu=gpu,
        charging=next((switch for switch in CHARGING_SWITCHES if switch.path in writable), None),
        gauge_readable=any(nodes.get(path, "").strip() for path in _GAUGES),
        fixed_performance=_offers_fixed_performance(phone, properties, deadline),
        meters=find_rail_meters(nodes),
        counter_denied=_is_counter_denied(phone, nodes, deadline),
        is_computer=_is_computer(provenance),
        clocks_shown=any(
            f"{CPUFREQ}/policy{at.policy}/scaling_cur_freq" in nodes for at in clusters
        ),
        has_battery=f"{_BATTERY}/capacity" in nodes,
    )
    return capabilities, zones, body_zone


def _is_computer(provenance: Provenances | None) -> bool:
    time = provenance.time if provenance else None
    return time is not None and time.source is Source.HOST


def _add_sensors(provenance: Provenances, capabilities: Capabilities) -> Provenances:
    """Add the sensors of a computer, of which its runner knows nothing, with the same source."""
    if not capabilities.is_computer:
        return provenance
    shown = {
        "clock": capabilities.clocks_shown,
        "heat": bool(capabilities.cpu_zones),
        "energy": capabilities.has_energy or bool(capabilities.meters),
    }
    return provenance.model_copy(
        update={
            family: provenance.for_family(family) or (provenance.time if is_shown else None)
            for family, is_shown in shown.items()
        }
    )


def _is_counter_denied(phone: Phone, nodes: Mapping[str, str], deadline: Deadline) -> bool:
    """Whether the processor counts its energy, but only for root (since CVE-2020-8694)."""
    if _ENERGY_COUNTER in nodes:
        return False
    return phone.shell(["test", "-e", _ENERGY_COUNTER], deadline).status == 0


def read_properties(phone: Phone, deadline: Deadline) -> dict[str, str]:
    """Read the properties that identify the phone; unset ones are empty."""
    commands = [ShellCommand(["getprop", name]) for name in _PROPERTIES]
    results = phone.shell_batch(commands, deadline)
    texts = [plain_property(result.text) if result.status == 0 else "" for result in results]
    return dict(zip(_PROPERTIES, texts, strict=True))


def plain_property(text: str) -> str:
    """A property reduced to letters, digits and the punctuation that names contain."""
    return _UNUSUAL.sub("?", safe_text(text, 64))


def parse_serial(properties: Mapping[str, str], address: str) -> str:
    """The phone's own serial; the adb address changes with the cable, so it is no substitute."""
    serial = properties["ro.serialno"] or properties["ro.boot.serialno"]
    if _SERIAL.fullmatch(serial) is None:
        raise PhoneTrouble(f"{address} has no usable serial: '{safe_text(serial)}'")
    return serial


def memory_total_kb(nodes: Mapping[str, str]) -> str:
    """The value of MemTotal."""
    for line in nodes.get("/proc/meminfo", "").splitlines():
        name, _, value = line.partition(":")
        if name == "MemTotal":
            return value
    return ""


def _model_name(properties: Mapping[str, str]) -> str:
    """The marketing name where the phone has it; else the maker's code, such as TAS-AL00."""
    maker = properties["ro.product.manufacturer"]
    marketing = properties["ro.product.marketname"] or properties["ro.config.marketing_name"]
    model = marketing or properties["ro.product.model"]
    if maker and not model.lower().startswith(maker.lower()):
        return f"{maker} {model}".strip()
    return model or "unknown"


def _hidden_zones(
    phone: Phone, nodes: Mapping[str, str], deadline: Deadline
) -> tuple[tuple[ThermalZone, ...], ThermalZone | None]:
    """The zones of a phone that hides its nodes: the framework's, and the battery's thermometer."""
    dump = phone.shell(["dumpsys", "thermalservice"], deadline)
    cpu_zones, body_zone = thermalservice_zones(dump.text)
    # The sampler on the phone cannot call the framework, so a node is better than a service.
    raw = first_number(nodes.get(f"{_BATTERY}/temp", ""))
    scale = zone_scale(raw) if raw is not None else None
    if scale is not None:
        body_zone = ThermalZone(path=f"{_BATTERY}/temp", type="battery", scale=scale)
    return cpu_zones, body_zone


def _shell_cpus(nodes: Mapping[str, str]) -> tuple[int, ...]:
    """The cores that a child of the shell may run on: those in its cpuset."""
    status = nodes.get("/proc/self/status", "")
    allowed = re.search(r"^Cpus_allowed_list:\s*(\S+)", status, re.MULTILINE)
    return parse_cpus(allowed[1]) if allowed else ()


def _gpu_limits(gpu: Gpu | None) -> list[str]:
    return [f"{gpu.folder}/{name}" for name in ("min_freq", "max_freq")] if gpu else []


def _writable_nodes(phone: Phone, nodes: Sequence[str], deadline: Deadline) -> set[str]:
    paths = [*nodes, *(switch.path for switch in CHARGING_SWITCHES)]
    tests = [ShellCommand(["test", "-w", path]) for path in paths]
    results = phone.shell_batch(tests, deadline)
    return {path for path, result in zip(paths, results, strict=True) if result.status == 0}


def _offers_fixed_performance(
    phone: Phone, properties: Mapping[str, str], deadline: Deadline
) -> bool:
    if (first_number(properties["ro.build.version.sdk"]) or 0) < SDK_FIXED_PERFORMANCE:
        return False
    usage = phone.shell(["cmd", "power", "help"], deadline)
    return "set-fixed-performance-mode-enabled" in usage.text
