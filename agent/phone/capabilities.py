"""Which settings of a phone the farm can control, and why not the others. Pure."""

from dataclasses import dataclass

from agent.phone.thermalservice import is_thermalservice
from workloads.protocol.phone_facts import ChargingSwitch, ControlLevel, Gpu, ThermalZone

_CLOCKS_READ_ONLY = "the CPU clocks cannot be set"


@dataclass(frozen=True)
class Capabilities:
    """What a probe found readable and writable."""

    root: bool
    clocks_writable: bool
    cpu_zones: tuple[ThermalZone, ...]
    cpus: tuple[int, ...] = ()
    shell_cpus: tuple[int, ...] = ()
    gpu: Gpu | None = None
    charging: ChargingSwitch | None = None
    gauge_readable: bool = False
    fixed_performance: bool = False


@dataclass(frozen=True)
class ControlSummary:
    """The control level, with one sentence per setting that is or is not controlled."""

    level: ControlLevel
    controlled: tuple[str, ...]
    uncontrolled: tuple[str, ...]


def summarize_control(capabilities: Capabilities) -> ControlSummary:
    """Say how much of this phone the farm controls, and why not more.

    The level depends on clocks, a thermometer and root alone; the other settings are listed for
    information.
    """
    checks = [
        _root(capabilities),
        _clocks(capabilities),
        _temperature(capabilities),
        _cores(capabilities),
    ]
    checks += [_gpu(capabilities), _charging(capabilities), _gauge(capabilities)]
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
    return False, "the shell is not root"


def _clocks(capabilities: Capabilities) -> tuple[bool, str]:
    if capabilities.clocks_writable:
        return True, "CPU clocks are set, read back and verified over the run"
    if capabilities.fixed_performance:
        return False, f"{_CLOCKS_READ_ONLY}; freq: fixed uses the fixed-performance mode"
    return False, _CLOCKS_READ_ONLY


def _temperature(capabilities: Capabilities) -> tuple[bool, str]:
    if not capabilities.cpu_zones:
        return False, "no CPU temperature can be read"
    if not _has_zone_nodes(capabilities):
        return (
            False,
            "thermal zones cannot be read: temperatures come from the framework, not in runs",
        )
    return True, f"CPU temperature is read from {len(capabilities.cpu_zones)} zones"


def _cores(capabilities: Capabilities) -> tuple[bool, str]:
    barred = sorted({*capabilities.cpus} - {*capabilities.shell_cpus})
    if capabilities.shell_cpus and barred and not capabilities.root:
        names = ", ".join(f"cpu{cpu}" for cpu in barred)
        return False, f"the shell's cpuset excludes {names}"
    return True, "threads are bound to the requested cores, and checked"


def _gpu(capabilities: Capabilities) -> tuple[bool, str]:
    if capabilities.gpu is None:
        return False, "no GPU clock was found"
    if not capabilities.gpu.writable:
        return False, f"the clock of the {capabilities.gpu.name} cannot be set"
    return True, f"the clock of the {capabilities.gpu.name} can be set"


def _charging(capabilities: Capabilities) -> tuple[bool, str]:
    if capabilities.charging is None:
        return False, "charging cannot be stopped: this kernel has no switch for it"
    return True, f"charging is stopped by {capabilities.charging.path.rpartition('/')[2]}"


def _gauge(capabilities: Capabilities) -> tuple[bool, str]:
    if not capabilities.gauge_readable:
        return False, "no energy: the battery's current cannot be read"
    return True, "energy comes from the battery's fuel gauge"


def _has_zone_nodes(capabilities: Capabilities) -> bool:
    return not any(is_thermalservice(zone.path) for zone in capabilities.cpu_zones)
