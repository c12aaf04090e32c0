"""Disturbances drawn at random: no biased run is accepted, and no clean one is rejected."""

import random

import pytest

from agent.phone.adb import AdbServer
from benchmarks.verdicts import draw_outcome
from workloads.protocol.verdict import Validity


def check_draws(adb: AdbServer, seed: int, count: int) -> None:
    rng = random.Random(seed)
    outcomes = [draw_outcome(adb, rng) for _ in range(count)]
    biased = [o for o in outcomes if o.bias is not None and abs(o.bias) > 0.05]
    assert not [o for o in biased if o.validity is Validity.VALID]
    assert not [o for o in outcomes if o.clean_validity not in {Validity.VALID, None}]
    assert biased, "no draw was biased: draw more"


@pytest.mark.slow
def test_a_small_draw(adb: AdbServer) -> None:
    check_draws(adb, seed=1934581138, count=2)


@pytest.mark.slow
def test_a_larger_draw(adb: AdbServer) -> None:
    check_draws(adb, seed=11, count=60)
