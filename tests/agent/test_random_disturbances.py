"""Disturbances drawn at random: no biased run is accepted, and no clean one is rejected."""

import random
from itertools import count, islice
from pathlib import Path

import pytest

from agent.phone.adb import AdbServer
from benchmarks.drawn_disturbances import (
    DISTURBANCES,
    PHONES,
    SETTINGS,
    draw_kinds,
    draw_run,
)
from benchmarks.verdicts import LARGE_BIAS, VerdictBench, setting_of
from workloads.protocol.verdict import Validity

SEED, SHORT_DRAW = 1, 1


def check_draws(adb: AdbServer, seed: int, groups: int) -> None:
    bench = VerdictBench(adb)
    quiet = (draw for draw in count() if setting_of(draw).is_quiet)
    drawn = [bench.draw_outcomes(seed, draw) for draw in islice(quiet, groups)]
    outcomes = [outcome.seen(1) for group in drawn for outcome in group]  # with its trial
    biased = [outcome for outcome in outcomes if abs(outcome.bias) > LARGE_BIAS]
    assert biased, "no draw was biased: draw more"
    accepted = {outcome.repeat_command for outcome in biased if outcome.is_accepted}
    rejected = [o for o in outcomes if o.clean.validity not in {Validity.VALID, None}]
    assert not accepted, "biased runs were accepted; these commands repeat them"
    assert not {outcome.repeat_command for outcome in rejected}, "clean runs were rejected"


def test_a_draw_is_repeated_to_the_last_bit(adb: AdbServer, tmp_path: Path) -> None:
    """Neither earlier draws nor another adb server change what a draw finds."""
    first = VerdictBench(adb)
    first.draw_outcomes(SEED, SHORT_DRAW - 1, per_clean=1)
    expected = first.draw_outcomes(SEED, SHORT_DRAW, per_clean=2)
    with AdbServer(tmp_path / "another") as another:
        assert VerdictBench(another).draw_outcomes(SEED, SHORT_DRAW, per_clean=2) == expected
    assert expected[0].clean.headline


@pytest.mark.slow
def test_a_small_draw(adb: AdbServer) -> None:
    check_draws(adb, seed=5, groups=2)


@pytest.mark.slow
def test_a_larger_draw(adb: AdbServer) -> None:
    check_draws(adb, seed=11, groups=15)


@pytest.mark.slow
def test_a_creeping_phone_is_found_within_five_runs(adb: AdbServer) -> None:
    bench = VerdictBench(adb)
    found = [bench.runs_until_creep_is_found(random.Random(seed)) for seed in range(3)]
    assert max(found) <= 5


def test_every_phone_and_every_kind_is_drawn() -> None:
    rng = random.Random(1)
    runs = [draw_run(rng, setting) for setting in SETTINGS for _ in range(50)]
    assert {run.phone.partition(":")[0] for run in runs} == {*PHONES}
    assert {run.condition["protocol"] for run in runs} == {"cold", "soaked", "endurance"}
    kinds = {kind.name for run in runs for kind in draw_kinds(rng, run, 3)}
    assert kinds == {kind.name for kind in DISTURBANCES}
