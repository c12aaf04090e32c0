"""Temperatures of the framework: used where the zones are hidden, and only the current ones."""

import pytest

from agent.phone.shell_command import parse_nodes, read_nodes_command
from agent.phone.thermalservice import (
    STATUS,
    parse_thermalservice,
    thermal_status,
    thermalservice_zones,
)

DUMP = """IsStatusOverride: false
Thermal Status: 1
Cached temperatures:
\tTemperature{mValue=20.0, mType=0, mName=CPU0, mStatus=0}
HAL Ready: true
Current temperatures from HAL:
\tTemperature{mValue=38.4, mType=0, mName=CPU0, mStatus=0}
\tTemperature{mValue=31.25, mType=3, mName=VIRTUAL-SKIN, mStatus=1}
\tTemperature{mValue=29.0, mType=2, mName=battery, mStatus=0}
Current cooling devices from HAL:
\tCoolingDevice{mValue=0, mType=2, mName=thermal-cpufreq-0}
"""


def test_cached_values_do_not_count() -> None:
    assert parse_thermalservice(DUMP) == {
        STATUS: "1",
        "thermalservice:CPU0": "38400",
        "thermalservice:VIRTUAL-SKIN": "31250",
        "thermalservice:battery": "29000",
    }


def test_zones_are_recognised_by_their_type() -> None:
    cpu, body = thermalservice_zones(DUMP)
    assert [zone.path for zone in cpu] == ["thermalservice:CPU0"]
    assert body is not None
    assert body.type == "VIRTUAL-SKIN"


def test_the_status_of_a_skin_sensor_counts_where_the_framework_says_nothing() -> None:
    silent = DUMP.replace("Thermal Status: 1", "Thermal Status: 0")
    assert parse_thermalservice(silent)[STATUS] == "1"
    assert thermal_status(silent.replace("mStatus=1", "mStatus=3")) == 3
    assert thermal_status(silent.replace("mStatus=1", "mStatus=0")) == 0
    hot_cpu = silent.replace("mStatus=1", "mStatus=0").replace("CPU0, mStatus=0", "CPU0, mStatus=3")
    assert thermal_status(hot_cpu) == 0  # seen at full clocks
    assert thermal_status("Can't find service: thermalservice") is None


@pytest.mark.parametrize("name", ["PATHM", "PA1THM", "pa2"])
def test_the_amplifier_of_the_radio_is_not_the_cpu(name: str) -> None:
    row = f"\tTemperature{{mValue=61.0, mType=0, mName={name}, mStatus=0}}\n"
    cpu, _ = thermalservice_zones(DUMP.replace("Current cooling", f"{row}Current cooling"))
    assert [zone.type for zone in cpu] == ["CPU0"]


def rows(*sensors: tuple[str, int, float]) -> str:
    """Current temperatures of a HAL."""
    return "Current temperatures from HAL:\n" + "".join(
        f"\tTemperature{{mValue={value}, mType={kind}, mName={name}, mStatus=0}}\n"
        for name, kind, value in sensors
    )


def test_names_that_contradict_their_type_are_not_used() -> None:
    """An Exynos 2200 shows its NPU as a CPU; other lists have types that are mixed up."""
    npu = rows(("BIG", 0, 36.0), ("NPU", 0, 47.0), ("soc", 0, 61.0), ("battery", 2, 28.0))
    cpu, body = thermalservice_zones(npu)
    assert [zone.type for zone in cpu] == ["BIG"]
    assert body is not None
    assert body.type == "battery"
    mixed = rows(("cpu-0-0-usr", 3, 35.5), ("battery", 0, 31.2), ("cpu-hw-trip-0", 0, 105.0))
    assert thermalservice_zones(mixed) == ((), None)
    chip = rows(("pm8916_tz", 3, 42.28), ("pmih010x_lite_tz", 3, 66.0), ("battery", 2, 36.7))
    _, body = thermalservice_zones(chip)
    assert body is not None
    assert body.type == "battery"
    samsung = rows(("AP", 0, 33.0), ("PA", 0, 40.0), ("BAT", 2, 29.0))
    assert [zone.type for zone in thermalservice_zones(samsung)[0]] == ["AP"]


def test_the_soc_is_used_if_no_sensor_is_at_the_cpu() -> None:
    cpu, _ = thermalservice_zones(rows(("soc_max", 13, 41.2), ("GPU", 1, 41.2)))
    assert [zone.type for zone in cpu] == ["soc_max"]
    cpu, _ = thermalservice_zones(rows(("soc_max", 13, 41.2), ("CPU", 0, 40.0)))
    assert [zone.type for zone in cpu] == ["CPU"]


def test_a_cpu_that_is_much_colder_than_the_battery_is_not_used() -> None:
    assert thermalservice_zones(rows(("CPU0", 0, 5.0), ("battery", 2, 30.0)))[0] == ()


def test_a_framework_without_temperatures_gives_no_zones() -> None:
    assert thermalservice_zones("Can't find service: thermalservice\n") == ((), None)
    assert parse_thermalservice("Temperature{mValue=1e9, mType=0, mName=x, mStatus=0}") == {}


def test_both_kinds_of_nodes_come_in_one_result() -> None:
    command = read_nodes_command(["/proc/uptime", "thermalservice:CPU0"])
    assert command.words[:2] == ["sh", "-c"]
    assert "dumpsys thermalservice" in command.words[2]
    assert read_nodes_command(["/proc/uptime"]).words[0] == "grep"
    nodes = parse_nodes("/proc/uptime:12.5 3.0\n" + DUMP)
    assert (nodes["/proc/uptime"], nodes["thermalservice:CPU0"]) == ("12.5 3.0", "38400")


def test_samsungs_own_service_is_read_by_names() -> None:
    head = "HAL connection:\n\tSdhms connected: yes\nCurrent temperatures from HAL:\n"
    rows = {"TYPE_CPU": (1, 24.0), "TYPE_BATTERY": (3, 24.4), "TYPE_SKIN": (4, 25.3)}
    for names in (rows, {name.removeprefix("TYPE_"): row for name, row in rows.items()}):
        text = head + "".join(
            f"\tTemperature{{mValue={value}, mType={kind}, mName={name}, mStatus=0}}\n"
            for name, (kind, value) in names.items()
        )
        cpu, body = thermalservice_zones(text)
        assert [zone.type.removeprefix("TYPE_") for zone in cpu] == ["CPU"]
        assert body is not None
        assert body.type.removeprefix("TYPE_") == "SKIN"


def test_sensors_without_a_value_and_mocks_are_left_out() -> None:
    rows = {"SUBBAT": (2, 0.0), "PA": (5, -99.9), "SKIN": (3, 200.0), "test sensor": (3, 30.8)}
    text = "Current temperatures from HAL:\n" + "".join(
        f"\tTemperature{{mValue={value}, mType={kind}, mName={name}, mStatus=0}}\n"
        for name, (kind, value) in rows.items()
    )
    assert thermalservice_zones(text) == ((), None)
