"""A temporary lab of virtual phones, for the demo and for studies."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from orchestrator.app.app_errors import TimedOut
from orchestrator.app.lab_connection import LabConnection
from orchestrator.app.lab_status import read_lab_status
from orchestrator.supervisor.lab_process import lab_lock
from orchestrator.supervisor.process import ServiceProcess, stop_all
from orchestrator.supervisor.services import Supervisor, agent_process, services
from orchestrator.supervisor.virtual_phones import (
    NATIVE,
    PROFILES,
    agent_options,
    virtual_phones,
)
from workloads.cli_options import EVENT_TIME
from workloads.lab.settings import Lab
from workloads.protocol.faults import BrokerDown, StoreDown
from workloads.protocol.messages import PhoneState
from workloads.units import count_text

# So long that a busy computer does not reach them.
PHONES_TIMEOUT_S = 300.0
RETRY_TIMEOUT_S = 120.0
RETRY_DELAY_S = 0.1
POLL_INTERVAL_S = 0.05
FAILURES_MAX = 4  # failures of one service before the lab gives up
HOSTS = ("host-a", "host-b")
THIS_HOST = "this-computer"

Answer = TypeVar("Answer")
Report = Callable[[str], None]


@dataclass(frozen=True)
class DemoLab:
    """A running lab; processes that end are restarted by `keep_up` and `retry`."""

    connection: LabConnection
    supervisor: Supervisor
    lab: Lab

    def keep_up(self) -> bool:
        """Restart processes that ended; always true, for use in conditions."""
        self.supervisor.restart_ended()
        return True

    def retry(self, query: Callable[[], Answer]) -> Answer:
        """Return the answer to a query; repeat it while a killed service is restarted."""
        deadline = time.monotonic() + RETRY_TIMEOUT_S
        while True:
            try:
                return query()
            except (BrokerDown, StoreDown):
                if not self.supervisor.restart_ended() and time.monotonic() > deadline:
                    raise
                time.sleep(RETRY_DELAY_S)


@contextmanager
def demo_lab(
    lab: Lab,
    speed: float,
    report: Report,
    profiles: Sequence[str] = PROFILES,
    on_restart: Report | None = None,
    mischief: Path | None = None,
) -> Iterator[DemoLab]:
    """Start a lab of virtual phones on up to two hosts, and stop all of it at the end.

    `on_restart` is called for restarted processes, which may happen while a screen is drawn;
    `mischief` is a file with faults of the phones.
    """
    with lab_lock(lab):
        if profiles == NATIVE:
            report("starting a native phone: programs run on this computer")
        else:
            started = count_text(len(profiles), "virtual phone")
            report(f"starting {started}; {_pace_text(speed)}")
        hosts = HOSTS[: len(profiles)]
        per_host = -(-len(profiles) // len(hosts))
        phones: list[ServiceProcess] = []
        try:
            agents = []
            for index, host in enumerate(hosts):
                share = profiles[index * per_host : (index + 1) * per_host]
                name = f"virtual-{host}"
                started_phones, addresses = virtual_phones(
                    lab, speed, profiles=share, mischief=mischief, name=name
                )
                phones += started_phones
                connect = [part for address in addresses for part in ("--connect", address)]
                agents.append(agent_process(lab, host, *agent_options(speed), *connect))
            started = count_text(len(hosts), "agent")
            report(f"starting broker, store, scheduler, ingest and {started}")
            with services(lab, agents) as processes, LabConnection(lab, "demo") as connection:
                supervisor = Supervisor([*phones, *processes], FAILURES_MAX, on_restart or report)
                demo = DemoLab(connection, supervisor, lab)
                wait_for_phones(demo, len(profiles))
                idle = count_text(len(profiles), "phone")
                report(f"{idle} idle on {count_text(len(hosts), 'host')}")
                yield demo
        finally:
            stop_all(phones)


@contextmanager
def this_computer(demo: DemoLab) -> Iterator[None]:
    """Add this computer as one more phone, on a host of its own, to a running lab."""
    phones, addresses = virtual_phones(demo.lab, 1.0, profiles=NATIVE, name="native")
    agent = agent_process(demo.lab, THIS_HOST, "--private-adb", "--connect", addresses[0])
    try:
        agent.start()
        yield
    finally:
        stop_all([*phones, agent])


def _pace_text(speed: float) -> str:
    if speed == EVENT_TIME:
        return "their clocks run as fast as this computer can"
    return f"their clocks run {speed:.0f} times as fast as real time"


def wait_for_phones(demo: DemoLab, count: int) -> None:
    """Wait until every phone is probed, announced and idle."""
    deadline = time.monotonic() + PHONES_TIMEOUT_S
    while True:
        view = demo.retry(lambda: read_lab_status(demo.connection, with_progress=False))
        idle = [phone.serial for phone in view.phones if phone.status.state is PhoneState.IDLE]
        if len(idle) >= count:
            return
        if demo.supervisor.restart_ended():
            deadline = time.monotonic() + PHONES_TIMEOUT_S
        if time.monotonic() > deadline:
            connected = ", ".join(idle) or "none"
            root = demo.connection.lab.root
            raise TimedOut(f"only these phones connected: {connected}; see {root}/logs")
        time.sleep(POLL_INTERVAL_S)
