"""Sample labs for the terminal view, built from values at a fixed time.

`python -m tests.tui.sample_screens` writes the snapshots again.
"""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from orchestrator.analysis.verdict_counts import LeftOutRuns
from orchestrator.app.lab_status import LabView
from orchestrator.app.screen.lab_snapshot import LabSnapshot, PhoneTrace
from orchestrator.planning.eta import RemainingTime
from orchestrator.planning.states import Health, RunState
from orchestrator.store.live_views import CellProgress
from orchestrator.store.phone_queries import KnownPhone, Lease
from orchestrator.store.sweep_queries import SweepSummary
from orchestrator.tui.panels import screen
from orchestrator.tui.ui_state import Ui
from tests.builders import a_phone
from workloads.protocol.messages import Event, EventKind, PhoneState, PhoneStatus
from workloads.protocol.stage import Stage
from workloads.protocol.verdict import ReasonCode

NOW = datetime(2026, 11, 16, 12, 0, 0, tzinfo=UTC)
SWEEP = SweepSummary(
    *("sw-1f3a", "demo", NOW, 8),
    {RunState.DONE: 12, RunState.QUEUED: 30, RunState.LEASED: 6},
    left_out=LeftOutRuns(2, 1, ReasonCode.CHARGED, "the battery charged for 4% of the run"),
)
LEASE = Lease(
    "sw-1f3a", "tr-00", 0, 0, 1, NOW.timestamp() + 22, "mlp-4 batch_size=32 cold all8 high"
)
SNAPSHOTS = Path(__file__).parent / "snapshots"
SIZES = [(80, 24), (120, 40), (200, 60)]


def a_known_phone(serial: str = "PH1", state: str = "busy", **changes: Any) -> KnownPhone:
    """Build a phone, by default a busy one; changes apply to its status or to its other fields."""
    status: dict[str, Any] = {"temp_c": 34.5, "battery_pct": 81}
    values: dict[str, Any] = {"host": "host-a", "last_seen_at": NOW, "facts": a_phone(serial)}
    if state == PhoneState.BUSY:
        status |= {"stage": Stage.RUN, "progress": 0.62, "remaining_s": 38.0, "steps": 1240}
        status |= {"locked_khz": {0: 1_785_600, 7: 2_841_600}, "power_w": 4.8}
        values["lease"] = LEASE
    for name, value in changes.items():
        (status if name in PhoneStatus.model_fields else values)[name] = value
    status |= {"serial": serial, "state": PhoneState(state)}
    return KnownPhone(serial=serial, status=PhoneStatus.model_construct(**status), **values)


def a_lab() -> tuple[KnownPhone, ...]:
    """Build one phone in each state."""
    cooling = {"stage": Stage.COOL, "temp_c": 38.1, "progress": None}
    cooling |= {"cool_in_s": (125.0, 100.0, 140.0)}
    unhealthy = {
        "temp_c": None,
        "health": Health.QUARANTINED,
        "health_reason": "the clocks did not hold",
    }
    return (
        a_known_phone(),
        a_known_phone("PH2", **cooling),
        a_known_phone("PH3", "idle"),
        a_known_phone("PH4", "idle", **unhealthy),
        a_known_phone("PH5", "away", reason="adb says it is gone", battery_pct=None, temp_c=None),
    )


def cells() -> tuple[CellProgress, ...]:
    """Build a matrix with one cell in each state."""
    runs = {
        "queued": {RunState.QUEUED: 4},
        "partly": {RunState.QUEUED: 2, RunState.DONE: 2},
        "done": {RunState.DONE: 4},
        "failed": {RunState.DONE: 3, RunState.FAILED: 1},
        "void": {RunState.QUEUED: 4},
        "suspect": {RunState.DONE: 2, RunState.SKIPPED: 2},
    }
    return tuple(
        CellProgress(
            *(f"mlp-4 batch_size={index}", "cold all8 high", counts),
            *(int(name == "void"), 2 * (name == "suspect")),
        )
        for index, (name, counts) in enumerate(runs.items())
    )


def a_snapshot(
    *phones: KnownPhone, age_s: float = 0.0, outage: str = "", **changes: Any
) -> LabSnapshot:
    """Build a snapshot of the lab, taken `age_s` seconds ago."""
    at = NOW - timedelta(seconds=age_s)
    view = LabView(
        *(at, {"host-a": at}, phones or (a_known_phone(),), (SWEEP,)),
        cells=cells(),
        rest=RemainingTime(600.0, 480.0, 720.0, "PH1", 12),
    )
    values: dict[str, Any] = {"events": (an_event(),), "outage": outage}
    values["traces"] = {"PH1": PhoneTrace((31.0, 32.5, 34.5), (2.84, 2.84), (4.2, 4.8))}
    return LabSnapshot(view, **(values | changes))


def an_event(**changes: Any) -> Event:
    """Build an event, by default that of an accepted run."""
    fields = {"kind": EventKind.ACCEPTED, "text": "412 ms/step: mlp-4"}
    fields |= {"phone": "PH1", "sweep": "sw-1f3a"}
    return Event(occurred_at=NOW, **(fields | changes))


def screen_lines(snapshot: LabSnapshot, ui: Ui | None = None, **changes: Any) -> list[str]:
    """Render the screen as plain lines."""
    return [text.plain for text in screen(snapshot, (ui or Ui()).with_(**changes), NOW)]


def screen_text(snapshot: LabSnapshot, ui: Ui | None = None, **changes: Any) -> str:
    """Render the screen as one text."""
    return "\n".join(screen_lines(snapshot, ui, **changes))


if __name__ == "__main__":
    SNAPSHOTS.mkdir(exist_ok=True)
    for columns, rows in SIZES:
        content = "\n".join(screen_lines(a_snapshot(*a_lab()), width=columns, height=rows)) + "\n"
        (SNAPSHOTS / f"{columns}x{rows}.txt").write_text(content, encoding="utf-8")
