"""A native phone: commands and pushed binaries really run on this host, in a private folder."""

import os
import platform
import shutil
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.phone.nodes import parse_cpus
from agent.virtual.shelf import Shelf, ShelfPlan, shelf_in_thread
from tests.virtual.conftest import Witness
from tests.virtual.host import AdbHost, PhoneAt, until

TMP = "/data/local/tmp"


@pytest.fixture
def shelf(host: AdbHost, journal: Path) -> Iterator[tuple[Shelf, PhoneAt]]:
    plan = ShelfPlan(("meizu-16t:native",), speed=100.0, journal=journal)
    with shelf_in_thread(plan) as (shelf, (address,)):
        assert "connected" in host.adb("connect", address.address).out
        yield shelf, PhoneAt(host, address.address)
        host.adb("disconnect", address.address)


@pytest.fixture
def native(shelf: tuple[Shelf, PhoneAt]) -> PhoneAt:
    return shelf[1]


def alive(word: str) -> bool:
    """Whether a process of this host has the word among its arguments."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if word in (folder / "cmdline").read_text().split("\0"):
                return True
        except OSError:
            continue
    return False


def test_commands_run_for_real(native: PhoneAt) -> None:
    said = native.run("echo out; echo err >&2; exit 5")
    assert (5, "out\n", "err\n") == said
    assert platform.machine() == native.out("uname -m")
    assert "3" == native.out("printf 'a\\nb\\nc\\n' | wc -l").strip()
    expected = {"x86_64": "x86_64", "aarch64": "arm64-v8a"}.get(platform.machine())
    assert expected == native.out("getprop ro.product.cpu.abi")


def test_the_phones_paths_are_kept_in_both_directions(native: PhoneAt) -> None:
    assert TMP == native.out("pwd")
    assert TMP == native.out(f"cd {TMP} && pwd")
    said = native.run("cat /data/local/tmp/none")
    assert f"{TMP}/none" in said.err
    assert "farmhand-native" not in said.err
    shell = native.shell()
    assert (0, "kept\n") == shell.line(f"echo kept > {TMP}/x; cat '{TMP}/x'")
    assert (0, f"{TMP}\n") == shell.line("pwd")
    shell.close()


def test_a_pushed_binary_executes(native: PhoneAt, tmp_path: Path) -> None:
    native.put(f"{TMP}/bin/truth", Path(shutil.which("true") or "/bin/true").read_bytes(), 0o755)
    assert 0 == native.run(f"{TMP}/bin/truth").status
    native.put(f"{TMP}/script", b"#!/bin/sh\necho $1 from $0\n", 0o755)
    assert f"hello from {TMP}/script" == native.out(f"{TMP}/script hello")
    assert "755" == native.out(f"stat -c %a {TMP}/script")


def test_push_and_pull_give_the_same_bytes(host: AdbHost, native: PhoneAt, tmp_path: Path) -> None:
    here, back = tmp_path / "here", tmp_path / "back"
    here.write_bytes(os.urandom(1_000_003))
    assert host.adb("-s", native.address, "push", str(here), f"{TMP}/a/b").status == 0
    assert host.adb("-s", native.address, "pull", f"{TMP}/a/b", str(back)).status == 0
    assert here.read_bytes() == back.read_bytes()
    assert "b" in host.adb("-s", native.address, "ls", f"{TMP}/a").out


def test_nothing_leads_out_of_the_folder(host: AdbHost, native: PhoneAt, tmp_path: Path) -> None:
    back = tmp_path / "back"
    for path in ("/etc/passwd", f"{TMP}/../../../../../../etc/passwd", "/proc/self/environ"):
        assert host.adb("-s", native.address, "pull", path, str(back)).status != 0
    native.out(f"ln -s /etc {TMP}/out")
    assert host.adb("-s", native.address, "pull", f"{TMP}/out/passwd", str(back)).status != 0
    here = tmp_path / "here"
    here.write_text("x")
    assert host.adb("-s", native.address, "push", str(here), "/system/bin/getprop").status != 0


def test_it_is_nobody_on_this_host(native: PhoneAt) -> None:
    assert "0" != native.out("id -u")
    assert native.run("su -c id").status == 127
    assert native.run("echo x > /etc/farmhand-was-here").status != 0


def test_there_is_no_heat_no_clock_and_no_charge(native: PhoneAt) -> None:
    assert "" == native.out("ls /sys/class/thermal /sys/class/power_supply | grep -v :").strip()
    assert native.run("ls /sys/devices/system/cpu/cpu0/cpufreq").status != 0
    assert "Can't find service" in native.out("dumpsys battery")
    cores = native.out("cat /sys/devices/system/cpu/online")
    assert os.sched_getaffinity(0) == set(parse_cpus(cores))


def test_it_says_that_it_is_this_host(native: PhoneAt) -> None:
    assert "Native" == native.out("getprop ro.product.manufacturer")
    assert platform.machine() == native.out("getprop ro.product.model")
    assert "" == native.out("getprop ro.product.marketname")


def test_a_command_dies_with_its_stream(native: PhoneAt) -> None:
    stream = native.host.dial(native.address, "shell,v2,raw:sleep 98761 | cat; echo")
    until(lambda: alive("98761"), "it runs")
    stream.close()
    until(lambda: not alive("98761"), "it died")


def test_what_is_detached_outlives_its_stream_and_dies_with_the_phone(
    host: AdbHost, journal: Path, witness: Witness
) -> None:
    with shelf_in_thread(ShelfPlan(("meizu-16t:native",), journal=journal)) as (shelf, (there,)):
        host.adb("connect", there.address)
        phone = PhoneAt(host, there.address)
        phone.out("setsid sleep 98762 >/dev/null 2>&1 </dev/null &")
        until(lambda: alive("98762"), "it runs")
        phone.out("sleep 0.5")
        assert alive("98762")
        home = shelf.servers[0].phone.native
        assert home is not None
        folder = home.root
        host.adb("disconnect", there.address)
    until(lambda: not alive("98762"), "it died with the phone")
    assert not folder.exists()
    starts, stops = witness("process_start"), witness("process_stop")
    assert {entry["pid"] for entry in starts} == {entry["pid"] for entry in stops}


def test_a_reboot_ends_everything_and_changes_the_boot_id(native: PhoneAt) -> None:
    before = native.out("cat /proc/sys/kernel/random/boot_id")
    native.out("setsid sleep 98763 >/dev/null 2>&1 </dev/null &")
    until(lambda: alive("98763"), "it runs")
    native.host.adb("-s", native.address, "reboot")
    until(lambda: not alive("98763"), "it died")

    def back() -> bool:
        native.host.adb("disconnect", native.address)
        return "connected" in native.host.adb("connect", native.address).out

    until(back, "it is back", seconds=60.0)
    assert before != native.out("cat /proc/sys/kernel/random/boot_id")


def test_a_compiled_program_runs(native: PhoneAt, tmp_path: Path) -> None:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no compiler here")
    source = tmp_path / "p.c"
    source.write_text('#include <stdio.h>\nint main(void){puts("compiled");return 3;}\n')
    binary = tmp_path / "p"
    subprocess.run([compiler, source, "-o", binary], check=True)
    assert binary.stat().st_mode & stat.S_IXUSR
    native.put(f"{TMP}/p", binary.read_bytes(), 0o755)
    assert (3, "compiled\n") == native.run(f"{TMP}/p")[:2]
