"""When it will be finished: the last phone decides, and nothing is guessed from nothing."""

from orchestrator.analysis.remaining import remaining


def test_nothing_is_guessed_before_a_run_has_ended() -> None:
    assert None is remaining({"a": {"cold": 3}}, {})


def test_the_last_phone_decides() -> None:
    found = remaining({"a": {"cold": 3}, "b": {"cold": 10}}, {"cold": [10.0, 10.0, 10.0]})
    assert found is not None
    assert ("b", 100.0, 3) == (found.phone, found.likely_s, found.seen)
    assert found.early_s < 100.0 < found.late_s


def test_kinds_take_their_own_time() -> None:
    found = remaining({"a": {"cold": 2, "long": 1}}, {"cold": [10.0], "long": [600.0]})
    assert found is not None
    assert 620.0 == found.likely_s


def test_a_kind_that_was_never_seen_is_told() -> None:
    found = remaining({"a": {"cold": 2, "long": 4}}, {"cold": [10.0]})
    assert found is not None
    assert 4 == found.unseen


def test_runs_that_had_to_be_repeated_are_expected_again() -> None:
    found = remaining({"a": {"cold": 10}}, {"cold": [10.0]}, tries_per_run=1.5)
    assert found is not None
    assert 150.0 == found.likely_s


def test_the_more_was_seen_the_narrower_it_gets() -> None:
    few = remaining({"a": {"cold": 10}}, {"cold": [8.0, 12.0]})
    many = remaining({"a": {"cold": 10}}, {"cold": [8.0, 12.0] * 50})
    assert few is not None
    assert many is not None
    assert many.late_s - many.early_s < few.late_s - few.early_s


def test_a_finished_sweep_has_nothing_left() -> None:
    found = remaining({"a": {}}, {"cold": [1.0]})
    assert found is not None
    assert 0.0 == found.late_s
