"""Native phones: commands and pushed binaries run on this host, in a private directory."""

import os
import platform
import shutil
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.phone.kernel_nodes import parse_cpus
from agent.virtual.fleet_server import FleetConfig, FleetServer
from tests.virtual.adb_host import AdbHost, AdbPhone, wait_until
from tests.virtual.conftest import JournalReader
from tests.virtual.running_fleet import serve_fleet_in_thread

TMP = "/data/local/tmp"


@pytest.fixture
def fleet(host: AdbHost, journal: Path) -> Iterator[tuple[FleetServer, AdbPhone]]:
    config = FleetConfig(("meizu-16t:native",), journal=journal)
    with serve_fleet_in_thread(config) as (fleet, (address,)):
        assert "connected" in host.adb("connect", address.address).out
        yield fleet, AdbPhone(host, address.address)
        host.adb("disconnect", address.address)


@pytest.fixture
def native(fleet: tuple[FleetServer, AdbPhone]) -> AdbPhone:
    return fleet[1]


def alive(word: str) -> bool:
    """Return whether a process of this host has the word among its arguments."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if word in (folder / "cmdline").read_text().split("\0"):
                return True
        except OSError:
            continue
    return False


def test_commands_run_on_this_host(native: AdbPhone) -> None:
    result = native.run("echo out; echo err >&2; exit 5")
    assert result == (5, "out\n", "err\n")
    assert native.out("uname -m") == platform.machine()
    assert native.out("printf 'a\\nb\\nc\\n' | wc -l").strip() == "3"
    expected = {"x86_64": "x86_64", "aarch64": "arm64-v8a"}.get(platform.machine())
    assert native.out("getprop ro.product.cpu.abi") == expected


def test_the_phones_paths_are_kept_in_both_directions(native: AdbPhone) -> None:
    assert native.out("pwd") == TMP
    assert native.out(f"cd {TMP} && pwd") == TMP
    result = native.run("cat /data/local/tmp/none")
    assert f"{TMP}/none" in result.err
    assert "farmhand-native" not in result.err
    shell = native.shell()
    assert shell.line(f"echo kept > {TMP}/x; cat '{TMP}/x'") == (0, "kept\n")
    assert shell.line("pwd") == (0, f"{TMP}\n")
    shell.close()


def test_a_pushed_binary_executes(native: AdbPhone, tmp_path: Path) -> None:
    native.put(f"{TMP}/bin/truth", Path(shutil.which("true") or "/bin/true").read_bytes(), 0o755)
    assert native.run(f"{TMP}/bin/truth").status == 0
    native.put(f"{TMP}/script", b"#!/bin/sh\necho $1 from $0\n", 0o755)
    assert native.out(f"{TMP}/script hello") == f"hello from {TMP}/script"
    assert native.out(f"stat -c %a {TMP}/script") == "755"


def test_push_and_pull_give_the_same_bytes(host: AdbHost, native: AdbPhone, tmp_path: Path) -> None:
    source, pulled = tmp_path / "here", tmp_path / "back"
    source.write_bytes(os.urandom(1_000_003))
    assert host.adb("-s", native.address, "push", str(source), f"{TMP}/a/b").status == 0
    assert host.adb("-s", native.address, "pull", f"{TMP}/a/b", str(pulled)).status == 0
    assert pulled.read_bytes() == source.read_bytes()
    assert "b" in host.adb("-s", native.address, "ls", f"{TMP}/a").out


def test_paths_cannot_leave_the_folder(host: AdbHost, native: AdbPhone, tmp_path: Path) -> None:
    pulled = tmp_path / "back"
    for path in ("/etc/passwd", f"{TMP}/../../../../../../etc/passwd", "/proc/self/environ"):
        assert host.adb("-s", native.address, "pull", path, str(pulled)).status != 0
    native.out(f"ln -s /etc {TMP}/out")
    assert host.adb("-s", native.address, "pull", f"{TMP}/out/passwd", str(pulled)).status != 0
    source = tmp_path / "here"
    source.write_text("x")
    assert host.adb("-s", native.address, "push", str(source), "/system/bin/getprop").status != 0


def test_commands_run_without_privileges(native: AdbPhone) -> None:
    assert native.out("id -u") != "0"
    assert native.run("su -c id").status == 127
    assert native.run("echo x > /etc/farmhand-was-here").status != 0


def test_it_shows_the_sensors_of_this_computer_and_no_others(native: AdbPhone) -> None:
    zones = sorted(path.name for path in Path("/sys/class/thermal").glob("thermal_zone*"))
    assert (
        native.out("cd /sys/class/thermal && ls -d thermal_zone* 2>/dev/null; true").split()
        == zones
    )
    policies = sorted(Path("/sys/devices/system/cpu/cpufreq").glob("policy*"))
    shown = native.out("ls -d /sys/devices/system/cpu/cpufreq/policy* 2>/dev/null; true").split()
    assert shown == [str(path) for path in policies]
    assert "Can't find service" in native.out("dumpsys battery")
    cores = native.out("cat /sys/devices/system/cpu/online")
    assert set(parse_cpus(cores)) == os.sched_getaffinity(0)


def test_the_source_of_its_numbers_is_host(native: AdbPhone) -> None:
    assert native.out("getprop ro.product.manufacturer") == "Native"
    assert native.out("getprop ro.product.model") == platform.machine()
    assert native.out("getprop ro.product.marketname") == ""


def test_a_command_ends_with_its_stream(native: AdbPhone) -> None:
    stream = native.host.open_service(native.address, "shell,v2,raw:sleep 98761 | cat; echo")
    wait_until(lambda: alive("98761"), "it runs")
    stream.close()
    wait_until(lambda: not alive("98761"), "it died")


def test_a_detached_command_outlives_its_stream_and_ends_with_the_phone(
    host: AdbHost, journal: Path, journal_events: JournalReader
) -> None:
    with serve_fleet_in_thread(FleetConfig(("meizu-16t:native",), journal=journal)) as (
        fleet,
        (address,),
    ):
        host.adb("connect", address.address)
        phone = AdbPhone(host, address.address)
        phone.out("setsid sleep 98762 >/dev/null 2>&1 </dev/null &")
        wait_until(lambda: alive("98762"), "it runs")
        phone.out("sleep 0.5")
        assert alive("98762")
        home = fleet.servers[0].phone.native
        assert home is not None
        folder = home.root
        host.adb("disconnect", address.address)
    wait_until(lambda: not alive("98762"), "it died with the phone")
    assert not folder.exists()
    starts, stops = journal_events("process_start"), journal_events("process_stop")
    assert {entry["pid"] for entry in starts} == {entry["pid"] for entry in stops}


def test_a_reboot_ends_everything_and_changes_the_boot_id(native: AdbPhone) -> None:
    before = native.out("cat /proc/sys/kernel/random/boot_id")
    native.out("setsid sleep 98763 >/dev/null 2>&1 </dev/null &")
    wait_until(lambda: alive("98763"), "it runs")
    native.host.adb("-s", native.address, "reboot")
    wait_until(lambda: not alive("98763"), "it died")

    def back() -> bool:
        native.host.adb("disconnect", native.address)
        return "connected" in native.host.adb("connect", native.address).out

    wait_until(back, "it is back", seconds=60.0)
    assert native.out("cat /proc/sys/kernel/random/boot_id") != before


def test_a_compiled_program_runs(native: AdbPhone, tmp_path: Path) -> None:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("there is no C compiler")
    source = tmp_path / "p.c"
    source.write_text('#include <stdio.h>\nint main(void){puts("compiled");return 3;}\n')
    binary = tmp_path / "p"
    subprocess.run([compiler, source, "-o", binary], check=True)
    assert binary.stat().st_mode & stat.S_IXUSR
    native.put(f"{TMP}/p", binary.read_bytes(), 0o755)
    assert native.run(f"{TMP}/p")[:2] == (3, "compiled\n")
