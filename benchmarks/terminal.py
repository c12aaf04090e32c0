"""What the terminal costs: a redraw, watching a lab, and how fast commands answer.

.venv/bin/python -m benchmarks.terminal [--trials 100000] [--seconds 20]

Redraws are timed on a screen of 120x40 with every value changed; watching is the processor time of
`farm watch` in a real terminal on a lab of a hundred phones that tell of themselves every second.
"""

import argparse
import os
import pty
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from agent.host_broker import HostBroker as AgentBroker
from orchestrator.app.lab_status import LabView
from orchestrator.app.phone_filter import parse_phone_filter
from orchestrator.decisions.states import RunState
from orchestrator.store import submission
from orchestrator.store.database import Database
from orchestrator.store.ingest import store_parcels
from orchestrator.store.phone_queries import KnownPhone, Lease
from orchestrator.store.sweep_queries import SweepSummary
from orchestrator.supervisor.services import services
from orchestrator.tui.keymap import handle_key
from orchestrator.tui.panels import screen
from orchestrator.tui.terminal import Terminal
from orchestrator.tui.ui_state import LabSnapshot, PhoneTrace, Ui
from tests.builders import a_phone, a_trial, an_announcement, planned_runs
from workloads.lab_settings import Lab
from workloads.protocol.messages import Event, HostHeartbeat, PhoneState, PhoneStatus
from workloads.protocol.stage import Stage

ROOT = Path(__file__).resolve().parents[1]
FARM = [sys.executable, "-m", "orchestrator"]
SIZE = (120, 40)


def a_look(phones: int, tick: int) -> LabSnapshot:
    """A lab at work in which every value differs from one look to the next."""
    now = datetime.now(UTC)
    label = "mlp-4 batch_size=32 cold all8 high"
    lease = Lease("sw-1", "tr-1", 0, 1, 1, now.timestamp() + 20, label)
    shown = tuple(
        KnownPhone(
            *(f"PH{at:04d}", f"host-{at % 10}", a_phone(f"PH{at:04d}")),
            status=PhoneStatus.model_construct(
                serial=f"PH{at:04d}",
                state=PhoneState.BUSY,
                stage=Stage.RUN,
                progress=(tick % 100) / 100,
                temp_c=30 + (tick + at) % 20,
                battery_pct=80,
                remaining_s=float(tick % 60),
                steps=tick,
                locked_khz={0: 1_785_600, 7: 2_841_600},
            ),
            lease=lease,
        )
        for at in range(phones)
    )
    sweep = SweepSummary("sw-1", "bench", now, 8, {RunState.DONE: tick, RunState.QUEUED: 1000})
    events = tuple(
        Event(occurred_at=now, kind="accepted", text=f"412 ms/step: {tick}", phone=f"PH{at:04d}")
        for at in range(50)
    )
    trace = PhoneTrace(tuple(30.0 + at % 7 for at in range(200)), (2.0,) * 200, (4.0,) * 200)
    return LabSnapshot(LabView(now, {}, shown, (sweep,)), "", events, {"PH0000": trace})


def redraw_ms(phones: int, rounds: int = 40) -> tuple[float, float]:
    """Median and worst time from a look to bytes in a terminal that is read by somebody."""
    ours, theirs = pty.openpty()
    reading = threading.Thread(target=_drain, args=(ours,), daemon=True)
    reading.start()
    terminal = Terminal(theirs, theirs)
    looks = [a_look(phones, tick) for tick in range(2)]
    ui = Ui(*SIZE)
    taken = []
    for tick in range(rounds):
        view = replace(looks[tick % 2].view, at=datetime.now(UTC))
        seen = replace(looks[tick % 2], view=view)
        began = time.perf_counter()
        terminal.draw(screen(seen, ui, datetime.now(UTC)))
        taken.append(1000 * (time.perf_counter() - began))
    return statistics.median(taken), max(taken)


def key_ms(phones: int) -> float:
    """The longest that paging through and filtering so many phones takes, a key."""
    seen, now = a_look(phones, 0), datetime.now(UTC)
    ui = Ui(*SIZE)
    keys = ["/", *"soc == sm8150 and ram_mb >= 4000", "enter", *["pagedown"] * 40, "G", "g", "s"]
    worst = 0.0
    for key in keys:
        began = time.perf_counter()
        ui, _ = handle_key(ui, key, seen, now, parse_phone_filter)
        screen(seen, ui, now)
        worst = max(worst, time.perf_counter() - began)
    return 1000 * worst


def _drain(fd: int) -> None:
    with suppress(OSError):
        while os.read(fd, 65536):
            pass


def fill(db: Database, phones: int, trials: int) -> None:
    """A store with so many phones and trials."""
    store_parcels(db, "host-a", [an_announcement(a_phone(f"PH{at:04d}")) for at in range(phones)])
    each = [a_trial(at, f"PH{at % phones:04d}") for at in range(trials)]
    row = {"id": "sw-00000001", "name": "bench", "source": "", "seed": 1}
    submission.submit(db, row, each, planned_runs(each))


def watch_share(lab: Lab, phones: int, seconds: float) -> float:
    """The share of one core that `farm watch` takes, once it stands there."""
    stop = threading.Event()
    telling = threading.Thread(target=_tell, args=(lab, phones, stop), daemon=True)
    telling.start()
    pid, fd = pty.fork()
    if pid == 0:
        os.chdir(ROOT)
        os.execv(FARM[0], [*FARM, "watch", "--lab", str(lab.root)])
    threading.Thread(target=_drain, args=(fd,), daemon=True).start()
    time.sleep(6)
    began, at = _processor_s(pid), time.monotonic()
    time.sleep(seconds)
    share = (_processor_s(pid) - began) / (time.monotonic() - at)
    os.write(fd, b"q")
    os.waitpid(pid, 0)
    stop.set()
    telling.join()
    return share


def _tell(lab: Lab, phones: int, stop: threading.Event) -> None:
    agents = [AgentBroker(lab.broker_url, f"host-{at}") for at in range(10)]
    tick = 0
    while not stop.wait(0.1):
        tick += 1
        at = tick % 10
        own = tuple(
            PhoneStatus(serial=f"PH{each:04d}", state="idle", temp_c=30 + tick % 10)
            for each in range(at, phones, 10)
        )
        agents[at].publish_heartbeat(
            HostHeartbeat(host=f"host-{at}", sent_at=datetime.now(UTC), max_parallel=60, phones=own)
        )


def _processor_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def answer_s(*words: str, rounds: int = 7) -> float:
    """Median wall time of a command that has to succeed."""
    taken = []
    for _ in range(rounds):
        began = time.perf_counter()
        subprocess.run([*FARM, *words], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
        taken.append(time.perf_counter() - began)
    return statistics.median(taken)


def say(what: str, value: float, unit: str, limit: float) -> None:
    """A line with its limit."""
    print(f"{what:<44} {value:8.1f} {unit:<3} (limit {limit:g} {unit})")


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=100_000)
    parser.add_argument("--seconds", type=float, default=20.0)
    asked = parser.parse_args()
    for phones, limit in ((100, 20.0), (1000, 60.0)):
        middle, worst = redraw_ms(phones)
        say(f"redraw, {phones} phones, median", middle, "ms", limit)
        say(f"redraw, {phones} phones, worst of 40", worst, "ms", limit)
        say(f"a key with {phones} phones, worst", key_ms(phones), "ms", limit)
    with tempfile.TemporaryDirectory(prefix="farm-") as folder:
        lab = Lab.read(Path(folder), {})
        with services(lab):
            db = Database(lab.store_url)
            fill(db, 100, asked.trials)
            time.sleep(3)  # until the scheduler has counted
            share = watch_share(lab, 100, asked.seconds)
            say("farm watch, 100 phones, of one core", 100 * share, "%", 5.0)
            say("farm --help", 1000 * answer_s("--help"), "ms", 150.0)
            status = answer_s("status", "--lab", folder)
            say(f"farm status, {asked.trials} trials", 1000 * status, "ms", 400.0)
            db.close()


if __name__ == "__main__":
    main()
