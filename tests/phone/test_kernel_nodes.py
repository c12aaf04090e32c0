"""Parsers of kernel nodes, with texts as phones print them."""

import pytest

from agent.phone.kernel_nodes import (
    CPU,
    CPUFREQ,
    THERMAL,
    choose_body_zone,
    choose_cpu_zones,
    dumpsys_battery_level_pct,
    hottest_c,
    parse_clusters,
    parse_cores,
    parse_cpu_coolers,
    parse_cpus,
    parse_ladder,
    parse_level_pct,
    parse_time_in_state,
    parse_zones,
    plausible_temp_c,
    ticks_between,
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


@pytest.mark.parametrize(
    ("available", "time_in_state", "ladder"),
    [
        ("300000 576000 1785600 \n", "", (300000, 576000, 1785600)),  # ascending, trailing blank
        ("1785600 300000 576000", "", (300000, 576000, 1785600)),  # MediaTek lists it descending
        ("", "300000 12\n576000 7\n", (300000, 576000)),  # no list: the counters name the steps
        ("<unsupported>", "", ()),  # neither
    ],
)
def test_ladders(available: str, time_in_state: str, ladder: tuple[int, ...]) -> None:
    assert parse_ladder(available, time_in_state) == ladder


@pytest.mark.parametrize(
    ("nodes", "clusters"),
    [
        ({f"{CPU}/present": "0-1"}, [(0, (0, 1), 1024)]),  # a computer
        ({f"{CPU}/present": "2,5"}, [(2, (2, 5), 1024)]),  # a part of one
        (
            {f"{CPU}/present": "0-2", f"{CPU}/cpu0/cpu_capacity": "300"},
            [(0, (0,), 300), (1, (1, 2), 1024)],  # different cores stay separate
        ),
        ({}, []),
    ],
)
def test_cores_without_clocks(
    nodes: dict[str, str], clusters: list[tuple[int, tuple[int, ...], int]]
) -> None:
    parsed = parse_cores(nodes)
    assert [(cluster.policy, cluster.cpus, cluster.capacity) for cluster in parsed] == clusters
    assert not any(cluster.ladder_khz for cluster in parsed)


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
    ],
)
def test_units_of_a_zone(raw: int, scale: float | None) -> None:
    assert zone_scale(raw) == scale


def test_a_sentinel_is_not_a_temperature() -> None:
    assert plausible_temp_c(-40000, 0.001) is None
    assert plausible_temp_c(None, 0.001) is None
    assert plausible_temp_c(41000, 0.001) == pytest.approx(41.0)


def _zones(*types: str, temp: str = "33000") -> dict[str, str]:
    nodes = {}
    for at, name in enumerate(types):
        nodes[f"{THERMAL}/thermal_zone{at}/type"] = name
        nodes[f"{THERMAL}/thermal_zone{at}/temp"] = temp
    return nodes


@pytest.mark.parametrize(
    ("types", "chosen", "slow"),
    [
        # Snapdragon 855: power chips first, duplicates ending in -step
        (
            [
                "pm8150_tz",
                "cpu-0-0-usr",
                "cpu-1-7-usr",
                "cpu-1-7-step",
                "gpuss-0-usr",
                "skin-therm",
            ],
            ["cpu-0-0-usr", "cpu-1-7-usr"],
            "skin-therm",
        ),
        # Exynos 8895
        (["BIG", "LITTLE", "G3D", "ISP", "battery"], ["BIG", "LITTLE"], "battery"),
        # Snapdragon 650
        (["tsens_tz_sensor0", "pm8956_tz", "battery"], ["tsens_tz_sensor0"], "battery"),
        # MediaTek
        (["mtktscpu", "mtktsbattery", "mtktspmic"], ["mtktscpu"], "mtktsbattery"),
        # nothing of use
        (["modem-tz", "camera"], [], None),
    ],
)
def test_zones_are_chosen_by_type(types: list[str], chosen: list[str], slow: str | None) -> None:
    zones = parse_zones(_zones(*types))
    body = choose_body_zone(zones)
    assert [zone.type for zone in choose_cpu_zones(zones)] == chosen
    assert (body.type if body else None) == slow


def test_the_hottest_plausible_zone_counts() -> None:
    nodes = _zones("cpu-0", "cpu-1", "cpu-2")
    zones = parse_zones(nodes)
    nodes[f"{THERMAL}/thermal_zone1/temp"] = "47100"
    nodes[f"{THERMAL}/thermal_zone2/temp"] = "125000"
    assert hottest_c(zones, nodes) == pytest.approx(47.1)
    assert hottest_c(zones, {}) is None


def test_clusters_follow_the_kernel() -> None:
    nodes = {
        f"{CPUFREQ}/policy0/related_cpus": "0 1 2 3",
        f"{CPUFREQ}/policy0/scaling_available_frequencies": "2419200 710400",
        f"{CPUFREQ}/policy4/related_cpus": "4 5 6 7",
        f"{CPUFREQ}/policy4/stats/time_in_state": "300000 4\n1785600 5",
        f"{CPU}/cpu0/cpu_capacity": "1024",
        f"{CPUFREQ}/policy9/related_cpus": "",
    }
    big, little = parse_clusters(nodes)
    assert (big.policy, big.cpus, big.capacity) == (0, (0, 1, 2, 3), 1024)
    assert (little.ladder_khz, little.capacity) == ((300000, 1785600), 1785)


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
    assert dumpsys_battery_level_pct("Can't find service: battery") is None
