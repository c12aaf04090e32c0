"""The scheduler with a large lab: heartbeats of 1,000 phones on 50 hosts, without any phone.

    python -m benchmarks.scheduler [--phones 100 300 1000] [--postgres] [--finished 3000]

A real broker and a real store; heartbeats and reports are replayed as agents send them, jobs
go out over Celery and are taken back out of the queues. A sweep of 100,000 trials is planned and
stored first. Then the lab is filled, and ticks are timed: those that fill it, those of a busy lab
in which nothing happens, and those that follow the end of two runs in a hundred. With --finished
the store has that many sweeps that ended earlier; the one tick that closes them is printed apart.
"""

import argparse
import math
import resource
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import redis

from orchestrator.dispatch.central_broker import CentralBroker
from orchestrator.dispatch.garbage_collection import freeze_gc
from orchestrator.dispatch.job_queue import JobQueue
from orchestrator.dispatch.scheduler import Scheduler
from orchestrator.planning.expand import expand_sweep
from orchestrator.planning.randomize import order_runs
from orchestrator.planning.states import RunState
from orchestrator.store import submission, tables
from orchestrator.store.database import Database
from orchestrator.store.ingest import store_parcels
from orchestrator.supervisor.embedded_broker import embedded_broker, wait_for_broker
from orchestrator.supervisor.process import stop_all
from orchestrator.sweepfile.sweep_file import read_sweep
from tests.builders import a_phone, a_report, a_trial, an_announcement, planned_runs
from tests.conftest import new_database, postgres_server, store_url_of
from workloads.lab.process_identity import software_version
from workloads.lab.settings import Lab
from workloads.protocol.messages import (
    CoolingEstimate,
    HostHeartbeat,
    Job,
    PhoneStatus,
    heartbeat_key,
    host_queue,
)

HOSTS, ENDED_SHARE, TICKS = 50, 0.02, 60
SWEEP = """\
farm: 1
name: large
workload: mlp-4
phones: all
matrix: {{batch_size: [{sizes}], cores: [big1, big2, big4, little4]}}
repeat: 1
"""


@dataclass
class Lane:
    """A phone as its agent reports it."""

    serial: str
    host: str
    digest: str
    job: Job | None = None


class ReplayedQueue(JobQueue):
    """The queue to simulated hosts: a job is really sent, then assigned to its lane."""

    def __init__(self, url: str, lanes: dict[str, Lane]) -> None:
        super().__init__(url)
        self._lanes = lanes

    def send_jobs(self, jobs: Sequence[tuple[str, Job]], skew_s: Mapping[str, float]) -> None:
        """Send jobs, and mark their phones as busy."""
        super().send_jobs(jobs, skew_s)
        for _, job in jobs:
            self._lanes[job.phone].job = job


@dataclass
class SimulatedLab:
    """A lab that consists of heartbeats, with its scheduler."""

    db: Database
    broker: CentralBroker
    raw: "redis.Redis[bytes]"
    lanes: dict[str, Lane]
    scheduler: Scheduler

    def publish_heartbeats(self) -> None:
        """Publish a heartbeat of every host."""
        by_host: dict[str, list[PhoneStatus]] = {}
        for lane in self.lanes.values():
            by_host.setdefault(lane.host, []).append(
                PhoneStatus(
                    serial=lane.serial,
                    state="busy" if lane.job else "idle",
                    facts_digest=lane.digest,
                    run=lane.job.run if lane.job else None,
                    stage="run" if lane.job else None,
                    temp_c=31.5,
                    cooling=CoolingEstimate(rest_c=28.0, time_constant_s=600.0),
                )
            )
        for host, phones in by_host.items():
            heartbeat = HostHeartbeat(
                host=host,
                sent_at=datetime.now(UTC),
                max_parallel=60,
                phones=tuple(phones),
                software=software_version(),
            )
            self.raw.set(heartbeat_key(host), heartbeat.model_dump_json())

    def end_runs(self, count: int) -> None:
        """End `count` runs, the oldest first, and empty the queues as agents do."""
        busy = sorted(
            (lane for lane in self.lanes.values() if lane.job), key=lambda lane: lane.job.fence
        )
        for lane in busy[:count]:
            assert lane.job is not None
            store_parcels(self.db, lane.host, [a_report(lane.job, host=lane.host)])
            lane.job = None
        for host in {lane.host for lane in self.lanes.values()}:
            self.raw.delete(host_queue(host))


class Duration(NamedTuple):
    """Wall-clock and CPU time of an action in milliseconds."""

    wall_ms: float
    cpu_ms: float


def timed(action: Callable[[], object]) -> Duration:
    """Run an action and measure it."""
    wall, cpu = time.perf_counter(), time.process_time()
    action()
    return Duration(1e3 * (time.perf_counter() - wall), 1e3 * (time.process_time() - cpu))


def build_lab(store_url: str, url: str, phones: int) -> SimulatedLab:
    """Build a store with some phones, and a scheduler."""
    db, broker = Database(store_url), CentralBroker(url)
    db.migrate()
    raw = redis.Redis.from_url(url)
    raw.flushall()
    lanes: dict[str, Lane] = {}
    for number in range(phones):
        host = f"host-{number % HOSTS:02}"
        announcement = an_announcement(
            a_phone(f"PH{number:04}", model=f"Model {number % 20}"), host
        )
        store_parcels(db, host, [announcement])
        lanes[announcement.facts.serial] = Lane(
            announcement.facts.serial, host, announcement.facts_digest
        )
    queue = ReplayedQueue(url, lanes)
    return SimulatedLab(db, broker, raw, lanes, Scheduler(db, broker, queue, lease_timeout_s=30.0))


def add_finished_sweeps(simulated: SimulatedLab, count: int) -> None:
    """Store sweeps whose only run is done; to the scheduler they are active until it looks."""
    phones = list(simulated.lanes)
    for number in range(count):
        trials = [a_trial(number, phones[number % len(phones)])]
        row = {"id": f"sw-old{number:05}", "name": "old", "source": "", "seed": 1}
        submission.submit(simulated.db, row, trials, planned_runs(trials))
    with simulated.db.write() as connection:
        connection.execute(tables.run.update().values(state=RunState.DONE))


def submit(simulated: SimulatedLab, trials_per_phone: int) -> tuple[float, float, int]:
    """Plan and store a sweep for every phone; return wall time, CPU time and trials."""
    sizes = ", ".join(str(number) for number in range(1, trials_per_phone // 4 + 1))
    facts = [a_phone(serial, model=f"Model {int(serial[2:]) % 20}") for serial in simulated.lanes]
    started, cpu = time.perf_counter(), time.process_time()
    sweep = read_sweep(SWEEP.format(sizes=sizes))
    trials = expand_sweep(sweep, facts).trials
    row = {"id": sweep.id, "name": sweep.name, "source": "", "seed": sweep.seed}
    stored = submission.submit(simulated.db, row, trials, order_runs(sweep, trials))
    return time.perf_counter() - started, time.process_time() - cpu, stored.new_trials


def measure(simulated: SimulatedLab) -> dict[str, list[Duration]]:
    """Time ticks that fill the lab, ticks of a busy lab, and ticks after the end of some runs."""
    filling, idle, busy = [], [], []
    freeze_gc()
    while any(lane.job is None for lane in simulated.lanes.values()):
        simulated.publish_heartbeats()
        filling.append(timed(simulated.scheduler.tick))
    for _ in range(TICKS):
        simulated.publish_heartbeats()
        idle.append(timed(simulated.scheduler.tick))
        simulated.end_runs(max(1, round(ENDED_SHARE * len(simulated.lanes))))
        simulated.publish_heartbeats()
        busy.append(timed(simulated.scheduler.tick))
    return {"busy lab": idle, "2 % just ended": busy, "filling the lab": filling}


def main() -> None:
    """Measure labs of three sizes and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--phones", type=int, nargs="*", default=[100, 300, 1000])
    parser.add_argument("--postgres", action="store_true")
    parser.add_argument("--finished", type=int, default=0)
    options = parser.parse_args()
    server = postgres_server() if options.postgres else nullcontext()
    with tempfile.TemporaryDirectory(prefix="farm-") as name, server as postgres:
        lab = Lab.read(Path(name) / "lab", {})
        process = embedded_broker(lab)
        process.start()
        wait_for_broker(lab, process)
        try:
            for phones in options.phones:
                file = Path(name) / f"farm-{phones}.db"
                store_url = (
                    new_database(store_url_of(postgres), f"ticks_{phones}")
                    if postgres
                    else f"sqlite:///{file}"
                )
                simulated = build_lab(store_url, lab.broker_url, phones)
                if options.finished:
                    add_finished_sweeps(simulated, options.finished)
                    first = timed(simulated.scheduler.tick)
                    print(f"one tick closed {options.finished:,} sweeps: {first.wall_ms:.0f} ms")
                seconds, cpu_s, trials = submit(simulated, 100)
                used_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
                print(f"{phones} phones, {HOSTS} hosts: {trials:,} trials planned and stored")
                print(
                    f"  in {seconds:.1f} s (processor {cpu_s:.1f}); this process at its largest:"
                    f" {used_mb:.0f} MB"
                )
                for action, ticks in measure(simulated).items():
                    wall = sorted(tick.wall_ms for tick in ticks)
                    cpu_ms = statistics.median(tick.cpu_ms for tick in ticks)
                    median = statistics.median(wall)
                    print(
                        f"  {len(ticks):3} ticks, {action:15} median {median:6.1f} ms"
                        f" (processor {cpu_ms:5.1f}), 19 of 20 under"
                        f" {wall[math.ceil(0.95 * len(wall)) - 1]:6.1f} ms,"
                        f" the longest {wall[-1]:.1f}"
                    )
        finally:
            stop_all([process])


if __name__ == "__main__":
    main()
