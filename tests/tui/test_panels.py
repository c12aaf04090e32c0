"""The panels of the terminal view, rendered from sample values at every size."""

import re
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from rich.cells import cell_len

from orchestrator.analysis.failure_groups import FailureGroup
from orchestrator.app.lab_status import (
    LabView,
    ReportedProblem,
    join_heartbeats,
    reported_problems,
)
from orchestrator.app.read_trials import TrialResult
from orchestrator.app.screen.lab_page import group_problems
from orchestrator.app.screen.lab_snapshot import LabSnapshot, PhoneTrace
from orchestrator.app.screen.lab_watcher import keep_end
from orchestrator.app.screen.phone_state_text import display_names
from orchestrator.planning.eta import RemainingTime
from orchestrator.planning.states import RunState, SweepState
from orchestrator.store.live_views import CellProgress
from orchestrator.store.phone_queries import Lease
from orchestrator.store.sweep_queries import SweepSummary
from orchestrator.store.trial_queries import TrialSummary
from orchestrator.tui.event_lines import event_line, summary_line
from orchestrator.tui.matrix import MARKS, heat_map, mark_of
from orchestrator.tui.ui_state import Mode, Sort, Ui
from tests.builders import a_phone, a_run
from tests.tui.sample_screens import (
    NOW,
    SIZES,
    SNAPSHOTS,
    SWEEP,
    a_known_phone,
    a_lab,
    a_snapshot,
    an_event,
    cells,
    screen_lines,
    screen_text,
)
from workloads.protocol.faults import FaultKind
from workloads.protocol.messages import EventKind, HostHeartbeat, PhoneState, PhoneStatus
from workloads.protocol.stage import Stage
from workloads.protocol.unusable_phone import PhoneProblem, UnusablePhone


@pytest.mark.parametrize(("width", "height"), SIZES)
def test_a_screen_equals_its_snapshot(width: int, height: int) -> None:
    """The snapshots were reviewed; `python -m tests.tui.sample_screens` writes them again."""
    snapshot = (SNAPSHOTS / f"{width}x{height}.txt").read_text(encoding="utf-8")
    assert screen_lines(a_snapshot(*a_lab()), width=width, height=height) == snapshot.splitlines()


@pytest.mark.parametrize(
    ("width", "height"), [*SIZES, (20, 5), (39, 7), (1, 1), (60, 12), (300, 90)]
)
@pytest.mark.parametrize("mode", list(Mode))
def test_every_line_is_exactly_as_wide_as_the_screen(width: int, height: int, mode: Mode) -> None:
    lines = screen_lines(a_snapshot(*a_lab()), width=width, height=height, mode=mode)
    assert [cell_len(line) for line in lines] == [width] * height


def test_a_wide_screen_has_the_matrix_the_lease_and_the_curves() -> None:
    text = screen_text(a_snapshot(), width=200, height=60)
    for part in ("matrix: 6 cases x 1 condition", "lease 0:22 left", "temp °C", "power W"):
        assert part in text
    for mark in ("· queued", "▒ partly", "█ done", "v void", "! failed"):
        assert mark in text


def test_a_tiny_screen_shows_progress_and_age() -> None:
    lines = screen_lines(a_snapshot(), width=20, height=5)
    assert [line.strip() for line in lines[:3]] == ["25% demo", "ACTIVE 12/48", "12:00:00 ● live"]


def test_old_data_is_marked_with_its_age() -> None:
    for width, height in (*SIZES, (20, 5)):
        assert "○ 12 s old" in screen_text(a_snapshot(age_s=12), width=width, height=height)
        assert "live" not in screen_text(a_snapshot(age_s=12), width=width, height=height)
    assert "✗ 12 s old: the broker does not answer" in screen_text(
        a_snapshot(age_s=12, outage="the broker does not answer")
    )


def test_a_locked_clock_that_moved_is_marked() -> None:
    locked = a_known_phone(clocks_khz={0: 1_785_600, 7: 2_841_600})
    moved = a_known_phone(clocks_khz={0: 1_785_600, 7: 2_035_200})
    assert "2.84L 1.79L" in screen_text(a_snapshot(locked), width=120)
    assert "2.04! 1.79L" in screen_text(a_snapshot(moved), width=120)


def test_a_temperature_is_shown_with_its_direction() -> None:
    falling = {"PH1": PhoneTrace((40.0, 34.5))}
    assert "34.5↑" in screen_text(a_snapshot())
    assert "34.5↓" in screen_text(a_snapshot(traces=falling))


def test_the_state_of_a_sweep_is_shown() -> None:
    finished = SweepSummary("sw-1", "demo", NOW, 4, {RunState.DONE: 3})
    paused = SweepSummary("sw-1", "demo", NOW, 4, SWEEP.runs, SweepState.PAUSED, "by ann")
    for sweep, text in ((finished, "FINISHED"), (paused, "PAUSED  by ann")):
        snapshot = a_snapshot()
        view = type(snapshot.view)(NOW, {}, snapshot.view.phones, (sweep,))
        assert text in screen_text(type(snapshot)(view))


def test_the_remaining_time_is_not_guessed_before_a_run_has_ended() -> None:
    snapshot = a_snapshot()
    view = type(snapshot.view)(NOW, {}, snapshot.view.phones, (SWEEP,))
    assert "ETA: no run has ended yet" in screen_text(type(snapshot)(view))


@pytest.mark.parametrize(
    ("width", "used_h", "expected"),
    [(120, 6, "budget 6h00 of 1d12h"), (80, 6, "budget 17%"), (80, 40, "budget 111%")],
)
def test_a_budget_is_shown_with_its_used_part(width: int, used_h: int, expected: str) -> None:
    started = NOW - timedelta(hours=used_h)
    limited = replace(SWEEP, started_at=started, wall_s=36 * 3600.0, failures_share_max=0.1)
    snapshot = a_snapshot()
    text = screen_text(LabSnapshot(replace(snapshot.view, sweeps=(limited,))), width=width)
    assert expected in text
    assert ("failed 0 of 10% allowed" in text) == (width == 120)


def test_runs_that_wait_for_a_reserved_phone_are_a_problem() -> None:
    reserved = a_known_phone("PH2", "idle", reserved_by="lin", queued=4)
    text = screen_text(a_snapshot(reserved), width=200, height=60)
    assert text.count("4 runs waiting; for lin") >= 2
    ready = a_known_phone("PH3", "idle", queued=3)
    assert "3 runs queued" in screen_text(a_snapshot(ready))


def test_phones_of_one_model_are_shown_with_their_serials() -> None:
    facts = [a_phone(serial, model="Pixel 6 Professional Edition") for serial in ("AA01", "BB02")]
    phones = [a_known_phone(each.serial, "idle", facts=each) for each in facts]
    for width, height in SIZES:
        text = screen_text(a_snapshot(*phones), width=width, height=height)
        assert "#AA01 " in text
        assert "#BB02 " in text


def test_a_reserved_and_an_absent_phone_are_shown_with_the_reason() -> None:
    reserved = a_known_phone("PH2", "idle", reserved_by="lin", reserved_reason="demo day")
    absent = a_known_phone("PH3", "away", reason="adb says it is gone")
    text = screen_text(a_snapshot(reserved, absent), width=120)
    assert "= reserved" in text
    assert "for lin: demo day" in text
    assert "✗ AWAY" in text
    assert "adb says it is gone" in text


def test_the_page_of_a_phone_shows_hardware_and_control() -> None:
    text = screen_text(a_snapshot(), width=120, height=40, mode=Mode.PHONE)
    for part in ("esc closes", "policy7", "control: controlled", "1240 steps, 62% of the run"):
        assert part in text


def test_every_cell_state_has_its_own_character() -> None:
    assert len({mark for mark, _ in MARKS.values()}) == len(MARKS) == 8


@pytest.mark.parametrize(
    ("index", "expected"),
    list(enumerate(("queued", "partly", "done", "failed", "void", "suspect"))),
)
def test_a_cell_shows_the_worst_state_of_its_runs(index: int, expected: str) -> None:
    assert mark_of(cells()[index]) == expected


def a_matrix() -> LabSnapshot:
    """Build a snapshot with a matrix of six conditions, whose slow one has no value yet."""
    cells = tuple(
        CellProgress(
            *(f"{model} batch_size=4", f"cold {cores} {freq}", {RunState.DONE: 3}),
            value=None if freq == "low" else 12.34,
        )
        for model in ("lenet", "mobilenetv2")
        for cores in ("all8", "big2", "big4")
        for freq in ("high", "low")
    )
    snapshot = a_snapshot(*a_lab())
    return replace(snapshot, view=replace(snapshot.view, cells=cells))


def test_the_matrix_has_headings_and_values() -> None:
    for width in (80, 120):
        lines = screen_lines(a_matrix(), width=width, height=24, mode=Mode.MATRIX)
        assert any(line.split() == ["all8"] * 2 + ["big2"] * 2 + ["big4"] * 2 for line in lines)
        assert any(line.split() == ["high", "low"] * 3 for line in lines)
        row = next(line for line in lines if line.startswith("lenet b4 "))
        assert (row.count("12.3"), row.count("3/3")) == (3, 3)
        assert any(line.startswith("cold  median ms per step") for line in lines)


def test_an_open_cell_shows_what_each_phone_measured() -> None:
    def result(phone: str, value: float | None, note: str = "") -> TrialResult:
        summary = TrialSummary("tr-01234567", "sw-1", phone, "x", {RunState.DONE: 4}, note)
        return TrialResult(summary, value, 4, "phone")

    trials = (result("PH1", 12.34), result("PH2", None, "it was too hot"), result("PH3", 9.1))
    ui = Ui(mode=Mode.CELL, opened="lenet batch_size=4 cold all8 high", trials=trials)
    lines = screen_lines(a_matrix(), ui)
    shown = [line for line in lines if line.startswith("Model PH")]
    assert [line.split()[1] for line in shown] == ["PH3", "PH1", "PH2"]
    assert "9.10 ms" in shown[0]
    assert "it was too hot" in shown[2]


def test_routine_events_are_one_line_and_a_search_finds_each() -> None:
    ok = [an_event(phone=f"PH{n % 3 + 1}") for n in range(14)]
    fault = an_event(kind=EventKind.FAULT, text="the cable is loose")
    snapshot = a_snapshot(*a_lab(), events=(*ok, fault, an_event()))
    events = screen_text(snapshot, width=120, height=40).partition("── events")[2]
    assert re.search(r"accepted ×13 +3 phones", events)
    assert events.count("412 ms/step") == 3
    assert "the cable is loose" in events
    assert screen_text(snapshot, width=120, height=60, search="412").count("412 ms/step") == 15


def test_the_end_stays_while_the_estimate_contains_it() -> None:
    def view(at_s: float, early: float, likely: float, late: float, sweep: str = "") -> LabView:
        rest = RemainingTime(likely, early, late, "PH1", 12)
        base = a_snapshot().view
        sweeps = (replace(base.sweeps[0], id=sweep or base.sweeps[0].id),)
        return replace(base, at=NOW + timedelta(seconds=at_s), rest=rest, sweeps=sweeps)

    def kept(*new: Any, **more: Any) -> float:
        rest = keep_end(view(0, 480, 600, 720), view(*new, **more)).rest
        assert rest is not None
        return rest.likely_s

    assert kept(10, 450, 500, 700) == 590  # ten seconds later, and still likely
    assert kept(10, 200, 300, 400) == 300  # no longer
    assert kept(10, 450, 500, 700, sweep="sw-2") == 500


def test_a_problem_says_what_to_do() -> None:
    groups = group_problems(a_snapshot(*a_lab()), display_names(a_lab()), NOW)
    texts = {title: text for title, text, _ in groups}
    assert texts["QUARANT."].endswith("; next: farm phone release PH4")
    assert "check its cable" in texts["AWAY"]
    assert texts["2 suspect and 1 void"].endswith("; next: farm trial list sw-1f3a --state suspect")


def test_the_header_counts_runs_that_do_not_count_with_their_reason() -> None:
    text = screen_text(a_snapshot(), width=200, height=40)
    assert "suspect 2  void 1  queued 30" in text
    assert "│ most often: the battery charged for 4% of the run" in text


def test_a_truncated_matrix_is_marked() -> None:
    many = tuple(
        type(cells()[0])(f"case={case}", f"condition {row}", {RunState.DONE: 1})
        for row in range(50)
        for case in range(100)
    )
    lines = heat_map(many, 40, 20)
    assert len(lines) <= 20
    assert any("do not fit" in text.plain for text in lines)


def test_ascii_screens_keep_their_width() -> None:
    from orchestrator.tui.panels import screen
    from orchestrator.tui.text_cells import in_ascii

    for text in screen(a_snapshot(*a_lab()), Ui(width=200, height=60), NOW):
        plain = in_ascii(text).plain
        assert plain.isascii()
        assert len(plain) == 200


def test_heartbeats_are_joined_with_the_phones_of_the_store() -> None:
    lease = Lease("sw-1", "tr-0", 0, 0, 1, 5.0, "noop")
    status = PhoneStatus(
        serial="PH1",
        state="busy",
        run=a_run(),
        stage=Stage.COOL,
        cool_in_s=(9.0, 5.0, 20.0),
        temp_c=35.0,
    )
    known = [a_known_phone("PH1", "away", host=""), a_known_phone("PH2", "away", host="")]
    heartbeat = HostHeartbeat(host="host-a", sent_at=NOW, max_parallel=4, phones=(status,))
    first, second = join_heartbeats(known, [heartbeat], {"PH1": lease})
    assert (first.host, first.status, first.lease) == ("host-a", status, lease)
    assert second.status.state is PhoneState.AWAY


def test_a_phone_that_its_host_cannot_use_is_shown_with_what_to_do() -> None:
    """A known phone shows its problem in its own row."""
    unusable = (
        UnusablePhone(address="PH2", problem=PhoneProblem.OFFLINE),
        UnusablePhone(address="NEW", problem=PhoneProblem.UNAUTHORIZED),
    )
    known = [a_known_phone("PH1", "away"), a_known_phone("PH2", "away")]
    heartbeat = HostHeartbeat(host="host-a", sent_at=NOW, max_parallel=4, unusable=unusable)
    first, second = join_heartbeats(known, [heartbeat], {})
    assert (first.status.reason, second.status.reason) == ("", unusable[0].advice)
    (problem,) = reported_problems([phone.serial for phone in known], [heartbeat])
    advice = PhoneProblem.UNAUTHORIZED.text
    assert problem == ReportedProblem("host-a", "NEW", PhoneProblem.UNAUTHORIZED, advice)
    view = replace(a_snapshot(first, second).view, problems=(problem,))
    for width, height in ((200, 60), (100, 24)):
        lines = screen_lines(replace(a_snapshot(), view=view), width=width, height=height)
        assert any("UNUSABLE NEW on host-a: " in line and "tap Allow" in line for line in lines)
        assert {cell_len(line) for line in lines} == {width}


def test_a_pipe_gets_plain_lines() -> None:
    line = event_line(an_event(kind=EventKind.VOID, text="the clock slipped\n\x1b[2J"))
    assert line == "2026-11-16T12:00:00Z void sw-1f3a PH1 the clock slipped [2J"
    summary = summary_line(a_snapshot().view)
    assert summary.endswith("sweep sw-1f3a active done=12 failed=0 left=36 total=48 eta_s=600")


@pytest.mark.parametrize("sort", list(Sort))
def test_every_order_shows_every_phone_once(sort: Sort) -> None:
    text = screen_text(a_snapshot(*a_lab()), width=120, height=40, sort=sort)
    for serial in ("PH1", "PH2", "PH3", "PH4"):
        assert f" Model {serial} " in text
    assert f"sort: {sort.value}" in text


def test_a_phone_without_thermal_zones_has_no_temperature() -> None:
    native = a_known_phone(
        "PH9", "idle", temp_c=None, battery_pct=None, facts=a_phone("PH9", cpu_zones=())
    )
    assert "--" in screen_text(a_snapshot(native))


def test_problems_are_grouped_with_the_reason_first() -> None:
    text = "needs 2,832 MB, the phone has 1,900 MB"
    failed = FailureGroup(FaultKind.TOO_LARGE, 33, ("PH1", "PH2", "PH3"), text)
    away = tuple(a_known_phone(f"PH{n}", "away") for n in range(4, 17))
    snapshot = a_snapshot(*a_lab()[:3], *away)
    snapshot = replace(snapshot, view=replace(snapshot.view, failures=(failed,)))
    shown = screen_text(snapshot, width=260, height=60)
    assert f"too large ×33 on 3 phones: {text}" in shown
    assert shown.count("AWAY ×13: ") == 1


def test_columns_with_problems_are_named_before_the_others() -> None:
    many = [CellProgress(f"case {n:02d}", "cold", {RunState.DONE: 4}) for n in range(40)]
    many[35] = CellProgress("case 35", "cold", {RunState.FAILED: 4})
    text = "\n".join(str(one) for one in heat_map(many, 60, 20))
    assert "↑ case 35" in text
    assert text.count("↑") == 6
