"""What the screen shows: drawn from values alone, line by line, at every size."""

from dataclasses import replace

import pytest
from rich.cells import cell_len

from orchestrator.app.lab_status import join_heartbeats
from orchestrator.decisions.states import RunState, SweepState
from orchestrator.store.phone_queries import Lease
from orchestrator.store.sweep_queries import SweepSummary
from orchestrator.tui.event_lines import event_line, summary_line
from orchestrator.tui.matrix import MARKS, heat_map, mark_of
from orchestrator.tui.ui_state import LabSnapshot, Mode, PhoneTrace, Sort, Ui
from tests.builders import a_phone, a_run
from tests.tui.sample_screens import (
    NOW,
    SIZES,
    SNAPSHOTS,
    SWEEP,
    a_known,
    a_lab,
    a_snapshot,
    an_event,
    cells,
    drawn,
    text_of,
)
from workloads.protocol.messages import EventKind, HostHeartbeat, PhoneState, PhoneStatus
from workloads.protocol.stage import Stage


@pytest.mark.parametrize(("width", "height"), SIZES)
def test_a_screen_says_what_each_phone_does_what_is_wrong_and_when_it_ends(
    width: int, height: int
) -> None:
    """Screens that were looked at; `python -m tests.tui.sample_screens` draws them anew."""
    kept = (SNAPSHOTS / f"{width}x{height}.txt").read_text(encoding="utf-8")
    assert kept.splitlines() == drawn(a_snapshot(*a_lab()), width=width, height=height)


@pytest.mark.parametrize(
    ("width", "height"), [*SIZES, (20, 5), (39, 7), (1, 1), (60, 12), (300, 90)]
)
@pytest.mark.parametrize("mode", list(Mode))
def test_every_line_is_exactly_as_wide_as_the_screen(width: int, height: int, mode: Mode) -> None:
    lines = drawn(a_snapshot(*a_lab()), width=width, height=height, mode=mode)
    assert [width] * height == [cell_len(line) for line in lines]


def test_a_wide_screen_has_the_matrix_the_lease_and_the_curves() -> None:
    text = text_of(a_snapshot(), width=200, height=60)
    for part in ("matrix: 1 conditions x 5 cases", "lease 0:22 left", "temp °C", "power W"):
        assert part in text
    for mark in ("· queued", "▒ partly", "█ done", "v void", "! failed"):
        assert mark in text


def test_a_tiny_screen_still_says_how_far_it_is_and_how_old_that_is() -> None:
    lines = drawn(a_snapshot(), width=20, height=5)
    assert [line.strip() for line in lines[:3]] == ["25% demo", "RUNNING 12/48", "12:00:00 ● live"]


def test_a_frozen_screen_cannot_pass_for_a_quiet_lab() -> None:
    for width, height in (*SIZES, (20, 5)):
        assert "○ 12 s old" in text_of(a_snapshot(age_s=12), width=width, height=height)
        assert "live" not in text_of(a_snapshot(age_s=12), width=width, height=height)
    assert "✗ 12 s old: the broker does not answer" in text_of(
        a_snapshot(age_s=12, outage="the broker does not answer")
    )


def test_a_locked_clock_that_moved_is_marked() -> None:
    held = a_known(clocks_khz={0: 1_785_600, 7: 2_841_600})
    slipped = a_known(clocks_khz={0: 1_785_600, 7: 2_035_200})
    assert "2.84L 1.79L" in text_of(a_snapshot(held), width=120)
    assert "2.04! 1.79L" in text_of(a_snapshot(slipped), width=120)


def test_heat_has_a_direction() -> None:
    falling = {"PH1": PhoneTrace((40.0, 34.5))}
    assert "34.5↑" in text_of(a_snapshot())
    assert "34.5↓" in text_of(a_snapshot(traces=falling))


def test_a_sweep_says_its_state_in_a_word() -> None:
    over = SweepSummary("sw-1", "demo", NOW, 4, {RunState.DONE: 3})
    paused = SweepSummary("sw-1", "demo", NOW, 4, SWEEP.runs, SweepState.PAUSED, "by ann")
    for sweep, words in ((over, "FINISHED"), (paused, "PAUSED  by ann")):
        snapshot = a_snapshot()
        view = type(snapshot.view)(NOW, {}, snapshot.view.phones, (sweep,))
        assert words in text_of(type(snapshot)(view))


def test_the_end_is_not_guessed_before_anything_has_ended() -> None:
    snapshot = a_snapshot()
    view = type(snapshot.view)(NOW, {}, snapshot.view.phones, (SWEEP,))
    assert "ETA: no run has ended yet" in text_of(type(snapshot)(view))


@pytest.mark.parametrize(
    ("width", "used_h", "words"),
    [(120, 6, "budget 6h00 of 1d12h"), (80, 6, "budget 17%"), (80, 40, "budget 111%")],
)
def test_a_budget_is_told_with_what_is_used_of_it(width: int, used_h: int, words: str) -> None:
    begun = NOW.timestamp() - used_h * 3600
    limited = replace(SWEEP, started_at_s=begun, wall_s=36 * 3600.0, failures_share_max=0.1)
    snapshot = a_snapshot()
    text = text_of(LabSnapshot(replace(snapshot.view, sweeps=(limited,))), width=width)
    assert words in text
    assert (width == 120) == ("failed 0 of 10% allowed" in text)


def test_runs_that_wait_for_a_phone_that_cannot_work_are_told() -> None:
    mine = a_known("PH2", "idle", reserved_by="lin", queued=4)
    text = text_of(a_snapshot(mine), width=200, height=60)
    assert text.count("4 runs waiting; for lin") >= 2
    next_ = a_known("PH3", "idle", queued=3)
    assert "3 runs queued" in text_of(a_snapshot(next_))


def test_twins_are_told_apart() -> None:
    facts = [a_phone(serial, model="Pixel 6 Professional Edition") for serial in ("AA01", "BB02")]
    twins = [a_known(each.serial, "idle", facts=each) for each in facts]
    for width, height in SIZES:
        text = text_of(a_snapshot(*twins), width=width, height=height)
        assert "#AA01 " in text
        assert "#BB02 " in text


def test_a_reserved_and_an_away_phone_say_why() -> None:
    mine = a_known("PH2", "idle", reserved_by="lin", reserved_reason="demo day")
    gone = a_known("PH3", "away", reason="adb says it is gone")
    text = text_of(a_snapshot(mine, gone), width=120)
    assert "= reserved" in text
    assert "for lin: demo day" in text
    assert "✗ AWAY" in text
    assert "adb says it is gone" in text


def test_the_page_of_a_phone_says_what_it_is_and_what_can_be_held() -> None:
    text = text_of(a_snapshot(), width=120, height=40, mode=Mode.PHONE)
    for part in ("esc closes", "policy7", "control: controlled", "1240 steps, 62% of the run"):
        assert part in text


def test_colour_never_speaks_alone() -> None:
    assert len({mark for mark, _ in MARKS.values()}) == 6


@pytest.mark.parametrize(
    ("index", "expected"), list(enumerate(("queued", "partly", "done", "failed", "void")))
)
def test_a_cell_shows_the_worst_of_its_runs(index: int, expected: str) -> None:
    assert mark_of(cells()[index]) == expected


def test_a_matrix_that_does_not_fit_says_so() -> None:
    many = tuple(
        type(cells()[0])(f"case={case}", f"condition {row}", {RunState.DONE: 1})
        for row in range(50)
        for case in range(100)
    )
    lines = heat_map(many, 40, 20)
    assert len(lines) <= 20
    assert any("do not fit" in text.plain for text in lines)


def test_ascii_is_ascii_and_as_wide() -> None:
    from orchestrator.tui.panels import screen
    from orchestrator.tui.text_cells import in_ascii

    for text in screen(a_snapshot(*a_lab()), Ui(width=200, height=60), NOW):
        plain = in_ascii(text).plain
        assert plain.isascii()
        assert len(plain) == 200


def test_a_heartbeat_is_put_beside_what_the_store_knows() -> None:
    lease = Lease("sw-1", "tr-0", 0, 0, 1, 5.0, "noop")
    beat = PhoneStatus(
        serial="PH1",
        state="busy",
        run=a_run(),
        stage=Stage.COOL,
        cool_in_s=(9.0, 5.0, 20.0),
        temp_c=35.0,
    )
    known = [a_known("PH1", "away", host=""), a_known("PH2", "away", host="")]
    presence = HostHeartbeat(host="host-a", sent_at=NOW, max_parallel=4, phones=(beat,))
    first, second = join_heartbeats(known, [presence], {"PH1": lease})
    assert (first.host, first.status, first.lease) == ("host-a", beat, lease)
    assert second.status.state is PhoneState.AWAY


def test_a_pipe_gets_plain_lines() -> None:
    line = event_line(an_event(kind=EventKind.VOID, text="the clock slipped\n\x1b[2J"))
    assert line == "2026-11-16T12:00:00Z void sw-1f3a PH1 the clock slipped [2J"
    summary = summary_line(a_snapshot().view)
    assert summary.endswith("sweep sw-1f3a active done=12 failed=0 left=36 total=48 eta_s=600")


@pytest.mark.parametrize("sort", list(Sort))
def test_every_order_shows_every_phone_once(sort: Sort) -> None:
    text = text_of(a_snapshot(*a_lab()), width=120, height=40, sort=sort)
    for serial in ("PH1", "PH2", "PH3", "PH4"):
        assert f" Model {serial} " in text
    assert f"sort: {sort.value}" in text


def test_the_phone_facts_of_a_native_phone_have_no_heat() -> None:
    bare = a_known("PH9", "idle", temp_c=None, battery_pct=None, facts=a_phone("PH9", cpu_zones=()))
    assert "--" in text_of(a_snapshot(bare))
