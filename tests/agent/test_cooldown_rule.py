"""When a run may start."""

import math
from itertools import pairwise

import pytest

from agent.control.cooldown import Fail, Look, Ready, Wait, decide
from workloads.condition import Condition
from workloads.fault import SensorMissing, TooHot
from workloads.heat import Reading, fit_cooling

CONDITION = Condition()


def flat(temp_c: float | None, n: int = 6, step_s: float = 3.0) -> list[Look]:
    return [Look(100 + at * step_s, temp_c) for at in range(n)]


def cooling(start_c: float, rest_c: float, tau_s: float, span_s: float) -> list[Look]:
    times = [span_s * at / 20 for at in range(21)]
    return [Look(t, rest_c + (start_c - rest_c) * math.exp(-t / tau_s)) for t in times]


def test_a_phone_at_rest_is_ready() -> None:
    """Cool and steady: nothing to wait for."""
    assert decide(flat(30.0), 0, CONDITION, None) == Ready(30.0)


def test_one_look_is_not_enough() -> None:
    """A temperature without a slope may be on its way up or down."""
    assert isinstance(decide(flat(30.0, n=1), 100, CONDITION, None), Wait)


def test_a_hot_phone_waits_as_long_as_the_fit_says() -> None:
    """The wait ends about when the band is reached: cool enough, and no more than 1 °C a minute."""
    looks = cooling(60, 25, 100, 60)
    fit = fit_cooling([Reading(look.t_s, look.temp_c or 0) for look in looks])
    decision = decide(looks, 0, CONDITION, fit)
    assert isinstance(decision, Wait)
    assert decision.ready is not None
    steady_s = 100 * math.log(60 * 35 / 100) - 60
    assert decision.ready.earliest_s <= steady_s <= decision.ready.latest_s


def test_a_hot_phone_waits_however_steady() -> None:
    assert isinstance(decide(flat(32.1), 100, CONDITION, None), Wait)


def test_cool_but_throttled_is_not_at_rest() -> None:
    """A phone that still caps its clocks cannot hold the ones that are asked for."""
    looks = [look._replace(capped=True) for look in flat(30.0)]
    assert isinstance(decide(looks, 100, CONDITION, None), Wait)
    decision = decide(looks, 100 - 2 * CONDITION.cool_wait_max_s, CONDITION, None)
    assert isinstance(decision, Fail)
    assert "still throttled" in str(decision.error)


def test_cool_but_falling_fast_is_not_at_rest() -> None:
    """The die is cool long before the body: the slope tells."""
    looks = [Look(t, 31.0 - 0.1 * t) for t in range(0, 30, 3)]
    assert isinstance(decide(looks, 0, CONDITION, None), Wait)


@pytest.mark.parametrize(
    ("looks", "error"),
    [
        (flat(None), SensorMissing),  # no sensor at all
        (flat(30.0)[:3] + flat(None, n=3), SensorMissing),  # it died while we watched
        (flat(40.0, n=9, step_s=40), SensorMissing),  # hot, and the very same number for minutes
        ([Look(0, 50.0), Look(2500, 49.0)], TooHot),  # the patience of the condition is over
    ],
)
def test_it_fails_closed(looks: list[Look], error: type[Exception]) -> None:
    """What cannot be known never counts as cool."""
    decision = decide(looks, 0, CONDITION, None)
    assert isinstance(decision, Fail)
    assert type(decision.error) is error


def test_one_missed_look_is_forgiven() -> None:
    """A node that fails to be read once is read again."""
    assert isinstance(decide([*flat(30.0), Look(200, None)], 0, CONDITION, None), Wait)


def test_a_cooling_phone_is_let_go_in_time() -> None:
    """Following the rule's own waits, the start lies within seconds of the true moment."""
    t, looks = 0.0, []
    for _ in range(1000):
        looks.append(Look(t, 26 + 30 * math.exp(-t / 240)))
        readings = [Reading(look.t_s, look.temp_c or 0) for look in looks]
        decision = decide(looks, 0, CONDITION, fit_cooling(readings))
        if isinstance(decision, Ready):
            break
        assert isinstance(decision, Wait)
        t += min(decision.phone_s, 5.0)
    truth = next(s for s in range(5000) if 30 / 240 * 60 * math.exp(-s / 240) <= 1.0)
    assert truth <= t + 20
    assert t <= truth + 40
    assert all(a.t_s < b.t_s for a, b in pairwise(looks))
