"""The remaining time: a distribution over what is uncertain, or the reason why it is unknown."""

import math
from datetime import UTC, datetime

import pytest

from benchmarks.eta import describe, drawn_sweep
from orchestrator.app.lab_status import SweepSummary, weight_against
from orchestrator.planning.eta import (
    CompetingWork,
    RemainingTime,
    SweepRest,
    estimate_remaining,
    needed_share,
)
from orchestrator.planning.run_durations import Cell, RunTiming

COLD, LONG = ("case", "cold"), ("case", "long")


def attempts(phone: str, cell: Cell, seconds: float, count: int) -> list[RunTiming]:
    """Build attempts without a pause between them, the last of which ends at 0."""
    starts = [-seconds * number for number in range(count, 0, -1)]
    return [RunTiming(phone, *cell, start, start + seconds) for start in starts]


def estimate(
    left: dict[str, dict[Cell, int]], ended: list[RunTiming], now_s: float = 0.0, **more: object
) -> RemainingTime:
    done = {"runs_done": len(ended), **more}
    shown = estimate_remaining(SweepRest(now_s, left, ended, **done))  # type: ignore[arg-type]
    assert shown is not None
    assert shown.early_s <= shown.likely_s <= shown.late_s
    return shown


def test_there_is_no_estimate_before_a_run_has_ended() -> None:
    assert estimate_remaining(SweepRest(0.0, {"a": {COLD: 3}}, [])) is None


def test_the_last_phone_decides() -> None:
    ended = [*attempts("a", COLD, 10.0, 20), *attempts("b", COLD, 10.0, 20)]
    shown = estimate({"a": {COLD: 3}, "b": {COLD: 10}}, ended)
    assert shown.phone == "b"
    assert shown.likely_s == pytest.approx(100.0, rel=0.25)


def test_phones_that_are_away_make_the_end_unknown() -> None:
    ended = attempts("a", COLD, 10.0, 5)
    everybody = {f"p{number}": "away" for number in range(6)}
    shown = estimate({phone: {COLD: 2} for phone in everybody}, ended, absent=everybody)
    assert (shown.unknown, shown.late_s) == ("6 phones away", 0.0)
    shown = estimate(
        {"a": {COLD: 2}, "b": {COLD: 2}}, ended, absent={"b": "quarantined", "c": "away"}
    )
    assert shown.unknown == "1 phone quarantined"
    assert shown.likely_s > 0  # of the phone that works
    nothing_yet = SweepRest(0.0, {"a": {COLD: 3}}, [], absent={"a": "away"})
    assert estimate_remaining(nothing_yet) is not None


def test_a_run_that_takes_longer_than_ever_is_not_about_to_end() -> None:
    ended = attempts("a", COLD, 10.0, 30)
    usual = estimate({"a": {COLD: 1}}, ended, now_s=3.0)
    charging = estimate({"a": {COLD: 1}}, ended, now_s=360.0)
    assert usual.late_s < 30
    assert charging.likely_s > 60
    assert charging.late_s > 600


def test_little_knowledge_gives_a_wide_interval() -> None:
    def width(count: int) -> float:
        shown = estimate({"a": {COLD: 20}}, attempts("a", COLD, 10.0, count))
        return (shown.late_s - shown.early_s) / shown.likely_s

    assert width(1) > 1.3 * width(60)
    unknown_cell = estimate({"a": {LONG: 20}}, attempts("a", COLD, 10.0, 60))
    known_cell = estimate({"a": {COLD: 20}}, attempts("a", COLD, 10.0, 60))
    assert unknown_cell.late_s > 1.2 * known_cell.late_s
    assert (unknown_cell.untimed, known_cell.untimed) == (20, 0)


def test_every_cell_and_every_phone_has_its_own_duration() -> None:
    ended = [
        *attempts("a", COLD, 10.0, 8),
        *attempts("a", LONG, 100.0, 8),
        *attempts("b", COLD, 30.0, 8),
    ]
    shown = estimate({"b": {LONG: 10}}, ended)  # b is slower, and has not run this cell
    assert 1000 < shown.likely_s < 4500


def test_attempts_that_fail_at_once_say_nothing_of_the_others() -> None:
    ended = attempts("a", COLD, 10.0, 6)
    failed = [RunTiming("a", *COLD, number, number + 0.01) for number in range(8)]
    shown = estimate({"a": {COLD: 10}}, [*ended, *failed], now_s=8.0, runs_done=6)
    assert 80 < shown.likely_s < 130


def test_a_lab_that_became_slower_is_expected_to_stay_slow() -> None:
    usual = [RunTiming(p, *COLD, 10 * n, 10 * n + 10) for n in range(20) for p in "ab"]
    slower = [RunTiming(p, *COLD, 180 + 20 * n, 200 + 20 * n) for n in range(1, 11) for p in "ab"]
    before = estimate({"a": {COLD: 20}}, usual, now_s=200.0)
    after = estimate({"a": {COLD: 20}}, [*usual, *slower], now_s=400.0)
    assert before.likely_s == pytest.approx(200, rel=0.15)
    assert after.likely_s > 320
    assert after.late_s / after.early_s > before.late_s / before.early_s


def test_the_run_under_way_is_known() -> None:
    ended = [*attempts("a", COLD, 10.0, 20), *attempts("b", LONG, 100.0, 20)]
    ended += [*attempts("b", COLD, 10.0, 20), *attempts("a", LONG, 100.0, 20)]
    left = {"a": {COLD: 1, LONG: 1}}
    long_one = estimate(left, ended, now_s=60.0, running={"a": LONG})
    short_one = estimate(left, ended, now_s=60.0, running={"a": COLD})
    elsewhere = estimate(left, ended, now_s=60.0, running={"a": ("other", "cold")})
    assert long_one.likely_s == pytest.approx(50, rel=0.4)
    assert short_one.likely_s > 1.5 * long_one.likely_s  # overdue
    assert elsewhere == estimate(left, ended, now_s=60.0)


def test_runs_that_had_to_be_repeated_are_expected_again() -> None:
    ended = attempts("a", COLD, 10.0, 40)
    none = estimate({"a": {COLD: 10}}, ended, runs_done=40)
    many = estimate({"a": {COLD: 10}}, ended, runs_done=20, attempts_lost=20)
    assert many.likely_s > 1.5 * none.likely_s


def test_interruptions_make_it_later() -> None:
    ended = attempts("a", COLD, 10.0, 40)
    clean = estimate({"a": {COLD: 20}}, ended)
    charged = [*ended, RunTiming("a", *COLD, 0.0, 900.0), RunTiming("a", *COLD, 900.0, 1800.0)]
    assert estimate({"a": {COLD: 20}}, charged, now_s=1800.0).late_s > clean.late_s + 500


def test_runs_of_other_sweeps_that_come_first_are_waited_for() -> None:
    ended = attempts("a", COLD, 10.0, 60)
    left = {"a": {COLD: 20}}
    clean = estimate(left, ended)
    first = estimate(left, ended, others=[CompetingWork({"a": {COLD: 60}}, math.inf)])
    assert 3.5 * clean.likely_s < first.likely_s < 4.5 * clean.likely_s
    in_turns = estimate(left, ended, others=[CompetingWork({"a": {COLD: 60}}, 1.0)])
    assert 1.6 * clean.likely_s < in_turns.likely_s < 2.4 * clean.likely_s
    short = estimate(left, ended, others=[CompetingWork({"a": {COLD: 2}}, 1.0)])
    elsewhere = estimate(left, ended, others=[CompetingWork({"b": {COLD: 60}}, math.inf)])
    assert short.likely_s < 1.3 * clean.likely_s
    assert elsewhere == clean


def test_cells_of_earlier_sweeps_are_known_and_their_pauses_do_not_count() -> None:
    night = [RunTiming("a", *COLD, -9000.0 - 10 * n, -8990.0 - 10 * n, "old") for n in range(20)]
    shown = estimate({"a": {COLD: 20}}, night, since_s=-1.0, runs_done=0)
    again = [*night, RunTiming("a", *COLD, 0.0, 10.0, "new")]
    later = estimate({"a": {COLD: 19}}, again, now_s=10.0, since_s=-1.0)
    assert 150 < shown.early_s < 200 < shown.late_s < 500
    assert later.late_s < 500  # the pause of a night between two sweeps is not an interruption


def test_which_sweep_goes_first_is_what_the_scheduler_decides() -> None:
    def sweep(name: str, second: int, owner: str = "ann", priority: int = 50) -> SweepSummary:
        created = datetime(2026, 1, 1, second=second, tzinfo=UTC)
        return SweepSummary(name, name, created, 1, owner=owner, priority=priority)

    first, second = sweep("a", 1), sweep("b", 2)
    assert weight_against(first, second) == 0.0
    assert math.isinf(weight_against(second, first))
    assert math.isinf(weight_against(first, sweep("b", 2, priority=60)))
    assert weight_against(first, sweep("b", 2, "bob", 60)) == 2.0
    assert weight_against(first, sweep("b", 2, "bob")) == 1.0


def test_a_stop_rule_may_need_fewer_runs() -> None:
    assert needed_share(None, 10, 0) == (1.0, 1.0)
    assert needed_share((5, 20), 10, 0) == (0.25, 1.0)
    assert needed_share((5, 20), 30, 10) == (0.55, 0.95)


def test_a_finished_sweep_has_nothing_left() -> None:
    assert estimate({"a": {}}, attempts("a", COLD, 1.0, 2)).late_s == 0.0


def test_an_estimate_ages_until_it_is_repeated() -> None:
    shown = estimate({"a": {COLD: 20}}, attempts("a", COLD, 10.0, 20))
    assert shown.after(5.0).likely_s == pytest.approx(shown.likely_s - 5.0)
    assert shown.after(1e6).late_s == 0.0


@pytest.mark.slow
def test_the_interval_holds_the_true_end_as_often_as_it_says() -> None:
    line = describe("drawn", (list(drawn_sweep(seed).looks()) for seed in range(100)))
    coverage = float(line.split()[4].rstrip("%"))
    assert 75 <= coverage <= 85, line
