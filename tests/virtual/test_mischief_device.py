"""Trouble of clocks, sensors, heat, charge, storage and memory, as a shell on the phone sees it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.phone.nodes import THERMAL, hottest
from agent.phone.phone import Phone
from agent.phone.probe import probe
from kernels.manifest import runner_for
from tests.virtual.host import AdbHost, until
from tests.virtual.plans import HOME, RUNNER, a_plan
from tests.virtual.trouble import Bench, a_bench

BIG = "/sys/devices/system/cpu/cpufreq/policy4"
BATTERY = "/sys/class/power_supply/battery"


@pytest.fixture
def bench(host: AdbHost, tmp_path: Path) -> Iterator[Bench]:
    with a_bench(host, tmp_path) as made:
        yield made


def pin(bench: Bench, khz: int) -> None:
    bench.at.root(f"echo {khz} > {BIG}/scaling_max_freq; echo {khz} > {BIG}/scaling_min_freq")


def limits(bench: Bench) -> list[int]:
    return [bench.at.number(f"{BIG}/scaling_{which}_freq") for which in ("min", "max")]


def start_run(bench: Bench, seconds: int) -> None:
    bench.at.put(f"{HOME}/runner", RUNNER, 0o755)
    bench.at.put(f"{HOME}/plan", a_plan())
    bench.at.put(f"{HOME}/dir/nodes", f"{BIG}/scaling_cur_freq\n".encode())
    command = f"cd {HOME}; setsid taskset f0 ./runner run plan dir --seconds {seconds}"
    bench.at.out(f"{command} --max-seconds {seconds} >/dev/null 2>&1 & echo")
    until(lambda: bool(bench.events("run_start")), "the run began")


def test_a_clock_write_is_ignored_without_a_word(bench: Bench) -> None:
    before = limits(bench)
    number = bench.mischief.add("clock_ignored")
    pin(bench, 1497600)
    assert limits(bench) == before
    written = bench.events("sysfs")[-1]
    assert (written["text"], written["old"]) == ("1497600", written["new"])
    bench.mischief.clear(number)
    pin(bench, 1497600)
    assert limits(bench) == [1497600, 1497600]


def test_a_clock_may_be_shown_as_set_and_not_be(bench: Bench) -> None:
    bench.at.root(f"echo performance > {BIG}/scaling_governor")
    bench.mischief.add("clock_ignored", shown=True)
    pin(bench, 1497600)
    assert limits(bench) == [1497600, 1497600]
    assert bench.at.number(f"{BIG}/scaling_cur_freq") == 2419200
    bench.mischief.clear()
    assert limits(bench) == [710400, 2419200]


def test_a_daemon_resets_the_clock_after_some_seconds(bench: Bench) -> None:
    before = limits(bench)
    bench.mischief.add("clock_reset", after_s=70)
    pin(bench, 1497600)
    assert limits(bench) == [1497600, 1497600]
    bench.at.out("sleep 75")
    assert limits(bench) == before
    pinned, *_, reset = bench.events("sysfs")
    assert 40 < float(str(reset["model_s"])) - float(str(pinned["model_s"])) < 72
    assert reset["uid"] == 1000


def test_throttled_in_mid_run(bench: Bench) -> None:
    """The cap shows in cooling devices and limits, and the run is slower from then on."""
    bench.mischief.add("throttle", at="run@50%", cluster="big", steps=6)
    start_run(bench, 60)
    until(lambda: bool(bench.events("run_stop")), "the run ended")
    throttled, ended = (
        float(str(bench.events(kind)[0]["model_s"])) for kind in ("mischief_start", "run_stop")
    )
    assert 29 < ended - throttled < 31
    readings = bench.at.out(f"cat {HOME}/dir/readings.jsonl").splitlines()[1:]
    clocks = [int(line.rpartition("[")[2].rstrip("]}")) for line in readings]
    assert max(clocks[-50:]) < max(clocks[:50])
    assert limits(bench)[1] < 2419200
    states = bench.at.out(f"cat {THERMAL}/cooling_device*/cur_state").split()
    assert "6" in states
    bench.mischief.clear()
    assert limits(bench)[1] == 2419200


@pytest.mark.parametrize(
    ("value", "shown"), [("-40", -40000), ("999", 999000), ("text", None), ("missing", None)]
)
def test_a_sensor_lies_and_is_not_believed(bench: Bench, value: str, shown: int | None) -> None:
    door = bench.door()
    facts = probe(door, runner_for)
    zone = facts.cpu_zones[0].path
    number = bench.mischief.add("sensor", value=value)
    said = bench.at.run(f"cat {zone}")
    if shown is not None:
        assert int(said.out) == shown
    elif value == "missing":
        assert "No such file" in said.err
    else:
        assert said.out == "text\n"
    assert hottest(facts.cpu_zones, seen(door)) is None
    bench.mischief.clear(number)
    found = hottest(facts.cpu_zones, seen(door))
    assert found is not None
    assert 20 < found < 50


def seen(door: Phone) -> dict[str, str]:
    return door.read_nodes([zone.path for zone in door.known.cpu_zones])


def test_a_frozen_sensor_gives_one_number_for_ever(bench: Bench) -> None:
    zone = f"{THERMAL}/thermal_zone1/temp"
    bench.mischief.add("sensor", value="frozen")
    assert len({bench.at.number(zone) for _ in range(8)}) == 1
    bench.mischief.clear()
    until(lambda: len({bench.at.number(zone) for _ in range(8)}) > 1, "it moves again")


def test_a_sensor_begins_to_lie_to_a_sampler_at_work(bench: Bench) -> None:
    zone = f"{THERMAL}/thermal_zone1/temp"
    bench.at.put(f"{HOME}/runner", RUNNER, 0o755)
    bench.at.put(f"{HOME}/dir/nodes", f"{zone}\n".encode())
    bench.mischief.add("sensor", value="text", at="command:*/runner sample *", after=70)
    bench.at.out(f"{HOME}/runner sample {HOME}/dir --seconds 90")
    readings = bench.at.out(f"cat {HOME}/dir/readings.jsonl").splitlines()
    assert readings[-1].endswith('["text"]}')
    assert not readings[1].endswith('["text"]}')


def test_it_never_cools(bench: Bench) -> None:
    zone = f"{THERMAL}/thermal_zone1/temp"
    before = bench.at.number(zone)
    number = bench.mischief.add("never_cools", ambient_c=48)
    assert bench.at.number(zone) > before + 20_000
    bench.at.out("sleep 90")
    assert bench.at.number(zone) > before + 20_000
    bench.mischief.clear(number)
    assert bench.at.number(zone) < before + 3_000


def test_the_battery_drains(bench: Bench) -> None:
    bench.mischief.add("battery_drains", percent=30, per_min=6)
    before = bench.at.number(f"{BATTERY}/capacity")
    assert before <= 30
    bench.at.out("sleep 60")
    assert bench.at.number(f"{BATTERY}/capacity") <= before - 5
    assert "level: 30" not in bench.at.out("dumpsys battery")


def test_a_full_disk_refuses_pushes_and_files(bench: Bench) -> None:
    number = bench.mischief.add("disk_full", free_bytes=100)
    with pytest.raises(AssertionError, match="No space left"):
        bench.at.put(f"{HOME}/big", bytes(1000))
    assert bench.at.run(f"echo {'y' * 200} > {HOME}/y").status == 1
    bench.mischief.clear(number)
    bench.at.put(f"{HOME}/big", bytes(1000))


def test_the_runner_is_killed_for_its_memory(bench: Bench) -> None:
    bench.mischief.add("low_memory", at="run@30%")
    start_run(bench, 600)
    until(lambda: bool(bench.events("run_stop")), "the runner died")
    (stop,) = bench.events("run_stop")
    assert stop["why"] == "killed"
    assert bench.events("low_memory_kill")[0]["pid"] == stop["pid"]
    assert '"done"' not in bench.at.out(f"cat {HOME}/dir/out.jsonl")
    assert bench.events("mischief_stop")[0]["why"] == "over"


def test_two_phones_of_a_shelf_claim_one_serial(host: AdbHost, tmp_path: Path) -> None:
    with a_bench(host, tmp_path, "meizu-16t", "huawei-honor-8") as bench:
        other = bench.shelf.servers[1].phone.serial
        number = bench.mischief.add("duplicate_serial", phone=bench.serial)
        assert bench.at.out("getprop ro.serialno") == other
        assert probe(bench.door(), runner_for).serial == other
        bench.mischief.add("reboot", phone=bench.serial)
        until(lambda: len(bench.events("boot")) == 2, "it is up again")
        bench.connect()
        assert bench.at.out("getprop ro.boot.serialno") == other
        bench.mischief.clear(number)
        assert bench.at.out("getprop ro.serialno") == bench.serial
