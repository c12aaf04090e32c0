"""The stock adb and adbutils cannot tell a virtual phone from a phone on TCP."""

import os
from pathlib import Path

import adbutils  # type: ignore[import-untyped]
import pytest

from tests.virtual.conftest import StartPhone
from tests.virtual.host import AdbHost, PhoneAt, until


def test_adb_lists_the_phone_with_its_names(host: AdbHost, phone: PhoneAt) -> None:
    listed = [line for line in host.adb("devices", "-l").out.splitlines() if phone.address in line]
    assert len(listed) == 1
    assert "device product:meizu_16T_CN model:16T device:16T" in listed[0]


def test_the_command_line_carries_output_errors_and_status(host: AdbHost, phone: PhoneAt) -> None:
    said = host.adb("-s", phone.address, "shell", "echo out; echo err >&2; exit 5")
    assert (5, "out\n", "err\n") == said


def test_stdin_reaches_a_command(host: AdbHost, phone: PhoneAt) -> None:
    said = host.adb("-s", phone.address, "shell", "cat; echo end", text="one\ntwo\n")
    assert (0, "one\ntwo\nend\n", "") == said


def test_v1_keeps_output_and_errors_in_order(host: AdbHost, phone: PhoneAt) -> None:
    with host.dial(phone.address, "shell:echo 1; ls /nope; echo 2; nope; echo 3") as stream:
        text = b"".join(iter(lambda: stream.recv(65536), b"")).decode()
    assert [
        "1",
        "ls: /nope: No such file or directory",
        "2",
        "/system/bin/sh: nope: not found",
        "3",
    ] == text.splitlines()


def test_exec_is_raw_both_ways(host: AdbHost, phone: PhoneAt) -> None:
    with host.dial(phone.address, "exec:sh") as stream:
        stream.sendall(b"printf 'a\\r\\nb'; exit\n")
        assert b"a\r\nb" == b"".join(iter(lambda: stream.recv(65536), b""))


@pytest.mark.parametrize("size", [0, 1, 65535, 65536, 65537, 3_000_001])
def test_push_and_pull_give_the_same_bytes(
    host: AdbHost, phone: PhoneAt, tmp_path: Path, size: int
) -> None:
    here, back = tmp_path / "here", tmp_path / "back"
    here.write_bytes(os.urandom(size))
    there = f"/data/local/tmp/deep/er/{size}"
    pushed = host.adb("-s", phone.address, "push", str(here), there)
    assert pushed.status == 0, pushed
    pulled = host.adb("-s", phone.address, "pull", there, str(back))
    assert pulled.status == 0, pulled
    assert here.read_bytes() == back.read_bytes()
    assert str(size) == phone.out(f"stat -c %s {there}")


def test_a_push_to_a_forbidden_place_says_why(
    host: AdbHost, phone: PhoneAt, tmp_path: Path
) -> None:
    here = tmp_path / "here"
    here.write_text("x")
    said = host.adb("-s", phone.address, "push", str(here), "/data/x")
    assert said.status != 0
    assert "Permission denied" in said.out + said.err
    gone = host.adb("-s", phone.address, "pull", "/data/local/tmp/none", str(here))
    assert gone.status != 0


def test_adbutils_drives_it(host: AdbHost, phone: PhoneAt, tmp_path: Path) -> None:
    client = adbutils.AdbClient(host="127.0.0.1", port=host.port)
    there = client.device(phone.address)
    answer = there.shell2("echo out; echo err >&2; exit 3", v2=True)
    assert (3, "out\n", "err\n") == (answer.returncode, answer.stdout, answer.stderr)
    assert "VM16T0001" == there.prop.get("ro.serialno")
    assert "merged\nls: /nope: No such file or directory" == there.shell("echo merged; ls /nope")
    content = os.urandom(200_003)
    there.sync.push(content, "/data/local/tmp/by_adbutils", 0o755)
    assert content == there.sync.read_bytes("/data/local/tmp/by_adbutils")
    found = there.sync.stat("/data/local/tmp/by_adbutils")
    assert (0o100755, len(content)) == (found.mode, found.size)
    names = {entry.path for entry in there.sync.list("/data/local/tmp")}
    assert "by_adbutils" in names
    assert there.sync.stat("/data/local/tmp/none").mode == 0


def test_adb_ls_shows_a_folder(host: AdbHost, phone: PhoneAt) -> None:
    listed = host.adb("-s", phone.address, "ls", "/sys/devices/system/cpu/cpufreq").out
    assert {"policy0", "policy4", "policy7"} <= {line.split()[-1] for line in listed.splitlines()}


def test_root_is_refused_as_on_a_production_build(host: AdbHost, phone: PhoneAt) -> None:
    assert "production builds" in host.adb("-s", phone.address, "root").out


def test_a_service_that_is_not_there_is_refused(host: AdbHost, phone: PhoneAt) -> None:
    with pytest.raises((ConnectionRefusedError, EOFError)):
        host.dial(phone.address, "framebuffer:")
    assert "alive" == phone.out("echo alive")


def test_a_reboot_takes_the_phone_away_and_brings_it_back_new(
    host: AdbHost, start_phone: StartPhone
) -> None:
    phone = start_phone(speed=200.0)
    phone.put("/data/local/tmp/kept", b"kept")
    phone.root("echo 1785600 > /sys/devices/system/cpu/cpufreq/policy4/scaling_max_freq")
    before = phone.out("cat /proc/sys/kernel/random/boot_id")
    host.adb("-s", phone.address, "reboot")

    def back() -> bool:
        host.adb("disconnect", phone.address)
        host.adb("connect", phone.address)
        state = host.adb("-s", phone.address, "get-state").out.strip()
        return state == "device"

    until(back, "the phone is back")
    assert before != phone.out("cat /proc/sys/kernel/random/boot_id")
    assert phone.uptime() < 600
    assert "kept" == phone.out("cat /data/local/tmp/kept")
    assert 2419200 == phone.number("/sys/devices/system/cpu/cpufreq/policy4/scaling_max_freq")
