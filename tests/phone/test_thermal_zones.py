"""Thermal zones are chosen by vendors' names and by their values; what is unknown is not used."""

import pytest

from agent.phone.kernel_nodes import SUPPLY, THERMAL, hottest_c
from agent.phone.thermal_zones import (
    SENSOR_INFO,
    ZonePlace,
    ZoneUse,
    battery_temp_c,
    examine_zones,
    zone_place,
    zones_in_use,
)


def uses(nodes: dict[str, str]) -> tuple[list[str], str | None]:
    """Return the types of the zones of the CPU, and of the zone of the body."""
    zones = examine_zones(nodes)
    body = [zone.type for zone in zones_in_use(zones, ZoneUse.BODY)]
    assert len(body) <= 1
    return [zone.type for zone in zones_in_use(zones, ZoneUse.CPU)], next(iter(body), None)


def valued(**raws: object) -> dict[str, str]:
    """Zones with a value each."""
    nodes = {}
    for at, (name, raw) in enumerate(raws.items()):
        nodes[f"{THERMAL}/thermal_zone{at}/type"] = name
        nodes[f"{THERMAL}/thermal_zone{at}/temp"] = str(raw)
    return nodes


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
    assert uses(_zones(*types)) == (chosen, slow)


@pytest.mark.parametrize(
    ("raws", "body"),
    [
        # OnePlus, realme: a daemon stores a number; the battery of the phone is at 39.4
        ({"shell_front": 33000, "shell_frame": 33000, "shell_back": 33000}, None),
        ({"shell_back": 33000, "battery": 39400}, "battery"),
        ({"shell_back": 36000, "battery": 39400}, "shell_back"),
        # MediaTek's estimate of the surface
        ({"vtskin1": 34100, "mtktsbattery": 33000}, "vtskin1"),
        # the highest of all is one of them
        ({"shell_front": 30500, "shell_back": 31100, "shell_max": 31100}, "shell_back"),
    ],
)
def test_a_number_that_a_program_stored_is_no_temperature(
    raws: dict[str, int], body: str | None
) -> None:
    gauge = {f"{SUPPLY}/battery/temp": "394", f"{SUPPLY}/battery/capacity": "80"}
    nodes = valued(**raws) | (gauge if "battery" in raws else {})
    assert uses(nodes) == ([], body)


def test_the_hottest_plausible_zone_counts() -> None:
    nodes = _zones("cpu-0", "cpu-1", "cpu-2")
    zones = zones_in_use(examine_zones(nodes), ZoneUse.CPU)
    nodes[f"{THERMAL}/thermal_zone1/temp"] = "47100"
    nodes[f"{THERMAL}/thermal_zone2/temp"] = "125000"
    assert hottest_c(zones, nodes) == pytest.approx(47.1)
    assert hottest_c(zones, {}) is None


@pytest.mark.parametrize(
    "name",
    [
        *("soc", "socd", "soc_usr", "vbat", "pm7250b-ibat-lvl0", "pm8150b-vbat-lvl0", "bcl-cycle"),
        *("lmh-dcvs-00", "cpu-0-0-step", "apc-0-max-step", "backup-charge", "battery_cycle"),
        *("ocp_cpu1", "soft_ocp_cpu2", "vdroop1", "pmic_120c", "zeroc-0-step", "cpu-hotplug"),
        *(
            "modem-skin-usr",
            "gpuss-0-usr",
            "mtktspmic",
            "mdm-core0-usr",
            "backlight-therm",
            "back-cam",
        ),
        *("rear-cam-therm", "usb_pwr_therm", "skin-charge-alarm", "backlight-therm"),
        *("cpu-hw-trip-0", "gpu-trip-warn", "socd-shutdown", "cpu-limit-0", "gpuank2-thmzone"),
    ],
)
def test_names_of_other_sensors(name: str) -> None:
    assert zone_place(name) is None


@pytest.mark.parametrize(
    ("place", "names"),
    [
        (
            ZonePlace.CPU,
            "cpu-0-0-usr cpu1-gold-usr cpuss-0 cpu-1-0-1 apc1-cpu0-usr apc1-l2-usr kryo-l3-0-usr "
            "cpu0-thermal cluster0-thermal BIG MIDH LITTLE0 MNGS APOLLO big_cluster mtktscpu "
            "cpu7-middle-thermal prometheus6-tzone0 cpullc-0-1 "
            "cpu-little-core0 cpu-dsu-1 cpu_big1 cluster2 apcpu0-1-thmzone prometheus7-thmzone "
            "cputop-thmzone bigcore0-thermal CPU-therm BCPU-therm x86_pkg_temp cpu_thermal_zone",
        ),
        (
            ZonePlace.DIE,
            "tsens_tz_sensor15 soc_max soc-thermal soc_thermal soc-thmzone soc_dts0 exynos-therm "
            "therm_zone4 mtkts1 tzts3 cpu_therm",
        ),
        (ZonePlace.SKIN, "skin-therm-adc VIRTUAL-SKIN sec-skin msm-skin-therm skin-msm-therm-usr"),
        (ZonePlace.SHELL, "shell_back shell_frame back_temp front_temp case_therm"),
        (ZonePlace.QUIET, "quiet_therm quiet-therm-usr quiet_ntc neutral_therm"),
        (ZonePlace.BOARD, "msm_therm sdm-therm-monitor bd_therm2 mtktsAP ap_ntc Tboard_tegra"),
        (ZonePlace.CRYSTAL, "xo_therm xo-therm-adc xo_therm_buf"),
        (ZonePlace.BATTERY, "battery Battery qcom_battery mtktsbattery maxfg bms batt_therm"),
    ],
)
def test_names_of_vendors(place: ZonePlace, names: str) -> None:
    assert {name: zone_place(name) for name in names.split()} == dict.fromkeys(names.split(), place)


@pytest.mark.parametrize("level", [0, 20, 50, 99, 100])
def test_battery_depletion_is_not_the_cpu(level: int) -> None:
    nodes = valued(**{"cpu-0-0-usr": 41000, "socd": 100 - level, "soc": 100 - level})
    assert uses(nodes) == (["cpu-0-0-usr"], None)
    assert uses(valued(socd=100 - level)) == ([], None)


def test_a_text_that_is_not_a_number_is_not_used() -> None:
    zones = examine_zones(valued(BIG="1e30", MID="", LITTLE="41000", G3D="40000"))
    assert [at.use for at in zones] == [
        ZoneUse.NO_VALUE,
        ZoneUse.NO_VALUE,
        ZoneUse.CPU,
        ZoneUse.UNKNOWN_NAME,
    ]


def test_sensors_that_are_not_connected_are_left_out() -> None:
    dead = {f"modem-mmw{at}-usr": 27000 for at in range(3)}
    fine = {"xo_therm": 33341, "msm_therm": 33137}
    nodes = valued(
        **{"cpu-0-0-usr": 39100, "skin-therm": 27000, "quiet_therm": 32794, **fine, **dead}
    )
    assert uses(nodes) == (["cpu-0-0-usr"], "quiet_therm")
    alive = valued(**{"cpu-0-0-usr": 39100, "skin-therm": 27000, "quiet_therm": 32794})
    assert uses(alive) == (["cpu-0-0-usr"], "skin-therm")
    off = valued(**{"cpu-0-0-usr": 39100, "skin-therm": -40960, "battery": 298})
    assert uses(off) == (["cpu-0-0-usr"], "battery")


def test_equal_whole_degrees_of_a_cold_phone_are_not_defaults() -> None:
    nodes = valued(BIG=27000, MID=27000, LITTLE=27000, mtktsAP=27000, battery=27000)
    assert uses(nodes) == (["BIG", "MID", "LITTLE"], "mtktsAP")


def test_a_thermistor_beside_the_soc_is_second_to_sensors_of_the_cpu() -> None:
    assert uses(valued(cpu_therm=33000, cpu_big1=41000))[0] == ["cpu_big1"]
    assert uses(valued(cpu_therm=33000, soc_max=41000))[0] == ["cpu_therm", "soc_max"]
    assert uses({**valued(bms=25000, battery=29000)})[1] == "battery"


def test_a_sensor_far_from_all_others_is_left_out() -> None:
    nodes = valued(**{"cpu-0-0-usr": 34000, "cpu-0-1-usr": 35000, "cpu-1-0-usr": 36000})
    nodes |= {f"{THERMAL}/thermal_zone9/type": "cpu-1-1-usr"}
    assert len(uses(nodes | {f"{THERMAL}/thermal_zone9/temp": "64000"})[0]) == 4
    assert len(uses(nodes | {f"{THERMAL}/thermal_zone9/temp": "98000"})[0]) == 3


def test_old_kernels_list_which_sensor_is_at_a_core() -> None:
    names = ["tsens_tz_sensor0", "tsens_tz_sensor4", "tsens_tz_sensor9", "tsens_tz_sensor15"]
    nodes = valued(**dict.fromkeys(names, 309))
    assert uses(nodes)[0] == names
    info = "tsens:tsens_tz_sensor0::10\ntsens:tsens_tz_sensor4:cpu4:10\n"
    info += "tsens:tsens_tz_sensor9:cpu0:10\ntsens:tsens_tz_sensor15:gpu:10\nalarm:pm8953_tz::1000"
    assert uses(nodes | {SENSOR_INFO: info})[0] == names[1:3]


def test_zones_that_contradict_the_battery_are_left_out() -> None:
    """Hundredths of a degree, a dead die sensor: both look like a cold part of a warm phone."""
    battery = {f"{SUPPLY}/battery/temp": "298"}
    zones = valued(**{"cpu-0-0-usr": 6500, "cpu-1-0-usr": 38000, "skin-therm": 3050})
    assert uses(zones | battery) == (["cpu-1-0-usr"], None)
    assert uses(zones) == (["cpu-0-0-usr", "cpu-1-0-usr"], "skin-therm")
    hot = valued(**{"cpu-0-0-usr": 98000, "skin-therm": 47000})
    assert uses(hot | battery) == (["cpu-0-0-usr"], "skin-therm")


def test_a_zone_of_the_battery_agrees_with_the_fuel_gauge() -> None:
    zones = valued(tsens_tz_sensor0=38, bms=42800)
    assert uses(zones | {f"{SUPPLY}/battery/temp": "329"}) == (["tsens_tz_sensor0"], None)
    assert uses(zones | {f"{SUPPLY}/battery/temp": "419"}) == (["tsens_tz_sensor0"], "bms")


def test_a_zone_of_the_soc_that_follows_the_battery_level_is_not_a_temperature() -> None:
    level = {f"{SUPPLY}/battery/capacity": "62"}
    assert uses(valued(soc_max=38) | level) == ([], None)
    assert uses(valued(soc_max=38000) | level) == (["soc_max"], None)
    assert uses(valued(soc_max=38)) == (["soc_max"], None)


def test_small_numbers_of_a_battery_may_be_tenths() -> None:
    assert uses(valued(battery=31)) == ([], "battery")
    assert uses(valued(battery=60)) == ([], None)
    assert battery_temp_c({f"{SUPPLY}/battery/temp": "60"}) is None
    assert (
        battery_temp_c({f"{SUPPLY}/Battery/temp": "-45", f"{SUPPLY}/Battery/capacity": "9"}) is None
    )


def test_the_body_is_chosen_by_name_because_numbers_change_between_boots() -> None:
    names = {"sys-therm-5": 26000, "sys-therm-0": 31000, "sys-therm-10": 30000}
    backwards = dict(reversed(names.items()))
    assert uses(valued(**names))[1] == uses(valued(**backwards))[1] == "sys-therm-0"
