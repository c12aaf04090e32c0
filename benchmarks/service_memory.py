"""The memory of the central services with a large lab: scheduler, ingest and API, as processes.

    .venv/bin/python -m benchmarks.service_memory [--phones 1000] [--seconds 30] [--postgres]

Heartbeats of all phones come every second; jobs are taken out of the queues, and in every second
two runs in a hundred end and are reported, as agents do it. A person asks the API for the status,
the phones and the sweep again and again. Printed is the largest sum of PSS, memory that processes
share counted once.
"""

import argparse
import base64
import json
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

from benchmarks.scheduler import ENDED_SHARE, SimulatedLab, build_lab, submit
from orchestrator.app.lab_connection import LabConnection
from orchestrator.app.lab_status import read_lab_status
from orchestrator.app.manage_tokens import add_token
from orchestrator.app.operation import Role
from orchestrator.app.remote.api_client import RemoteLab
from orchestrator.supervisor.embedded_broker import embedded_broker, wait_for_broker
from orchestrator.supervisor.process import ServiceProcess, stop_all
from orchestrator.supervisor.services import api_service, central_service
from tests.api.conftest import free_port, is_open
from tests.builders import a_report
from tests.conftest import new_database, postgres_server, store_url_of
from tests.farm.conftest import wait_for
from workloads.lab.celery_setup import celery_app, send_task
from workloads.lab.settings import Lab
from workloads.protocol.limits import JOB_BYTES_MAX
from workloads.protocol.messages import DELIVER, Job, decode, host_queue, results_queue

TARGET_MB = 400


def pss_mb(process: ServiceProcess) -> float:
    """Return the memory of a process, with its share of what it has in common with others."""
    lines = Path(f"/proc/{process.pid}/smaps_rollup").read_text().splitlines()
    (line,) = (line for line in lines if line.startswith("Pss:"))
    return int(line.split()[1]) / 1024


def take_jobs(simulated: SimulatedLab) -> None:
    """Take the jobs of every host out of its queue."""
    for host in {lane.host for lane in simulated.lanes.values()}:
        while (message := simulated.raw.rpop(host_queue(host))) is not None:
            ((text,), *_) = json.loads(base64.b64decode(json.loads(message)["body"]))
            job = decode(Job, text, JOB_BYTES_MAX)
            simulated.lanes[job.phone].job = job


def report_runs(simulated: SimulatedLab, url: str) -> int:
    """Report a share of the runs over the queues of their hosts; return how many."""
    app = celery_app("benchmark", url)
    busy = [lane for lane in simulated.lanes.values() if lane.job is not None]
    ended = busy[: round(ENDED_SHARE * len(simulated.lanes))]
    for lane in ended:
        assert lane.job is not None
        text = a_report(lane.job, host=lane.host).model_dump_json()
        send_task(app, DELIVER, [text], results_queue(lane.host))
        lane.job = None
    return len(ended)


@contextmanager
def running(lab: Lab, simulated: SimulatedLab) -> Iterator[dict[str, ServiceProcess]]:
    """Start the three services; always stop them."""
    parts = [central_service(lab, "ingest"), *api_service(lab), central_service(lab, "scheduler")]
    simulated.publish_heartbeats()
    try:
        for process in parts:
            process.start()
        yield {process.name: process for process in parts}
    finally:
        stop_all(parts)


def measure(lab: Lab, simulated: SimulatedLab, seconds: float) -> None:
    """Let the lab work, and print the largest memory."""
    with LabConnection(lab, "root") as connection:
        secret = add_token(connection, "reader", Role.VIEWER, 1).secret
    remote = RemoteLab(f"http://{lab.settings.api.listen}", secret)
    reader = LabConnection(Lab.read(lab.root / "elsewhere", {}), "nobody", remote)
    largest: dict[str, float] = {}
    reported, answered = 0, 0
    host, _, port = lab.settings.api.listen.rpartition(":")
    with running(lab, simulated) as processes:
        wait_for(lambda: is_open((host, int(port))), "the API listens")
        wait_for(lambda: simulated.broker.scheduler() is not None, "the scheduler has begun")
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            take_jobs(simulated)
            reported += report_runs(simulated, lab.broker_url)
            simulated.publish_heartbeats()
            answered += bool(read_lab_status(reader))
            now = {name: pss_mb(process) for name, process in processes.items()}
            largest = max(largest, now, key=lambda each: sum(each.values()))
            time.sleep(1.0)
        assert all(process.alive for process in processes.values())
    shown = ", ".join(f"{name} {size:.0f}" for name, size in largest.items())
    print(f"{len(simulated.lanes)} phones, {reported} reports, {answered} answers of the API")
    print(f"largest sum of PSS: {sum(largest.values()):.0f} MB ({shown}); target {TARGET_MB} MB")


def main() -> None:
    """Prepare the lab, and measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--phones", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--postgres", action="store_true")
    options = parser.parse_args()
    server = postgres_server() if options.postgres else nullcontext()
    with tempfile.TemporaryDirectory(prefix="farm-") as name, server as postgres:
        root = Path(name) / "lab"
        root.mkdir()
        store = ""
        if postgres:
            store = f'[store]\nurl = "{new_database(store_url_of(postgres), "memory")}"\n'
        (root / "lab.toml").write_text(f'[api]\nlisten = "127.0.0.1:{free_port()}"\n{store}')
        lab = Lab.read(root, {})
        broker = embedded_broker(lab)
        broker.start()
        try:
            wait_for_broker(lab, broker)
            simulated = build_lab(lab.store_url, lab.broker_url, options.phones)
            submit(simulated, 100)
            measure(lab, simulated, options.seconds)
        finally:
            stop_all([broker])


if __name__ == "__main__":
    main()
