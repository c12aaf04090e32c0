"""Probe: determine the model of a phone and what can be controlled on it.

It installs the runner; if the shell is root, it switches offline cores on for a moment. The
interpretation of a reading is a pure function.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from agent.deadline import Deadline
from agent.phone.battery_wear import parse_battery_condition, series_cells
from agent.phone.capabilities import Capabilities, summarize_control
from agent.phone.computer_nodes import adapt_clusters, parse_hwmon_zones, parse_second_threads
from agent.phone.cpu_clusters import offline_clusters, parse_clusters, parse_cores
from agent.phone.gpu_probe import gpu_limits, parse_gpu
from agent.phone.kernel_nodes import (
    CPU,
    clock_node,
    first_number,
    gauge_supply,
    parse_cpus,
    supply_node,
    whole_number,
    with_usual_supply,
    zone_scale,
)
from agent.phone.phone_driver import Phone
from agent.phone.phone_reading import (
    BATTERY,
    CHARGING_SWITCHES,
    GAUGES,
    SERIAL_PROPERTIES,
    SOC_PROPERTIES,
    PhoneReading,
    read_phone,
)
from agent.phone.power_meters import find_rail_meters
from agent.phone.runner_install import RunnerInfo, install_working_runner
from agent.phone.thermal_zones import (
    ExaminedZone,
    ZonePlace,
    ZoneUse,
    battery_temp_c,
    examine_zones,
    zones_in_use,
)
from agent.phone.thermalservice import thermalservice_zones
from agent.phone.vendor_daemons import find_perf_daemons
from kernels.runner_builds import RunnerBuild
from workloads.protocol.faults import PhoneTrouble
from workloads.protocol.metrics import Provenances
from workloads.protocol.phone_facts import Cluster, PhoneFacts, ThermalZone
from workloads.text import safe_text

_SERIAL = re.compile(r"[A-Za-z0-9._:-]{0,63}[A-Za-z0-9_:-]|[A-Za-z0-9_:-][A-Za-z0-9._:-]{0,63}")
# Names that do not identify the SoC: Samsung gives 'exynos5' for every Exynos from 5430 to 9810.
_VAGUE_SOCS = {"exynos5", "exynos", "qcom", "mtk", "unknown", "universal"}


def probe(
    phone: Phone, runner_for: Callable[[str], RunnerBuild], deadline: Deadline | None = None
) -> PhoneFacts:
    """Find out what a phone is, install the runner of its ABI, and set the phone's facts."""
    deadline = deadline or Deadline.after(phone.timeouts.probe_timeout_s)
    reading = read_phone(phone, deadline)
    serial = parse_serial(reading.properties, phone.address)
    if not parse_clusters(reading.nodes) and not parse_cores(reading.nodes):
        raise PhoneTrouble(f"{phone.address} shows no cores under {CPU}")
    first = runner_for(reading.property("ro.product.cpu.abi"))
    build, info = install_working_runner(phone, first, deadline)
    phone.facts = interpret_reading(reading, serial, info, build.digest)
    return phone.facts


def interpret_reading(
    reading: PhoneReading, serial: str, info: RunnerInfo | str, runner: str = ""
) -> PhoneFacts:
    """What a phone is and can do; `info` of its runner is a sentence if there is none."""
    info = why_not_64_bit(reading.properties) or info
    supply = gauge_supply(reading.nodes)
    examined = examine_zones(reading.nodes)
    cpu_zones, body_zone = choose_zones(reading, examined)
    zones = _all_zones(reading.nodes, examined)
    reading = replace(reading, nodes=with_usual_supply(reading.nodes))
    nodes = reading.nodes
    provenance = None if isinstance(info, str) else info.provenance
    clusters = parse_clusters(nodes) or parse_cores(nodes)
    clusters = (*clusters, *offline_clusters(nodes, clusters))
    shown = sum(at.temp_c is not None for at in examined)
    capabilities = _find_capabilities(reading, clusters, cpu_zones, shown, provenance)
    stored = (at.zone.type for at in examined if at.use is ZoneUse.STORED)
    capabilities = replace(
        capabilities,
        stored_zones=tuple(stored),
        body=body_zone.type if body_zone is not None else "",
        gauge_cells=series_cells(
            nodes,
            reading.property("ro.product.manufacturer"),
            first_number(reading.property("ro.build.version.sdk")) or 0,
        ),
    )
    control = summarize_control(capabilities)
    return PhoneFacts(
        serial=serial,
        model=_model_name(reading.properties),
        soc=soc_name(reading.properties),
        abi=reading.property("ro.product.cpu.abi"),
        android=reading.property("ro.build.version.release") or "unknown",
        ram_mb=(first_number(memory_total_kb(nodes)) or 0) // 1024,
        clusters=adapt_clusters(clusters, nodes, capabilities.clocks_writable),
        cpu_zones=cpu_zones,
        body_zone=body_zone,
        zones=zones,
        gpu=capabilities.gpu,
        charging=capabilities.charging,
        gauge_supply=supply,
        gauge_cells=capabilities.gauge_cells,
        shell_cpus=capabilities.shell_cpus,
        second_threads=parse_second_threads(nodes),
        fixed_performance=capabilities.fixed_performance,
        battery=parse_battery_condition(nodes, reading.battery),
        power_stats=reading.power_stats,
        perf_daemons=find_perf_daemons(reading.services),
        rooted=capabilities.root,
        root_manager=capabilities.root_manager,
        clocks_writable=capabilities.clocks_writable,
        control=control.level,
        controlled=control.controlled,
        uncontrolled=control.uncontrolled,
        runner=runner,
        runner_error=info if isinstance(info, str) else None,
        backends=() if isinstance(info, str) else info.backends,
        features=() if isinstance(info, str) else info.features,
        opencl=None if isinstance(info, str) else info.opencl_facts,
        provenance=provenance and _add_sensors(provenance, capabilities),
    )


def _all_zones(
    nodes: Mapping[str, str], examined: Sequence[ExaminedZone]
) -> tuple[ThermalZone, ...]:
    """Every zone with a temperature; the gauge's if none is at the battery, which must not heat."""
    shown = [at for at in examined if at.use in {ZoneUse.CPU, ZoneUse.BODY, ZoneUse.OTHER}]
    gauge = None if any(at.place is ZonePlace.BATTERY for at in shown) else battery_zone(nodes)
    return (*(at.zone for at in shown), *([gauge] if gauge else []))


def choose_zones(
    reading: PhoneReading, examined: Sequence[ExaminedZone]
) -> tuple[tuple[ThermalZone, ...], ThermalZone | None]:
    """The zones of the CPU and of the body: nodes if they can be read, else the framework's."""
    body = next(iter(zones_in_use(examined, ZoneUse.BODY)), None)
    body = body or battery_zone(reading.nodes)
    cpu = zones_in_use(examined, ZoneUse.CPU) or parse_hwmon_zones(reading.nodes)
    if cpu:
        return cpu, body
    # The sampler on the phone cannot call the framework, so a node is better than a service.
    cpu, service_body = thermalservice_zones(reading.thermalservice)
    return cpu, body or service_body


def battery_zone(nodes: Mapping[str, str]) -> ThermalZone | None:
    """The thermometer of the battery, in tenths of a degree, if it shows a possible value."""
    paths = (supply_node(f"{BATTERY}/temp", supply) for supply in (gauge_supply(nodes), "battery"))
    path = next(filter(nodes.__contains__, paths), "")
    scale = zone_scale(whole_number(nodes.get(path, "")) or 0)
    if scale is None or battery_temp_c(nodes) is None:
        return None
    return ThermalZone(path=path, type="battery", scale=scale)


def _find_capabilities(
    reading: PhoneReading,
    clusters: Sequence[Cluster],
    cpu_zones: tuple[ThermalZone, ...],
    zones_shown: int,
    provenance: Provenances | None,
) -> Capabilities:
    """What can be read and written."""
    nodes, writable = reading.nodes, reading.writable
    limits = [clock_node(at, "scaling_max_freq") for at in clusters if at.ladder_khz]
    gpu = parse_gpu(nodes)
    gpu = gpu and gpu.model_copy(update={"writable": writable.issuperset(gpu_limits(gpu))})
    return Capabilities(
        root=reading.root,
        root_manager=reading.root_manager,
        clocks_writable=bool(limits) and writable.issuperset(limits),
        cpu_zones=cpu_zones,
        zones_shown=zones_shown,
        cpus=tuple(cpu for cluster in clusters for cpu in cluster.cpus),
        offline_cpus=offline_cpus(nodes, clusters),
        shell_cpus=_shell_cpus(nodes),
        gpu=gpu,
        charging=next((switch for switch in CHARGING_SWITCHES if switch.path in writable), None),
        gauge_readable=any(whole_number(nodes.get(path, "")) is not None for path in GAUGES),
        fixed_performance=reading.fixed_performance,
        meters=find_rail_meters(nodes),
        rails=len(reading.rails),
        counter_denied=reading.counter_denied,
        is_computer=provenance is not None and provenance.is_computer,
        clocks_shown=any(clock_node(at, "scaling_cur_freq") in nodes for at in clusters),
        has_battery=f"{BATTERY}/capacity" in nodes,
    )


def offline_cpus(nodes: Mapping[str, str], clusters: Sequence[Cluster]) -> tuple[int, ...]:
    """Cores whose clock is unknown because they were offline."""
    online = parse_cpus(nodes.get(f"{CPU}/online", ""))
    hidden = [cpu for at in clusters if not at.ladder_khz for cpu in at.cpus]
    return tuple(cpu for cpu in hidden if online and cpu not in online)


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


def parse_serial(properties: Mapping[str, str], address: str) -> str:
    """The phone's own serial, not the adb address, which changes with the connection."""
    serial = next((properties[name] for name in SERIAL_PROPERTIES if properties.get(name)), "")
    # A serial names files and folders of the agent, so '.' and '..' are refused as well.
    if _SERIAL.fullmatch(serial) is None:
        raise PhoneTrouble(f"{address} has no usable serial: '{safe_text(serial)}'")
    return serial


def soc_name(properties: Mapping[str, str]) -> str:
    """The name of the SoC, from the first property that is more than a family name."""
    names = [properties.get(name, "") for name in SOC_PROPERTIES]
    clear = (name for name in names if name and name.lower() not in _VAGUE_SOCS)
    return next(clear, next(filter(None, names), "unknown"))


def why_not_64_bit(properties: Mapping[str, str]) -> str:
    """The sentence for a 32-bit phone: Farmhand has no program for it."""
    abi = properties.get("ro.product.cpu.abi", "")
    if not abi or "64" in abi:
        return ""
    return f"{_model_name(properties)} runs a 32-bit Android ({abi}); training needs a 64-bit one"


def memory_total_kb(nodes: Mapping[str, str]) -> str:
    """The value of MemTotal."""
    for line in nodes.get("/proc/meminfo", "").splitlines():
        name, _, value = line.partition(":")
        if name == "MemTotal":
            return value
    return ""


def _model_name(properties: Mapping[str, str]) -> str:
    """The marketing name where the phone has it; else the maker's code, such as TAS-AL00."""
    maker, code, *names = (
        properties.get(name, "")
        for name in (
            "ro.product.manufacturer",
            "ro.product.model",
            "ro.product.marketname",
            "ro.config.marketing_name",
        )
    )
    model = next(filter(None, names), code)
    if maker and not model.lower().startswith(maker.lower()):
        return f"{maker} {model}".strip()
    return model or "unknown"


def _shell_cpus(nodes: Mapping[str, str]) -> tuple[int, ...]:
    """The cores that a child of the shell may run on: those in its cpuset."""
    status = nodes.get("/proc/self/status", "")
    allowed = re.search(r"^Cpus_allowed_list:\s*(\S+)", status, re.MULTILINE)
    return parse_cpus(allowed[1]) if allowed else ()
