"""A metric over time: a lasting change is found, noise is not."""

from dataclasses import replace
from datetime import timedelta

import numpy as np
import pytest

from orchestrator.analysis.ab_comparison import ComparisonVerdict
from orchestrator.analysis.measurements import MeasuredRun
from orchestrator.analysis.trend import ChangePoint, metric_histories
from orchestrator.analysis.trial_series import trial_series
from tests.analysis.builders import HOST, measured
from tests.analysis.step_noise import LOOSE, USUAL, Noise, run_medians


def history(levels: list[tuple[int, float]], noise: Noise, seed: int = 1) -> list[MeasuredRun]:
    """Build one run per day from pairs of (number of runs, level), with the noise of phones."""
    source = np.random.default_rng(seed)
    values = [v for count, level in levels for v in run_medians(source, noise, count, level)]
    return [
        replace(run, started_at=run.started_at + timedelta(days=at))
        for at, value in enumerate(values)
        for run in (measured("a", float(value), repeat=at),)
    ]


def changes_of(runs: list[MeasuredRun]) -> tuple[ChangePoint, ...]:
    """Return the change points of the only history of some runs."""
    (found,) = metric_histories(trial_series(runs))
    return found.changes


@pytest.mark.parametrize(
    ("after", "expected"),
    [(11.0, ComparisonVerdict.SLOWER), (9.0, ComparisonVerdict.FASTER)],
    ids=["update", "repair"],
)
def test_a_change_is_found_at_its_time(after: float, expected: ComparisonVerdict) -> None:
    runs = history([(15, 10.0), (15, after)], USUAL)
    (change,) = changes_of(runs)
    assert change.verdict == expected
    assert change.ratio == pytest.approx(after / 10.0, rel=0.02)
    assert abs((change.started_at - runs[15].started_at).days) <= 1


def test_two_changes_are_found() -> None:
    changes = changes_of(history([(12, 10.0), (12, 12.0), (12, 10.0)], USUAL))
    assert [change.verdict for change in changes] == [
        ComparisonVerdict.SLOWER,
        ComparisonVerdict.FASTER,
    ]


def test_noise_is_rarely_reported_as_a_change() -> None:
    alarms = sum(bool(changes_of(history([(30, 10.0)], LOOSE, seed))) for seed in range(100))
    assert alarms <= 5


def test_few_runs_have_no_history() -> None:
    assert changes_of(history([(3, 10.0), (3, 20.0)], USUAL)) == ()


def test_values_of_different_sources_are_two_histories() -> None:
    runs = [
        *history([(6, 10.0)], USUAL),
        *(
            replace(run, trial="tr-ffffffffffffffff", sweep="sw-00000002")
            for run in (measured("a", 30.0, repeat=at, provenance=HOST) for at in range(6))
        ),
    ]
    found = metric_histories(trial_series(runs))
    assert {each.kind.source for each in found} == {"phone", "host"}
    assert all(not each.changes for each in found)
