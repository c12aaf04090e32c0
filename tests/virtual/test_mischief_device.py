"""Faults of clocks, sensors, heat, charge, storage and memory, as the shell sees them."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.phone.kernel_nodes import THERMAL, hottest_c
from agent.phone.phone_driver import Phone
from agent.phone.probe import probe
from kernels.runner_builds import runner_for
from tests.virtual.adb_host import AdbHost, wait_until
from tests.virtual.injection_bench import InjectionBench, start_bench
from tests.virtual.sample_plans import HOME, RUNNER, a_plan

BIG = "/sys/devices/system/cpu/cpufreq/policy4"
BATTERY = "/sys/class/power_supply/battery"


@pytest.fixture
def bench(host: AdbHost, tmp_path: Path) -> Iterator[InjectionBench]:
    with start_bench(host, tmp_path) as bench:
        yield bench


def pin(bench: InjectionBench, khz: int) -> None:
    bench.adb_phone.root(
        f"echo {khz} > {BIG}/scaling_max_freq; echo {khz} > {BIG}/scaling_min_freq"
    )


def limits(bench: InjectionBench) -> list[int]:
    return [bench.adb_phone.number(f"{BIG}/scaling_{which}_freq") for which in ("min", "max")]


def start_run(bench: InjectionBench, seconds: int) -> None:
    bench.adb_phone.put(f"{HOME}/runner", RUNNER, 0o755)
    bench.adb_phone.put(f"{HOME}/plan", a_plan())
    bench.adb_phone.put(f"{HOME}/dir/nodes", f"{BIG}/scaling_cur_freq\n".encode())
    command = f"cd {HOME}; setsid taskset f0 ./runner run plan dir --seconds {seconds}"
    bench.adb_phone.out(f"{command} --max-seconds {seconds} >/dev/null 2>&1 & echo")
    bench.adb_phone.sleep_until(lambda: bool(bench.events("run_start")), "the run began")


def test_a_clock_write_is_ignored_without_an_error(bench: InjectionBench) -> None:
    before = limits(bench)
    number = bench.mischief.add("clock_ignored")
    pin(bench, 1497600)
    assert limits(bench) == before
    written = bench.events("sysfs_write")[-1]
    assert (written["text"], written["old"]) == ("1497600", written["new"])
    bench.mischief.clear(number)
    pin(bench, 1497600)
    assert limits(bench) == [1497600, 1497600]


def test_a_clock_can_show_a_value_that_is_not_applied(bench: InjectionBench) -> None:
    bench.adb_phone.root(f"echo performance > {BIG}/scaling_governor")
    bench.mischief.add("clock_ignored", shown=True)
    pin(bench, 1497600)
    assert limits(bench) == [1497600, 1497600]
    assert bench.adb_phone.number(f"{BIG}/scaling_cur_freq") == 2419200
    bench.mischief.clear()
    assert limits(bench) == [710400, 2419200]


def test_a_daemon_resets_the_clock_after_some_seconds(bench: InjectionBench) -> None:
    before = limits(bench)
    bench.mischief.add("clock_reset", after_s=70)
    pin(bench, 1497600)
    assert limits(bench) == [1497600, 1497600]
    bench.adb_phone.out("sleep 75")
    assert limits(bench) == before
    pinned, *_, reset = bench.events("sysfs_write")
    assert 40 < float(str(reset["model_s"])) - float(str(pinned["model_s"])) < 72
    assert reset["uid"] == 1000


def test_throttled_during_a_run(bench: InjectionBench) -> None:
    """The cap shows in cooling devices and limits, and the run is slower from then on."""
    bench.mischief.add("throttle", at="run@50%", cluster="big", steps=6)
    start_run(bench, 60)
    bench.adb_phone.sleep_until(lambda: bool(bench.events("run_stop")), "the run ended")
    throttled, ended = (
        float(str(bench.events(kind)[0]["model_s"])) for kind in ("mischief_start", "run_stop")
    )
    assert 29 < ended - throttled < 31
    readings = bench.adb_phone.out(f"cat {HOME}/dir/readings.jsonl").splitlines()[1:]
    clocks = [int(line.rpartition("[")[2].rstrip("]}")) for line in readings]
    assert max(clocks[-50:]) < max(clocks[:50])
    assert limits(bench)[1] < 2419200
    states = bench.adb_phone.out(f"cat {THERMAL}/cooling_device*/cur_state").split()
    assert "6" in states
    bench.mischief.clear()
    assert limits(bench)[1] == 2419200


@pytest.mark.parametrize(
    ("value", "shown"), [("-40", -40000), ("999", 999000), ("text", None), ("missing", None)]
)
def test_wrong_sensor_values_are_rejected(
    bench: InjectionBench, value: str, shown: int | None
) -> None:
    agent_phone = bench.agent_phone()
    facts = probe(agent_phone, runner_for)
    zone = facts.cpu_zones[0].path
    number = bench.mischief.add("sensor", value=value)
    result = bench.adb_phone.run(f"cat {zone}")
    if shown is not None:
        assert int(result.out) == shown
    elif value == "missing":
        assert "No such file" in result.err
    else:
        assert result.out == "text\n"
    assert hottest_c(facts.cpu_zones, zone_readings(agent_phone)) is None
    bench.mischief.clear(number)
    temp_c = hottest_c(facts.cpu_zones, zone_readings(agent_phone))
    assert temp_c is not None
    assert 20 < temp_c < 50


def zone_readings(agent_phone: Phone) -> dict[str, str]:
    return agent_phone.read_nodes([zone.path for zone in agent_phone.facts.cpu_zones])


def test_a_frozen_sensor_repeats_one_value(bench: InjectionBench) -> None:
    zone = f"{THERMAL}/thermal_zone1/temp"
    bench.mischief.add("sensor", value="frozen")
    frozen = bench.adb_phone.number(zone)
    for _ in range(8):
        bench.adb_phone.out("sleep 5")
        assert bench.adb_phone.number(zone) == frozen
    bench.mischief.clear()
    bench.adb_phone.sleep_until(lambda: bench.adb_phone.number(zone) != frozen, "it moves again")


def test_a_sensor_becomes_wrong_while_it_is_sampled(bench: InjectionBench) -> None:
    zone = f"{THERMAL}/thermal_zone1/temp"
    bench.adb_phone.put(f"{HOME}/runner", RUNNER, 0o755)
    bench.adb_phone.put(f"{HOME}/dir/nodes", f"{zone}\n".encode())
    bench.mischief.add("sensor", value="text", at="command:*/runner sample *", after=70)
    bench.adb_phone.out(f"{HOME}/runner sample {HOME}/dir --seconds 90")
    readings = bench.adb_phone.out(f"cat {HOME}/dir/readings.jsonl").splitlines()
    assert readings[-1].endswith('["text"]}')
    assert not readings[1].endswith('["text"]}')


def test_a_phone_that_never_cools(bench: InjectionBench) -> None:
    zone = f"{THERMAL}/thermal_zone1/temp"
    before = bench.adb_phone.number(zone)
    number = bench.mischief.add("never_cools", ambient_c=48)
    assert bench.adb_phone.number(zone) > before + 20_000
    bench.adb_phone.out("sleep 90")
    assert bench.adb_phone.number(zone) > before + 20_000
    bench.mischief.clear(number)
    assert bench.adb_phone.number(zone) < before + 3_000


def test_the_battery_drains(bench: InjectionBench) -> None:
    bench.mischief.add("battery_drains", percent=30, per_min=6)
    before = bench.adb_phone.number(f"{BATTERY}/capacity")
    assert before <= 30
    bench.adb_phone.out("sleep 60")
    assert bench.adb_phone.number(f"{BATTERY}/capacity") <= before - 5
    assert "level: 30" not in bench.adb_phone.out("dumpsys battery")


def test_a_full_disk_refuses_pushes_and_files(bench: InjectionBench) -> None:
    number = bench.mischief.add("disk_full", free_bytes=100)
    with pytest.raises(AssertionError, match="No space left"):
        bench.adb_phone.put(f"{HOME}/big", bytes(1000))
    assert bench.adb_phone.run(f"echo {'y' * 200} > {HOME}/y").status == 1
    bench.mischief.clear(number)
    bench.adb_phone.put(f"{HOME}/big", bytes(1000))


def test_the_runner_is_killed_for_its_memory(bench: InjectionBench) -> None:
    bench.mischief.add("low_memory", at="run@30%")
    start_run(bench, 600)
    bench.adb_phone.sleep_until(lambda: bool(bench.events("run_stop")), "the runner died")
    (stop,) = bench.events("run_stop")
    assert stop["reason"] == "killed"
    assert bench.events("low_memory_kill")[0]["pid"] == stop["pid"]
    assert '"done"' not in bench.adb_phone.out(f"cat {HOME}/dir/out.jsonl")
    assert bench.events("mischief_stop")[0]["reason"] == "finished"


def test_two_phones_of_a_fleet_claim_one_serial(host: AdbHost, tmp_path: Path) -> None:
    with start_bench(host, tmp_path, "meizu-16t", "huawei-honor-8") as bench:
        other = bench.fleet.servers[1].phone.serial
        number = bench.mischief.add("duplicate_serial", phone=bench.serial)
        assert bench.adb_phone.out("getprop ro.serialno") == other
        assert probe(bench.agent_phone(), runner_for).serial == other
        bench.mischief.add("reboot", phone=bench.serial)
        wait_until(lambda: len(bench.events("boot")) == 2, "it is up again")
        bench.connect()
        assert bench.adb_phone.out("getprop ro.boot.serialno") == other
        bench.mischief.clear(number)
        assert bench.adb_phone.out("getprop ro.serialno") == bench.serial


def test_a_fault_repeats_until_an_event(bench: InjectionBench) -> None:
    brightness = "/sys/class/backlight/panel0-backlight/brightness"
    before = bench.adb_phone.number(brightness)
    bench.mischief.add("screen", at="run_start", for_=2, every=5, until="run_stop", brightness=200)
    start_run(bench, 21)
    bench.adb_phone.sleep_until(lambda: bool(bench.events("run_stop")), "the run ended")
    bench.adb_phone.out("sleep 20")
    (began,) = (float(str(event["model_s"])) for event in bench.events("run_start"))
    lit_s = [float(str(event["model_s"])) - began for event in bench.events("mischief_start")]
    assert [round(moment) for moment in lit_s] == [0, 5, 10, 15, 20]
    assert bench.adb_phone.number(brightness) == before


def test_an_app_that_takes_a_part_of_a_core(bench: InjectionBench) -> None:
    soc = bench.fleet.servers[0].phone.soc
    bench.mischief.add("other_work", mask="30", threads=2, share=0.25)
    assert [load.shares for load in soc.loads] == [{4: 0.25, 5: 0.25}]
    bench.mischief.add("other_work", mask="10", threads=1)
    first, second = (load.shares for load in soc.loads)
    assert (first[4], second[4]) == (0.25, 0.75)


def test_a_clock_that_pretends(bench: InjectionBench) -> None:
    pin(bench, 1497600)
    cluster = bench.fleet.servers[0].phone.soc.clusters[1]
    before = cluster.running_khz
    number = bench.mischief.add("clock_pretends", steps=-2)
    assert bench.adb_phone.number(f"{BIG}/scaling_cur_freq") == cluster.clock_khz
    assert cluster.running_khz < cluster.counted_khz * 1.001 < cluster.clock_khz
    bench.mischief.clear(number)
    assert cluster.running_khz == before
