"""The fuel gauge: its sign, unit and period are measured, not assumed."""

import pytest

from agent.phone.fuel_gauge import calibrate_gauge
from workloads.protocol.phone_facts import FuelGauge


def under_load(raw: int, period_s: float = 1.0, spread: int = 3) -> list[tuple[float, int]]:
    """Build readings, five per second, of a gauge that updates once per period."""
    return [(row / 5, raw + int(row / 5 / period_s) % spread) for row in range(60)]


@pytest.mark.parametrize(
    ("idle", "load", "expected"),
    [
        # discharges at rest and more under load; negative by its vendor; in µA
        (-190_000, -1_100_000, (-1, 1e-6)),
        # charges at rest and discharges under load: the sign at rest would mislead
        (+350_000, -600_000, (-1, 1e-6)),
        (-350_000, +600_000, (+1, 1e-6)),
        # the same in mA
        (+350, -600, (-1, 1e-3)),
        (190, 1100, (+1, 1e-3)),
    ],
)
def test_sign_and_unit_are_found(idle: int, load: int, expected: tuple[int, float]) -> None:
    gauge = calibrate_gauge([idle] * 4, under_load(load))
    assert gauge is not None
    assert (gauge.discharge_sign, gauge.unit_a) == expected


@pytest.mark.parametrize("period_s", [1.0, 2.0])
def test_the_period_is_found(period_s: float) -> None:
    gauge = calibrate_gauge([-200_000], under_load(-1_000_000, period_s))
    assert gauge == FuelGauge(discharge_sign=-1, unit_a=1e-6, period_s=period_s)


def test_a_constant_or_short_reading_gives_no_calibration() -> None:
    assert calibrate_gauge([-200_000], under_load(-201_000)) is None
    assert calibrate_gauge([], under_load(-1_000_000)) is None
    assert calibrate_gauge([-200_000], under_load(-1_000_000)[:3]) is None


@pytest.mark.parametrize(
    ("idle", "load"),
    [
        (976, -2000),  # Pixel 3a on its charger, charge_disable = 1; in µA
        (5000, -5000),  # full Pixel 6a; in µA
        (-8613, -3000),  # full Nexus 5X; in µA
    ],
)
@pytest.mark.parametrize("status", ["Full", "Not charging"])
def test_the_currents_of_a_balanced_battery_tell_no_unit(idle: int, load: int, status: str) -> None:
    assert calibrate_gauge([idle] * 4, under_load(load), {"Charging", status}) is None
    clear = calibrate_gauge([-190_000] * 4, under_load(-1_100_000), {status})
    assert clear is not None
    assert clear.unit_a == 1e-6


def test_no_battery_delivers_amperes_to_a_phone_at_rest() -> None:
    assert calibrate_gauge([3000] * 4, under_load(5000)) is None  # in mA: 3 A at rest
    assert calibrate_gauge([-3000] * 4, under_load(500)) is not None  # charged with 3 A
