"""Faults by other software on the phone: cores switched off, threads moved, other load, suspend.

Seconds are phone seconds.
"""

import signal
from collections.abc import Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from agent.virtual.engines import load_engine
from agent.virtual.mischief.fault_type import (
    Change,
    ChangeFault,
    FaultType,
    InjectionTarget,
    InvalidMischief,
)
from agent.virtual.phone_clock import ScheduledAction
from agent.virtual.physics.thread_placement import CoreLoad
from agent.virtual.process_table import Process

_SYSTEM = 1000


def _check_share(share: float) -> None:
    if not 0 < share <= 1:
        raise InvalidMischief(f"share={share} is not above 0 and at most 1")


@dataclass(eq=False)
class Hotplug(FaultType):
    """Core `cpu` is switched off every `every_s` seconds.

    By init's `service` while that runs, or by the kernel's `core_ctl` while its min_cpus is below
    the number of cores of the cluster.
    """

    cpu: int = 7
    every_s: float = 2.0
    service: str = "core_ctl"
    _next_switch: ScheduledAction | None = field(default=None, init=False, repr=False)

    def start(self, target: InjectionTarget) -> None:
        if self.cpu >= target.phone.profile.cores:
            raise InvalidMischief(
                f"cpu={self.cpu}: the phone has {target.phone.profile.cores} cores"
            )
        self._switch_off(target)

    def stop(self, target: InjectionTarget) -> None:
        if self._next_switch is not None:
            self._next_switch.cancel()

    def _switch_off(self, target: InjectionTarget) -> None:
        phone = target.phone
        cluster = phone.soc.cluster_of(self.cpu)
        may_switch_off = (
            cluster.core_ctl_min_cpus < len(cluster.cpus)
            if self.service == "core_ctl"
            else phone.soc.is_service_running(self.service)
        )
        if may_switch_off and self.cpu in cluster.online and len(phone.soc.online_cpus()) > 1:
            node, _ = phone.tree.resolve(f"/sys/devices/system/cpu/cpu{self.cpu}/online")
            phone.tree.append(node, b"0\n", _SYSTEM)
        when = phone.clock.now + self.every_s
        self._next_switch = phone.clock.schedule(
            when, lambda: self._switch_off(target), wakes_host=True
        )


@dataclass(eq=False)
class Migrate(FaultType):
    """Processes whose command line matches `command` are moved to the cores of `mask`."""

    is_lasting = False
    starts_inside_trigger = False
    command: str = "*runner* run *"
    mask: str = "ff"

    def start(self, target: InjectionTarget) -> None:
        mask = int(self.mask, 16) & target.phone.processes.all_cores
        if not mask:
            raise InvalidMischief(f"mask={self.mask} contains no core of this phone")
        for process in target.phone.processes.all():
            if fnmatchcase(" ".join(process.argv), self.command):
                target.phone.processes.move_process(process, mask)


@dataclass(eq=False)
class OtherWork(FaultType):
    """An app with the user id `uid` keeps the cores of `mask` busy with `threads` threads.

    Each thread asks for a `share` of a core, and transfers `gbs` GB/s in that time.
    """

    mask: str = "0f"
    threads: int = 4
    uid: int = 10123
    share: float = 1.0
    gbs: float = 0.5
    _load: CoreLoad | None = field(default=None, init=False, repr=False)
    _process: Process | None = field(default=None, init=False, repr=False)

    def start(self, target: InjectionTarget) -> None:
        mask = int(self.mask, 16) & target.phone.processes.all_cores
        if not mask:
            raise InvalidMischief(f"mask={self.mask} contains no core of this phone")
        _check_share(self.share)
        self._load = load = CoreLoad(mask, self.threads, load_engine("mnn"), lambda _: None)
        load.demand = self.share
        load.gbs = self.threads * self.share * max(self.gbs, 0.0)
        soc, processes = target.phone.soc, target.phone.processes
        soc.attach(load)
        self._process = processes.spawn(None, ["com.example.app"], self.uid)

        def cpu_s() -> float:
            soc.update_counters()
            return load.use.cpu_s

        self._process.cpu_s = cpu_s

    def stop(self, target: InjectionTarget) -> None:
        if self._load is not None:
            target.phone.soc.detach(self._load)
        if self._process is not None:
            target.phone.processes.kill(self._process, signal.SIGKILL)


@dataclass(eq=False)
class Sleep(FaultType):
    """The phone is suspended: nothing runs, no CPU time is counted, CLOCK_BOOTTIME continues.

    It resumes when the fault stops (`for`). With `suspends=no` only the processes that match
    `command` are frozen, as Android freezes apps in the background.
    """

    starts_inside_trigger = False
    command: str = "*runner* run *"
    suspends: bool = True
    _paused: list[Process] = field(default_factory=list, init=False, repr=False)

    def start(self, target: InjectionTarget) -> None:
        phone = target.phone
        self._paused = [
            p for p in phone.processes.all() if fnmatchcase(" ".join(p.argv), self.command)
        ]
        for process in self._paused:
            phone.processes.kill(process, signal.SIGSTOP)
        phone.soc.set_suspended(self.suspends)

    def stop(self, target: InjectionTarget) -> None:
        phone = target.phone
        phone.soc.set_suspended(False)
        for process in self._paused:
            phone.processes.kill(process, signal.SIGCONT)


@dataclass(eq=False)
class ChargerReturns(FaultType):
    """Another program switches charging on again after it was cut off; `on=no`: off."""

    is_lasting = False
    starts_inside_trigger = False
    on: bool = True

    def start(self, target: InjectionTarget) -> None:
        soc = target.phone.soc
        soc.change(lambda: setattr(soc.battery, "charging_allowed", self.on))


@dataclass(eq=False)
class HiddenLimit(ChangeFault):
    """A limiter without a sysfs node: the cores reach only a `share` of what their clocks allow.

    With `part=gpu` it limits the GPU.
    """

    share: float = 0.8
    part: str = "cpu"

    def changes(self, target: InjectionTarget) -> Iterator[Change]:
        if self.part not in ("cpu", "gpu") or self.share <= 0:
            raise InvalidMischief(f"part={self.part} share={self.share}: use cpu or gpu, above 0")
        soc = target.phone.soc
        if self.part == "cpu":
            yield Change(soc, "hidden_speed_share", self.share)
        elif soc.gpu is not None:
            yield Change(soc.gpu, "speed_left", self.share)


@dataclass(eq=False)
class GpuContention(ChangeFault):
    """Another app draws on the GPU: a `share` of its time is left."""

    share: float = 0.6

    def changes(self, target: InjectionTarget) -> Iterator[Change]:
        _check_share(self.share)
        gpu = target.phone.soc.gpu
        if gpu is None:
            raise InvalidMischief("this phone has no GPU")
        yield Change(gpu, "speed_left", self.share)
        yield Change(gpu, "others_busy", 1.0 - self.share)


@dataclass(eq=False)
class Screen(ChangeFault):
    """A person switches the screen on: it draws `watts` more, at a `brightness` of 255."""

    watts: float = 0.8
    brightness: int = 180

    def changes(self, target: InjectionTarget) -> Iterator[Change]:
        target.phone.touched_at = target.phone.uptime()
        yield Change(target.phone, "lit_brightness", self.brightness)
        yield Change(target.phone.soc, "panel_w", self.watts)

    def stop(self, target: InjectionTarget) -> None:
        super().stop(target)
        target.phone.touched_at = target.phone.uptime()


@dataclass(eq=False)
class PowerDraw(ChangeFault):
    """A radio or another part draws `watts` more, and no node shows which."""

    watts: float = 1.0

    def changes(self, target: InjectionTarget) -> Iterator[Change]:
        yield Change(target.phone.soc, "panel_w", self.watts)


@dataclass(eq=False)
class Governor(ChangeFault):
    """Another program switches all CPU governors to `governor`; limits stay as they are."""

    governor: str = "powersave"

    def changes(self, target: InjectionTarget) -> Iterator[Change]:
        for cluster in target.phone.soc.clusters:
            if self.governor not in cluster.governors:
                choices = ", ".join(cluster.governors)
                raise InvalidMischief(f"governor={self.governor} is none of {choices}", "governor")
            yield Change(cluster, "governor", self.governor)


@dataclass(eq=False)
class MemoryContention(ChangeFault):
    """Something else uses the memory bus: a `share` of the bandwidth is left."""

    share: float = 0.5

    def changes(self, target: InjectionTarget) -> Iterator[Change]:
        _check_share(self.share)
        soc, memory = target.phone.soc, target.phone.soc.profile.memory
        names = ("bandwidth_gbs", "core_gbs")
        left = {name: self.share * getattr(memory, name) for name in names}
        changed = {"memory": memory.model_copy(update=left)}
        yield Change(soc, "profile", soc.profile.model_copy(update=changed))


@dataclass(eq=False)
class BusThrottle(MemoryContention):
    """The clock of the memory bus is lowered: a `share` of it, and of the bandwidth, is left."""

    def changes(self, target: InjectionTarget) -> Iterator[Change]:
        yield from super().changes(target)
        yield Change(target.phone.soc, "bus_share", self.share)


@dataclass(eq=False)
class Foreground(FaultType):
    """A person opens an app with the user id `uid`; it waits in the foreground."""

    uid: int = 10124
    _process: Process | None = field(default=None, init=False, repr=False)

    def start(self, target: InjectionTarget) -> None:
        self._process = target.phone.processes.spawn(None, ["com.example.notes"], self.uid)
        self._process.cpuset = "/top-app"
        target.phone.touched_at = target.phone.uptime()

    def stop(self, target: InjectionTarget) -> None:
        if self._process is not None:
            target.phone.processes.kill(self._process, signal.SIGKILL)
