"""A phone over time: a step is seen, noise is not."""

from dataclasses import replace
from datetime import timedelta

import numpy as np
import pytest

from orchestrator.analysis.figures import figures_of
from orchestrator.analysis.trend import Step, histories
from orchestrator.analysis.versus import Word
from orchestrator.nouns import MeasuredRun
from tests.analysis.builders import HOST, measured
from tests.analysis.noise import LOOSE, USUAL, Noise, run_medians


def history(levels: list[tuple[int, float]], noise: Noise, seed: int = 1) -> list[MeasuredRun]:
    """Runs a day apart: so many at each level, with the noise of phones."""
    source = np.random.default_rng(seed)
    values = [v for count, level in levels for v in run_medians(source, noise, count, level)]
    return [
        replace(run, started_at=run.started_at + timedelta(days=at))
        for at, value in enumerate(values)
        for run in (measured("a", float(value), repeat=at),)
    ]


def steps_of(runs: list[MeasuredRun]) -> tuple[Step, ...]:
    """The steps of the one history among some runs."""
    (found,) = histories(figures_of(runs))
    return found.steps


@pytest.mark.parametrize(
    ("after", "expected"), [(11.0, Word.SLOWER), (9.0, Word.FASTER)], ids=["update", "repair"]
)
def test_a_step_is_seen_where_it_was(after: float, expected: Word) -> None:
    runs = history([(15, 10.0), (15, after)], USUAL)
    (step,) = steps_of(runs)
    assert expected == step.verdict
    assert pytest.approx(after / 10.0, rel=0.02) == step.ratio
    assert abs((step.at - runs[15].started_at).days) <= 1


def test_two_steps_are_two() -> None:
    steps = steps_of(history([(12, 10.0), (12, 12.0), (12, 10.0)], USUAL))
    assert [Word.SLOWER, Word.FASTER] == [step.verdict for step in steps]


def test_noise_is_rarely_taken_for_a_step() -> None:
    alarms = sum(bool(steps_of(history([(30, 10.0)], LOOSE, seed))) for seed in range(100))
    assert alarms <= 5


def test_few_runs_are_no_history() -> None:
    assert () == steps_of(history([(3, 10.0), (3, 20.0)], USUAL))


def test_figures_of_unlike_making_are_two_histories() -> None:
    runs = [
        *history([(6, 10.0)], USUAL),
        *(
            replace(run, trial="tr-ffffffffffffffff", sweep="sw-00000002")
            for run in (measured("a", 30.0, repeat=at, provenance=HOST) for at in range(6))
        ),
    ]
    found = histories(figures_of(runs))
    assert {"phone", "host"} == {each.making.source for each in found}
    assert all(not each.steps for each in found)
