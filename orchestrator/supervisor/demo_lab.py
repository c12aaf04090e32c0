"""A lab of virtual phones that lasts as long as it is needed: for the demo, and for studies."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from orchestrator.app.app_errors import TimedOut
from orchestrator.app.lab_status import read_lab_status
from orchestrator.dispatch.central_broker import CentralBroker
from orchestrator.store.database import Database
from orchestrator.supervisor.process import stop_all
from orchestrator.supervisor.services import Supervisor, agent_process, lab_lock, services
from orchestrator.supervisor.virtual_phones import PROFILES, virtual_phones
from workloads.lab_settings import Lab
from workloads.protocol.faults import BrokerDown, StoreDown

PHONES_S = 30.0
PATIENCE_S = 30.0
FAILURES_MAX = 4  # of one service; then it is no accident
HOSTS = ("host-a", "host-b")

Answer = TypeVar("Answer")
Say = Callable[[str], None]


@dataclass(frozen=True)
class DemoLab:
    """A lab that is up; whoever is killed meanwhile is brought back by whoever looks."""

    lab: Lab
    db: Database
    broker: CentralBroker
    keeper: Supervisor

    def intact(self) -> bool:
        """Have all of it up: whoever has ended is started again."""
        self.keeper.look()
        return True

    def patiently(self, ask: Callable[[], Answer]) -> Answer:
        """Ask something of the services; one that was killed is brought back and asked again."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                return ask()
            except (BrokerDown, StoreDown):
                if not self.keeper.look() and time.monotonic() > deadline:
                    raise
                time.sleep(0.1)


@contextmanager
def demo_lab(
    lab: Lab,
    speed: float,
    say: Say,
    profiles: Sequence[str] = PROFILES,
    tell: Say | None = None,
) -> Iterator[DemoLab]:
    """Bring a lab of virtual phones on up to two hosts up, and take all of it down again.

    What is done is said; who was brought back is told, since that may be while a screen is drawn.
    """
    with lab_lock(lab):
        say(f"starting {len(profiles)} virtual phones, {speed:.0f} times faster than life")
        phones, addresses = virtual_phones(lab, speed, profiles=profiles)
        try:
            hosts = HOSTS[: len(addresses)]
            share = -(-len(addresses) // len(hosts))
            agents = [
                agent_process(
                    lab, host, "--private-adb", *_connect(addresses, index * share, share)
                )
                for index, host in enumerate(hosts)
            ]
            say(f"starting broker, store, scheduler, ingest and {len(hosts)} agents")
            with services(lab, agents) as children:
                db, broker = Database(lab.store_url), CentralBroker(lab.broker_url)
                keeper = Supervisor([*phones, *children], FAILURES_MAX, tell or say)
                demo = DemoLab(lab, db, broker, keeper)
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


def wait_for_phones(demo: DemoLab, count: int) -> None:
    """Wait until every phone is probed, announced and idle."""
    deadline = time.monotonic() + PHONES_S
    while True:
        view = demo.patiently(lambda: read_lab_status(demo.db, demo.broker))
        here = [phone.serial for phone in view.phones if phone.status.state == "idle"]
        if len(here) >= count:
            return
        if demo.keeper.look():
            deadline = time.monotonic() + PHONES_S
        if time.monotonic() > deadline:
            came = ", ".join(here) or "none"
            raise TimedOut(f"only these phones came up: {came}; see {demo.lab.root}/logs")
        time.sleep(0.05)
