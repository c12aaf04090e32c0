"""How far the farm's hand reaches on a phone, in words: what it holds, what not and why. Pure."""

from dataclasses import dataclass

from agent.phone.framework import is_framework
from workloads.phone import ControlLevel, Gpu, Switch, ThermalZone

CLOCKS_FIXED = "the clocks cannot be written"


@dataclass(frozen=True)
class Reach:
    """What a probe could lay its hands on."""

    root: bool
    clocks_writable: bool
    cpu_zones: tuple[ThermalZone, ...]
    cpus: tuple[int, ...] = ()
    shell_cpus: tuple[int, ...] = ()
    gpu: Gpu | None = None
    charging: Switch | None = None
    gauge_readable: bool = False
    fixed_performance: bool = False


@dataclass(frozen=True)
class Control:
    """The level, and the sentences behind it."""

    level: ControlLevel
    held: tuple[str, ...]
    missing: tuple[str, ...]


def judge_control(reach: Reach) -> Control:
    """How much of this phone the farm can hold, and why not more.

    The level asks for clocks, a thermometer and root alone; the rest is told for whoever needs it.
    """
    told = [_root(reach), _clocks(reach), _heat(reach), _cores(reach)]
    told += [_gpu(reach), _charging(reach), _gauge(reach)]
    held = tuple(text for good, text in told if good)
    missing = tuple(text for good, text in told if not good)
    if reach.root and reach.clocks_writable and reach.cpu_zones and _nodes(reach):
        return Control(ControlLevel.CONTROLLED, held, missing)
    partial = reach.clocks_writable or reach.root or reach.fixed_performance
    return Control(ControlLevel.PARTIAL if partial else ControlLevel.OBSERVED, held, missing)


def _root(reach: Reach) -> tuple[bool, str]:
    if reach.root:
        return True, "daemons that fight for the clocks can be stopped"
    return False, "the shell is not root"


def _clocks(reach: Reach) -> tuple[bool, str]:
    if reach.clocks_writable:
        return True, "CPU clocks are written, read back and verified over the run"
    if reach.fixed_performance:
        return False, f"{CLOCKS_FIXED}; freq: fixed asks the framework for its own steady clock"
    return False, CLOCKS_FIXED


def _heat(reach: Reach) -> tuple[bool, str]:
    if not reach.cpu_zones:
        return False, "no CPU temperature can be read"
    if not _nodes(reach):
        return False, "the zones are closed: temperatures come from the framework, not in the run"
    return True, f"CPU heat is read from {len(reach.cpu_zones)} zones"


def _cores(reach: Reach) -> tuple[bool, str]:
    barred = sorted({*reach.cpus} - {*reach.shell_cpus})
    if reach.shell_cpus and barred and not reach.root:
        which = ", ".join(f"cpu{cpu}" for cpu in barred)
        return False, f"the shell's cpuset leaves out {which}"
    return True, "threads are bound to the cores that are asked for, and checked"


def _gpu(reach: Reach) -> tuple[bool, str]:
    if reach.gpu is None:
        return False, "no GPU clock was found"
    if not reach.gpu.writable:
        return False, f"the clock of the {reach.gpu.name} cannot be written"
    return True, f"the clock of the {reach.gpu.name} can be held"


def _charging(reach: Reach) -> tuple[bool, str]:
    if reach.charging is None:
        return False, "charging cannot be cut: this kernel shows no switch for it"
    return True, f"charging is cut by {reach.charging.path.rpartition('/')[2]}"


def _gauge(reach: Reach) -> tuple[bool, str]:
    if not reach.gauge_readable:
        return False, "the battery's current cannot be read: no energy"
    return True, "energy comes from the battery's gauge"


def _nodes(reach: Reach) -> bool:
    return not any(is_framework(zone.path) for zone in reach.cpu_zones)
