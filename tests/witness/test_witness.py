"""The agent against AOSP's own adbd, mksh and toybox: probe, runs, faults, restoring, a whole lab.

The phone's processor is that of this computer, which others use too. So a run must not fail, and
may be objected to only because of other work on this computer.
"""

import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from agent.deadline import Deadline
from agent.lane import run_attempt
from agent.lane_context import LaneContext
from agent.phone.adb import AdbServer
from agent.phone.phone_driver import Phone
from agent.phone.phone_paths import PLAN, lane_file
from agent.phone.shell_command import write_node_command
from agent.restore.restore_journal import journal_file
from agent.restore.restore_leftovers import restore_leftovers
from agent.restore.restore_session import RestoreSession
from agent.restore.reversible_change import ChangeKind, ReversibleChange
from agent.timeouts import DEFAULT_TIMEOUTS
from tests.agent.jobs import a_job
from tests.agent.virtual_phones import keep_connected
from tests.busy_computer import BUSY_COMPUTER, assert_accepted
from tests.witness.applets import RELEASES, commands_of, needed_commands
from tests.witness.conftest import AndroidParts, StartWitness, connect
from tests.witness.witness_phone import WitnessPhone
from workloads.protocol.faults import Blame, FaultKind, PhoneTrouble
from workloads.protocol.messages import Report

pytestmark = pytest.mark.slow

RUN: dict[str, Any] = {"cores": "all1", "start_temp_max_c": None, "time_min_s": 6}
FIRST_RUN_MAX_S = 60.0
FARM = (sys.executable, "-m", "orchestrator")
SWEEP = """\
farm: 1
name: witness
workload: mlp-4
phones: all
conditions:
  cores: all1
  freq: free
  start_temp_max_c: any
  time_min: 2s
repeat: 1
"""
MAX_FREQ = "/sys/devices/system/cpu/cpufreq/policy1/scaling_max_freq"


def assert_measured(report: Report) -> None:
    assert report.fault is None, report.fault
    assert report.verdict is not None
    assert {reason.code for reason in report.verdict.reasons} <= BUSY_COMPUTER, report.verdict
    assert report.restore_error is None


def run_with(
    witness: WitnessPhone,
    adb: AdbServer,
    phone: Phone,
    context: LaneContext,
    at_half: Callable[[], None] = lambda: None,
    **condition: Any,
) -> Report:
    """Run one attempt, and do something in the middle of its timed part."""
    reports: list[Report] = []
    job = a_job(phone.facts.serial, **{**RUN, "freq": "free", **condition})
    lane = threading.Thread(
        target=lambda: reports.append(run_attempt(job, phone, context).report), name="lane"
    )
    with keep_connected(adb, witness.address):
        lane.start()
        deadline = Deadline.after(300)
        while context.status.steps is None and lane.is_alive():
            assert not deadline.expired
            time.sleep(0.02)
        at_half()
        lane.join(timeout=300)
    assert reports, "the lane did not end"
    return reports[0]


@pytest.mark.parametrize(
    ("uid", "layout", "rooted"),
    [(2000, {}, False), (2000, {"rooted": True}, True), (0, {}, True)],
    ids=["shell", "su", "adb root"],
)
def test_a_phone_is_probed_and_measured(
    adb: AdbServer,
    start_witness: StartWitness,
    context: LaneContext,
    uid: int,
    layout: dict[str, bool],
    rooted: bool,
) -> None:
    witness = start_witness(uid, **layout)
    phone = connect(adb, witness)
    facts = phone.facts
    assert (facts.rooted, facts.clocks_writable) == (rooted, rooted)
    assert [cluster.cpus for cluster in facts.clusters] == [(0,), (1,)]
    names = {zone.type for zone in facts.cpu_zones}
    assert names == {"cpu-0-0-usr", "cpuss-0-usr", "cpu-1-0-usr"}  # not the charge of the battery
    assert facts.body_zone is not None
    assert facts.body_zone.type == "quiet_therm"
    before = framework_state(phone)
    report = run_with(witness, adb, phone, context, freq="mid" if rooted else "free")
    assert_measured(report)
    assert framework_state(phone) == before


@pytest.mark.parametrize("cores", ["all1", "all2"])
def test_runs_on_one_and_two_cores_are_accepted(
    adb: AdbServer, start_witness: StartWitness, context: LaneContext, cores: str
) -> None:
    """Cold, and for twenty seconds without a pause."""
    witness = start_witness()
    phone = connect(adb, witness)
    for fence, protocol in enumerate(("cold", "endurance"), 1):
        seconds = 6 if protocol == "cold" else 20
        report = run_with(
            *(witness, adb, phone, context),
            cores=cores,
            protocol=protocol,
            time_min_s=seconds,
            fence=fence,
        )
        assert report.verdict is not None, report.fault
        assert_accepted(report.verdict)
        assert report.applied.threads == int(cores[-1])


def framework_state(phone: Phone) -> list[str]:
    """The settings and clocks that a run changes."""
    queries = (["settings", "list", "global"], ["settings", "list", "system"], ["cat", MAX_FREQ])
    return ["".join(sorted(phone.shell(words).text.splitlines(True))) for words in queries]


def test_hidden_nodes_are_named_not_guessed(
    adb: AdbServer, start_witness: StartWitness, context: LaneContext
) -> None:
    witness = start_witness(hidden=True)
    phone = connect(adb, witness)
    assert not phone.facts.cpu_zones
    report = run_with(witness, adb, phone, context, start_temp_max_c=35.0)
    assert report.fault is not None
    assert report.fault.kind is FaultKind.SENSOR_MISSING
    assert run_with(witness, adb, phone, context).fault is None


def test_a_pulled_cable_and_a_dead_adbd_do_not_cost_the_run(
    adb: AdbServer, start_witness: StartWitness, context: LaneContext
) -> None:
    witness = start_witness()
    phone = connect(adb, witness)

    def pull() -> None:
        witness.unplug()
        time.sleep(2)
        witness.plug()

    assert_measured(run_with(witness, adb, phone, context, pull, time_min_s=8))
    assert_measured(run_with(witness, adb, phone, context, witness.end_adbd, time_min_s=8, fence=2))


@pytest.mark.parametrize("rooted", [False, True])
def test_a_phone_that_kills_everything_is_blamed_and_restored(
    adb: AdbServer, start_witness: StartWitness, context: LaneContext, rooted: bool
) -> None:
    witness = start_witness(rooted=rooted)
    phone = connect(adb, witness)
    before = framework_state(phone)
    freq = "mid" if rooted else "free"
    report = run_with(witness, adb, phone, context, witness.end_everything, freq=freq)
    assert report.fault is not None
    kinds = (report.fault.blame, report.fault.kind)
    assert kinds == (Blame.PHONE, FaultKind.PROCESSES_KILLED)
    restore_leftovers(phone, context.state_dir)
    assert framework_state(phone) == before


def test_a_reboot_is_noticed_and_settings_are_restored(
    adb: AdbServer, start_witness: StartWitness, context: LaneContext
) -> None:
    witness = start_witness(rooted=True)
    phone = connect(adb, witness)
    before = framework_state(phone)
    report = run_with(witness, adb, phone, context, witness.reboot, freq="mid", time_min_s=8)
    assert report.fault is not None
    assert report.fault.kind is FaultKind.RESTARTED
    with keep_connected(adb, witness.address):
        restore_leftovers(phone, context.state_dir)
        assert framework_state(phone) == before
    assert not journal_file(context.state_dir, phone.facts.serial).exists()


def test_a_cancelled_run_stops_and_is_restored(
    adb: AdbServer, start_witness: StartWitness, context: LaneContext
) -> None:
    witness = start_witness(rooted=True)
    phone = connect(adb, witness)
    before = framework_state(phone)
    report = run_with(witness, adb, phone, context, context.cancel.set, freq="mid", time_min_s=20)
    assert report.fault is not None
    assert report.fault.kind is FaultKind.CANCELLED
    assert phone.shell(["pgrep", "-f", f"run {lane_file(PLAN)}"]).status == 1
    assert framework_state(phone) == before


def test_a_silent_agent_is_replaced_by_the_watchdog(
    adb: AdbServer, android: AndroidParts, start_witness: StartWitness, tmp_path: Path
) -> None:
    """No heartbeat: the watchdog on the phone restores the clocks while the cable is out."""
    witness = start_witness(rooted=True)
    phone = connect(adb, witness)
    phone.timeouts = replace(DEFAULT_TIMEOUTS, watchdog_timeout_s=3.0 * android.slowness)
    old = phone.shell_checked(["cat", MAX_FREQ]).strip()
    session = RestoreSession(phone, 1, tmp_path / "state")
    runner = f"/data/local/tmp/farmhand/runner-{phone.facts.runner[:12]}"
    session.begin(runner, phone.boot_id())
    change = ReversibleChange(kind=ChangeKind.NODE, key=MAX_FREQ, old=old)
    session.journal.record_changes([change])
    phone.shell_batch([write_node_command(MAX_FREQ, "691200")])
    assert phone.shell_checked(["cat", MAX_FREQ]).strip() == "691200"
    witness.unplug()
    time.sleep(8 * android.slowness)
    witness.plug()
    with keep_connected(adb, witness.address):
        assert keeps_trying(phone, ["cat", MAX_FREQ]).strip() == old


def keeps_trying(phone: Phone, words: list[str]) -> str:
    """Run a command as soon as the phone answers again."""
    deadline = Deadline.after(60)
    while True:
        try:
            return phone.shell_checked(words, Deadline.after(10))
        except PhoneTrouble:
            assert not deadline.expired
            time.sleep(0.2)


def test_a_whole_lab_measures_unknown_phones(
    android: AndroidParts, start_witness: StartWitness, tmp_path: Path
) -> None:
    """From connecting an unknown phone to its first accepted run, with a quick commission: under a
    minute on a computer without other work. A second phone joins the lab later.
    """
    phones = [start_witness(), start_witness(rooted=True)]
    lab, sweep = ("--lab", str(tmp_path / "lab")), tmp_path / "sweep.yaml"
    sweep.write_text(SWEEP)
    (tmp_path / "lab").mkdir()
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    (tmp_path / "lab" / "lab.toml").write_text(f"[agent]\nadb_port = {port}\n")
    moments = [time.monotonic()]
    command = [*FARM, "up", *lab, "--connect", phones[0].address]
    # The host of a lab is not the phone: its work keeps off the core that runs are measured on.
    process = subprocess.Popen(["taskset", "1", *command], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert any(line.startswith("1 phone") for line in process.stdout)
        moments.append(time.monotonic())
        commissioning_s = commission("WITNESS0", lab)
        assert commissioning_s is not None
        moments.append(time.monotonic())
        farm("sweep", "submit", str(sweep), *lab)
        assert "done=1" in farm("watch", "witness", *lab)
        moments.append(time.monotonic())
        spent_s = [later - sooner for sooner, later in pairwise(moments)]
        (trial,) = json.loads(farm("trial", "list", "witness", "--json", *lab))
        (shown,) = json.loads(farm("trial", "show", trial["id"], "--json", *lab))["reports"]
        verdict = Report.model_validate(shown).verdict
        assert verdict is not None
        assert_accepted(verdict)
        # connecting, commissioning without its disturbed attempts, measuring
        spent_s[1] = commissioning_s
        assert sum(spent_s) < FIRST_RUN_MAX_S * android.slowness, (spent_s, os.getloadavg())
        assert "is connected" in farm("phone", "connect", phones[1].address, *lab)
        commission("WITNESS1", lab)  # the sweep that follows runs in any case
        sweep.write_text(SWEEP.replace("name: witness", "name: both"))
        farm("sweep", "submit", str(sweep), *lab)
        assert "done=2" in farm("watch", "both", *lab)
    finally:
        process.terminate()
        process.wait(timeout=30)
        with socket.create_connection(("127.0.0.1", port)) as server:
            server.sendall(b"0009host:kill")


def commission(serial: str, lab: tuple[str, str]) -> float | None:
    """Repeat it while the run is disturbed, as the sentence says: this computer holds no clock.

    Returns how long the successful attempt took.
    """
    for _ in range(3):
        started = time.monotonic()
        done = run_farm("phone", "commission", serial, "--quick", *lab)
        if done.returncode == 0:
            assert "is commissioned" in done.stdout
            return time.monotonic() - started
        assert done.returncode == 5, done.stderr  # a check failed
        assert "a run was disturbed" in done.stderr
    return None


def run_farm(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [*FARM, *arguments], capture_output=True, text=True, timeout=400, check=False
    )


def farm(*arguments: str) -> str:
    done = run_farm(*arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_shell_line_runs_on_android_6_to_16(
    adb: AdbServer, start_witness: StartWitness, context: LaneContext
) -> None:
    """The lines are taken from the packets that adb sent to the phone."""
    needed: set[tuple[str, bool]] = set()
    for rooted in (False, True):
        witness = start_witness(rooted=rooted)
        phone = connect(adb, witness)
        assert (
            run_with(witness, adb, phone, context, freq="mid" if rooted else "free").fault is None
        )
        lines = [line for line in witness.shell_lines() if not line.startswith("farm=")]
        assert len(lines) > 100
        needed |= {found for line in lines for found in needed_commands(line)}
    required = {name for name, optional in needed if not optional}
    assert {"taskset", "setsid", "grep", "getprop", "settings", "sh"} <= required
    # Android 6 and 7 compute digests with sha1sum, and `su` is there only with root. Phones before
    # Android 8 have no lshal; then they have no power statistics.
    known = {"sha256sum", "su", "lshal"}
    missing = {release: sorted(required - commands_of(release) - known) for release in RELEASES}
    assert not any(missing.values()), missing
