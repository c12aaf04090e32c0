"""Cost of the terminal view: a redraw, watching a lab, and the time of short commands.

.venv/bin/python -m benchmarks.terminal [--trials 100000] [--seconds 20] [--runs 5000]

Redraws are timed on a screen of 120x40 with every value changed. Watching is the CPU time of
`farm watch` in a real terminal on a lab of a hundred phones with one heartbeat per second, and the
bytes that the API sends to a distant screen once per second. Commands are new processes, by the
wall clock; the status is read with a store of SQLite and one of PostgreSQL.
"""

import argparse
import os
import pty
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from http.client import HTTPResponse
from pathlib import Path

import numpy as np

from agent.host_broker import HostBroker as AgentBroker
from benchmarks.answers import PAGE, telemetry_blob
from benchmarks.answers import fill as fill_results
from orchestrator.app.lab_changes import RemotePoller
from orchestrator.app.lab_connection import LabConnection
from orchestrator.app.lab_status import LabView
from orchestrator.app.manage_tokens import add_token
from orchestrator.app.operation import Role
from orchestrator.app.remote.api_client import RemoteLab
from orchestrator.app.screen.lab_snapshot import LabSnapshot, PhoneTrace
from orchestrator.planning.states import RunState
from orchestrator.store import submission
from orchestrator.store.database import Database
from orchestrator.store.ingest import store_parcels
from orchestrator.store.phone_queries import KnownPhone, Lease
from orchestrator.store.sweep_queries import SweepSummary
from orchestrator.supervisor.services import api_service, services
from orchestrator.tui.keymap import handle_key
from orchestrator.tui.panels import screen
from orchestrator.tui.terminal import Terminal
from orchestrator.tui.ui_state import Ui
from tests.builders import a_phone, a_trial, an_announcement, planned_runs
from tests.conftest import new_database, postgres_server, store_url_of
from workloads.lab.settings import Lab
from workloads.protocol.faults import BrokerDown
from workloads.protocol.messages import Event, HostHeartbeat, PhoneState, PhoneStatus
from workloads.protocol.stage import Stage

ROOT = Path(__file__).resolve().parents[1]
FARM = [sys.executable, "-m", "orchestrator"]
SIZE = (120, 40)


def a_snapshot(phones: int, tick: int) -> LabSnapshot:
    """Build a snapshot of a busy lab in which every value depends on the tick."""
    now = datetime.now(UTC)
    label = "mlp-4 batch_size=32 cold all8 high"
    lease = Lease("sw-1", "tr-1", 0, 1, 1, now.timestamp() + 20, label)
    known_phones = tuple(
        KnownPhone(
            *(f"PH{index:04d}", f"host-{index % 10}", a_phone(f"PH{index:04d}")),
            status=PhoneStatus.model_construct(
                serial=f"PH{index:04d}",
                state=PhoneState.BUSY,
                stage=Stage.RUN,
                progress=(tick % 100) / 100,
                temp_c=30 + (tick + index) % 20,
                battery_pct=80,
                remaining_s=float(tick % 60),
                steps=tick,
                locked_khz={0: 1_785_600, 7: 2_841_600},
            ),
            lease=lease,
        )
        for index in range(phones)
    )
    sweep = SweepSummary("sw-1", "bench", now, 8, {RunState.DONE: tick, RunState.QUEUED: 1000})
    events = tuple(
        Event(occurred_at=now, kind="accepted", text=f"412 ms/step: {tick}", phone=f"PH{index:04d}")
        for index in range(50)
    )
    trace = PhoneTrace(tuple(30.0 + index % 7 for index in range(200)), (2.0,) * 200, (4.0,) * 200)
    return LabSnapshot(LabView(now, {}, known_phones, (sweep,)), "", events, {"PH0000": trace})


def redraw_ms(phones: int, rounds: int = 40) -> tuple[float, float]:
    """Return median and worst time from a snapshot to bytes in a terminal."""
    reader_fd, terminal_fd = pty.openpty()
    reader = threading.Thread(target=_drain, args=(reader_fd,), daemon=True)
    reader.start()
    terminal = Terminal(terminal_fd, terminal_fd)
    snapshots = [a_snapshot(phones, tick) for tick in range(2)]
    ui = Ui(*SIZE)
    durations_ms = []
    for tick in range(rounds):
        view = replace(snapshots[tick % 2].view, at=datetime.now(UTC))
        snapshot = replace(snapshots[tick % 2], view=view)
        started = time.perf_counter()
        terminal.draw(screen(snapshot, ui, datetime.now(UTC)))
        durations_ms.append(1000 * (time.perf_counter() - started))
    return statistics.median(durations_ms), max(durations_ms)


def key_ms(phones: int) -> float:
    """Return the longest time of a key while paging and filtering."""
    snapshot, now = a_snapshot(phones, 0), datetime.now(UTC)
    ui = Ui(*SIZE)
    keys = ["/", *"soc == sm8150 and ram_mb >= 4000", "enter", *["pagedown"] * 40, "G", "g", "s"]
    worst_ms = 0.0
    for key in keys:
        started = time.perf_counter()
        ui, _ = handle_key(ui, key, snapshot, now)
        screen(snapshot, ui, now)
        worst_ms = max(worst_ms, time.perf_counter() - started)
    return 1000 * worst_ms


def _drain(fd: int) -> None:
    with suppress(OSError):
        while os.read(fd, 65536):
            pass


def fill(db: Database, phones: int, trials: int) -> None:
    """Fill a store with phones and trials."""
    store_parcels(
        db, "host-a", [an_announcement(a_phone(f"PH{index:04d}")) for index in range(phones)]
    )
    all_trials = [a_trial(index, f"PH{index % phones:04d}") for index in range(trials)]
    row = {"id": "sw-00000001", "name": "bench", "source": "", "seed": 1}
    submission.submit(db, row, all_trials, planned_runs(all_trials))


def watch_share(lab: Lab, phones: int, seconds: float) -> float:
    """Return the share of one core that `farm watch` uses after its start."""
    stop = threading.Event()
    heartbeats = threading.Thread(target=_send_heartbeats, args=(lab, phones, stop), daemon=True)
    heartbeats.start()
    pid, fd = pty.fork()
    if pid == 0:
        os.chdir(ROOT)
        os.execv(FARM[0], [*FARM, "watch", "--lab", str(lab.root)])
    threading.Thread(target=_drain, args=(fd,), daemon=True).start()
    time.sleep(6)
    cpu_s, started = _cpu_s(pid), time.monotonic()
    time.sleep(seconds)
    share = (_cpu_s(pid) - cpu_s) / (time.monotonic() - started)
    os.write(fd, b"q")
    os.waitpid(pid, 0)
    stop.set()
    heartbeats.join()
    return share


def _send_heartbeats(lab: Lab, phones: int, stop: threading.Event) -> None:
    agents = [AgentBroker(lab.broker_url, f"host-{index}") for index in range(10)]
    tick = 0
    while not stop.wait(0.1):
        tick += 1
        index = tick % 10
        statuses = tuple(
            PhoneStatus(serial=f"PH{each:04d}", state="idle", temp_c=30 + tick // 10 % 10)
            for each in range(index, phones, 10)
        )
        with suppress(BrokerDown):  # the lab ends
            agents[index].publish_heartbeat(
                HostHeartbeat(
                    host=f"host-{index}",
                    sent_at=datetime.now(UTC),
                    max_parallel=60,
                    phones=statuses,
                )
            )


class CountedLab(RemoteLab):
    """The API of a lab, and the bytes that it answered."""

    answered = 0

    def _read(self, response: HTTPResponse) -> bytes:
        content = super()._read(response)
        self.answered += len(content)
        return content


def distant_kb(lab: Lab, phones: int, seconds: float) -> tuple[float, float]:
    """Return what the first screen of a distant lab takes, and one minute of watching, in kB."""
    stop = threading.Event()
    threading.Thread(target=_send_heartbeats, args=(lab, phones, stop), daemon=True).start()
    with LabConnection(lab, "root") as here:
        token = add_token(here, "bench", Role.VIEWER, 1).secret
    remote = CountedLab(f"http://{lab.settings.api.listen}", token)
    poller = RemotePoller(LabConnection(lab, "nobody", remote), None)
    time.sleep(1.5)  # until every host has sent a heartbeat
    poller.poll()
    first, started = remote.answered, time.monotonic()
    while time.monotonic() - started < seconds:
        time.sleep(1.0)
        poller.poll()
    minutes = (time.monotonic() - started) / 60
    stop.set()
    return first / 1000, (remote.answered - first) / 1000 / minutes


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def answer_s(*words: str, rounds: int = 7) -> float:
    """Return the median wall time of a command that must succeed."""
    durations_ms = []
    for _ in range(rounds):
        started = time.perf_counter()
        subprocess.run([*FARM, *words], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
        durations_ms.append(time.perf_counter() - started)
    return statistics.median(durations_ms)


def print_value(label: str, value: float, unit: str, limit: float) -> None:
    """Print a value with its limit."""
    print(f"{label:<44} {value:8.1f} {unit:<3} (limit {limit:g} {unit})")


def main() -> None:
    """Measure and print all values."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=100_000)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--runs", type=int, default=5_000, help="runs of the report")
    options = parser.parse_args()
    print(f"load {os.getloadavg()[0]:.1f}")
    for phones, limit in ((100, 5.0), (1000, 8.0)):
        median_ms, worst_ms = redraw_ms(phones)
        print_value(f"redraw, {phones} phones, median", median_ms, "ms", limit)
        print_value(f"redraw, {phones} phones, worst of 40", worst_ms, "ms", 60.0)
        print_value(f"a key with {phones} phones, worst", key_ms(phones), "ms", 60.0)
    print_value("farm --help", 1000 * answer_s("--help"), "ms", 100.0)
    with open_lab() as lab:
        fill(Database(lab.store_url), 100, options.trials)
        time.sleep(3)  # until the scheduler has counted the runs
        share = watch_share(lab, 100, options.seconds)
        print_value("farm watch, 100 phones, of one core", 100 * share, "%", 5.0)
        print_distant(lab, 100, options.seconds)
        print_status(lab, options.trials, "SQLite")
        with_results(lab.store_url, options.runs)
        page = str(lab.root / "page.html")
        report = answer_s("report", PAGE, "--lab", str(lab.root), "-o", page, rounds=3)
        print_value(f"farm report of {options.runs} runs", report, "s", 5.0)
    with open_lab() as lab:
        fill(Database(lab.store_url), 1000, 1000)
        print_distant(lab, 1000, options.seconds)
    with postgres_server() as server, open_lab(new_database(store_url_of(server), "ends")) as lab:
        fill(Database(lab.store_url), 100, options.trials)
        time.sleep(3)
        print_status(lab, options.trials, "PostgreSQL")


@contextmanager
def open_lab(store: str = "") -> Iterator[Lab]:
    """Run the services of an empty lab, with its API, and remove it."""
    with tempfile.TemporaryDirectory(prefix="farm-") as folder:
        with socket.create_server(("127.0.0.1", 0)) as free:
            listen = f'[api]\nlisten = "127.0.0.1:{free.getsockname()[1]}"\n'
        url = f'[store]\nurl = "{store}"\n' if store else ""
        (Path(folder) / "lab.toml").write_text(listen + url)
        lab = Lab.read(Path(folder), {})
        with services(lab, api_service(lab)):
            time.sleep(3)
            yield lab


def print_status(lab: Lab, trials: int, store: str) -> None:
    """Print the time of `farm status`."""
    status_ms = 1000 * answer_s("status", "--lab", str(lab.root))
    print_value(f"farm status, {trials} trials, {store}", status_ms, "ms", 400.0)


def print_distant(lab: Lab, phones: int, seconds: float) -> None:
    """Print what a distant screen is sent."""
    first, minute = distant_kb(lab, phones, seconds)
    print(f"{f'distant watch, {phones} phones: first screen':<44} {first:8.1f} kB")
    print(f"{f'distant watch, {phones} phones: one minute':<44} {minute:8.1f} kB")


def with_results(store: str, runs: int) -> None:
    """Store a sweep with results and telemetry."""
    db = Database(store)
    fill_results(db, PAGE, runs, np.random.default_rng(1), telemetry_blob())
    db.close()


if __name__ == "__main__":
    main()
