"""Labs for screens: values alone, at a fixed moment."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from orchestrator.analysis.remaining import Remaining
from orchestrator.lab_view import LabView
from orchestrator.nouns import Cell, KnownPhone, Lease, RunState, SweepSummary
from orchestrator.tui.panels import screen
from orchestrator.tui.state import Seen, Trace, Ui
from tests.builders import a_phone
from workloads.messages import Event

NOW = datetime(2026, 11, 16, 12, 0, 0, tzinfo=UTC)
SWEEP = SweepSummary(
    "sw-1f3a", "demo", NOW, 8, {RunState.DONE: 12, RunState.QUEUED: 30, RunState.LEASED: 6}
)
LEASE = Lease("sw-1f3a", "tr-00", 0, 1, NOW.timestamp() + 22, "mlp-4 batch_size=32 cold all8 high")
SNAPSHOTS = Path(__file__).parent / "snapshots"
SIZES = [(80, 24), (120, 40), (200, 60)]


def a_known(serial: str = "PH1", state: str = "busy", **changes: Any) -> KnownPhone:
    """A phone at work, unless told otherwise."""
    values: dict[str, Any] = {"state": state, "stage": "run", "host": "host-a", "temp_c": 34.5}
    values |= {"battery_pct": 81, "progress": 0.62, "left_s": 38.0, "steps": 1240}
    values |= {"locked_khz": {0: 1_785_600, 7: 2_841_600}, "power_w": 4.8}
    values |= {"run": LEASE.label, "lease": LEASE, "seen_at": NOW}
    if state != "busy":
        values |= {"stage": "", "progress": None, "lease": None, "run": "", "left_s": None}
        values |= {"locked_khz": {}, "steps": None, "power_w": None}
    facts = changes.pop("facts", a_phone(serial))
    return KnownPhone(**({"serial": serial, "facts": facts} | values | changes))


def a_lab() -> tuple[KnownPhone, ...]:
    """One phone of each kind."""
    cooling = {"stage": "cool", "temp_c": 38.1, "progress": None, "ready_s": (125.0, 100.0, 140.0)}
    ill = {"temp_c": None, "health": "quarantined", "health_why": "the clocks did not hold"}
    return (
        a_known(),
        a_known("PH2", **cooling),
        a_known("PH3", "idle"),
        a_known("PH4", "idle", **ill),
        a_known("PH5", "away", why="adb says it is gone", battery_pct=None, temp_c=None),
    )


def cells() -> tuple[Cell, ...]:
    """A matrix with a cell of every kind."""
    runs = {
        "queued": {RunState.QUEUED: 4},
        "partly": {RunState.QUEUED: 2, RunState.DONE: 2},
        "done": {RunState.DONE: 4},
        "failed": {RunState.DONE: 3, RunState.FAILED: 1},
        "void": {RunState.QUEUED: 4},
    }
    return tuple(
        Cell(f"mlp-4 batch_size={at}", "cold all8 high", each, void=int(name == "void"))
        for at, (name, each) in enumerate(runs.items())
    )


def a_seen(*phones: KnownPhone, age_s: float = 0.0, trouble: str = "", **changes: Any) -> Seen:
    """A look at the lab, taken some time ago."""
    at = NOW - timedelta(seconds=age_s)
    view = LabView(
        *(at, {"host-a": at}, phones or (a_known(),), (SWEEP,)),
        cells=cells(),
        rest=Remaining(600.0, 480.0, 720.0, "PH1", 12),
    )
    values: dict[str, Any] = {"events": (an_event(),), "trouble": trouble}
    values["traces"] = {"PH1": Trace((31.0, 32.5, 34.5), (2.84, 2.84), (4.2, 4.8))}
    return Seen(view, **(values | changes))


def an_event(**changes: Any) -> Event:
    """A run that counts."""
    said = {"kind": "accepted", "text": "412 ms/step: mlp-4", "phone": "PH1", "sweep": "sw-1f3a"}
    return Event(at=NOW, **(said | changes))


def drawn(seen: Seen, ui: Ui | None = None, **changes: Any) -> list[str]:
    """The screen as plain lines."""
    return [text.plain for text in screen(seen, (ui or Ui()).with_(**changes), NOW)]


def text_of(seen: Seen, ui: Ui | None = None, **changes: Any) -> str:
    """The screen as one text."""
    return "\n".join(drawn(seen, ui, **changes))


if __name__ == "__main__":
    SNAPSHOTS.mkdir(exist_ok=True)
    for columns, rows in SIZES:
        content = "\n".join(drawn(a_seen(*a_lab()), width=columns, height=rows)) + "\n"
        (SNAPSHOTS / f"{columns}x{rows}.txt").write_text(content, encoding="utf-8")
