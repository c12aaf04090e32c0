"""Which settings of a phone can be controlled, and why the others cannot. Pure."""

from dataclasses import dataclass

from agent.phone.power_meters import INPUT_RAILS, RailMeter
from agent.phone.thermalservice import is_thermalservice
from workloads.protocol.phone_facts import ChargingSwitch, ControlLevel, Gpu, ThermalZone

_CLOCKS_READ_ONLY = "the CPU clocks cannot be set"


@dataclass(frozen=True)
class Capabilities:
    """What a probe found readable and writable."""

    root: bool
    clocks_writable: bool
    cpu_zones: tuple[ThermalZone, ...]
    zones_shown: int = 0  # thermal zones of the kernel with a value, of any part
    cpus: tuple[int, ...] = ()
    offline_cpus: tuple[int, ...] = ()  # during the probe, so that their clocks are unknown
    shell_cpus: tuple[int, ...] = ()
    gpu: Gpu | None = None
    charging: ChargingSwitch | None = None
    gauge_readable: bool = False
    fixed_performance: bool = False
    meters: tuple[RailMeter, ...] = ()
    rails: int = 0  # of the power statistics, which need no root
    counter_denied: bool = False  # the processor's energy counter exists, and cannot be read
    is_computer: bool = False
    clocks_shown: bool = True
    has_battery: bool = True
    stored_zones: tuple[str, ...] = ()  # of the body, which show what a program stored
    body: str = ""  # the zone that is used instead
    gauge_cells: int = 1
    root_manager: str = ""  # that refused root to the shell

    @property
    def has_energy(self) -> bool:
        """Whether the energy of a run can be measured."""
        return (
            self.gauge_readable
            or self.rails > 0
            or any(meter.rail in INPUT_RAILS or meter.is_package for meter in self.meters)
        )


@dataclass(frozen=True)
class ControlSummary:
    """The control level, with one sentence per setting that is or is not controlled."""

    level: ControlLevel
    controlled: tuple[str, ...]
    uncontrolled: tuple[str, ...]


def summarize_control(capabilities: Capabilities) -> ControlSummary:
    """Return the control level of a phone, and why it is not higher.

    The level depends on clocks, a thermometer and root alone; the other settings are listed for
    information.
    """
    checks = [
        _root(capabilities),
        _clocks(capabilities),
        _temperature(capabilities),
        _cores(capabilities),
    ]
    checks += [
        *_offline(capabilities),
        _gpu(capabilities),
        *_charging(capabilities),
        *_energy(capabilities),
        *_stored(capabilities),
    ]
    controlled = tuple(text for good, text in checks if good)
    uncontrolled = tuple(text for good, text in checks if not good)
    if (
        capabilities.root
        and capabilities.clocks_writable
        and capabilities.cpu_zones
        and _has_zone_nodes(capabilities)
    ):
        return ControlSummary(ControlLevel.CONTROLLED, controlled, uncontrolled)
    partial = capabilities.clocks_writable or capabilities.root or capabilities.fixed_performance
    level = ControlLevel.PARTIAL if partial else ControlLevel.OBSERVED
    return ControlSummary(level, controlled, uncontrolled)


def _root(capabilities: Capabilities) -> tuple[bool, str]:
    if capabilities.root:
        return True, "daemons that change the clocks can be stopped"
    if capabilities.is_computer:
        return False, "daemons that change the clocks (thermald, tuned, nvpmodel) keep running"
    manager = capabilities.root_manager
    if manager:
        return False, f"the shell is not root: {manager} is on the phone and refused it"
    return False, "the shell is not root"


def _clocks(capabilities: Capabilities) -> tuple[bool, str]:
    if capabilities.clocks_writable:
        return True, "CPU clocks are set, read back and verified over the run"
    if capabilities.fixed_performance:
        return False, f"{_CLOCKS_READ_ONLY}; freq: fixed uses the fixed-performance mode"
    if not capabilities.is_computer:
        return False, _CLOCKS_READ_ONLY
    if not capabilities.clocks_shown:
        return False, "the kernel shows no CPU clocks"
    return False, f"{_CLOCKS_READ_ONLY}: that needs root"


def _temperature(capabilities: Capabilities) -> tuple[bool, str]:
    if not capabilities.cpu_zones:
        return False, f"no CPU temperature can be read: {_why_no_temperature(capabilities)}"
    if not _has_zone_nodes(capabilities):
        return (
            False,
            "thermal zones cannot be read: temperatures come from the framework, not in runs",
        )
    count = len(capabilities.cpu_zones)
    return True, f"CPU temperature is read from {count} zone{'s' * (count != 1)}"


def _why_no_temperature(capabilities: Capabilities) -> str:
    if capabilities.zones_shown:
        count = capabilities.zones_shown
        return f"none of {count} thermal zone{'s' * (count != 1)} is known to be at the CPU"
    if capabilities.is_computer:
        return "the kernel shows no thermal zone"
    return "thermal zones are hidden or empty, and Android's thermal service shows no CPU"


def _cores(capabilities: Capabilities) -> tuple[bool, str]:
    barred = sorted({*capabilities.cpus} - {*capabilities.shell_cpus})
    if capabilities.shell_cpus and barred and not capabilities.root:
        names = ", ".join(f"cpu{cpu}" for cpu in barred)
        return False, f"the shell's cpuset excludes {names}"
    return True, "threads are bound to the requested cores, and checked"


def _offline(capabilities: Capabilities) -> list[tuple[bool, str]]:
    if not capabilities.offline_cpus:
        return []
    names = ", ".join(f"cpu{cpu}" for cpu in capabilities.offline_cpus)
    return [(False, f"{names} were offline during the probe: their clocks are unknown")]


def _gpu(capabilities: Capabilities) -> tuple[bool, str]:
    if capabilities.gpu is None:
        return False, "no GPU clock was found"
    if not capabilities.gpu.writable:
        return False, f"the clock of the {capabilities.gpu.name} cannot be set"
    return True, f"the clock of the {capabilities.gpu.name} can be set"


def _stored(capabilities: Capabilities) -> list[tuple[bool, str]]:
    if not capabilities.stored_zones:
        return []
    names = ", ".join(capabilities.stored_zones)
    used = f"that of {capabilities.body} is used" if capabilities.body else "none is used"
    return [(False, f"body temperature: {names} show stored numbers; {used}")]


def _charging(capabilities: Capabilities) -> list[tuple[bool, str]]:
    if capabilities.charging is not None:
        name = capabilities.charging.path.rpartition("/")[2]
        return [(True, f"charging is stopped by {name}")]
    if capabilities.is_computer and not capabilities.has_battery:
        return []
    return [(False, "charging cannot be stopped: this kernel has no switch for it")]


def _energy(capabilities: Capabilities) -> list[tuple[bool, str]]:
    checks = []
    if capabilities.gauge_readable:
        on_mains = ", unless the computer is on mains" * capabilities.is_computer
        cells = f"; {capabilities.gauge_cells} cells in series are assumed"
        cells = cells if capabilities.gauge_cells > 1 else ""
        checks.append((True, f"energy comes from the battery's fuel gauge{on_mains}{cells}"))
    for meter in capabilities.meters:
        if meter.rail in INPUT_RAILS:
            checks.append((True, f"energy comes from the board's input rail {meter.rail}"))
        if meter.is_package:
            text = "energy of the processor alone, not of the computer, comes from RAPL"
            checks.append((True, f"{text} ({meter.rail})"))
    if capabilities.rails:
        text = "energy of the metered rails comes from the phone's power statistics"
        checks.append((True, f"{text} ({capabilities.rails} rails)"))
    if capabilities.meters and not capabilities.has_energy:
        checks.append((True, f"power of {len(capabilities.meters)} rails is read"))
    if capabilities.counter_denied:
        checks.append((False, "only root may read the processor's energy counter (RAPL)"))
    if not capabilities.has_energy:
        checks.append((False, _why_no_energy(capabilities)))
    return checks


def _why_no_energy(capabilities: Capabilities) -> str:
    if capabilities.is_computer and not capabilities.has_battery:
        return "no energy: there is no battery gauge, input rail or energy counter to read"
    return "no energy: the battery's current cannot be read"


def _has_zone_nodes(capabilities: Capabilities) -> bool:
    return not any(is_thermalservice(zone.path) for zone in capabilities.cpu_zones)
