"""A long run as an agent sees it: zones heat up, limits fall, and the phone cools afterwards."""

from tests.virtual.adb_host import AdbPhone
from tests.virtual.conftest import StartPhone
from tests.virtual.sample_plans import HOME, RUNNER, a_plan

BIG = "/sys/devices/system/cpu/cpufreq/policy4"


def zone(phone: AdbPhone, kind: str) -> float:
    """Return the temperature of a zone, found by its type."""
    listed = phone.out(f"grep -l {kind} /sys/class/thermal/thermal_zone*/type")
    return phone.number(listed.splitlines()[0].replace("/type", "/temp")) / 1000


def cooling(phone: AdbPhone) -> int:
    states = phone.out("cat /sys/class/thermal/cooling_device*/cur_state").split()
    return max(int(state) for state in states)


def test_a_soaked_phone_throttles_visibly_and_recovers(start_phone: StartPhone) -> None:
    phone = start_phone("xiaomi-mi-9")
    phone.put(f"{HOME}/runner", RUNNER, 0o755)
    phone.put(f"{HOME}/plan", a_plan())
    rest, skin = zone(phone, "cpu-1-0"), zone(phone, "skin")
    phone.out(f"mkdir {HOME}/dir")
    pid = phone.out(
        f"cd {HOME}; setsid taskset f0 ./runner run plan dir --seconds 90000 "
        "--max-seconds 90000 >/dev/null 2>&1 & echo $!"
    )
    phone.out("sleep 60")
    assert zone(phone, "cpu-1-0") > rest + 20
    assert phone.number(f"{BIG}/scaling_max_freq") == 2419200
    phone.sleep_until(lambda: cooling(phone) >= 3, "it throttles", step_s=15)
    assert phone.number(f"{BIG}/scaling_max_freq") < 2419200
    assert phone.number(f"{BIG}/scaling_cur_freq") <= phone.number(f"{BIG}/scaling_max_freq")
    assert zone(phone, "skin") > skin + 5
    # Root may request more, but throttling wins.
    phone.root(f"echo 2419200 > {BIG}/scaling_max_freq")
    assert phone.number(f"{BIG}/scaling_max_freq") < 2419200
    assert "Thermal Status: 3" in phone.out("dumpsys thermalservice")
    phone.out(f"kill {pid}")
    phone.sleep_until(lambda: cooling(phone) == 0, "the cap goes", step_s=15)
    assert phone.number(f"{BIG}/scaling_max_freq") == 2419200
    phone.sleep_until(lambda: zone(phone, "cpu-1-0") < rest + 3, "it cools", step_s=15)
