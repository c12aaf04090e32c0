"""Kernel nodes of this computer on a native phone: what is shown, written and restored."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import pytest

from agent.virtual.fleet_server import FleetConfig
from agent.virtual.native.host_nodes import find_host_nodes
from agent.virtual.native.node_restorer import NodeRestorer
from tests.linux_boards import (
    POLICY,
    Board,
    jetson_orin,
    jetson_tx2,
    laptop,
    live_board,
    raspberry_pi_4,
)
from tests.virtual.adb_host import AdbHost, AdbPhone, child_pid, wait_until
from tests.virtual.conftest import JournalReader
from tests.virtual.running_fleet import serve_fleet_in_process, serve_fleet_in_thread

CONFIG = FleetConfig(("meizu-16t:native",))
LIMIT = f"{POLICY.format(0)}/scaling_max_freq"
StartBoard = Callable[[Callable[[Board], None]], tuple[Board, AdbPhone]]


@pytest.fixture
def start_board(
    host: AdbHost, journal: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[StartBoard]:
    """Start a native phone on the nodes of a board."""
    with ExitStack() as stack:

        def start(build: Callable[[Board], None]) -> tuple[Board, AdbPhone]:
            board = stack.enter_context(live_board(build))
            monkeypatch.setenv("FARM_NATIVE_SYSFS", str(board.sysfs))
            config = FleetConfig(("meizu-16t:native",), journal=journal)
            _, (address,) = stack.enter_context(serve_fleet_in_thread(config))
            stack.callback(host.adb, "disconnect", address.address)
            assert "connected" in host.adb("connect", address.address).out
            return board, AdbPhone(host, address.address)

        yield start


def run_lines(phone: AdbPhone, lines: str) -> str:
    """Send lines to an open shell, as the agent does, and return its output."""
    shell = phone.shell()
    shell.send(lines)
    return shell.end().out


def test_listed_nodes_are_shown_and_no_others(start_board: StartBoard) -> None:
    board, phone = start_board(jetson_tx2)
    board.add("kernel/notes", "hidden")
    board.add("class/thermal/thermal_zone0/policy", "step_wise")
    assert phone.out("cat /sys/class/thermal/thermal_zone0/type") == "BCPU-therm"
    assert phone.number("/sys/class/thermal/thermal_zone0/temp") > 30_000
    assert phone.out("cat /sys/bus/i2c/drivers/ina3221x/0-0041/iio:device1/rail_name_0") == "VDD_IN"
    assert phone.out("cat /sys/class/devfreq/17000000.gp10b/governor") == "nvhost_podgov"
    assert phone.out("ls /sys | sort") == "bus\nclass\ndevices"
    for absent in ("kernel/notes", "class/thermal/thermal_zone0/policy", "firmware"):
        assert phone.run(f"cat /sys/{absent}").status != 0
    assert phone.out("getprop ro.product.model") == "quill"
    assert phone.out("getprop ro.soc.model") == "nvidia,tegra186"


def test_a_clock_limit_is_written_over_adb(
    start_board: StartBoard, journal_events: JournalReader
) -> None:
    board, phone = start_board(raspberry_pi_4)
    assert phone.run(f"test -w /sys/{LIMIT}").status == 0
    written = f"echo 900000 </dev/null >/sys/{LIMIT} 2>&1\necho $?; cat /sys/{LIMIT}\n"
    assert run_lines(phone, written).split() == ["0", "900000"]
    assert board.read(LIMIT) == "900000"
    assert phone.run(f"echo 1000000 > /sys/{LIMIT}")[:2] == (0, "")
    assert phone.out(f"cat /sys/{LIMIT}") == board.read(LIMIT) == "1000000"
    writes = [(entry["old"], entry["new"]) for entry in journal_events("sysfs_write")]
    assert writes == [("1500000", "900000"), ("900000", "1000000")]


def test_writes_are_executed_in_their_turn(start_board: StartBoard) -> None:
    _, phone = start_board(raspberry_pi_4)
    script = "".join(
        f"sleep 0.02; cat /sys/{LIMIT}\necho {khz} > /sys/{LIMIT}\n"
        for khz in (700_000, 800_000, 900_000)
    )
    output = run_lines(phone, f"{script}cat /sys/{LIMIT}\n")
    assert output.split() == ["1500000", "700000", "800000", "900000"]


@pytest.mark.slow
def test_a_write_inside_a_compound_command_does_not_hang(start_board: StartBoard) -> None:
    board, phone = start_board(raspberry_pi_4)
    output = run_lines(phone, f"{{\necho 600000 > /sys/{LIMIT}\n}}\necho continued\n")
    assert output.endswith("continued\n")
    assert board.read(LIMIT) == "1500000"


def test_the_kernels_refusal_is_reported(start_board: StartBoard) -> None:
    def full(board: Board) -> None:
        raspberry_pi_4(board)
        (board.sysfs / LIMIT).unlink()
        (board.sysfs / LIMIT).symlink_to("/dev/full")
        board.policies.clear()

    _, phone = start_board(full)
    status, out, _ = phone.run(f"echo 900000 > /sys/{LIMIT}")
    assert (status, "No space left" in out) == (1, True)


@pytest.mark.parametrize(
    "node",
    [
        "class/thermal/cooling_device0/cur_state",  # listed, but not for writing
        f"{POLICY.format(0)}/cpuinfo_max_freq",
        "kernel/profiling",  # not listed
    ],
)
def test_other_nodes_cannot_be_written(start_board: StartBoard, node: str) -> None:
    board, phone = start_board(raspberry_pi_4)
    board.add("kernel/profiling", 0)
    before = board.read(node)
    if os.geteuid() == 0:  # another user may write its own files
        assert phone.run(f"echo 1 > /sys/{node}").status != 0
    assert phone.run(f"test -w /sys/{node}").status != 0 or os.geteuid() != 0
    if os.geteuid() == 0:
        assert board.read(node) == before


def test_a_program_on_the_phone_cannot_set_clocks(start_board: StartBoard) -> None:
    board, phone = start_board(raspberry_pi_4)
    for khz in (1_500_000, 900_000):  # unchanged, and changed over adb
        phone.out(f"echo {khz} > /sys/{LIMIT}")
        phone.out(f"sh -c 'printf 600000 > /sys/{LIMIT}'")
        truth = board.read(LIMIT)
        assert truth == str(khz)
        wait_until(partial(shows, phone, truth), "the copy is right again")


def shows(phone: AdbPhone, value: str) -> bool:
    """Return whether the limit has a value on the phone."""
    return phone.out(f"cat /sys/{LIMIT}") == value


def test_a_program_on_the_phone_can_restore(start_board: StartBoard) -> None:
    """The runner's watchdog writes the old value to the path in its list."""
    board, phone = start_board(raspberry_pi_4)
    phone.out(f"echo 600000 > /sys/{LIMIT}")
    assert board.read(LIMIT) == "600000"
    phone.out(f"sh -c 'printf 1500000 > /sys/{LIMIT}'")
    wait_until(lambda: board.read(LIMIT) == "1500000", "the old value is there again")


def test_lists_of_nodes_lead_into_the_phones_folder(start_board: StartBoard) -> None:
    _, phone = start_board(raspberry_pi_4)
    phone.put("/data/local/tmp/part", f"/sys/{LIMIT}\t1\n".encode())
    phone.out("mv -f /data/local/tmp/part /data/local/tmp/restore")
    assert phone.out("cat /data/local/tmp/restore") == f"/sys/{LIMIT}\t1"
    assert phone.out("cut -c1-4 /data/local/tmp/restore") != "/sys"
    assert phone.run("ls /data/local/tmp/part").status != 0


def test_clocks_are_restored_when_the_phone_ends_or_restarts(
    host: AdbHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    with live_board(jetson_tx2) as board:
        monkeypatch.setenv("FARM_NATIVE_SYSFS", str(board.sysfs))
        before = board.limits()
        with serve_fleet_in_thread(CONFIG) as (fleet, (address,)):
            host.adb("connect", address.address)
            phone = AdbPhone(host, address.address)
            _pin(phone)
            assert board.limits() != before
            folder = fleet.servers[0].phone.native
            assert folder is not None
            folder.boot("restarted")
            assert board.limits() == before
            _pin(phone)
            host.adb("disconnect", address.address)
        assert board.limits() == before


@pytest.mark.parametrize("restorer_dies_first", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_clocks_are_restored_when_the_phones_process_is_killed(
    host: AdbHost, monkeypatch: pytest.MonkeyPatch, restorer_dies_first: bool
) -> None:
    with live_board(jetson_tx2) as board:
        monkeypatch.setenv("FARM_NATIVE_SYSFS", str(board.sysfs))
        before = board.limits()
        with serve_fleet_in_process(CONFIG) as (address,):
            host.adb("connect", address.address)
            phone = AdbPhone(host, address.address)
            process = child_pid("agent.virtual")
            if restorer_dies_first:
                phone.out(f"echo 499200 > /sys/{LIMIT}")
                os.kill(_restorer_of(process), signal.SIGKILL)
            _pin(phone)
            assert board.limits() != before
            os.kill(process, signal.SIGKILL)
            wait_until(lambda: board.limits() == before, "the restorer has restored the clocks")
            host.adb("disconnect", address.address)


def _pin(phone: AdbPhone) -> None:
    for policy in (0, 1):
        for name, value in (
            ("governor", "performance"),
            ("max_freq", 806400),
            ("min_freq", 806400),
        ):
            phone.out(f"echo {value} > /sys/{POLICY.format(policy)}/scaling_{name}")


def _restorer_of(process: int) -> int:
    """Return the restorer of the process of a phone."""
    for children in Path(f"/proc/{process}/task").glob("*/children"):
        for child in map(int, children.read_text().split()):
            if "node_restorer.py" in Path(f"/proc/{child}/cmdline").read_text():
                return child
    raise AssertionError("the phone has no restorer")


def test_the_restorer_forgets_what_was_restored(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.write_text("new")
    second.write_text("new")
    restorer = NodeRestorer()
    restorer.record_change(first, "old")
    restorer.record_change(second, "old")
    restorer.record_restored(first)
    restorer.close()
    assert (first.read_text(), second.read_text()) == ("new", "old\n")


def test_a_counter_that_only_root_may_read_is_shown(start_board: StartBoard) -> None:
    _, phone = start_board(laptop)
    counter = "/sys/class/powercap/intel-rapl:0:0/energy_uj"
    first = phone.number(counter)
    wait_until(lambda: phone.number(counter) > first, "it counts")
    assert phone.out("cat /sys/class/powercap/intel-rapl:0/name") == "package-0"


def test_a_battery_has_the_name_that_it_has_on_phones(start_board: StartBoard) -> None:
    _, phone = start_board(laptop)
    assert phone.out("ls /sys/class/power_supply | sort") == "battery\nusb"
    assert phone.out("cat /sys/class/power_supply/battery/status") == "Not charging"
    assert phone.out("cat /sys/class/power_supply/usb/online") == "1"


@contextmanager
def a_board(tmp_path: Path) -> Iterator[Board]:
    board = Board(tmp_path / "sys")
    board.sysfs.mkdir()
    yield board
    board.close()


def test_of_several_batteries_none_is_shown(tmp_path: Path) -> None:
    with a_board(tmp_path) as board:
        for name in ("BAT0", "BAT1"):
            board.add(f"class/power_supply/{name}/type", "Battery")
            board.add(f"class/power_supply/{name}/capacity", 50)
        assert find_host_nodes(board.sysfs) == []


def test_disks_are_left_alone(tmp_path: Path) -> None:
    with a_board(tmp_path) as board:
        for number, chip in enumerate(("drivetemp", "nvme", "k10temp")):
            board.add(f"class/hwmon/hwmon{number}/name", chip)
            board.add(f"class/hwmon/hwmon{number}/temp1_input", 30_000)
        shown = [node.shown_as for node in find_host_nodes(board.sysfs)]
        assert shown == ["class/hwmon/hwmon2/name", "class/hwmon/hwmon2/temp1_input"]


def test_throttling_by_the_firmware_is_shown_in_one_place(tmp_path: Path) -> None:
    with a_board(tmp_path) as board:
        board.add("devices/platform/soc@107c000000/soc@107c000000:firmware/get_throttled", 0)
        (node,) = find_host_nodes(board.sysfs)
        assert node.shown_as == "devices/platform/soc/soc:firmware/get_throttled"


def test_clocks_of_old_kernels_are_shown_as_policies(tmp_path: Path) -> None:
    with a_board(tmp_path) as board:
        for cpu in range(4):
            folder = f"devices/system/cpu/cpu{cpu}/cpufreq"
            board.add(f"{folder}/related_cpus", "0 1" if cpu < 2 else "2 3")
            board.add(f"{folder}/scaling_max_freq", 1_000_000)
        nodes = find_host_nodes(board.sysfs)
        limits = [node for node in nodes if node.may_write]
        assert [node.shown_as for node in limits] == [
            f"{POLICY.format(number)}/scaling_max_freq" for number in (0, 2)
        ]
        assert [node.path.parent.parent.name for node in limits] == ["cpu0", "cpu2"]


def test_rails_of_new_kernels_are_shown(start_board: StartBoard) -> None:
    _, phone = start_board(jetson_orin)
    assert phone.out("cat /sys/class/hwmon/hwmon1/in1_label") == "VDD_IN"
    assert phone.number("/sys/class/hwmon/hwmon1/curr1_input") > 0
    assert phone.run("cat /sys/class/hwmon/hwmon1/in7_label").status != 0
    assert phone.out("getprop ro.product.model") == "NVIDIA Jetson Orin Nano Developer Kit"
