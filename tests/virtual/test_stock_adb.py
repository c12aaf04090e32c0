"""For the stock adb and adbutils, a virtual phone is a phone on TCP."""

import os
from pathlib import Path

import adbutils  # type: ignore[import-untyped]
import pytest

from tests.virtual.adb_host import AdbHost, AdbPhone, wait_until
from tests.virtual.conftest import StartPhone


def test_adb_lists_the_phone_with_its_names(host: AdbHost, phone: AdbPhone) -> None:
    listed = [line for line in host.adb("devices", "-l").out.splitlines() if phone.address in line]
    assert len(listed) == 1
    assert "device product:meizu_16T_CN model:16T device:16T" in listed[0]


def test_the_command_line_carries_output_errors_and_status(host: AdbHost, phone: AdbPhone) -> None:
    result = host.adb("-s", phone.address, "shell", "echo out; echo err >&2; exit 5")
    assert result == (5, "out\n", "err\n")


def test_stdin_reaches_a_command(host: AdbHost, phone: AdbPhone) -> None:
    result = host.adb("-s", phone.address, "shell", "cat; echo end", text="one\ntwo\n")
    assert result == (0, "one\ntwo\nend\n", "")


def test_v1_keeps_output_and_errors_in_order(host: AdbHost, phone: AdbPhone) -> None:
    with host.open_service(phone.address, "shell:echo 1; ls /nope; echo 2; nope; echo 3") as stream:
        text = b"".join(iter(lambda: stream.recv(65536), b"")).decode()
    assert text.splitlines() == [
        "1",
        "ls: /nope: No such file or directory",
        "2",
        "/system/bin/sh: nope: not found",
        "3",
    ]


def test_exec_is_raw_both_ways(host: AdbHost, phone: AdbPhone) -> None:
    with host.open_service(phone.address, "exec:sh") as stream:
        stream.sendall(b"printf 'a\\r\\nb'; exit\n")
        assert b"".join(iter(lambda: stream.recv(65536), b"")) == b"a\r\nb"


@pytest.mark.parametrize("size", [0, 1, 65535, 65536, 65537, 3_000_001])
def test_push_and_pull_give_the_same_bytes(
    host: AdbHost, phone: AdbPhone, tmp_path: Path, size: int
) -> None:
    source, target = tmp_path / "here", tmp_path / "back"
    source.write_bytes(os.urandom(size))
    remote = f"/data/local/tmp/deep/er/{size}"
    push_result = host.adb("-s", phone.address, "push", str(source), remote)
    assert push_result.status == 0, push_result
    pull_result = host.adb("-s", phone.address, "pull", remote, str(target))
    assert pull_result.status == 0, pull_result
    assert target.read_bytes() == source.read_bytes()
    assert phone.out(f"stat -c %s {remote}") == str(size)


def test_a_push_to_a_forbidden_path_prints_the_reason(
    host: AdbHost, phone: AdbPhone, tmp_path: Path
) -> None:
    source = tmp_path / "here"
    source.write_text("x")
    result = host.adb("-s", phone.address, "push", str(source), "/data/x")
    assert result.status != 0
    assert "Permission denied" in result.out + result.err
    pull_result = host.adb("-s", phone.address, "pull", "/data/local/tmp/none", str(source))
    assert pull_result.status != 0


def test_adbutils_controls_the_phone(host: AdbHost, phone: AdbPhone, tmp_path: Path) -> None:
    client = adbutils.AdbClient(host="127.0.0.1", port=host.port)
    device = client.device(phone.address)
    answer = device.shell2("echo out; echo err >&2; exit 3", v2=True)
    assert (answer.returncode, answer.stdout, answer.stderr) == (3, "out\n", "err\n")
    assert device.prop.get("ro.serialno") == "VM16T0001"
    assert device.shell("echo merged; ls /nope") == "merged\nls: /nope: No such file or directory"
    content = os.urandom(200_003)
    device.sync.push(content, "/data/local/tmp/by_adbutils", 0o755)
    assert device.sync.read_bytes("/data/local/tmp/by_adbutils") == content
    status = device.sync.stat("/data/local/tmp/by_adbutils")
    assert (status.mode, status.size) == (0o100755, len(content))
    names = {entry.path for entry in device.sync.list("/data/local/tmp")}
    assert "by_adbutils" in names
    assert device.sync.stat("/data/local/tmp/none").mode == 0


def test_adb_ls_shows_a_folder(host: AdbHost, phone: AdbPhone) -> None:
    listed = host.adb("-s", phone.address, "ls", "/sys/devices/system/cpu/cpufreq").out
    assert {"policy0", "policy4", "policy7"} <= {line.split()[-1] for line in listed.splitlines()}


def test_root_is_refused_as_on_a_production_build(host: AdbHost, phone: AdbPhone) -> None:
    assert "production builds" in host.adb("-s", phone.address, "root").out


def test_an_unknown_service_is_refused(host: AdbHost, phone: AdbPhone) -> None:
    with pytest.raises((ConnectionRefusedError, EOFError)):
        host.open_service(phone.address, "framebuffer:")
    assert phone.out("echo alive") == "alive"


def test_a_reboot_disconnects_the_phone_and_changes_its_boot_id(
    host: AdbHost, start_phone: StartPhone
) -> None:
    phone = start_phone()
    phone.put("/data/local/tmp/kept", b"kept")
    phone.root("echo 1785600 > /sys/devices/system/cpu/cpufreq/policy4/scaling_max_freq")
    before = phone.out("cat /proc/sys/kernel/random/boot_id")
    host.adb("-s", phone.address, "reboot")

    def back() -> bool:
        host.adb("disconnect", phone.address)
        host.adb("connect", phone.address)
        state = host.adb("-s", phone.address, "get-state").out.strip()
        return state == "device"

    wait_until(back, "the phone is back")
    assert phone.out("cat /proc/sys/kernel/random/boot_id") != before
    assert phone.uptime() < 600
    assert phone.out("cat /data/local/tmp/kept") == "kept"
    assert phone.number("/sys/devices/system/cpu/cpufreq/policy4/scaling_max_freq") == 2419200
