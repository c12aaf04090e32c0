"""`farm virtual`: many phones in one process, a ready file, a clean stop, a journal per phone."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from agent.virtual.cli import virtual
from agent.virtual.fleet_server import FleetConfig
from tests.virtual.adb_host import (
    WAIT_S,
    AdbHost,
    AdbPhone,
    child_pid,
    free_ports,
    wait_until,
)
from tests.virtual.conftest import JournalReader, StartPhone
from tests.virtual.running_fleet import serve_fleet_in_process
from workloads.cli_options import EVENT_TIME


def test_list_names_every_profile() -> None:
    output = CliRunner().invoke(virtual, ["list"]).output
    kinds = ("calibrated", "extrapolated", "uncalibrated")
    calibration = {
        words[0]: next(word.strip(",:;") for word in words if word.strip(",:;") in kinds)
        for words in map(str.split, output.splitlines())
        if any(word.strip(",:;") in kinds for word in words)
    }
    named = "meizu-16t xiaomi-mi-9 samsung-s8-plus redmi-note-9-pro huawei-mate-30 huawei-honor-8"
    named += " oneplus-nord oneplus-6 oneplus-8-pro nvidia-tx2"
    assert set(named.split()) <= set(calibration)
    assert {name for name, kind in calibration.items() if kind == "calibrated"} == {
        "meizu-16t",
        "samsung-s8-plus",
        "oneplus-6",
    }


@pytest.mark.parametrize("words", [["up"], ["up", "nokia_3310"], ["up", "huawei-honor-8:golden"]])
def test_an_invalid_argument_is_refused_with_the_choices(words: list[str]) -> None:
    result = CliRunner().invoke(virtual, words)
    assert result.exit_code == 2
    assert "meizu-16t" in result.output or "stock, userdebug, native" in result.output


def test_a_port_that_adb_scans_is_refused() -> None:
    result = CliRunner().invoke(virtual, ["up", "huawei-honor-8", "--port-base", "5555"])
    assert result.exit_code == 1
    assert "5555" in result.output


def test_phones_start_print_their_addresses_and_stop(tmp_path: Path) -> None:
    ready = tmp_path / "ready.json"
    base = free_ports(4)
    command = [sys.executable, "-m", "agent.virtual", "up", "huawei-honor-8", "meizu-16t"]
    command += ["--count", "2", "--port-base", str(base), "--ready-file", str(ready)]
    command += ["--journal", str(tmp_path / "journal")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        wait_until(ready.exists, "all phones listen")
        addresses = json.loads(ready.read_text())
        process.send_signal(signal.SIGTERM)
        printed, _ = process.communicate(timeout=WAIT_S)
    assert process.returncode == 0
    serials = ["VHON80001", "VHON80002", "VM16T0001", "VM16T0002"]
    assert [entry["serial"] for entry in addresses] == serials
    assert [entry["address"] for entry in addresses] == [f"127.0.0.1:{base + n}" for n in range(4)]
    lines = [f"{entry['serial']} {entry['profile']} {entry['address']}" for entry in addresses]
    assert printed.splitlines() == lines
    for serial in serials:
        events = (tmp_path / "journal" / f"{serial}.jsonl").read_text().splitlines()
        assert [json.loads(line)["event"] for line in events] == ["boot", "power_off"]


def test_an_idle_fleet_uses_hardly_any_cpu(host: AdbHost) -> None:
    with serve_fleet_in_process(
        FleetConfig(("meizu-16t", "huawei-honor-8"), speed=EVENT_TIME)
    ) as addresses:
        phone = AdbPhone(host, addresses[0].address)
        host.adb("connect", phone.address)
        pid = child_pid("agent.virtual")
        before = cpu_s(pid)
        time.sleep(0.5)
        assert cpu_s(pid) - before <= 0.1
        host.adb("disconnect", phone.address)


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_units_of_one_model_differ_and_the_first_is_nominal(host: AdbHost) -> None:
    with serve_fleet_in_process(
        FleetConfig(("huawei-honor-8",), count=2, speed=EVENT_TIME)
    ) as addresses:
        phones = [AdbPhone(host, address.address) for address in addresses]
        for phone in phones:
            host.adb("connect", phone.address)
        serials = [phone.out("getprop ro.serialno") for phone in phones]
        boots = {phone.out("cat /proc/sys/kernel/random/boot_id") for phone in phones}
        for phone in phones:
            host.adb("disconnect", phone.address)
    assert serials == ["VHON80001", "VHON80002"]
    assert len(boots) == 2


def test_journal_events_have_three_clocks(
    start_phone: StartPhone, journal_events: JournalReader
) -> None:
    phone = start_phone()
    phone.run("nope; sleep 50; nope")
    first, second = journal_events("unknown_command")
    model = float(str(second["model_s"])) - float(str(first["model_s"]))
    assert model == pytest.approx(50, abs=0.01)
    assert int(str(second["host_ns"])) > int(str(first["host_ns"]))
    assert str(first["wall_time"]).endswith("+00:00")
    assert [entry["event"] for entry in journal_events("boot", "adb_connect")] == [
        "boot",
        "adb_connect",
    ]
