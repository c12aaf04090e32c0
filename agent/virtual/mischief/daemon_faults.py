"""Troubles by those who mean well: cores off, threads moved, other work, sleep.

Seconds here are the phone's own.
"""

import signal
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from agent.virtual.engines import load_engine
from agent.virtual.mischief.effect import BadMischief, Effect, Victim
from agent.virtual.physics.placement import Load
from agent.virtual.processes import Process
from agent.virtual.timeline import Event

_SYSTEM = 1000


@dataclass(eq=False)
class Hotplug(Effect):
    """Every `every_s` seconds core `cpu` is switched off.

    By init's `service` while that runs, or by the kernel's `core_ctl` while it promises fewer cores
    than the cluster has.
    """

    cpu: int = 7
    every_s: float = 2.0
    service: str = "core_ctl"
    _event: Event | None = field(default=None, init=False, repr=False)

    def start(self, victim: Victim) -> None:
        if self.cpu >= victim.phone.profile.cores:
            raise BadMischief(f"cpu={self.cpu}: there are {victim.phone.profile.cores}")
        self._meddle(victim)

    def stop(self, victim: Victim) -> None:
        if self._event is not None:
            self._event.drop()

    def _meddle(self, victim: Victim) -> None:
        phone = victim.phone
        cluster = phone.soc.cluster_of(self.cpu)
        free = (
            cluster.kept_cores < len(cluster.cpus)
            if self.service == "core_ctl"
            else phone.soc.service_runs(self.service)
        )
        if free and self.cpu in cluster.online and len(phone.soc.online()) > 1:
            node, _ = phone.tree.resolve(f"/sys/devices/system/cpu/cpu{self.cpu}/online")
            phone.tree.append(node, b"0\n", _SYSTEM)
        when = phone.timeline.now + self.every_s
        self._event = phone.timeline.at(when, lambda: self._meddle(victim), prompt=True)


@dataclass(eq=False)
class Migrate(Effect):
    """Threads of processes whose command line is like `command` get the cores of `mask`."""

    lasting = False
    abrupt = False
    command: str = "*runner* run *"
    mask: str = "ff"

    def start(self, victim: Victim) -> None:
        mask = int(self.mask, 16) & victim.phone.processes.all_cores
        if not mask:
            raise BadMischief(f"mask={self.mask} names no core of this phone")
        for process in victim.phone.processes.all():
            if fnmatchcase(" ".join(process.argv), self.command):
                victim.phone.processes.set_mask(process, mask)


@dataclass(eq=False)
class OtherWork(Effect):
    """Somebody else works on the cores of `mask` with so many `threads`."""

    mask: str = "0f"
    threads: int = 4
    _load: Load | None = field(default=None, init=False, repr=False)

    def start(self, victim: Victim) -> None:
        mask = int(self.mask, 16) & victim.phone.processes.all_cores
        if not mask:
            raise BadMischief(f"mask={self.mask} names no core of this phone")
        self._load = Load(mask, self.threads, load_engine("mnn"), lambda _: None)
        victim.phone.soc.attach(self._load)

    def stop(self, victim: Victim) -> None:
        if self._load is not None:
            victim.phone.soc.detach(self._load)


@dataclass(eq=False)
class Sleep(Effect):
    """The phone sleeps for a while: nothing works, no core counts, and the clock of boot goes on.

    It lasts as long as the mischief does (`for`).
    """

    abrupt = False
    command: str = "*runner* run *"
    _paused: list[Process] = field(default_factory=list, init=False, repr=False)

    def start(self, victim: Victim) -> None:
        phone = victim.phone
        self._paused = [
            p for p in phone.processes.all() if fnmatchcase(" ".join(p.argv), self.command)
        ]
        for process in self._paused:
            phone.processes.kill(process, signal.SIGSTOP)
        phone.soc.sleep(True)

    def stop(self, victim: Victim) -> None:
        phone = victim.phone
        phone.soc.sleep(False)
        for process in self._paused:
            phone.processes.kill(process, signal.SIGCONT)


@dataclass(eq=False)
class ChargerReturns(Effect):
    """Somebody lets the charger in again, behind the back of whoever cut it off."""

    lasting = False
    abrupt = False

    def start(self, victim: Victim) -> None:
        soc = victim.phone.soc
        soc.change(lambda: setattr(soc.battery, "charging_allowed", True))


@dataclass(eq=False)
class HiddenLimit(Effect):
    """A limiter below all nodes: the silicon does only a `share` of what its clocks say."""

    share: float = 0.8

    def start(self, victim: Victim) -> None:
        soc = victim.phone.soc
        soc.change(lambda: setattr(soc, "hidden_share", self.share))

    def stop(self, victim: Victim) -> None:
        soc = victim.phone.soc
        soc.change(lambda: setattr(soc, "hidden_share", 1.0))
