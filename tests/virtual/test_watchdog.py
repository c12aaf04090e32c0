"""The watchdog restores the phone after a missing heartbeat, in phone time, and only then."""

import pytest

from tests.virtual.adb_host import AdbPhone
from tests.virtual.conftest import JournalReader, StartPhone
from tests.virtual.sample_plans import HOME, RUNNER, a_plan

BIG = "/sys/devices/system/cpu/cpufreq/policy4"
LANE = f"{HOME}/dir"


@pytest.fixture
def guarded(start_phone: StartPhone) -> AdbPhone:
    """A phone that is about to be changed, with its list of values to restore."""
    phone = start_phone()
    phone.put(f"{HOME}/runner", RUNNER, 0o755)
    phone.put(f"{HOME}/plan", a_plan())
    restore = f"{BIG}/scaling_governor\tschedutil\n{BIG}/scaling_max_freq\t2419200\n"
    restore += f"{BIG}/scaling_min_freq\t710400\n/sys/nowhere\t1\n"
    phone.put(f"{LANE}/restore", restore.encode())
    phone.out(f"cat /proc/uptime > {LANE}/heartbeat")
    return phone


def start_watchdog(phone: AdbPhone, timeout_s: float) -> int:
    command = f"setsid {HOME}/runner watchdog {LANE} --timeout-s {timeout_s}"
    return int(phone.root(f"{command} >{LANE}/said 2>&1 </dev/null & echo \\$!".replace("\\", "")))


def has_ended(phone: AdbPhone, pid: int) -> bool:
    return phone.run(f"su -c 'kill -0 {pid}'").status == 1


def test_a_missing_heartbeat_restores_in_reverse_and_kills_the_runner(
    guarded: AdbPhone, journal_events: JournalReader
) -> None:
    watchdog = start_watchdog(guarded, 60)
    pid = int(
        guarded.root(
            f"echo performance > {BIG}/scaling_governor; echo 1497600 > {BIG}/scaling_max_freq; "
            f"echo 1497600 > {BIG}/scaling_min_freq; cd {HOME}; setsid taskset f0 ./runner run "
            "plan dir --seconds 90000 --max-seconds 90000 >/dev/null 2>&1 & echo $!"
        )
    )
    changed_at = guarded.uptime()
    guarded.sleep_until(lambda: has_ended(guarded, watchdog), "the watchdog ended")
    assert guarded.uptime() - changed_at >= 55
    assert guarded.out(f"cat {BIG}/scaling_governor") == "schedutil"
    limits = [guarded.number(f"{BIG}/scaling_{which}_freq") for which in ("min", "max")]
    assert limits == [710400, 2419200]
    assert has_ended(guarded, pid)
    assert guarded.run(f"cat {LANE}/restore").status == 1
    assert guarded.run(f"cat {LANE}/restored").status == 0
    restored = [entry["path"] for entry in journal_events("sysfs_write")][-3:]
    assert [f"{BIG}/scaling_{node}" for node in ("min_freq", "max_freq", "governor")] == restored
    (event,) = journal_events("watchdog_restore")
    assert event["pid"] == watchdog


def test_a_heartbeat_prevents_the_restore(guarded: AdbPhone, journal_events: JournalReader) -> None:
    watchdog = start_watchdog(guarded, 30)
    guarded.root(f"echo 1497600 > {BIG}/scaling_max_freq")
    for _ in range(6):
        guarded.out("sleep 15")
        guarded.out(f"cat /proc/uptime > {LANE}/heartbeat")
        assert not has_ended(guarded, watchdog)
    assert guarded.number(f"{BIG}/scaling_max_freq") == 1497600
    guarded.out(f"rm {LANE}/restore")
    guarded.sleep_until(lambda: has_ended(guarded, watchdog), "the watchdog ended")
    assert not journal_events("watchdog_restore")
    assert guarded.run(f"ls {LANE}/restored").status == 1


def test_the_exit_status_shows_what_was_done(guarded: AdbPhone) -> None:
    foreground = f"su -c '{HOME}/runner watchdog {LANE} --timeout-s 5'"
    assert guarded.run(foreground).status == 10
    assert guarded.run(foreground).status == 0  # nothing left to restore


def test_a_temperature_limit_restores_at_once_despite_heartbeats(guarded: AdbPhone) -> None:
    zone = "/sys/class/thermal/thermal_zone6/temp"
    guarded.put(f"{LANE}/temp_limits", f"/nowhere\t1\n{zone}\t200000\n".encode())
    watchdog = start_watchdog(guarded, 100_000)
    guarded.root(f"echo 1497600 > {BIG}/scaling_max_freq")
    guarded.out("sleep 30")
    assert not has_ended(guarded, watchdog)
    guarded.put(f"{LANE}/temp_limits", f"{zone}\t{guarded.number(zone) - 5000}\n".encode())
    guarded.sleep_until(lambda: has_ended(guarded, watchdog), "the watchdog ended")
    assert guarded.number(f"{BIG}/scaling_max_freq") == 2419200
    assert guarded.run(f"cat {LANE}/restored").status == 0
