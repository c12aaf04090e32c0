"""Overhead of the farm: `noop` from submission to stored report, compared with bare Celery.

Both run on the same embedded broker, one after the other, alternating, in one call:

    .venv/bin/python -m benchmarks.plumbing [--runs 1800] [--rounds 3]

The bare pair is one request task answered by one reply task. A job of Farmhand has two messages as
well, and in addition a lease, a fence, a durable spool and a stored report.
"""

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks import bare_celery
from orchestrator.app.lab_connection import LabConnection
from orchestrator.app.lab_status import read_lab_status
from orchestrator.app.submit_sweep import submit_sweep
from orchestrator.store.sweep_queries import sweep_summaries
from orchestrator.supervisor.process import stop_all
from orchestrator.supervisor.services import agent_process, services
from orchestrator.supervisor.virtual_phones import virtual_phones
from workloads.lab.settings import Lab

SWEEP = """\
farm: 1
name: plumbing
workload: noop
phones: all
repeat: {repeat}
seed: {seed}
"""


def bare_rate(broker: str, count: int) -> float:
    """Return the requests per second that two bare Celery workers answer."""
    workers = {}
    for role in ("request", "reply"):
        command = [sys.executable, "-m", "benchmarks.bare_celery", role, broker, str(count)]
        workers[role] = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert workers[role].stdout is not None
        workers[role].stdout.readline()
    time.sleep(2.0)  # until both workers have connected
    started = time.time()
    bare_celery.send(broker, count)
    ended = float(workers["reply"].stdout.readline())
    for worker in workers.values():
        worker.terminate()
        worker.wait()
    return count / (ended - started)


def farm_rate(lab: LabConnection, phones: int, count: int, seed: int) -> float:
    """Return the runs per second, from submission to the last stored report."""
    text = SWEEP.format(repeat=max(1, count // phones), seed=seed)
    started = time.time()
    submission = submit_sweep(lab, text)
    while not (summary := sweep_summaries(lab.store, submission.sweep.id)[0]).finished:
        time.sleep(0.02)
    if summary.failed:
        raise SystemExit(f"{summary.failed} runs failed; the rate is not valid")
    return summary.total / (time.time() - started)


def main() -> None:
    """Measure both in alternation, and print the rates."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=1800)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--phones-of-each", type=int, default=10)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="farm-") as folder:
        lab = Lab.read(Path(folder), {})
        phones, addresses = virtual_phones(lab, 1.0, options.phones_of_each)
        connect = [part for address in addresses for part in ("--connect", address)]
        try:
            with services(lab, [agent_process(lab, "host-a", "--private-adb", *connect)]):
                measure(lab, len(addresses), options.runs, options.rounds)
        finally:
            stop_all(phones)


def count_idle(lab: LabConnection) -> int:
    """Return how many phones are idle."""
    return sum(phone.status.state == "idle" for phone in read_lab_status(lab).phones)


def measure(lab: Lab, phones: int, runs: int, rounds: int) -> None:
    """Wait for the phones, then measure in alternation."""
    connection = LabConnection(lab, "benchmark")
    while count_idle(connection) < phones:
        time.sleep(0.1)
    farm_rate(connection, phones, phones, seed=0)  # warm-up: imports, connections, caches
    ratios = []
    print(f"{phones} phones, {runs} runs per round, alternating; per second:")
    for number in range(1, rounds + 1):
        bare = bare_rate(lab.broker_url, runs)
        farm = farm_rate(connection, phones, runs, seed=number)
        ratios.append(farm / bare)
        print(
            f"  round {number}: bare Celery pair {bare:6.0f}   farm {farm:6.0f}   {farm / bare:.0%}"
        )
    print(f"farm / bare Celery, median of {rounds}: {statistics.median(ratios):.0%}")


if __name__ == "__main__":
    main()
