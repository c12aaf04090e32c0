"""The gauge: found out, not believed."""

import pytest

from agent.phone.gauge import calibrate
from workloads.phone import Gauge


def working(raw: int, period_s: float = 1.0, spread: int = 3) -> list[tuple[float, int]]:
    """What is read five times a second of a gauge that says something new once a period."""
    return [(at / 5, raw + int(at / 5 / period_s) % spread) for at in range(60)]


@pytest.mark.parametrize(
    ("idle", "work", "gauge"),
    [
        # discharges at rest and more so at work, negative by its vendor, in µA
        (-190_000, -1_100_000, (-1, 1e-6)),
        # charges at rest, and less so at work: the sign at rest would mislead
        (+350_000, -600_000, (-1, 1e-6)),
        (-350_000, +600_000, (+1, 1e-6)),
        # the same in mA
        (+350, -600, (-1, 1e-3)),
        (190, 1100, (+1, 1e-3)),
    ],
)
def test_sign_and_unit_are_found(idle: int, work: int, gauge: tuple[int, float]) -> None:
    found = calibrate([idle] * 4, working(work))
    assert found is not None
    assert (found.discharge_sign, found.unit_a) == gauge


@pytest.mark.parametrize("period_s", [1.0, 2.0])
def test_the_pace_is_found(period_s: float) -> None:
    found = calibrate([-200_000], working(-1_000_000, period_s))
    assert found == Gauge(discharge_sign=-1, unit_a=1e-6, period_s=period_s)


def test_what_does_not_move_is_not_believed() -> None:
    assert calibrate([-200_000], working(-201_000)) is None
    assert calibrate([], working(-1_000_000)) is None
    assert calibrate([-200_000], working(-1_000_000)[:3]) is None
