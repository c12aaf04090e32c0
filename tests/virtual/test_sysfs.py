"""The sysfs of a virtual phone: reads show the simulated state, writes change it."""

import re

import pytest

from agent.virtual.profiles import load_profile, profile_ids
from tests.virtual.adb_host import AdbPhone
from tests.virtual.conftest import JournalReader, StartPhone

BIG = "/sys/devices/system/cpu/cpufreq/policy4"
CPU = "/sys/devices/system/cpu"
BATTERY = "/sys/class/power_supply/battery"


@pytest.fixture
def changed(start_phone: StartPhone) -> AdbPhone:
    """A phone that a test may change."""
    return start_phone()


def test_a_limit_clamps_to_the_ladder_and_moves_the_clock(changed: AdbPhone) -> None:
    ladder = [int(word) for word in changed.out(f"cat {BIG}/scaling_available_frequencies").split()]
    assert sorted(ladder) == ladder
    changed.root(f"echo performance > {BIG}/scaling_governor")
    assert changed.number(f"{BIG}/scaling_cur_freq") == ladder[-1]
    changed.root(f"echo 1785600 > {BIG}/scaling_max_freq")
    assert changed.number(f"{BIG}/scaling_max_freq") == 1785600
    assert changed.number(f"{BIG}/scaling_cur_freq") == 1708800  # the rung below
    changed.root(f"echo 99999999 > {BIG}/scaling_max_freq")
    assert changed.number(f"{BIG}/scaling_max_freq") == ladder[-1]
    changed.root(f"echo 1 > {BIG}/scaling_min_freq")
    assert changed.number(f"{BIG}/scaling_min_freq") == ladder[0]
    assert changed.number(f"{CPU}/cpu6/cpufreq/scaling_cur_freq") == ladder[-1]


def test_the_order_of_limits_matters_on_an_old_kernel(changed: AdbPhone) -> None:
    """Before 5.3 a maximum below the minimum is EINVAL, and mksh's echo prints no error."""
    changed.root(f"echo 1497600 > {BIG}/scaling_max_freq")
    result = changed.run(f"su -c 'echo 1804800 > {BIG}/scaling_min_freq'")
    assert result == (1, "", "")
    changed.root(f"echo 1804800 > {BIG}/scaling_max_freq; echo 1804800 > {BIG}/scaling_min_freq")
    assert changed.run(f"su -c 'echo 710400 > {BIG}/scaling_max_freq'").status == 1
    assert changed.number(f"{BIG}/scaling_min_freq") == 1804800


@pytest.mark.parametrize(
    ("node", "value"),
    [
        ("scaling_max_freq", "fast"),
        ("scaling_governor", "warp"),
        ("scaling_setspeed", "1785600"),  # only the userspace governor accepts it
    ],
)
def test_invalid_values_are_refused_and_recorded(
    changed: AdbPhone, journal_events: JournalReader, node: str, value: str
) -> None:
    before = changed.out(f"cat {BIG}/{node}")
    assert changed.run(f"su -c 'echo {value} > {BIG}/{node}'").status == 1
    assert changed.out(f"cat {BIG}/{node}") == before
    (entry,) = journal_events("sysfs_write")
    assert (
        entry["path"],
        entry["text"],
        entry["uid"],
        entry["error"],
    ) == (f"{BIG}/{node}", value, 0, "Invalid argument")


def test_only_root_can_write_and_read_only_nodes_are_refused(changed: AdbPhone) -> None:
    denied = re.compile("can't create .*: Permission denied")
    assert denied.search(changed.run(f"echo 1785600 > {BIG}/scaling_max_freq").err)
    assert denied.search(changed.run(f"su -c 'echo 1 > {BIG}/scaling_cur_freq'").err)
    assert "Permission denied" in changed.run(f"cat {BIG}/cpuinfo_cur_freq").err
    assert changed.root(f"cat {BIG}/cpuinfo_cur_freq").isdigit()


def test_the_userspace_governor_accepts_a_speed(changed: AdbPhone) -> None:
    assert changed.out(f"cat {BIG}/scaling_setspeed") == "<unsupported>"
    changed.root(f"echo userspace > {BIG}/scaling_governor; echo 1401600 > {BIG}/scaling_setspeed")
    assert changed.number(f"{BIG}/scaling_cur_freq") == 1401600


def test_writes_are_recorded_with_old_and_new_value(
    changed: AdbPhone, journal_events: JournalReader
) -> None:
    changed.root(f"echo 1785600 > {CPU}/cpu5/cpufreq/scaling_max_freq")
    (entry,) = journal_events("sysfs_write")
    assert (
        entry["path"],  # the canonical path, whichever link was used
        entry["old"],
        entry["new"],
        entry["uid"],
    ) == (f"{BIG}/scaling_max_freq", "2419200", "1785600", 0)


def test_cores_can_be_switched_off_and_on(changed: AdbPhone) -> None:
    assert changed.out(f"cat {CPU}/online") == "0-7"
    changed.root(f"echo 0 > {CPU}/cpu7/online; echo 0 > {CPU}/cpu5/online")
    assert changed.out(f"cat {CPU}/online") == "0-4,6"
    assert changed.out(f"cat {BIG}/affected_cpus") == "4 6"
    result = changed.run(f"cat {CPU}/cpufreq/policy7/scaling_max_freq")
    assert "Device or resource busy" in result.err
    changed.root(f"echo 1 > {CPU}/cpu7/online")
    assert changed.out(f"cat {CPU}/online") == "0-4,6-7"


def test_time_in_state_counts_ticks_of_the_phones_time(changed: AdbPhone) -> None:
    def ticks() -> dict[int, int]:
        lines = changed.out(f"cat {BIG}/stats/time_in_state").splitlines()
        return {int(khz): int(count) for khz, count in map(str.split, lines)}

    changed.root(f"echo performance > {BIG}/scaling_governor")
    before, start = ticks(), changed.uptime()
    changed.out("sleep 30")
    after, seconds = ticks(), changed.uptime() - start
    gained = {khz: after[khz] - before[khz] for khz in after if after[khz] != before[khz]}
    assert list(gained) == [2419200]
    assert gained[2419200] == pytest.approx(seconds * 100, rel=0.2)


def test_the_first_zone_is_not_the_cpu(phone: AdbPhone) -> None:
    types = phone.out("cat /sys/class/thermal/thermal_zone*/type").split()
    assert types[0] == "pm8150_tz"
    assert {"cpu-1-0-usr", "skin-therm-adc", "battery", "gpuss-0-usr"} <= set(types)
    assert 25_000 < phone.number("/sys/class/thermal/thermal_zone6/temp") < 60_000
    # an unconnected sensor
    assert phone.number("/sys/class/thermal/thermal_zone12/temp") == -40_000


def test_charging_can_be_stopped_and_the_sign_shows_it(changed: AdbPhone) -> None:
    assert changed.out(f"cat {BATTERY}/status") == "Full"
    changed.root(f"echo 1 > {BATTERY}/input_suspend")
    changed.out("sleep 2")
    assert changed.out(f"cat {BATTERY}/status") == "Discharging"
    # negative while discharging on this phone
    assert changed.number(f"{BATTERY}/current_now") < -100_000
    full = changed.number(f"{BATTERY}/charge_counter")
    changed.out("sleep 60")
    assert changed.number(f"{BATTERY}/charge_counter") < full
    dumped = changed.out("dumpsys battery")
    assert "USB powered: false" in dumped
    assert "status: 3" in dumped


def test_the_battery_status_of_the_framework_can_be_faked(changed: AdbPhone) -> None:
    changed.out("dumpsys battery unplug; dumpsys battery set level 42")
    assert "level: 42" in changed.out("dumpsys battery")
    assert changed.out(f"cat {BATTERY}/status") == "Full"
    changed.out("dumpsys battery reset")
    assert "level: 100" in changed.out("dumpsys battery")


@pytest.mark.parametrize("profile_id", profile_ids())
def test_every_profile_gives_a_consistent_phone(start_phone: StartPhone, profile_id: str) -> None:
    phone = start_phone(profile_id)
    profile = load_profile(profile_id)
    assert phone.out("getprop ro.serialno") == f"{profile.serial_prefix}0001"
    for cluster in profile.cluster:
        names = {"policies": "cpufreq/policy{}", "cores": "cpu{}/cpufreq"}
        folder = f"{CPU}/{names[profile.kernel.cpufreq].format(cluster.cpus[0])}"
        shown = phone.out(f"cat {folder}/related_cpus {folder}/scaling_available_frequencies")
        assert [int(word) for word in shown.split()] == [*cluster.cpus, *cluster.ladder_khz]
    types = phone.out("cat /sys/class/thermal/thermal_zone*/type").split()
    assert sorted(types) == sorted(zone.type for zone in profile.zone if zone.listed)
    assert phone.root("id -u") == "0"
    assert set(phone.out("cat /sys/class/thermal/cooling_device*/cur_state").split()) == {"0"}
    if profile.kernel.shows_capacity:
        capacities = phone.out(f"cat {CPU}/cpu*/cpu_capacity").split()
        assert (len(capacities), max(map(int, capacities))) == (profile.cores, 1024)
    shown = phone.out("dumpsys battery; dumpsys thermalservice; cat /proc/cpuinfo /proc/meminfo")
    assert "Current Battery Service state:" in shown


def test_a_zone_may_show_how_empty_the_battery_is(start_phone: StartPhone) -> None:
    phone = start_phone("google-pixel-8")
    folder = phone.out("grep -lx soc /sys/class/thermal/thermal_zone*/type").strip()
    depletion = phone.number(f"{folder.removesuffix('/type')}/temp")
    assert depletion == 100 - phone.number("/sys/class/power_supply/battery/capacity")


def test_throttling_trips_name_zones_and_clusters_that_exist() -> None:
    for profile in map(load_profile, profile_ids()):
        zones = {zone.type for zone in profile.zone}
        roles = {cluster.role for cluster in profile.cluster}
        for trip in profile.throttle:
            assert trip.zone in zones
            assert set(trip.clusters) <= roles | {"gpu"}
            assert trip.service is None or trip.service in profile.services
