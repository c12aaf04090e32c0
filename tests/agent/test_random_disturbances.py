"""Disturbances drawn at random: no biased run is accepted, and no clean one is rejected."""

import random

import pytest

from agent.phone.adb import AdbServer
from benchmarks.drawn_disturbances import DISTURBANCES, PHONES, draw_kinds, draw_run
from benchmarks.verdicts import LARGE_BIAS, VerdictBench
from workloads.protocol.verdict import Validity


def check_draws(adb: AdbServer, seed: int, groups: int) -> None:
    bench = VerdictBench(adb)
    drawn = [bench.draw_outcomes(random.Random(f"{seed}:{index}")) for index in range(groups)]
    outcomes = [outcome for group in drawn for outcome in group]
    biased = [outcome for outcome in outcomes if abs(outcome.bias) > LARGE_BIAS]
    assert biased, "no draw was biased: draw more"
    assert not [outcome for outcome in biased if outcome.is_accepted]
    assert not [o for o in outcomes if o.clean.validity not in {Validity.VALID, None}]


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
    runs = [draw_run(rng) for _ in range(400)]
    assert {run.phone.removesuffix(":stock") for run in runs} == {*PHONES}
    assert {run.condition["protocol"] for run in runs} == {"cold", "soaked", "endurance"}
    kinds = {kind.name for run in runs for kind in draw_kinds(rng, run, 3)}
    assert kinds == {kind.name for kind in DISTURBANCES}
