"""Mischief requests: keys, triggers, script files, the control socket and the command line."""

import json
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from agent.virtual.cli import virtual
from agent.virtual.fleet_server import FleetConfig
from agent.virtual.mischief.control_socket import send_entry, socket_path
from agent.virtual.mischief.fault_registry import FAULT_TYPES
from agent.virtual.mischief.fault_type import InvalidMischief
from agent.virtual.mischief.mischief_script import (
    Trigger,
    parse_plan,
    parse_trigger,
    read_mischief_script,
)
from tests.virtual.adb_host import AdbHost, AdbPhone
from tests.virtual.injection_bench import InjectionBench, start_bench
from tests.virtual.running_fleet import serve_fleet_in_process
from tests.virtual.sample_plans import HOME

BIG = "/sys/devices/system/cpu/cpufreq/policy4"


@pytest.fixture
def bench(host: AdbHost, tmp_path: Path) -> Iterator[InjectionBench]:
    with start_bench(host, tmp_path) as bench:
        yield bench


@pytest.mark.parametrize(
    ("text", "trigger"),
    [
        ("service", Trigger("adb_service")),
        ("service:sync*#3", Trigger("adb_service", "sync*", 3)),
        ("write:*/scaling_max_freq", Trigger("sysfs_write", "*/scaling_max_freq")),
        ("run@50%", Trigger("run_start", run_share=0.5)),
        ("command:echo #x", Trigger("command", "echo #x")),
    ],
)
def test_triggers_are_read(text: str, trigger: Trigger) -> None:
    assert parse_trigger(text) == trigger


@pytest.mark.parametrize(
    ("entry", "key"),
    [
        ({"kind": "plague"}, "kind"),
        ({"kind": "flap", "speed": 3}, "speed"),
        ({"kind": "flap", "count": "many"}, "count"),
        ({"kind": "hang", "for": "long"}, "for"),
        ({"kind": "hang", "at": "Run!"}, "at"),
        ({"kind": "hang", "at": "sysfs_wrote"}, "at"),
        ({"kind": "hang", "times": 3}, "times"),
        ({"kind": "screen", "every": 5}, "every"),
        ({"kind": "screen", "for": 5, "every": 5}, "every"),
        ({"kind": "screen", "until": "run@50%"}, "until"),
        ({"kind": "screen", "until": "sysfs_wrote"}, "at"),
    ],
)
def test_an_invalid_entry_is_refused_with_the_wrong_key(entry: dict[str, object], key: str) -> None:
    with pytest.raises(InvalidMischief) as caught:
        parse_plan(entry)
    assert caught.value.key == key


def test_the_example_script_is_valid() -> None:
    plans, seed = read_mischief_script(Path(__file__).parents[2] / "examples" / "mischief.toml")
    assert (seed, len(plans)) == (7, 3)


def test_overlapping_sensor_faults_end_with_the_real_value(bench: InjectionBench) -> None:
    zone = "/sys/class/thermal/thermal_zone1/temp"
    for value in ("999", "-40", "missing"):
        bench.mischief.add("sensor", value=value)
    bench.mischief.add("unplug")
    bench.mischief.clear()
    bench.connect()
    assert 20_000 < bench.adb_phone.number(zone) < 50_000


def test_the_error_of_a_script_names_the_wrong_table(tmp_path: Path) -> None:
    script = tmp_path / "trouble.toml"
    script.write_text('seed = 4\n[[mischief]]\nkind = "hang"\n[[mischief]]\nkind = "hangs"\n')
    with pytest.raises(InvalidMischief, match="mischief 2"):
        read_mischief_script(script)
    script.write_text('seed = 4\n[[mischief]]\nkind = "hang"\nat = "boot"\nfor_host = 2\n')
    (plan,), seed = read_mischief_script(script)
    assert (seed, plan.trigger_text, plan.for_host_s) == (4, "boot", 2)


@pytest.mark.parametrize(
    ("at", "shell_command"),
    [
        ("service:shell*#2", "true"),
        (f"write:{BIG}/scaling_max_freq", f"su -c 'echo 2419200 > {BIG}/scaling_max_freq'"),
        ("command:ls *", "ls /"),
        ("setting:low_power", "settings put global low_power 1"),
    ],
)
def test_a_fault_starts_at_its_trigger(bench: InjectionBench, at: str, shell_command: str) -> None:
    bench.mischief.add("disk_full", at=at)
    bench.adb_phone.run("id")
    assert not bench.started_kinds()
    bench.adb_phone.run(shell_command)
    assert bench.started_kinds() == ["disk_full"]


def test_a_push_is_a_trigger(bench: InjectionBench) -> None:
    bench.mischief.add("throttle", at="push:*/plan")
    bench.adb_phone.put(f"{HOME}/other", b"x")
    assert not bench.started_kinds()
    bench.adb_phone.put(f"{HOME}/plan", b"x")
    assert bench.started_kinds() == ["throttle"]


def test_delays_and_durations_are_in_phone_time(bench: InjectionBench) -> None:
    bench.mischief.add("disk_full", at="command:ls *", after=50, for_=20)
    started = bench.adb_phone.uptime()
    bench.adb_phone.run("ls /")
    bench.adb_phone.sleep_until(lambda: bool(bench.events("mischief_stop")), "it is over")
    assert bench.adb_phone.uptime() - started >= 70
    start, stop = bench.events("mischief_start", "mischief_stop")
    assert float(str(stop["model_s"])) - float(str(start["model_s"])) == pytest.approx(20, abs=0.01)
    bench.adb_phone.put(f"{HOME}/fits", b"again")


def test_a_repeated_fault_occurs_the_planned_number_of_times(bench: InjectionBench) -> None:
    bench.mischief.add("disk_full", at="command:ls *", for_=0.1, times=2)
    for _ in range(4):
        bench.adb_phone.run("ls /; sleep 5")
    assert len(bench.started_kinds()) == 2


def test_the_same_seed_draws_the_same_faults(host: AdbHost, tmp_path: Path) -> None:
    def drawn(seed: int, name: str) -> list[object]:
        with start_bench(host, tmp_path / name, *("meizu-16t",) * 1, seed=seed) as bench:
            bench.mischief.add(
                "disk_full", at="command:ls *", for_=0.1, times=0, chance=0.5, jitter=3
            )
            for number in range(12):
                bench.adb_phone.run(f"ls /; sleep 5; true {number}")
            starts = bench.events("mischief_start", "adb_service")
            return [entry["event"] for entry in starts]

    first = drawn(1, "a")
    assert drawn(1, "b") == first
    assert drawn(2, "c") != first
    assert 1 <= first.count("mischief_start") <= 11


def test_the_seed_decides_which_phones_have_faults() -> None:
    plan = parse_plan({"kind": "hang", "phones": ["VM16T*"], "some": "0.5"})
    assert plan.matches_phone("VM16T0007")
    assert not plan.matches_phone("VHON80001")
    assert plan.some == 0.5


def test_a_phone_without_mischief_has_no_injector(bench: InjectionBench) -> None:
    (server,) = bench.fleet.servers
    assert server.phone.mischief is None
    assert server.wire_hook is None
    assert server.phone.journal.listener is None


def test_faults_from_a_script_and_over_the_socket(host: AdbHost, tmp_path: Path) -> None:
    script, control = tmp_path / "trouble.toml", tmp_path / ("control" * 20)
    script.write_text('[[mischief]]\nkind = "battery_drains"\npercent = 5\n')
    config = FleetConfig(
        ("meizu-16t",), speed=100, journal=tmp_path, mischief=script, control=control
    )
    with serve_fleet_in_process(config) as ((address,)):
        host.adb("connect", address.address)
        phone = AdbPhone(host, address.address)
        assert phone.number("/sys/class/power_supply/battery/capacity") <= 5
        assert stat.S_IMODE(socket_path(control).stat().st_mode) == 0o600
        assert (
            run_mischief(control, "hang", "--at", "command:reboot *", "for_host=2") == "mischief 2"
        )
        assert run_mischief(control, "--clear") == "cleared 2"
        assert run_mischief(control, "--clear") == "cleared 0"
        refused = CliRunner().invoke(
            virtual, ["mischief", "--control", str(control), "hang", "--phone", "nobody"]
        )
        assert refused.exit_code == 2
        with pytest.raises(InvalidMischief) as caught:
            send_entry(control, {"kind": "dance"})
        assert caught.value.key == "kind"
        host.adb("disconnect", address.address)
    missed = CliRunner().invoke(virtual, ["mischief", "--clear", "--control", str(control)])
    assert (missed.exit_code, "no virtual phones can be reached" in missed.output) == (4, True)
    events = [json.loads(event) for event in (tmp_path / f"{address.serial}.jsonl").open()]
    assert "mischief_start" in [event["event"] for event in events]


def run_mischief(control: Path, command: str, *words: str) -> str:
    """Run `farm virtual mischief COMMAND`; return its output."""
    result = CliRunner().invoke(virtual, ["mischief", "--control", str(control), command, *words])
    assert result.exit_code == 0, result.output
    return result.output.strip()


def test_every_kind_is_listed_with_its_options() -> None:
    listed = CliRunner().invoke(virtual, ["mischief"]).output
    for kind in FAULT_TYPES:
        assert kind in listed
    assert "bytes_per_s=0.0 latency_s=0.05" in listed
