"""Power meters of boards and computers, and their energy over a run."""

import pytest

from agent.collect.energy import EnergyGrade, observe_power, resting_power_w
from agent.collect.power_rails import counted_energy, rail_series
from agent.collect.readings import NodeValue, Readings
from agent.phone.power_meters import RailMeter, find_rail_meters
from agent.phone.shell_command import parse_nodes
from workloads.protocol.verdict import ReasonCode

S = 10**9
CAP = "/sys/class/powercap"
RANGE = 262_143_328_850
PACKAGE = RailMeter(f"{CAP}/intel-rapl:0/energy_uj", "package_0", restarts_at_uj=RANGE)
INPUT = RailMeter("/v", "VDD_IN", "/a")
BATTERY = "/sys/class/power_supply/battery"


def test_counters_of_packages_and_their_parts_are_found() -> None:
    text = (
        f"{CAP}/intel-rapl:0/name:package-0\n{CAP}/intel-rapl:0/energy_uj:5\n"
        f"{CAP}/intel-rapl:0/max_energy_range_uj:{RANGE}\n"
        f"{CAP}/intel-rapl:0:1/name:dram\n{CAP}/intel-rapl:0:1/energy_uj:7\n"
        f"{CAP}/intel-rapl:0:1/max_energy_range_uj:65712999613\n"
        f"{CAP}/intel-rapl:1/name:psys\n{CAP}/intel-rapl:1/energy_uj:9\n"
        f"{CAP}/intel-rapl:1/max_energy_range_uj:{RANGE}\n"
    )
    meters = find_rail_meters(parse_nodes(text))
    assert [meter.rail for meter in meters] == ["package_0", "package_0_dram", "psys"]
    assert [meter.is_package for meter in meters] == [True, False, False]
    assert meters[1].restarts_at_uj == 65_712_999_613


def test_a_counter_whose_range_is_unknown_is_not_used() -> None:
    nodes = {f"{CAP}/intel-rapl:0/name": "package-0", f"{CAP}/intel-rapl:0/energy_uj": "5"}
    assert find_rail_meters(nodes) == ()


@pytest.mark.parametrize(("label", "chip", "found"), [
    ("VDD_IN", "ina3221", True),
    ("NC", "ina3221", False),  # not connected
    ("sum of shunt voltages", "ina3221", False),
    ("VDD_IN", "nct6775", False),  # another chip
])  # fmt: skip
def test_rails_of_an_ina3221(label: str, chip: str, found: bool) -> None:
    folder = "/sys/class/hwmon/hwmon2"
    meters = find_rail_meters({f"{folder}/name": chip, f"{folder}/in1_label": label})
    wanted = (RailMeter(f"{folder}/in1_input", label, f"{folder}/curr1_input"),)
    assert meters == (wanted if found else ())


def read(**columns: list[NodeValue]) -> Readings:
    """Build readings, one per second."""
    paths = {"package": PACKAGE.path, "v": "/v", "a": "/a", "power": f"{BATTERY}/power_now"}
    paths |= {"status": f"{BATTERY}/status"}
    named = {paths[name]: column for name, column in columns.items()}
    count = len(next(iter(columns.values())))
    return Readings(tuple(named), [row * S for row in range(count)], named)


def test_a_counter_that_starts_anew_is_continued() -> None:
    counts: list[NodeValue] = [RANGE - 15_000_000, RANGE - 5_000_000, 5_000_000, 15_000_000]
    assert counted_energy(read(package=counts), PACKAGE).total == [0, 10, 20, 30]
    power = observe_power(read(package=counts), (0, 3 * S), None, [PACKAGE], 500.0)
    assert power.grade is EnergyGrade.RAPL
    assert power.energy_j((0, 3 * S)) == pytest.approx(30)
    assert power.remark is not None
    assert power.remark.code is ReasonCode.ENERGY_PACKAGE_ONLY


def test_a_counter_that_was_reset_is_not_used() -> None:
    counts: list[NodeValue] = [90_000_000, 100_000_000, 0, 10_000_000]
    assert counted_energy(read(package=counts), PACKAGE).total == []
    assert rail_series(read(package=counts), [PACKAGE]) == {}
    power = observe_power(read(package=counts), (0, 3 * S), None, [PACKAGE], 500.0)
    assert power.grade is EnergyGrade.REJECTED


def test_a_counter_that_does_not_count_gives_no_energy() -> None:
    power = observe_power(read(package=[7, 7, 7, 7]), (0, 3 * S), None, [PACKAGE], 500.0)
    assert (power.grade, power.energy_j((0, 3 * S))) == (EnergyGrade.REJECTED, None)


def test_voltage_and_current_of_an_input_rail() -> None:
    readings = read(v=[5000] * 4, a=[1000, 2000, 2000, 1000])
    power = observe_power(readings, (0, 3 * S), None, [INPUT], 500.0)
    assert power.grade is EnergyGrade.RAIL
    assert power.energy_j((0, 3 * S)) == pytest.approx(25)
    assert rail_series(readings, [INPUT])["rail_j.VDD_IN"].between(S, 2 * S) == pytest.approx(10)


def test_an_implausible_rail_is_rejected() -> None:
    power = observe_power(read(v=[5000] * 4, a=[0] * 4), (0, 3 * S), None, [INPUT], 500.0)
    assert power.grade is EnergyGrade.REJECTED
    assert power.remark is not None
    assert power.remark.code is ReasonCode.ENERGY_IMPLAUSIBLE


@pytest.mark.parametrize(
    ("status", "grade"),
    [("Discharging", EnergyGrade.GAUGE), ("Charging", EnergyGrade.REJECTED)],
)
def test_a_battery_that_reports_its_power(status: str, grade: EnergyGrade) -> None:
    rows = range(10)
    readings = read(power=[12_000_000 + 1000 * row for row in rows], status=[status for _ in rows])
    power = observe_power(readings, (0, 9 * S), None, (), 500.0)
    assert power.grade is grade
    if grade is EnergyGrade.GAUGE:
        assert power.energy_j((0, 9 * S)) == pytest.approx(108, rel=0.01)


def test_idle_power_comes_from_the_same_meter() -> None:
    idle = read(package=[0, 3_000_000, 6_000_000, 9_000_000])
    assert resting_power_w(idle, None, [PACKAGE], "rapl") == pytest.approx(3)
    assert resting_power_w(idle, None, [PACKAGE], "rail") is None
    assert resting_power_w(idle, None, [PACKAGE]) is None
    assert resting_power_w(Readings(), None, [PACKAGE], "rapl") is None
