"""A lab of virtual phones that lasts as long as it is needed: for the demo, and for studies."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from orchestrator.dispatch.broker import Broker
from orchestrator.exits import TimedOut
from orchestrator.lab.children import Child, stop_all
from orchestrator.lab.up import agent_child, lab_lock, services
from orchestrator.lab.virtual import PROFILES, virtual_phones
from orchestrator.lab_view import LabView, look
from orchestrator.store.database import Database
from workloads.fault import FarmTrouble
from workloads.lab import Lab

PHONES_S = 30.0
HOSTS = ("host-a", "host-b")


@dataclass(frozen=True)
class DemoLab:
    """A lab that is up, with its phones idle."""

    lab: Lab
    db: Database
    broker: Broker
    children: list[Child]

    def intact(self) -> bool:
        """Notice a service that died; in a demo nothing is brought back."""
        for child in self.children:
            if not child.alive:
                raise FarmTrouble(f"{child.name} ended: {child.last_words()}")
        return True


@contextmanager
def demo_lab(
    lab: Lab,
    speed: float,
    say: Callable[[str], None],
    profiles: Sequence[str] = PROFILES,
) -> Iterator[DemoLab]:
    """Bring a lab of virtual phones on up to two hosts up, and take all of it down again."""
    with lab_lock(lab):
        say(f"starting {len(profiles)} virtual phones, {speed:.0f} times faster than life")
        phones, addresses = virtual_phones(lab, speed, profiles=profiles)
        try:
            hosts = HOSTS[: len(addresses)]
            share = -(-len(addresses) // len(hosts))
            agents = [
                agent_child(lab, host, "--private-adb", *_connect(addresses, index * share, share))
                for index, host in enumerate(hosts)
            ]
            say(f"starting broker, store, scheduler, ingest and {len(hosts)} agents")
            with services(lab, agents) as children:
                db, broker = Database(lab.store_url), Broker(lab.broker_url)
                demo = DemoLab(lab, db, broker, [*phones, *children])
                try:
                    wait_for_phones(demo, len(addresses))
                    say(f"{len(addresses)} phones are idle on {len(hosts)} hosts")
                    yield demo
                finally:
                    db.close()
                    broker.close()
        finally:
            stop_all(phones)


def _connect(addresses: tuple[str, ...], start: int, count: int) -> list[str | Path]:
    chosen = addresses[start : start + count]
    return [part for address in chosen for part in ("--connect", address)]


def wait_for_phones(demo: DemoLab, count: int) -> LabView:
    """Wait until every phone is probed, announced and idle."""
    deadline = time.monotonic() + PHONES_S
    while True:
        view = look(demo.db, demo.broker)
        if sum(phone.state == "idle" for phone in view.phones) >= count:
            return view
        demo.intact()
        if time.monotonic() > deadline:
            here = ", ".join(phone.serial for phone in view.phones if phone.state == "idle")
            raise TimedOut(f"only these phones came up: {here or 'none'}; see {demo.lab.root}/logs")
        time.sleep(0.05)
