"""The power statistics of a phone: two generations of tables, rounding, and what is torn."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.collect.energy import EnergyGrade, observe_power
from agent.collect.power_rails import reported_rail_series
from agent.collect.rail_log import resting_rails_w
from agent.collect.readings import Readings
from agent.phone.power_stats import (
    RailTotals,
    add_up_rails,
    parse_power_stats,
    parse_readings_log,
    rails_to_add_up,
    reading_script,
    resolution_j,
)
from workloads.protocol.phone_facts import PowerStatsHal
from workloads.protocol.verdict import ReasonCode

S = 10**9
AIDL = (
    "\n============= PowerStats HAL 2.0 energy consumers ==============\n"
    "GPU          :         999.00 mWs\n        1000 -         499.00 mWs\n"
    "========== End of PowerStats HAL 2.0 energy consumers ==========\n"
    "\n============= PowerStats HAL 2.0 energy meter ==============\n"
    "                           Channel    Cumulative Energy\n"
    "        [VSYS_PWR_DISPLAY]:Display       1039108.42 mWs\n"
    "         [S2M_VDD_CPUCL2]:CPU(BIG)          5000.00 mWs\n"
    "            [L9S_GNSS_CORE]:GPS(L)             0.00 mWs\n"
    "========== End of PowerStats HAL 2.0 energy meter ==========\n"
)
HIDL = (
    "\n============= PowerStats HAL 1.0 rail energy data ==============\n"
    "          Subsys                 Rail    Cumulative Energy\n"
    "             cpu         C1S_VDD_APC1          5000.00 mWs\n"
    "========== End of PowerStats HAL 1.0 rail energy data ==========\n"
)


def test_both_generations_of_tables_are_read() -> None:
    rails = {"VSYS_PWR_DISPLAY": 1039.10842, "S2M_VDD_CPUCL2": 5.0, "L9S_GNSS_CORE": 0.0}
    assert parse_power_stats(AIDL) == pytest.approx(rails)
    assert parse_power_stats(HIDL) == {"C1S_VDD_APC1": 5.0}
    assert rails_to_add_up(rails) == ["VSYS_PWR_DISPLAY", "S2M_VDD_CPUCL2"]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Can't find service: android.hardware.power.stats.IPowerStats/default\n",
        AIDL[:-70],  # torn before its end
        AIDL.replace("S2M_VDD_CPUCL2", "VSYS_PWR_DISPLAY"),  # the same rail twice
        AIDL.replace("energy meter", "energy gauge"),
    ],
)
def test_what_is_not_a_whole_table_gives_nothing(text: str) -> None:
    assert parse_power_stats(text) == {}


def test_a_total_is_known_as_well_as_float32_tells_it() -> None:
    assert resolution_j(0.0) == 1e-5  # two decimals of a milliwatt-second
    assert resolution_j(1000.0) == pytest.approx(64e-6)
    assert resolution_j(1e6) == pytest.approx(0.065536)


def test_the_command_never_moves_the_shared_baseline() -> None:
    assert all("delta" not in reading_script(hal) for hal in PowerStatsHal)


def test_slow_torn_and_changed_readings_are_left_out() -> None:
    def at(start_s: float, end_s: float, dump: str = AIDL) -> str:
        return f"{start_s:.2f} 1.00\n{dump}{end_s:.2f} 1.00\n"

    log = at(1.0, 1.1) + at(2.0, 2.9) + at(3.0, 3.1, "") + at(4.0, 4.1, HIDL) + at(5.0, 5.1)
    assert [reading.t_ns for reading in parse_readings_log(log)] == [1.05 * S, 5.05 * S]
    assert parse_readings_log(log + "6.00 1.00\n" + AIDL[:200])[1].t_ns == 5.05 * S


@given(st.data())
def test_a_damaged_log_never_raises_and_keeps_its_order(data: st.DataObject) -> None:
    log = "".join(f"{s}.00 1.00\n{AIDL}{s}.10 1.00\n" for s in range(1, 5))
    start = data.draw(st.integers(0, len(log)))
    end = data.draw(st.integers(start, len(log)))
    patch = data.draw(st.sampled_from(["", "9" * 5000, "]" * 99, "1e30", "\0", "\n", log[:700]]))
    totals = parse_readings_log(log[:start] + patch + log[end:])
    moments = [reading.t_ns for reading in totals]
    assert moments == sorted(set(moments))
    assert len({frozenset(reading.joules) for reading in totals}) <= 1
    assert all(0 <= joules < 1e12 for reading in totals for joules in reading.joules.values())
    add_up_rails(totals)


def rails(start_j: float, watts: float, count: int = 11) -> list[RailTotals]:
    """Build readings once per second of two rails, and of a third that one of them feeds."""
    return [
        RailTotals(s * S, {"A": start_j + s * watts, "VSYS_B": 2.0 * s, "L2_C": 9.0 * s})
        for s in range(count)
    ]


def test_the_rails_of_a_run_add_up() -> None:
    power = observe_power(Readings(), (S // 2, 10 * S), None, rails=rails(100.0, 3.0))
    assert power.grade is EnergyGrade.RAILS
    assert power.grade.meter == "rails"
    assert power.energy_j((S // 2, 10 * S)) == pytest.approx(9.5 * 5.0)
    assert power.remark is not None
    assert power.remark.code is ReasonCode.ENERGY_RAILS_ONLY
    assert resting_rails_w(*rails(1.0, 1.0, 5)[::4]) == pytest.approx(3.0)
    assert resting_rails_w(*rails(1.0, 1.0, 2)) is None  # too close


@pytest.mark.parametrize(
    ("totals", "code"),
    [
        (rails(1e8, 3.0), ReasonCode.ENERGY_RAILS_ROUNDED),  # a phone that is up for years
        (rails(100.0, 300.0), ReasonCode.ENERGY_IMPLAUSIBLE),
        (rails(100.0, -1.0), ReasonCode.ENERGY_NOT_READ),  # a counter that goes back
        (rails(100.0, 3.0, 3), ReasonCode.ENERGY_NOT_READ),  # too few
        (rails(100.0, 3.0, 6), ReasonCode.ENERGY_NOT_READ),  # only half of the run
    ],
)
def test_rails_that_prove_nothing_give_no_energy(
    totals: list[RailTotals], code: ReasonCode
) -> None:
    power = observe_power(Readings(), (0, 10 * S), None, rails=totals)
    assert (power.grade, power.energy_j((0, 10 * S))) == (EnergyGrade.REJECTED, None)
    assert power.remark is not None
    assert power.remark.code is code


def test_a_small_rail_with_a_large_total_is_not_shown() -> None:
    totals = [RailTotals(s * S, {"A": 1e7 + 0.5 * s, "B": 5.0 * s}) for s in range(5)]
    assert [*reported_rail_series(totals)] == ["rail_j.B"]
    assert add_up_rails([])[0].t_ns == []
