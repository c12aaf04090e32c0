"""Faults of the cable and of adb, as the stock adb and the agent see them."""

import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from agent.deadline import Deadline
from agent.phone.adb import AdbServer
from agent.phone.phone_driver import Phone
from tests.virtual.adb_host import AdbHost, child_pid, wait_until
from tests.virtual.injection_bench import InjectionBench, start_bench
from tests.virtual.sample_plans import HOME
from workloads.protocol.faults import Hung, Unreachable

BOOT_ID = "cat /proc/sys/kernel/random/boot_id"


@pytest.fixture
def bench(host: AdbHost, tmp_path: Path) -> Iterator[InjectionBench]:
    with start_bench(host, tmp_path) as bench:
        yield bench


def test_unplugging_during_a_command_breaks_the_link_at_once(bench: InjectionBench) -> None:
    bench.mischief.add("unplug", at="command:sleep *", times=2)
    with pytest.raises(EOFError):
        bench.adb_phone.run("sleep 1000")
    assert bench.state() == "offline"
    assert "offline" in bench.host.adb("-s", bench.address, "shell", "true").err
    with pytest.raises(Unreachable):
        bench.agent_phone().shell(["true"])
    bench.mischief.clear()
    bench.connect()
    assert bench.adb_phone.out("echo back") == "back"
    assert [entry["reason"] for entry in bench.events("mischief_stop")] == ["cleared"]


def test_the_adb_command_line_exits_with_255_without_output(bench: InjectionBench) -> None:
    bench.mischief.add("unplug", at="command:sleep *", for_host=0.1)
    result = bench.host.adb("-s", bench.address, "shell", "sleep 1000")
    assert result == (255, "", "")
    bench.connect()


def test_an_interrupted_push_leaves_no_file(bench: InjectionBench) -> None:
    bench.mischief.add("unplug", at=f"push:{HOME}/big", for_host=0.2)
    with pytest.raises((EOFError, OSError)):
        bench.adb_phone.put(f"{HOME}/big", bytes(4_000_000))
    bench.connect()
    assert bench.adb_phone.run(f"ls {HOME}/big").status == 1
    bench.mischief.add("unplug", at="push:*.part", for_host=0.2)
    with pytest.raises(Unreachable):
        bench.agent_phone().push(bytes(4_000_000), f"{HOME}/big")
    bench.connect()
    bench.agent_phone().push(b"whole", f"{HOME}/big")
    assert bench.adb_phone.out(f"cat {HOME}/big") == "whole"


def test_flapping_has_the_requested_number_of_cycles(bench: InjectionBench) -> None:
    bench.mischief.add("flap", period_s=0.3, off_s=0.1, count=3)
    while not bench.events("mischief_stop"):
        bench.connect()
        with suppress(EOFError, OSError):
            bench.adb_phone.run("sleep 0.5")
    assert len(bench.events("adb_disconnect")) >= 3
    assert bench.events("mischief_stop")[0]["reason"] == "finished"
    bench.connect()
    assert bench.adb_phone.out("echo here") == "here"


def test_a_hung_phone_stays_listed_and_only_our_deadline_detects_it(bench: InjectionBench) -> None:
    agent_phone = bench.agent_phone()
    agent_phone.shell(["true"])
    number = bench.mischief.add("hang")
    started = time.monotonic()
    with pytest.raises(Hung):
        agent_phone.shell(["true"], Deadline.after(0.5))
    with pytest.raises(Hung):
        agent_phone.push(b"x", f"{HOME}/x", deadline=Deadline.after(0.5))
    assert time.monotonic() - started > 0.9
    assert bench.state() == "device"
    bench.mischief.clear(number)
    assert agent_phone.shell(["echo", "thawed"]).text.strip() == "thawed"
    assert not bench.events("adb_disconnect")


def test_a_hung_phone_continues_its_work(bench: InjectionBench) -> None:
    bench.mischief.add("hang", at="command:mkdir *", for_host=0.5)
    started = time.monotonic()
    assert bench.adb_phone.run(f"mkdir {HOME}/done").status == 0
    assert time.monotonic() - started > 0.4
    assert bench.adb_phone.run(f"ls {HOME}/done").status == 0


def test_a_partition_is_silent_and_heals(bench: InjectionBench) -> None:
    bench.mischief.add("partition", for_host=1.0)
    with pytest.raises(Hung):
        bench.agent_phone().shell(["true"], Deadline.after(0.5))
    assert bench.state() == "device"
    wait_until(lambda: bool(bench.events("mischief_stop")), "the partition is over")
    assert bench.adb_phone.out("echo healed") == "healed"
    assert not bench.events("adb_disconnect")


@pytest.mark.slow
def test_keepalive_finds_a_partition_in_a_dozen_seconds(bench: InjectionBench) -> None:
    """TCP gets no answer, so adb 36 gives up by itself; a connect gets no answer either."""
    bench.mischief.add("partition")
    started = time.monotonic()
    wait_until(lambda: bench.state() == "offline", "adb gives up")
    assert time.monotonic() - started > 8
    bench.mischief.clear()
    bench.connect()


def test_a_slow_link_is_slow_in_both_directions(bench: InjectionBench) -> None:
    bench.mischief.add("slow", bytes_per_s=20_000, latency_s=0.02)
    started = time.monotonic()
    bench.adb_phone.put(f"{HOME}/x", bytes(8000))
    up = time.monotonic() - started
    assert len(bench.adb_phone.run(f"cat {HOME}/x").out) == 8000
    down = time.monotonic() - started - up
    assert up > 0.4
    assert down > 0.4
    bench.mischief.add("slow", bytes_per_s=1, latency_s=0)  # one byte per second
    with pytest.raises(Hung):
        bench.agent_phone().shell(["true"], Deadline.after(0.5))
    bench.mischief.clear()
    bench.connect()


def test_unauthorized_until_the_fault_ends(bench: InjectionBench) -> None:
    number = bench.mischief.add("unauthorized")
    bench.await_state("unauthorized")
    assert "unauthorized" in bench.host.adb("-s", bench.address, "shell", "true").err
    with pytest.raises(Unreachable, match="unauthorized"):
        bench.agent_phone().shell(["true"])
    bench.host.adb("disconnect", bench.address)
    assert "failed to authenticate" in bench.host.adb("connect", bench.address).out
    bench.mischief.clear(number)
    bench.await_state("device")
    assert bench.adb_phone.out("echo allowed") == "allowed"


def test_an_offline_phone_accepts_connections_and_does_not_answer(bench: InjectionBench) -> None:
    number = bench.mischief.add("offline")
    bench.await_state("offline")
    with pytest.raises(Unreachable, match="offline"):
        bench.agent_phone().shell(["true"])
    bench.mischief.clear(number)
    bench.await_state("device")
    assert bench.adb_phone.out("echo on") == "on"


@pytest.mark.slow
def test_a_connect_to_a_silent_phone_fails_after_ten_seconds(bench: InjectionBench) -> None:
    bench.mischief.add("offline")
    bench.host.adb("disconnect", bench.address)
    started = time.monotonic()
    assert "failed to connect" in bench.host.adb("connect", bench.address).out
    assert time.monotonic() - started > 9
    assert bench.state() == "offline"
    bench.mischief.clear()
    bench.connect()


def test_a_reboot_has_another_boot_id_and_an_empty_tmp(bench: InjectionBench) -> None:
    before = bench.adb_phone.out(BOOT_ID)
    bench.adb_phone.put(f"{HOME}/mine", b"x")
    bench.mischief.add("reboot", at="command:sleep *")
    with pytest.raises(EOFError):
        bench.adb_phone.run("sleep 10000")
    wait_until(lambda: len(bench.events("boot")) == 2, "it is up again")
    bench.connect()
    assert bench.adb_phone.out(BOOT_ID) != before
    assert bench.adb_phone.out(f"ls {HOME}") == ""
    assert bench.adb_phone.uptime() < 100


def test_an_old_adbd_has_no_features_and_no_second_shell(bench: InjectionBench) -> None:
    number = bench.mischief.add("version_clash")
    bench.connect()
    assert bench.host.adb("-s", bench.address, "features").out == ""
    assert bench.host.adb("-s", bench.address, "shell", "echo old").out == "old\n"
    old = bench.agent_phone()  # it uses a bare stream there
    assert old.shell(["echo", "old"]).text == "old\n"
    assert old.shell(["no-such-command"]).status == 127
    bench.mischief.clear(number)
    bench.connect()
    assert bench.agent_phone().shell(["echo", "new"]).text == "new\n"


def test_another_client_kills_the_server_and_the_agent_starts_a_new_one(
    bench: InjectionBench, tmp_path: Path
) -> None:
    with AdbServer(tmp_path / "own") as adb:
        assert adb.connect(bench.address, Deadline.after(120)) == "device"
        first = child_pid(str(adb.port))
        bench.mischief.add("version_clash", server=adb.port)

        def is_restarted() -> bool:
            try:
                return child_pid(str(adb.port)) != first
            except AssertionError:
                return False

        wait_until(is_restarted, "another server")
        phone = Phone(adb.open(bench.address))

        def answers() -> bool:
            try:
                return phone.shell(["echo", "x"]).text == "x\n"
            except Exception:  # noqa: BLE001 - a dying server may fail in any way
                return False

        wait_until(answers, "the phone is back")
