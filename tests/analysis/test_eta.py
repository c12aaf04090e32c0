"""The remaining time: the last phone decides, and without an ended run there is no estimate."""

from orchestrator.analysis.eta import estimate_remaining


def test_nothing_is_guessed_before_a_run_has_ended() -> None:
    assert estimate_remaining({"a": {"cold": 3}}, {}) is None


def test_the_last_phone_decides() -> None:
    found = estimate_remaining({"a": {"cold": 3}, "b": {"cold": 10}}, {"cold": [10.0, 10.0, 10.0]})
    assert found is not None
    assert (found.phone, found.likely_s, found.finished) == ("b", 100.0, 3)
    assert found.early_s < 100.0 < found.late_s


def test_kinds_take_their_own_time() -> None:
    found = estimate_remaining({"a": {"cold": 2, "long": 1}}, {"cold": [10.0], "long": [600.0]})
    assert found is not None
    assert found.likely_s == 620.0


def test_runs_of_a_kind_without_history_are_counted() -> None:
    found = estimate_remaining({"a": {"cold": 2, "long": 4}}, {"cold": [10.0]})
    assert found is not None
    assert found.untimed == 4


def test_runs_that_had_to_be_repeated_are_expected_again() -> None:
    found = estimate_remaining({"a": {"cold": 10}}, {"cold": [10.0]}, attempts_per_run=1.5)
    assert found is not None
    assert found.likely_s == 150.0


def test_the_more_was_seen_the_narrower_it_gets() -> None:
    few = estimate_remaining({"a": {"cold": 10}}, {"cold": [8.0, 12.0]})
    many = estimate_remaining({"a": {"cold": 10}}, {"cold": [8.0, 12.0] * 50})
    assert few is not None
    assert many is not None
    assert many.late_s - many.early_s < few.late_s - few.early_s


def test_a_finished_sweep_has_nothing_left() -> None:
    found = estimate_remaining({"a": {}}, {"cold": [1.0]})
    assert found is not None
    assert found.late_s == 0.0
