"""The remaining time: the last phone decides, and without an ended run there is no estimate."""

from orchestrator.analysis.eta import estimate_remaining


def test_there_is_no_estimate_before_a_run_has_ended() -> None:
    assert estimate_remaining({"a": {"cold": 3}}, {}) is None


def test_the_last_phone_decides() -> None:
    remaining = estimate_remaining(
        {"a": {"cold": 3}, "b": {"cold": 10}}, {"cold": [10.0, 10.0, 10.0]}
    )
    assert remaining is not None
    assert (remaining.phone, remaining.likely_s, remaining.finished) == ("b", 100.0, 3)
    assert remaining.early_s < 100.0 < remaining.late_s


def test_every_kind_of_run_has_its_own_duration() -> None:
    remaining = estimate_remaining({"a": {"cold": 2, "long": 1}}, {"cold": [10.0], "long": [600.0]})
    assert remaining is not None
    assert remaining.likely_s == 620.0


def test_runs_of_a_kind_without_history_are_counted() -> None:
    remaining = estimate_remaining({"a": {"cold": 2, "long": 4}}, {"cold": [10.0]})
    assert remaining is not None
    assert remaining.untimed == 4


def test_runs_that_had_to_be_repeated_are_expected_again() -> None:
    remaining = estimate_remaining({"a": {"cold": 10}}, {"cold": [10.0]}, attempts_per_run=1.5)
    assert remaining is not None
    assert remaining.likely_s == 150.0


def test_more_ended_runs_give_a_narrower_interval() -> None:
    few = estimate_remaining({"a": {"cold": 10}}, {"cold": [8.0, 12.0]})
    many = estimate_remaining({"a": {"cold": 10}}, {"cold": [8.0, 12.0] * 50})
    assert few is not None
    assert many is not None
    assert many.late_s - many.early_s < few.late_s - few.early_s


def test_a_finished_sweep_has_nothing_left() -> None:
    remaining = estimate_remaining({"a": {}}, {"cold": [1.0]})
    assert remaining is not None
    assert remaining.late_s == 0.0
