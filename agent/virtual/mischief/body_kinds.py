"""Troubles of the phone's body: heat, charge, storage, memory, identity, and reboots.

Seconds here are the phone's own.
"""

import signal
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from agent.virtual.files.nodes import ROOT
from agent.virtual.mischief.effect import BadMischief, Effect, Victim
from agent.virtual.timeline import Event

_TMP = "/data/local/tmp"
_DRAIN_EVERY_S = 5.0


@dataclass(eq=False)
class Reboot(Effect):
    """The phone restarts: another boot id, and with `wipe` nothing left in its folder for tmp."""

    abrupt = False
    lasting = False
    wipe: bool = True

    def start(self, victim: Victim) -> None:
        phone = victim.phone
        phone.reboot("mischief")
        if self.wipe:
            for name in phone.tree.names(_TMP):
                phone.tree.remove(f"{_TMP}/{name}", ROOT, folders=True)


@dataclass(eq=False)
class ThrottleNow(Effect):
    """Clusters whose role is like `cluster`, the GPU too, are capped `steps` below their top."""

    cluster: str = "*"
    steps: int = 6

    def start(self, victim: Victim) -> None:
        soc = victim.phone.soc
        roles: list[str] = [each.profile.role for each in soc.clusters]
        roles += ["gpu"] if soc.gpu is not None else []
        forced = {role: self.steps for role in roles if fnmatchcase(role, self.cluster)}
        if not forced:
            raise BadMischief(f"cluster={self.cluster}: there are {', '.join(roles)}")
        soc.forced_steps |= forced
        soc.change(soc.apply_caps)

    def stop(self, victim: Victim) -> None:
        soc = victim.phone.soc
        for role in list(soc.forced_steps):
            if fnmatchcase(role, self.cluster):
                del soc.forced_steps[role]
        soc.change(soc.apply_caps)


@dataclass(eq=False)
class NeverCools(Effect):
    """The phone lies in the sun: so warm an ambient, at once, that it never gets cool."""

    ambient_c: float = 48.0
    _before_c: float = field(default=0.0, init=False, repr=False)

    def start(self, victim: Victim) -> None:
        self._before_c = victim.phone.soc.heat.ambient_c
        _warm(victim, self.ambient_c)

    def stop(self, victim: Victim) -> None:
        _warm(victim, self._before_c)


def _warm(victim: Victim, ambient_c: float) -> None:
    soc = victim.phone.soc
    heat = soc.heat

    def mutate() -> None:
        more = ambient_c - heat.ambient_c
        heat.ambient_c = ambient_c
        die, body, battery = heat.temps
        heat.temps = (die + more, body + more, battery + more)

    soc.change(mutate)


@dataclass(eq=False)
class BatteryDrains(Effect):
    """Charge drops to `percent` at once (below 0: stays), then `per_min` % each minute."""

    percent: float = -1.0
    per_min: float = 1.0
    _event: Event | None = field(default=None, init=False, repr=False)

    def start(self, victim: Victim) -> None:
        if self.percent >= 0:
            self._set(victim, self.percent)
        self._plan(victim)

    def stop(self, victim: Victim) -> None:
        if self._event is not None:
            self._event.drop()

    def _plan(self, victim: Victim) -> None:
        timeline = victim.phone.timeline
        self._event = timeline.at(timeline.now + _DRAIN_EVERY_S, lambda: self._drain(victim))

    def _drain(self, victim: Victim) -> None:
        percent = victim.phone.soc.battery.percent - self.per_min * _DRAIN_EVERY_S / 60
        self._set(victim, max(percent, 0.0))
        self._plan(victim)

    @staticmethod
    def _set(victim: Victim, percent: float) -> None:
        battery = victim.phone.soc.battery
        charge = battery.profile.capacity_uah * percent / 100
        victim.phone.soc.change(lambda: setattr(battery, "charge_uah", charge))


@dataclass(eq=False)
class DiskFull(Effect):
    """The storage has only so many bytes left."""

    free_bytes: int = 0
    _before: int = field(default=0, init=False, repr=False)

    def start(self, victim: Victim) -> None:
        tree = victim.phone.tree
        self._before = tree.capacity
        tree.capacity = min(tree.used + self.free_bytes, tree.capacity)

    def stop(self, victim: Victim) -> None:
        victim.phone.tree.capacity = self._before


@dataclass(eq=False)
class LowMemory(Effect):
    """The low-memory killer takes processes whose command line is like `command`.

    Once, or with `every_s` again and again until it is cleared.
    """

    abrupt = False
    command: str = "*runner* run *"
    every_s: float = 0.0
    _event: Event | None = field(default=None, init=False, repr=False)

    def start(self, victim: Victim) -> None:
        phone = victim.phone
        for process in phone.processes.all():
            if fnmatchcase(" ".join(process.argv), self.command):
                phone.journal.write("low_memory_kill", pid=process.pid, argv=process.argv[:8])
                phone.processes.kill(process, signal.SIGKILL)
        if self.every_s > 0:
            when = phone.timeline.now + self.every_s
            self._event = phone.timeline.at(when, lambda: self.start(victim), prompt=True)
        else:
            self.ended()

    def stop(self, victim: Victim) -> None:
        if self._event is not None:
            self._event.drop()


@dataclass(eq=False)
class DuplicateSerial(Effect):
    """The phone claims the `serial` of another; of its first neighbour where none is given."""

    serial: str = ""

    def start(self, victim: Victim) -> None:
        claimed = self.serial or next(iter(victim.others), "")
        if not claimed:
            raise BadMischief("there is no other phone whose serial could be claimed")
        self._claim(victim, claimed)

    def stop(self, victim: Victim) -> None:
        self._claim(victim, victim.phone.serial)

    def heard(self, victim: Victim, event: str, facts: dict[str, object]) -> None:
        if event == "boot":
            self.start(victim)

    @staticmethod
    def _claim(victim: Victim, serial: str) -> None:
        for name in ("ro.serialno", "ro.boot.serialno"):
            victim.phone.properties[name] = serial
