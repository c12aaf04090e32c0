"""Kernel nodes: what is read is the model's state, what is written changes it."""

import re

import pytest

from agent.virtual.profiles import load_profile, profile_ids
from tests.virtual.conftest import StartPhone, Witness
from tests.virtual.host import PhoneAt

BIG = "/sys/devices/system/cpu/cpufreq/policy4"
CPU = "/sys/devices/system/cpu"
BATTERY = "/sys/class/power_supply/battery"


@pytest.fixture
def changed(start_phone: StartPhone) -> PhoneAt:
    """A phone that a test may change."""
    return start_phone()


def test_a_limit_clamps_to_the_ladder_and_moves_the_clock(changed: PhoneAt) -> None:
    ladder = [int(word) for word in changed.out(f"cat {BIG}/scaling_available_frequencies").split()]
    assert sorted(ladder) == ladder
    changed.root(f"echo performance > {BIG}/scaling_governor")
    assert ladder[-1] == changed.number(f"{BIG}/scaling_cur_freq")
    changed.root(f"echo 1785600 > {BIG}/scaling_max_freq")
    assert 1785600 == changed.number(f"{BIG}/scaling_max_freq")
    assert 1708800 == changed.number(f"{BIG}/scaling_cur_freq")  # the rung below
    changed.root(f"echo 99999999 > {BIG}/scaling_max_freq")
    assert ladder[-1] == changed.number(f"{BIG}/scaling_max_freq")
    changed.root(f"echo 1 > {BIG}/scaling_min_freq")
    assert ladder[0] == changed.number(f"{BIG}/scaling_min_freq")
    assert ladder[-1] == changed.number(f"{CPU}/cpu6/cpufreq/scaling_cur_freq")


def test_the_order_of_limits_matters_on_an_old_kernel(changed: PhoneAt) -> None:
    """Until 5.3 a maximum below the minimum is EINVAL, which mksh's echo does not even mention."""
    changed.root(f"echo 1497600 > {BIG}/scaling_max_freq")
    said = changed.run(f"su -c 'echo 1804800 > {BIG}/scaling_min_freq'")
    assert (1, "", "") == said
    changed.root(f"echo 1804800 > {BIG}/scaling_max_freq; echo 1804800 > {BIG}/scaling_min_freq")
    assert changed.run(f"su -c 'echo 710400 > {BIG}/scaling_max_freq'").status == 1
    assert 1804800 == changed.number(f"{BIG}/scaling_min_freq")


@pytest.mark.parametrize(
    ("node", "value"),
    [
        ("scaling_max_freq", "fast"),
        ("scaling_governor", "warp"),
        ("scaling_setspeed", "1785600"),  # only the userspace governor takes it
    ],
)
def test_garbage_is_refused_and_witnessed(
    changed: PhoneAt, witness: Witness, node: str, value: str
) -> None:
    before = changed.out(f"cat {BIG}/{node}")
    assert changed.run(f"su -c 'echo {value} > {BIG}/{node}'").status == 1
    assert before == changed.out(f"cat {BIG}/{node}")
    (entry,) = witness("sysfs")
    assert (f"{BIG}/{node}", value, 0, "Invalid argument") == (
        entry["path"],
        entry["text"],
        entry["uid"],
        entry["fault"],
    )


def test_only_root_writes_and_nobody_writes_what_is_read_only(changed: PhoneAt) -> None:
    denied = re.compile("can't create .*: Permission denied")
    assert denied.search(changed.run(f"echo 1785600 > {BIG}/scaling_max_freq").err)
    assert denied.search(changed.run(f"su -c 'echo 1 > {BIG}/scaling_cur_freq'").err)
    assert "Permission denied" in changed.run(f"cat {BIG}/cpuinfo_cur_freq").err
    assert changed.root(f"cat {BIG}/cpuinfo_cur_freq").isdigit()


def test_userspace_takes_a_speed(changed: PhoneAt) -> None:
    assert "<unsupported>" == changed.out(f"cat {BIG}/scaling_setspeed")
    changed.root(f"echo userspace > {BIG}/scaling_governor; echo 1401600 > {BIG}/scaling_setspeed")
    assert 1401600 == changed.number(f"{BIG}/scaling_cur_freq")


def test_writes_are_witnessed_with_old_and_new(changed: PhoneAt, witness: Witness) -> None:
    changed.root(f"echo 1785600 > {CPU}/cpu5/cpufreq/scaling_max_freq")
    (entry,) = witness("sysfs")
    assert (f"{BIG}/scaling_max_freq", "2419200", "1785600", 0) == (
        entry["path"],  # the node's own path, whichever link led there
        entry["old"],
        entry["new"],
        entry["uid"],
    )


def test_cores_go_off_and_come_back(changed: PhoneAt) -> None:
    assert "0-7" == changed.out(f"cat {CPU}/online")
    changed.root(f"echo 0 > {CPU}/cpu7/online; echo 0 > {CPU}/cpu5/online")
    assert "0-4,6" == changed.out(f"cat {CPU}/online")
    assert "4 6" == changed.out(f"cat {BIG}/affected_cpus")
    said = changed.run(f"cat {CPU}/cpufreq/policy7/scaling_max_freq")
    assert "Device or resource busy" in said.err
    changed.root(f"echo 1 > {CPU}/cpu7/online")
    assert "0-4,6-7" == changed.out(f"cat {CPU}/online")


def test_time_in_state_counts_ticks_of_the_phones_time(changed: PhoneAt) -> None:
    def ticks() -> dict[int, int]:
        lines = changed.out(f"cat {BIG}/stats/time_in_state").splitlines()
        return {int(khz): int(count) for khz, count in map(str.split, lines)}

    changed.root(f"echo performance > {BIG}/scaling_governor")
    before, start = ticks(), changed.uptime()
    changed.out("sleep 30")
    after, seconds = ticks(), changed.uptime() - start
    gained = {khz: after[khz] - before[khz] for khz in after if after[khz] != before[khz]}
    assert [2419200] == list(gained)
    assert gained[2419200] == pytest.approx(seconds * 100, rel=0.2)


def test_the_first_zone_is_not_the_cpu(phone: PhoneAt) -> None:
    types = phone.out("cat /sys/class/thermal/thermal_zone*/type").split()
    assert "pm8150_tz" == types[0]
    assert {"cpu-1-0-usr", "skin-therm-adc", "battery", "gpuss-0-usr"} <= set(types)
    assert 25_000 < phone.number("/sys/class/thermal/thermal_zone6/temp") < 60_000
    assert -40_000 == phone.number("/sys/class/thermal/thermal_zone12/temp")  # never connected


def test_charging_can_be_cut_and_the_sign_tells(changed: PhoneAt) -> None:
    assert "Full" == changed.out(f"cat {BATTERY}/status")
    changed.root(f"echo 1 > {BATTERY}/input_suspend")
    changed.out("sleep 2")
    assert "Discharging" == changed.out(f"cat {BATTERY}/status")
    assert changed.number(f"{BATTERY}/current_now") < -100_000  # negative while discharging here
    full = changed.number(f"{BATTERY}/charge_counter")
    changed.out("sleep 60")
    assert changed.number(f"{BATTERY}/charge_counter") < full
    dumped = changed.out("dumpsys battery")
    assert "USB powered: false" in dumped
    assert "status: 3" in dumped


def test_the_framework_can_be_lied_to(changed: PhoneAt) -> None:
    changed.out("dumpsys battery unplug; dumpsys battery set level 42")
    assert "level: 42" in changed.out("dumpsys battery")
    assert "Full" == changed.out(f"cat {BATTERY}/status")
    changed.out("dumpsys battery reset")
    assert "level: 100" in changed.out("dumpsys battery")


@pytest.mark.parametrize("profile_id", profile_ids())
def test_every_profile_gives_a_consistent_phone(start_phone: StartPhone, profile_id: str) -> None:
    phone = start_phone(profile_id)
    profile = load_profile(profile_id)
    assert f"{profile.serial_prefix}0001" == phone.out("getprop ro.serialno")
    for cluster in profile.cluster:
        policy = f"{CPU}/cpufreq/policy{cluster.cpus[0]}"
        shown = phone.out(f"cat {policy}/related_cpus {policy}/scaling_available_frequencies")
        assert [*cluster.cpus, *cluster.ladder_khz] == [int(word) for word in shown.split()]
    types = phone.out("cat /sys/class/thermal/thermal_zone*/type").split()
    assert len(profile.zone) == len(types)
    assert "0" == phone.root("id -u")
    assert {"0"} == set(phone.out("cat /sys/class/thermal/cooling_device*/cur_state").split())
    capacities = phone.out(f"cat {CPU}/cpu*/cpu_capacity").split()
    assert (profile.cores, 1024) == (len(capacities), max(map(int, capacities)))
    shown = phone.out("dumpsys battery; dumpsys thermalservice; cat /proc/cpuinfo /proc/meminfo")
    assert "Current Battery Service state:" in shown


def test_throttling_trips_name_zones_and_clusters_that_exist() -> None:
    for profile in map(load_profile, profile_ids()):
        zones = {zone.type for zone in profile.zone}
        roles = {cluster.role for cluster in profile.cluster}
        for trip in profile.throttle:
            assert trip.zone in zones
            assert set(trip.clusters) <= roles | {"gpu"}
            assert trip.service is None or trip.service in profile.services
