"""Troubles by daemons that mean well: cores switched off, threads moved elsewhere.

Seconds here are the phone's own.
"""

from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from agent.virtual.mischief.effect import BadMischief, Effect, Victim
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
