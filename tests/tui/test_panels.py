"""What the screen shows: drawn from values alone, whatever a phone calls itself."""

import io
from datetime import UTC, datetime, timedelta

import pytest
from rich.console import Console

from orchestrator.lab_view import LabView, join
from orchestrator.nouns import KnownPhone, RunState, SweepSummary
from orchestrator.tui.panels import event_line, screen, summary_line
from tests.builders import a_phone, a_run
from workloads.messages import Event, PhonePresence, Presence

NOW = datetime(2026, 11, 16, 12, 0, 0, tzinfo=UTC)
SWEEP = SweepSummary("sw-1", "demo", NOW, 4, {RunState.DONE: 3, RunState.QUEUED: 1})


def a_view(*phones: KnownPhone, age_s: float = 0.0) -> LabView:
    """A look at the lab, taken some time ago."""
    return LabView(NOW - timedelta(seconds=age_s), {"host-a": NOW}, phones, (SWEEP,))


def drawn(view: LabView, *events: Event, width: int = 100, height: int = 30) -> str:
    """The screen as text."""
    console = Console(file=io.StringIO(), width=width, height=height, force_terminal=False)
    console.print(screen(view, events, NOW, width, height))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_a_phone_shows_what_it_does() -> None:
    phone = KnownPhone("PH1", "host-a", a_phone(), "busy", stage="run", progress=0.4, temp_c=41.2)
    text = drawn(a_view(phone))
    for part in ("demo (sw-1)", "3/4 done", "Model PH1", "busy", "run 40%", "41.2", "● live"):
        assert part in text


def test_a_frozen_screen_cannot_pass_for_a_quiet_lab() -> None:
    assert "○ 12 s old" in drawn(a_view(age_s=12))


@pytest.mark.parametrize(
    "name", ["[/red]", "[bold]x", "\x1b[2J\x1b]0;pwned\x07", "\u202eevil", "x" * 900]
)
def test_no_name_can_harm_the_screen(name: str) -> None:
    phone = KnownPhone("PH1", name, a_phone(model=name), "idle", why=name)
    text = drawn(a_view(phone), Event(at=NOW, kind=name, text=name, phone=name))
    assert "\x1b" not in text
    assert "\x07" not in text
    assert "\u202e" not in text
    assert max(len(line) for line in text.splitlines()) <= 100


def test_a_pipe_gets_one_line_per_event() -> None:
    event = Event(at=NOW, kind="accepted", text="two\nlines\x1b[31m", sweep="sw-1", phone="PH1")
    assert "2026-11-16T12:00:00Z accepted sw-1 PH1 two lines[31m" == event_line(event)
    assert summary_line(a_view()).endswith("sweep sw-1 done=3 failed=0 left=1 total=4")


def test_a_phone_without_a_heartbeat_is_away() -> None:
    known = KnownPhone("PH1", "host-a", a_phone())
    (away,) = join([known], [], {})
    assert "away" == away.state
    beat = PhonePresence(serial="PH1", state="busy", run=a_run(), stage="cool", temp_c=38.0)
    presence = Presence(host="host-b", at=NOW, slots=4, phones=(beat,))
    (busy,) = join([known], [presence], {"PH1": "mlp-4"})
    assert ("host-b", "busy", "cool", 38.0, "mlp-4") == (
        *(busy.host, busy.state, busy.stage),
        *(busy.temp_c, busy.run),
    )
