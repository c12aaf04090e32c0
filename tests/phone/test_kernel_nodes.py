"""Parsers of kernel nodes, with texts as phones print them."""

import pytest

from agent.phone.kernel_nodes import (
    THERMAL,
    dumpsys_battery_level_pct,
    parse_cpu_coolers,
    parse_cpus,
    parse_level_pct,
    parse_time_in_state,
    plausible_temp_c,
    ticks_between,
    whole_number,
    zone_scale,
)


@pytest.mark.parametrize(
    ("text", "cpus"),
    [
        ("0 1 2 3\n", (0, 1, 2, 3)),  # related_cpus
        ("0-3", (0, 1, 2, 3)),  # /sys/devices/system/cpu/online
        ("0,2-3,7", (0, 2, 3, 7)),  # some cores unplugged
        ("7", (7,)),  # a prime core
        ("", ()),  # an offline policy prints nothing
        ("all of them", ()),  # nonsense
    ],
)
def test_cpu_lists(text: str, cpus: tuple[int, ...]) -> None:
    assert parse_cpus(text) == cpus


def test_ticks_between_two_readings_are_differences() -> None:
    before, after = "300000 100\n1785600 50", "300000 110\n1785600 850\n900000 1"
    assert ticks_between(before, after) == {300000: 10, 1785600: 800, 900000: 1}


def test_a_decreasing_counter_is_ignored() -> None:
    """A policy that was offline starts counting from zero."""
    assert ticks_between("300000 100", "300000 5") == {}
    assert parse_time_in_state("cpu0 cpu1\nN/A") == {}


@pytest.mark.parametrize(
    ("raw", "scale"),
    [
        (31500, 0.001),  # millidegrees: most kernels
        (315, 0.1),  # tenths: batteries
        (31, 1.0),  # whole degrees: old kernels
        (0, None),  # not measuring
        (-40000, None),  # sensor off
        (125, None),  # the highest code of a converter
        (125000, None),
        (65535, None),  # bus error
        (999999, None),  # an impossible temperature
        (100, None),  # 100 or 10.0 degrees
    ],
)
def test_units_of_a_zone(raw: int, scale: float | None) -> None:
    assert zone_scale(raw) == scale


@pytest.mark.parametrize("text", ["1e30", "31.5", "31 C", "", "-", "0x1f", "3" * 30])
def test_only_a_whole_number_is_a_value(text: str) -> None:
    assert whole_number(text) is None


def test_a_sentinel_is_not_a_temperature() -> None:
    assert plausible_temp_c(-40000, 0.001) is None
    assert plausible_temp_c(None, 0.001) is None
    assert plausible_temp_c(41000, 0.001) == pytest.approx(41.0)


def test_only_cpu_coolers_are_watched() -> None:
    nodes = {
        f"{THERMAL}/cooling_device0/type": "thermal-cpufreq-0",
        f"{THERMAL}/cooling_device1/type": "battery",
        f"{THERMAL}/cooling_device2/type": "thermal-devfreq-0",
    }
    assert parse_cpu_coolers(nodes) == {f"{THERMAL}/cooling_device0/cur_state": "thermal-cpufreq-0"}


def test_the_battery_level_from_its_node_and_from_dumpsys() -> None:
    dump = "Current Battery Service state:\n  AC powered: false\n  status: 3\n  level: 57\n"
    assert dumpsys_battery_level_pct(dump) == parse_level_pct("57\n") == 57
    assert parse_level_pct("300") is None
    assert dumpsys_battery_level_pct("AC powered: true\nlevel: 75\nscale: 100") == 75
    assert dumpsys_battery_level_pct("  level: 120\n  scale: 200\n") == 60
    assert dumpsys_battery_level_pct("  level: 120\n  scale: 0\n") is None
    history = "08-17 10:51:16.996  Sending ACTION_BATTERY_CHANGED: level:79, status:3\n"
    assert dumpsys_battery_level_pct(f"  level: 73\n{history}") == 73
    assert dumpsys_battery_level_pct(history) is None
    assert dumpsys_battery_level_pct("Can't find service: battery") is None
