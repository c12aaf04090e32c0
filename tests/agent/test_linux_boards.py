"""Boards and laptops as phones: probed, pinned, cooled, judged and restored like a phone."""

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from agent.lane import run_attempt
from agent.lane_context import LaneContext
from agent.phone.adb import AdbServer
from agent.phone.phone_driver import Phone
from agent.restore.restore_leftovers import restore_leftovers
from agent.virtual.fleet_server import FleetConfig
from tests.agent.jobs import a_job
from tests.agent.virtual_phones import open_phone
from tests.linux_boards import (
    POLICY,
    REST_C,
    Board,
    add_rapl,
    jetson_orin,
    jetson_tx2,
    laptop,
    live_board,
    raspberry_pi_4,
)
from tests.virtual.adb_host import wait_until
from tests.virtual.running_fleet import serve_fleet_in_thread
from workloads.protocol.messages import Report
from workloads.protocol.metrics import Source
from workloads.protocol.phone_facts import ControlLevel
from workloads.protocol.stage import Stage
from workloads.protocol.verdict import ReasonCode, Validity

# Other work on this computer may make any run suspect.
BUSY_HOST = {
    ReasonCode.OTHER_CORES_BUSY,
    ReasonCode.OWN_CORES_SHARED,
    ReasonCode.BODY_WARMED,
    ReasonCode.STEP_TIMES_CHANGED,
    ReasonCode.STEP_TIMES_TWO_MODES,
}
QUICK: dict[str, Any] = {
    "cores": "mask:1",
    "freq": "mid",
    "start_temp_max_c": None,
    "time_min_s": 1.0,
}
THROTTLED = "devices/platform/soc/soc:firmware/get_throttled"


@contextmanager
def board_as_phone(
    adb: AdbServer, monkeypatch: pytest.MonkeyPatch, build: Callable[[Board], None]
) -> Iterator[tuple[Board, Phone]]:
    """Start a native phone on the nodes of a board, and probe it."""
    with live_board(build) as board:
        monkeypatch.setenv("FARM_NATIVE_SYSFS", str(board.sysfs))
        with serve_fleet_in_thread(FleetConfig(("meizu-16t:native",))) as (_, (address,)):
            phone = open_phone(adb, address.address)
            yield board, phone
            phone.close()
            adb.disconnect(address.address)


def attempt(phone: Phone, context: LaneContext, **condition: Any) -> Report:
    """Run one attempt that must not fail."""
    job = a_job(phone.facts.serial, **{**QUICK, **condition})
    report = run_attempt(job, phone, context).report
    assert report.fault is None, report.fault
    assert report.restore_error is None
    return report


def codes(report: Report) -> set[ReasonCode]:
    """Return the reasons of a verdict that this computer's other work does not cause."""
    assert report.verdict is not None
    return {reason.code for reason in report.verdict.reasons} - BUSY_HOST


def figures(report: Report) -> dict[str, float]:
    """Return the metrics, all measured on this host."""
    assert {metric.provenance.source for metric in report.metrics} == {Source.HOST}
    return {metric.name: metric.value for metric in report.metrics}


def test_a_jetson_tx2_is_measured_like_a_phone(
    adb: AdbServer, monkeypatch: pytest.MonkeyPatch, context: LaneContext
) -> None:
    with board_as_phone(adb, monkeypatch, jetson_tx2) as (board, phone):
        facts, before = phone.facts, board.limits()
        assert [cluster.cpus for cluster in facts.clusters] == [(0, 3, 4, 5), (1, 2)]
        assert facts.clusters[0].ladder_khz[-1] == 2_035_200
        assert [zone.type for zone in facts.cpu_zones] == ["BCPU-therm", "MCPU-therm"]
        assert facts.body_zone is not None
        assert facts.body_zone.type == "Tboard_tegra"
        assert facts.gpu is not None
        assert (facts.gpu.ladder_khz[-1], facts.gpu.writable) == (1_300_500, True)
        assert (facts.control, facts.clocks_writable) == (ControlLevel.PARTIAL, True)
        report = attempt(phone, context, gpu_freq="high")
        assert board.limits() == before
        assert board.read("class/devfreq/17000000.gp10b/governor") == "nvhost_podgov"
    assert report.applied.clocks_khz == {0: 1_267_200}
    assert report.applied.gpu_khz == 1_300_500
    values = figures(report)
    assert values["pinned_clock_share"] > 0.98
    assert REST_C - 1 < values["start_temp_c"] < values["peak_temp_c"]
    assert values["rail_power_w.VDD_IN"] == pytest.approx(9, rel=0.1)
    assert values["rail_power_w.VDD_SYS_CPU"] == pytest.approx(4.5, rel=0.1)
    assert values["power_w"] == pytest.approx(values["rail_power_w.VDD_IN"], rel=0.05)
    assert {m.grade for m in report.metrics if m.name == "energy_j"} == {"rail"}
    assert values["gpu_util_pct"] == 25
    assert codes(report) == {ReasonCode.GPU_SHARED}


def test_a_laptop_on_mains_counts_the_energy_of_its_processor(
    adb: AdbServer, monkeypatch: pytest.MonkeyPatch, context: LaneContext
) -> None:
    with board_as_phone(adb, monkeypatch, laptop) as (board, phone):
        facts, before = phone.facts, board.limits()
        # The base clock is the highest that the processor can hold.
        assert [cluster.ladder_khz[-1] for cluster in facts.clusters] == [1_800_000, 1_300_000]
        assert facts.clusters[0].capacity > facts.clusters[1].capacity
        assert [zone.type for zone in facts.cpu_zones] == ["x86_pkg_temp"]
        report = attempt(phone, context, freq="high", time_min_s=2.0)
        assert board.limits() == before
    assert report.applied.clocks_khz == {0: 1_800_000}
    values = figures(report)
    assert values["power_w"] == pytest.approx(9, rel=0.1)
    assert values["rail_power_w.package_0_core"] == pytest.approx(4.5, rel=0.1)
    assert {m.grade for m in report.metrics if m.name == "energy_j"} == {"rapl"}
    assert "steps_per_charge" not in values  # the battery feeds more than the processor
    assert codes(report) == {ReasonCode.ENERGY_PACKAGE_ONLY, ReasonCode.CLOCKS_ONLY_SAMPLED}


def test_a_raspberry_pi_names_what_it_lacks(
    adb: AdbServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with board_as_phone(adb, monkeypatch, raspberry_pi_4) as (_, phone):
        facts = phone.facts
    assert facts.model == "Native Raspberry Pi 4 Model B Rev 1.4"
    assert facts.soc == "brcm,bcm2711"
    assert facts.clusters[0].ladder_khz == tuple(range(600_000, 1_500_001, 100_000))
    missing = "; ".join(facts.uncontrolled)
    assert "no GPU clock was found" in missing
    assert "no energy: there is no battery gauge, input rail or energy counter" in missing
    assert "charging" not in missing
    assert facts.provenance is not None
    assert facts.provenance.energy is None
    assert facts.provenance.heat is not None


@pytest.mark.slow
def test_throttling_by_the_firmware_makes_a_run_suspect(
    adb: AdbServer, monkeypatch: pytest.MonkeyPatch, context: LaneContext
) -> None:
    """The clocks of a Raspberry Pi look right while its firmware lowers them."""
    with board_as_phone(adb, monkeypatch, raspberry_pi_4) as (board, phone):
        assert codes(attempt(phone, context)) == {ReasonCode.ENERGY_NOT_READ}
        board.set(THROTTLED, "50005")
        assert ReasonCode.COOLING_DEVICE_ACTIVE in codes(attempt(phone, context))


@pytest.mark.slow
@pytest.mark.parametrize("build", [jetson_tx2, jetson_orin, raspberry_pi_4])
def test_the_whole_lane_with_cooldown(
    adb: AdbServer,
    monkeypatch: pytest.MonkeyPatch,
    context: LaneContext,
    build: Callable[[Board], None],
) -> None:
    with board_as_phone(adb, monkeypatch, build) as (board, phone):
        before = board.limits()
        # A pinned board is warm; it has to cool down first.
        folder = POLICY.format(0)
        board.set(f"{folder}/scaling_min_freq", board.read(f"{folder}/scaling_max_freq"))
        zone = board.thermometers[0]
        wait_until(lambda: int(board.read(zone)) > 45_000, "it is warm")
        board.set(f"{folder}/scaling_min_freq", before[0][1])
        report = attempt(phone, context, start_temp_max_c=38.0, start_slope_max_c_per_min=30.0)
        assert board.limits() == before
    values = figures(report)
    assert values["start_temp_c"] < 39
    assert values["pinned_clock_share"] > 0.98
    assert report.stage_seconds[Stage.COOL] > 5
    if build is not raspberry_pi_4:
        assert 2 < values["idle_power_w"] < 6
        assert 0 < values["energy_net_j"] < values["energy_j"]


# A lane with a short watchdog that kills itself in its run.
LANE = """
import os, signal, sys
from dataclasses import replace
from pathlib import Path
from agent.lane import run_attempt
from agent.lane_context import LaneContext
from agent.lane_status import LaneStatus
from agent.phone.adb import AdbServer
from agent.timeouts import DEFAULT_TIMEOUTS
from tests.agent.jobs import a_job
from tests.agent.virtual_phones import open_phone

address, port, state = sys.argv[1:]

class StatusWithKill(LaneStatus):
    def show_progress(self, progress):
        os.kill(os.getpid(), signal.SIGKILL)

phone = open_phone(AdbServer(Path(state) / "adb", private=False, port=int(port)), address)
context = LaneContext("host-a", Path(state), status=StatusWithKill(), canary=False)
context.timeouts = replace(DEFAULT_TIMEOUTS, watchdog_timeout_s=3.0)
job = a_job(phone.facts.serial, cores="mask:1", freq="mid", start_temp_max_c=None, time_min_s=60)
run_attempt(job, phone, context)
"""


@pytest.mark.slow
def test_the_watchdog_restores_the_clocks_of_a_killed_agent(
    adb: AdbServer, monkeypatch: pytest.MonkeyPatch, context: LaneContext
) -> None:
    with board_as_phone(adb, monkeypatch, jetson_tx2) as (board, phone):
        before = board.limits()
        words = [phone.address, str(adb.port), str(context.state_dir)]
        lane = subprocess.run([sys.executable, "-c", LANE, *words], check=False, timeout=600)
        assert lane.returncode == -signal.SIGKILL
        assert board.limits() != before
        wait_until(lambda: board.limits() == before, "the runner's watchdog has restored them")
        assert phone.shell(["test", "-e", "/data/local/tmp/farmhand/lane/restored"]).status == 0
        assert restore_leftovers(phone, context.state_dir)
        assert board.limits() == before
        assert codes(attempt(phone, context)) == {ReasonCode.GPU_SHARED}  # as in every run on it


@pytest.mark.slow
def test_a_laptop_on_battery_uses_its_gauge(
    adb: AdbServer, monkeypatch: pytest.MonkeyPatch, context: LaneContext
) -> None:
    def on_battery(board: Board) -> None:
        laptop(board)
        board.set("class/power_supply/BAT0/status", "Discharging")
        board.set("class/power_supply/AC/online", 0)
        node = "class/power_supply/BAT0/current_now"
        board.meters.append(
            lambda watts, _: board.set(node, round(1e6 * (watts + 8) / 12))  # and the screen
        )

    with board_as_phone(adb, monkeypatch, on_battery) as (_, phone):
        warm = {"start_temp_max_c": 60.0, "start_slope_max_c_per_min": 60.0}
        report = attempt(phone, context, **warm, time_min_s=3.0)
    values = figures(report)
    assert {m.grade for m in report.metrics if m.name == "energy_j"} == {"gauge"}
    assert values["power_w"] == pytest.approx(17, rel=0.1)
    assert values["idle_power_w"] == pytest.approx(11, rel=0.1)
    assert values["rail_power_w.package_0"] == pytest.approx(9, rel=0.1)
    assert ReasonCode.ENERGY_PACKAGE_ONLY not in codes(report)


@pytest.mark.slow
def test_rails_of_a_board_come_before_the_counter_of_its_processor(
    adb: AdbServer, monkeypatch: pytest.MonkeyPatch, context: LaneContext
) -> None:
    def both(board: Board) -> None:
        jetson_orin(board)
        add_rapl(board)

    with board_as_phone(adb, monkeypatch, both) as (_, phone):
        report = attempt(phone, context)
    assert {m.grade for m in report.metrics if m.name == "energy_j"} == {"rail"}


def test_this_computer_names_what_it_lacks(
    adb: AdbServer, monkeypatch: pytest.MonkeyPatch, context: LaneContext, tmp_path: Path
) -> None:
    """Without prepared nodes: whatever the computer that runs this test has."""
    monkeypatch.delenv("FARM_NATIVE_SYSFS", raising=False)
    with serve_fleet_in_thread(FleetConfig(("meizu-16t:native",))) as (_, (address,)):
        phone = open_phone(adb, address.address)
        facts = phone.facts
        report = attempt(phone, context, freq="free")
        phone.close()
        adb.disconnect(address.address)
    missing, remarks = "; ".join(facts.uncontrolled), codes(report)
    assert facts.provenance is not None
    assert facts.clocks_writable or "CPU clocks" in missing
    for family, text, remark in (
        ("clock", "the kernel shows no CPU clocks", ReasonCode.CLOCKS_NOT_SHOWN),
        ("heat", "no CPU temperature can be read", ReasonCode.TEMP_NOT_SHOWN),
        ("energy", "no energy", ReasonCode.ENERGY_NOT_READ),
    ):
        is_missing = facts.provenance.for_family(family) is None
        assert (text in missing) >= is_missing
        assert (remark in remarks) >= is_missing
    assert report.verdict is not None
    assert report.verdict.validity is not Validity.VOID
    assert {metric.provenance.source for metric in report.metrics} == {Source.HOST}
