"""A long run as an agent sees it: zones rise, the limit falls, cooling devices say so, it cools."""

from tests.virtual.conftest import StartPhone
from tests.virtual.host import PhoneAt, until
from tests.virtual.plans import HOME, RUNNER, a_plan

BIG = "/sys/devices/system/cpu/cpufreq/policy4"


def zone(phone: PhoneAt, kind: str) -> float:
    """A zone's temperature, found by its type."""
    listed = phone.out(f"grep -l {kind} /sys/class/thermal/thermal_zone*/type")
    return phone.number(listed.splitlines()[0].replace("/type", "/temp")) / 1000


def cooling(phone: PhoneAt) -> int:
    states = phone.out("cat /sys/class/thermal/cooling_device*/cur_state").split()
    return max(int(state) for state in states)


def test_a_soaked_phone_throttles_in_sight_and_recovers(start_phone: StartPhone) -> None:
    phone = start_phone("xiaomi-mi-9", speed=300.0)
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
    assert 2419200 == phone.number(f"{BIG}/scaling_max_freq")
    until(lambda: cooling(phone) >= 3, "it throttles")
    assert phone.number(f"{BIG}/scaling_max_freq") < 2419200
    assert phone.number(f"{BIG}/scaling_cur_freq") <= phone.number(f"{BIG}/scaling_max_freq")
    assert zone(phone, "skin") > skin + 5
    # Root may ask for more, but heat decides.
    phone.root(f"echo 2419200 > {BIG}/scaling_max_freq")
    assert phone.number(f"{BIG}/scaling_max_freq") < 2419200
    assert "Thermal Status: 3" in phone.out("dumpsys thermalservice")
    phone.out(f"kill {pid}")
    until(lambda: cooling(phone) == 0, "the cap goes")
    assert 2419200 == phone.number(f"{BIG}/scaling_max_freq")
    until(lambda: zone(phone, "cpu-1-0") < rest + 3, "it cools")
