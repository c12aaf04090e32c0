"""How trouble is told: words, triggers, script files, the control socket, the command line."""

import json
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from agent.virtual.cli import virtual
from agent.virtual.mischief.control import ask_control, socket_path
from agent.virtual.mischief.effect import BadMischief
from agent.virtual.mischief.kinds import KINDS
from agent.virtual.mischief.script import Trigger, parse_trigger, read_plan, read_script
from agent.virtual.shelf import ShelfPlan, shelf_process
from tests.virtual.host import AdbHost, PhoneAt, until
from tests.virtual.plans import HOME
from tests.virtual.trouble import Bench, a_bench

BIG = "/sys/devices/system/cpu/cpufreq/policy4"


@pytest.fixture
def bench(host: AdbHost, tmp_path: Path) -> Iterator[Bench]:
    with a_bench(host, tmp_path) as made:
        yield made


@pytest.mark.parametrize(
    ("text", "trigger"),
    [
        ("service", Trigger("open")),
        ("service:sync*#3", Trigger("open", "sync*", 3)),
        ("write:*/scaling_max_freq", Trigger("sysfs", "*/scaling_max_freq")),
        ("run@50%", Trigger("run_start", run_share=0.5)),
        ("command:echo #x", Trigger("command", "echo #x")),
    ],
)
def test_triggers_are_read(text: str, trigger: Trigger) -> None:
    assert parse_trigger(text) == trigger


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ({"kind": "plague"}, "no mischief is called 'plague'"),
        ({"kind": "flap", "speed": 3}, "'speed' is no option here; there are: period_s"),
        ({"kind": "flap", "count": "many"}, "not of the kind int"),
        ({"kind": "hang", "for": "long"}, "for=long is not a number"),
        ({"kind": "hang", "at": "Run!"}, "is no trigger"),
        ({"kind": "hang", "times": 3}, "times needs a trigger"),
    ],
)
def test_what_cannot_be_obeyed_is_refused_with_the_choices(
    words: dict[str, object], complaint: str
) -> None:
    with pytest.raises(BadMischief, match=complaint):
        read_plan(words)


def test_the_example_is_a_script() -> None:
    plans, seed = read_script(Path(__file__).parents[2] / "examples" / "mischief.toml")
    assert (seed, len(plans)) == (7, 3)


def test_lies_upon_lies_end_in_the_truth(bench: Bench) -> None:
    zone = "/sys/class/thermal/thermal_zone1/temp"
    for value in ("999", "-40", "missing"):
        bench.mischief.add("sensor", value=value)
    bench.mischief.add("unplug")
    bench.mischief.clear()
    bench.connect()
    assert 20_000 < bench.at.number(zone) < 50_000


def test_a_script_names_the_table_that_is_wrong(tmp_path: Path) -> None:
    script = tmp_path / "trouble.toml"
    script.write_text('seed = 4\n[[mischief]]\nkind = "hang"\n[[mischief]]\nkind = "hangs"\n')
    with pytest.raises(BadMischief, match="mischief 2"):
        read_script(script)
    script.write_text('seed = 4\n[[mischief]]\nkind = "hang"\nat = "boot"\nfor_host = 2\n')
    (plan,), seed = read_script(script)
    assert (seed, plan.at, plan.for_host_s) == (4, "boot", 2)


@pytest.mark.parametrize(
    ("at", "doing"),
    [
        ("service:shell*#2", "true"),
        (f"write:{BIG}/scaling_max_freq", f"su -c 'echo 2419200 > {BIG}/scaling_max_freq'"),
        ("command:ls *", "ls /"),
        ("setting:low_power", "settings put global low_power 1"),
    ],
)
def test_trouble_begins_at_its_trigger_and_not_before(bench: Bench, at: str, doing: str) -> None:
    bench.mischief.add("disk_full", at=at)
    bench.at.run("id")
    assert not bench.starts()
    bench.at.run(doing)
    assert bench.starts() == ["disk_full"]


def test_a_push_is_a_trigger(bench: Bench) -> None:
    bench.mischief.add("throttle", at="push:*/plan")
    bench.at.put(f"{HOME}/other", b"x")
    assert not bench.starts()
    bench.at.put(f"{HOME}/plan", b"x")
    assert bench.starts() == ["throttle"]


def test_delays_and_durations_are_the_phones_own(bench: Bench) -> None:
    bench.mischief.add("disk_full", at="command:ls *", after=50, for_=20)
    began = bench.at.uptime()
    bench.at.run("ls /")
    until(lambda: bool(bench.events("mischief_stop")), "it is over")
    assert bench.at.uptime() - began >= 70
    start, stop = bench.events("mischief_start", "mischief_stop")
    assert float(str(stop["model_s"])) - float(str(start["model_s"])) == pytest.approx(20, abs=0.01)
    bench.at.put(f"{HOME}/fits", b"again")


def test_it_comes_again_as_often_as_planned(bench: Bench) -> None:
    bench.mischief.add("disk_full", at="command:ls *", for_=0.1, times=2)
    for _ in range(4):
        bench.at.run("ls /; sleep 5")
    assert len(bench.starts()) == 2
    assert [prank["state"] for prank in bench.mischief.list()] == ["over"]


def test_the_same_seed_draws_the_same_trouble(host: AdbHost, tmp_path: Path) -> None:
    def drawn(seed: int, name: str) -> list[object]:
        with a_bench(host, tmp_path / name, *("meizu-16t",) * 1, seed=seed) as bench:
            bench.mischief.add(
                "disk_full", at="command:ls *", for_=0.1, times=0, chance=0.5, jitter=3
            )
            for number in range(12):
                bench.at.run(f"ls /; sleep 5; true {number}")
            starts = bench.events("mischief_start", "open")
            return [entry["event"] for entry in starts]

    first = drawn(1, "a")
    assert first == drawn(1, "b")
    assert first != drawn(2, "c")
    assert 1 <= first.count("mischief_start") <= 11


def test_some_phones_are_drawn_by_the_seed() -> None:
    plan = read_plan({"kind": "hang", "phones": ["VM16T*"], "some": "0.5"})
    assert plan.is_for("VM16T0007")
    assert not plan.is_for("VHON80001")
    assert plan.some == 0.5


def test_a_phone_without_mischief_has_no_imp(bench: Bench) -> None:
    (door,) = bench.shelf.servers
    assert door.phone.mischief is None
    assert door.wire is None
    assert door.phone.journal.listener is None


def test_a_script_at_the_start_and_more_over_the_socket(host: AdbHost, tmp_path: Path) -> None:
    script, control = tmp_path / "trouble.toml", tmp_path / "control"
    script.write_text('[[mischief]]\nkind = "battery_drains"\npercent = 5\n')
    plan = ShelfPlan(("meizu-16t",), speed=100, journal=tmp_path, mischief=script, control=control)
    with shelf_process(plan) as ((address,)):
        host.adb("connect", address.address)
        phone = PhoneAt(host, address.address)
        assert phone.number("/sys/class/power_supply/battery/capacity") <= 5
        assert stat.S_IMODE(socket_path(control).stat().st_mode) == 0o600
        assert say(control, "add", "hang", "--at", "command:reboot *", "for_host=2") == "mischief 2"
        assert "hang armed at command:reboot *" in say(control, "list")
        assert say(control, "clear", "1") == "cleared 1"
        assert say(control, "clear") == "cleared 1"
        assert say(control, "list") == ""
        assert "mischief_stop" in say(control, "journal", address.serial, "--lines", "2")
        refused = CliRunner().invoke(
            virtual, ["mischief", "add", "--control", str(control), "hang", "--phone", "nobody"]
        )
        assert refused.exit_code == 1
        assert "no phone is called nobody" in refused.output
        with pytest.raises(BadMischief, match="say add, clear, list or journal"):
            ask_control(control, {"do": "dance"})
        host.adb("disconnect", address.address)
    told = [json.loads(line) for line in (tmp_path / f"{address.serial}.jsonl").open()]
    assert "mischief_start" in [line["event"] for line in told]


def say(control: Path, verb: str, *words: str) -> str:
    """`farm virtual mischief VERB`."""
    said = CliRunner().invoke(virtual, ["mischief", verb, "--control", str(control), *words])
    assert said.exit_code == 0, said.output
    return said.output.strip()


def test_every_kind_is_listed_with_its_options() -> None:
    listed = CliRunner().invoke(virtual, ["mischief", "kinds"]).output
    for kind in KINDS:
        assert kind in listed
    assert "bytes_per_s=0.0 latency_s=0.05" in listed
