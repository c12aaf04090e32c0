"""Faults of the phone itself: heat, charge, storage, memory, GPU, identity and reboots.

Seconds are phone seconds. The runner maps faults of the GPU to the exit statuses of its contract.
"""

import signal
from collections.abc import Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from agent.virtual.event_journal import JournalEvent
from agent.virtual.files.file_nodes import ROOT
from agent.virtual.mischief.fault_type import (
    Change,
    ChangeFault,
    FaultType,
    InjectionTarget,
    InvalidMischief,
)
from agent.virtual.phone_clock import ScheduledAction

_TMP = "/data/local/tmp"
_DRAIN_EVERY_S = 5.0


@dataclass(eq=False)
class Reboot(FaultType):
    """The phone reboots with a new boot id; with `wipe` its /data/local/tmp is empty afterwards."""

    starts_inside_trigger = False
    is_lasting = False
    wipe: bool = True

    def start(self, target: InjectionTarget) -> None:
        phone = target.phone
        phone.reboot("mischief")
        if self.wipe:
            for name in phone.tree.names(_TMP):
                phone.tree.remove(f"{_TMP}/{name}", ROOT, recursive=True)


@dataclass(eq=False)
class TimeJump(FaultType):
    """The phone's clock CLOCK_BOOTTIME jumps by `seconds`."""

    is_lasting = False
    seconds: float = 3.0

    def start(self, target: InjectionTarget) -> None:
        target.phone.shift_clock(self.seconds)


@dataclass(eq=False)
class ThrottleNow(FaultType):
    """Clusters, or `gpu`, whose role matches `cluster` are capped `steps` rungs below their top."""

    cluster: str = "*"
    steps: int = 6

    def start(self, target: InjectionTarget) -> None:
        soc = target.phone.soc
        roles: list[str] = [cluster.profile.role for cluster in soc.clusters]
        roles += ["gpu"] if soc.gpu is not None else []
        forced = {role: self.steps for role in roles if fnmatchcase(role, self.cluster)}
        if not forced:
            raise InvalidMischief(f"cluster={self.cluster} matches none of {', '.join(roles)}")
        soc.forced_throttle_steps |= forced
        soc.change(soc.apply_caps)

    def stop(self, target: InjectionTarget) -> None:
        soc = target.phone.soc
        for role in list(soc.forced_throttle_steps):
            if fnmatchcase(role, self.cluster):
                del soc.forced_throttle_steps[role]
        soc.change(soc.apply_caps)


@dataclass(eq=False)
class NeverCools(FaultType):
    """The ambient temperature rises at once to `ambient_c`, so that the phone never cools down."""

    ambient_c: float = 48.0
    _before_c: float = field(default=0.0, init=False, repr=False)

    def start(self, target: InjectionTarget) -> None:
        self._before_c = target.phone.soc.heat.ambient_c
        _set_ambient(target, self.ambient_c)

    def stop(self, target: InjectionTarget) -> None:
        _set_ambient(target, self._before_c)


def _set_ambient(target: InjectionTarget, ambient_c: float) -> None:
    soc = target.phone.soc
    heat = soc.heat

    def shift_temperatures() -> None:
        difference_c = ambient_c - heat.ambient_c
        heat.ambient_c = ambient_c
        die, body, battery = heat.temps
        heat.temps = (die + difference_c, body + difference_c, battery + difference_c)

    soc.change(shift_temperatures)


@dataclass(eq=False)
class BatteryDrains(FaultType):
    """The charge drops to `percent` at once (unless negative), then by `per_min` % per minute."""

    percent: float = -1.0
    per_min: float = 1.0
    _next_step: ScheduledAction | None = field(default=None, init=False, repr=False)

    def start(self, target: InjectionTarget) -> None:
        if self.percent >= 0:
            self._set_percent(target, self.percent)
        self._schedule_next(target)

    def stop(self, target: InjectionTarget) -> None:
        if self._next_step is not None:
            self._next_step.cancel()

    def _schedule_next(self, target: InjectionTarget) -> None:
        clock = target.phone.clock
        self._next_step = clock.schedule(
            clock.now + _DRAIN_EVERY_S, lambda: self._drain_step(target)
        )

    def _drain_step(self, target: InjectionTarget) -> None:
        percent = target.phone.soc.battery.percent - self.per_min * _DRAIN_EVERY_S / 60
        self._set_percent(target, max(percent, 0.0))
        self._schedule_next(target)

    @staticmethod
    def _set_percent(target: InjectionTarget, percent: float) -> None:
        battery = target.phone.soc.battery
        charge = battery.profile.capacity_uah * percent / 100
        target.phone.soc.change(lambda: setattr(battery, "charge_uah", charge))


@dataclass(eq=False)
class DiskFull(ChangeFault):
    """The storage has only `free_bytes` bytes left."""

    free_bytes: int = 0

    def changes(self, target: InjectionTarget) -> Iterator[Change]:
        tree = target.phone.tree
        capacity_bytes = min(tree.used_bytes + self.free_bytes, tree.capacity_bytes)
        yield Change(tree, "capacity_bytes", capacity_bytes)


@dataclass(eq=False)
class RefuseSettings(ChangeFault):
    """adb may change no setting and send no key, until a switch of the vendor is set."""

    def changes(self, target: InjectionTarget) -> Iterator[Change]:
        yield Change(target.phone, "refuses_adb", True)


@dataclass(eq=False)
class ScreenOff(ChangeFault):
    """The screen goes off, as after a press of the power button."""

    def changes(self, target: InjectionTarget) -> Iterator[Change]:
        target.phone.slept_at = target.phone.uptime()
        yield Change(target.phone, "is_awake", False)


@dataclass(eq=False)
class LowMemory(FaultType):
    """The low-memory killer kills processes whose command line matches `command`.

    Once, or with `every_s` repeatedly until it is cleared.
    """

    starts_inside_trigger = False
    command: str = "*runner* run *"
    every_s: float = 0.0
    _next_step: ScheduledAction | None = field(default=None, init=False, repr=False)

    def start(self, target: InjectionTarget) -> None:
        phone = target.phone
        for process in phone.processes.all():
            if fnmatchcase(" ".join(process.argv), self.command):
                phone.note_low_memory_kill(process)
                phone.processes.kill(process, signal.SIGKILL)
        if self.every_s > 0:
            when = phone.clock.now + self.every_s
            self._next_step = phone.clock.schedule(
                when, lambda: self.start(target), wakes_host=True
            )
        else:
            self.report_end()

    def stop(self, target: InjectionTarget) -> None:
        if self._next_step is not None:
            self._next_step.cancel()


@dataclass(eq=False)
class DuplicateSerial(FaultType):
    """The phone reports the `serial` number of another phone; by default of its first neighbour."""

    serial: str = ""

    def start(self, target: InjectionTarget) -> None:
        serial = self.serial or next(iter(target.neighbour_serials), "")
        if not serial:
            raise InvalidMischief("no other phone has a serial number to report; set serial=")
        self._set_serial(target, serial)

    def stop(self, target: InjectionTarget) -> None:
        self._set_serial(target, target.phone.serial)

    def observe(self, target: InjectionTarget, event: str, facts: dict[str, object]) -> None:
        if event == JournalEvent.BOOT:
            self.start(target)

    @staticmethod
    def _set_serial(target: InjectionTarget, serial: str) -> None:
        for name in ("ro.serialno", "ro.boot.serialno"):
            target.phone.properties[name] = serial


@dataclass(eq=False)
class GpuMissing(ChangeFault):
    """The phone has no OpenCL library, or (`what=device`) one that lists no devices."""

    what: str = "library"

    def changes(self, target: InjectionTarget) -> Iterator[Change]:
        names = {"library": "library_missing", "device": "devices_missing"}
        if self.what not in names:
            raise InvalidMischief(f"what={self.what} is not possible; use library or device")
        yield Change(target.phone.opencl, names[self.what], True)


@dataclass(eq=False)
class GpuBuildFails(ChangeFault):
    """The vendor's compiler rejects every kernel with the message `text`."""

    text: str = "error: use of undeclared identifier"

    def changes(self, target: InjectionTarget) -> Iterator[Change]:
        yield Change(target.phone.opencl, "build_error", self.text)


@dataclass(eq=False)
class GpuMemory(ChangeFault):
    """The GPU allocates no buffer of more than `max_alloc_mb` MB."""

    max_alloc_mb: int = 0

    def changes(self, target: InjectionTarget) -> Iterator[Change]:
        yield Change(target.phone.opencl, "max_alloc_mb", self.max_alloc_mb)


@dataclass(eq=False)
class GpuLost(FaultType):
    """The driver resets the GPU: what runs on it fails, and the next run works again."""

    starts_inside_trigger = False
    is_lasting = False

    def start(self, target: InjectionTarget) -> None:
        target.phone.opencl.lose_device()


@dataclass(eq=False)
class GpuWrong(ChangeFault):
    """The GPU computes values that are not finite."""

    def changes(self, target: InjectionTarget) -> Iterator[Change]:
        yield Change(target.phone.opencl, "computes_nonsense", True)
