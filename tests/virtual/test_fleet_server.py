"""`farm virtual`: many phones in one process, a ready file, a clean end, a witness each."""

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
from agent.virtual.shelf import ShelfPlan, shelf_process
from tests.virtual.conftest import StartPhone, Witness
from tests.virtual.host import WAIT_S, AdbHost, PhoneAt, free_ports, until


def test_list_names_every_profile() -> None:
    listed = CliRunner().invoke(virtual, ["list"]).output
    standing = {line.split()[0]: line.split()[-1] for line in listed.splitlines()}
    named = "meizu-16t xiaomi-mi-9 samsung-s8-plus redmi-note-9-pro huawei-mate-30 huawei-honor-8"
    named += " oneplus-nord oneplus-6 oneplus-8-pro nvidia-tx2"
    assert set(named.split()) <= set(standing)
    assert {"meizu-16t", "samsung-s8-plus", "oneplus-6"} == {
        name for name, how in standing.items() if how == "calibrated"
    }


@pytest.mark.parametrize("words", [["up"], ["up", "nokia_3310"], ["up", "huawei-honor-8:golden"]])
def test_a_wrong_question_is_answered_with_the_choices(words: list[str]) -> None:
    said = CliRunner().invoke(virtual, words)
    assert said.exit_code == 2
    assert "meizu-16t" in said.output or "say stock, userdebug, native" in said.output


def test_a_port_that_adb_scans_is_refused() -> None:
    said = CliRunner().invoke(virtual, ["up", "huawei-honor-8", "--port-base", "5555"])
    assert said.exit_code == 1
    assert "scans" in said.output


def test_phones_start_say_where_they_are_and_stop(tmp_path: Path) -> None:
    ready = tmp_path / "ready.json"
    base = free_ports(4)
    command = [sys.executable, "-m", "agent.virtual", "up", "huawei-honor-8", "meizu-16t"]
    command += ["--count", "2", "--port-base", str(base), "--ready-file", str(ready)]
    command += ["--journal", str(tmp_path / "journal")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        until(ready.exists, "all phones listen")
        told = json.loads(ready.read_text())
        process.send_signal(signal.SIGTERM)
        printed, _ = process.communicate(timeout=WAIT_S)
    assert process.returncode == 0
    serials = ["VHON80001", "VHON80002", "VM16T0001", "VM16T0002"]
    assert serials == [entry["serial"] for entry in told]
    assert [f"127.0.0.1:{base + n}" for n in range(4)] == [entry["address"] for entry in told]
    lines = [f"{entry['serial']} {entry['profile']} {entry['address']}" for entry in told]
    assert lines == printed.splitlines()
    for serial in serials:
        events = (tmp_path / "journal" / f"{serial}.jsonl").read_text().splitlines()
        assert ["boot", "off"] == [json.loads(line)["event"] for line in events]


def test_an_idle_shelf_costs_nothing(host: AdbHost) -> None:
    with shelf_process(ShelfPlan(("meizu-16t", "huawei-honor-8"), speed=100.0)) as addresses:
        phone = PhoneAt(host, addresses[0].address)
        host.adb("connect", phone.address)
        pid = owner_of(addresses[0].address)
        before = cpu_s(pid)
        time.sleep(0.5)
        assert cpu_s(pid) - before <= 0.02
        host.adb("disconnect", phone.address)


def owner_of(address: str) -> int:
    """The process that we started for an address: our child that holds its port."""
    children = Path(f"/proc/{os.getpid()}/task")
    pids = {pid for task in children.iterdir() for pid in (task / "children").read_text().split()}
    for pid in pids:
        if "agent.virtual" in Path(f"/proc/{pid}/cmdline").read_text():
            return int(pid)
    raise AssertionError(f"nobody holds {address}")


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_units_of_one_model_differ_and_the_first_is_nominal(host: AdbHost) -> None:
    with shelf_process(ShelfPlan(("huawei-honor-8",), count=2, speed=50.0)) as addresses:
        phones = [PhoneAt(host, address.address) for address in addresses]
        for phone in phones:
            host.adb("connect", phone.address)
        serials = [phone.out("getprop ro.serialno") for phone in phones]
        boots = {phone.out("cat /proc/sys/kernel/random/boot_id") for phone in phones}
        for phone in phones:
            host.adb("disconnect", phone.address)
    assert ["VHON80001", "VHON80002"] == serials
    assert len(boots) == 2


def test_the_witness_has_three_clocks(start_phone: StartPhone, witness: Witness) -> None:
    phone = start_phone(speed=100.0)
    phone.run("nope; sleep 50; nope")
    first, second = witness("unknown_command")
    model = float(str(second["model_s"])) - float(str(first["model_s"]))
    host_s = (int(str(second["host_ns"])) - int(str(first["host_ns"]))) / 1e9
    assert 50 <= model < 70
    assert model == pytest.approx(host_s * 100, rel=0.2)
    assert str(first["wall"]).endswith("+00:00")
    assert [entry["event"] for entry in witness("boot", "connect")] == ["boot", "connect"]
