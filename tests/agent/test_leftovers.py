"""Settings that a killed agent left changed are restored by the next agent or by the phone."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from agent.deadline import Deadline
from agent.lane import run_attempt
from agent.lane_context import LaneContext
from agent.phone.adb import AdbServer
from agent.phone.phone_driver import Phone
from agent.phone.phone_paths import UPTIME, lane_file
from agent.prepare.quiesce import QUIET_SETTINGS, quiet_settings
from agent.restore.restore_journal import JournalRecord, journal_file, restore_changes
from agent.restore.restore_leftovers import restore_leftovers
from agent.restore.reversible_change import UNSET, ChangeKind, ReversibleChange, parse_changes
from agent.timeouts import DEFAULT_TIMEOUTS
from tests.agent.jobs import a_job
from tests.agent.lane_harness import PATIENT_TIMEOUTS, read_policy_states
from tests.agent.virtual_phones import VirtualPhone
from workloads.protocol.faults import ShellFailed

POLICIES = (0, 4, 7)
LANE = """
import sys
from dataclasses import replace
from pathlib import Path
from agent.lane import run_attempt
from agent.lane_context import LaneContext
from agent.phone.adb import AdbServer
from agent.timeouts import DEFAULT_TIMEOUTS
from tests.agent.jobs import a_job
from tests.agent.lane_harness import (PATIENT_TIMEOUTS, read_policy_states)
from tests.agent.virtual_phones import open_phone

address, port, state, timeout_s = sys.argv[1:]
server = AdbServer(Path(state) / "adb", private=False, port=int(port))
phone = open_phone(server, address)
timeouts = replace(DEFAULT_TIMEOUTS, watchdog_timeout_s=float(timeout_s))
context = LaneContext("host-a", Path(state), canary=False, timeouts=timeouts)
run_attempt(a_job(phone.facts.serial, protocol="endurance", time_min_s=7200), phone, context)
"""


class DeadLane:
    """A process that is killed while it has a lane."""

    def __init__(self, phone: Phone, virtual_phone: VirtualPhone, port: int, state: Path) -> None:
        self.phone, self.virtual_phone, self.port, self.state = phone, virtual_phone, port, state
        self.clocks = read_policy_states(phone, POLICIES)

    def die(self, timeout_s: float, event: str = "run_start") -> None:
        """Wait for an event of the lane, by default in its run, then kill the process."""
        words = [self.virtual_phone.address, str(self.port), str(self.state), str(timeout_s)]
        process = subprocess.Popen([sys.executable, "-c", LANE, *words])
        deadline = Deadline.after(120)
        while not self.virtual_phone.events(event):
            assert process.poll() is None
            assert not deadline.expired
            time.sleep(0.02)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        if event == "run_start":
            assert read_policy_states(self.phone, POLICIES) != self.clocks

    def check_settings(self) -> None:
        """Check that every setting has the value that it had before its first change."""
        settings = self.virtual_phone.events("setting_write")
        first = {event["name"]: event["old"] for event in reversed(settings)}
        assert first
        assert first == {event["name"]: event["new"] for event in settings}


def cool_down(phone: Phone) -> None:
    """Wait until no thermal cap lowers a limit."""
    phone.shell(["sleep", "120"])


def uptime(phone: Phone) -> str:
    return phone.shell_checked(["cat", UPTIME]).split()[0]


@pytest.fixture
def dead_lane(
    phone: Phone, virtual_phone: VirtualPhone, adb: AdbServer, tmp_path: Path
) -> DeadLane:
    phone.timeouts = PATIENT_TIMEOUTS
    return DeadLane(phone, virtual_phone, adb.port, tmp_path / "state")


def test_the_next_agent_restores_the_phone(dead_lane: DeadLane) -> None:
    dead_lane.die(timeout_s=6000)
    phone, virtual_phone = dead_lane.phone, dead_lane.virtual_phone
    assert restore_leftovers(phone, dead_lane.state)
    cool_down(phone)
    assert read_policy_states(phone, POLICIES) == dead_lane.clocks
    dead_lane.check_settings()
    assert virtual_phone.events("run_stop")
    assert phone.shell(["test", "-e", lane_file("restore")]).status != 0
    assert not journal_file(dead_lane.state, virtual_phone.serial).exists()
    assert not restore_leftovers(phone, dead_lane.state)


@pytest.mark.slow
@pytest.mark.parametrize(
    "trigger", ["setting_write", "property_write", "init_service", "sysfs_write", "run_stop"]
)
def test_a_phone_is_restored_after_a_kill_at_any_stage(dead_lane: DeadLane, trigger: str) -> None:
    dead_lane.die(timeout_s=6000, event=trigger)
    restore_leftovers(dead_lane.phone, dead_lane.state)
    cool_down(dead_lane.phone)
    assert read_policy_states(dead_lane.phone, POLICIES) == dead_lane.clocks
    dead_lane.check_settings()
    charging = dead_lane.phone.facts.charging
    assert charging is not None
    assert dead_lane.phone.shell_checked(["cat", charging.path]).strip() == charging.on
    services = {
        event["name"]: event["running"] for event in dead_lane.virtual_phone.events("init_service")
    }
    assert all(services.values())
    assert not journal_file(dead_lane.state, dead_lane.virtual_phone.serial).exists()


def test_another_host_restores_from_the_journal_on_the_phone(
    dead_lane: DeadLane, tmp_path: Path
) -> None:
    dead_lane.die(timeout_s=6000)
    assert not restore_leftovers(dead_lane.phone, tmp_path / "another"), "its heartbeat is fresh"
    assert restore_leftovers(dead_lane.phone, tmp_path / "another", ours=True)
    cool_down(dead_lane.phone)
    assert read_policy_states(dead_lane.phone, POLICIES) == dead_lane.clocks
    dead_lane.check_settings()
    assert not restore_leftovers(dead_lane.phone, tmp_path / "another", ours=True)


def test_the_phone_restores_itself_without_heartbeats(dead_lane: DeadLane) -> None:
    dead_lane.die(timeout_s=300)
    before = uptime(dead_lane.phone)
    time.sleep(0.2)
    assert uptime(dead_lane.phone) == before, "nobody waits for the phone"
    dead_lane.phone.shell(["sleep", "270"])
    assert read_policy_states(dead_lane.phone, POLICIES) != dead_lane.clocks
    dead_lane.phone.shell(["sleep", "60"])
    assert dead_lane.virtual_phone.events("watchdog_restore")
    cool_down(dead_lane.phone)
    assert read_policy_states(dead_lane.phone, POLICIES) == dead_lane.clocks
    assert dead_lane.virtual_phone.events("run_stop")
    assert dead_lane.phone.shell(["test", "-e", lane_file("restored")]).status == 0
    written = len(dead_lane.virtual_phone.events("sysfs_write"))
    assert restore_leftovers(dead_lane.phone, dead_lane.state)
    later = dead_lane.virtual_phone.events("sysfs_write")[written:]
    assert [event["path"] for event in later] == ["/sys/power/wake_unlock"], "no node twice"
    dead_lane.check_settings()


def test_a_running_lane_is_not_restored(
    phone: Phone, virtual_phone: VirtualPhone, context: LaneContext
) -> None:
    """Ten minutes of waiting do not fire a watchdog that waits for one."""
    context.timeouts = DEFAULT_TIMEOUTS
    job = a_job(phone.facts.serial, protocol="endurance", time_min_s=600)
    report = run_attempt(job, phone, context).report
    assert report.fault is None, report.fault
    assert not virtual_phone.events("watchdog_restore")


@pytest.mark.parametrize(("old", "is_restored"), [("1", True), ("0", False)])
def test_a_change_that_the_phone_refused_counts_as_restored(
    phone: Phone, virtual_phone: VirtualPhone, old: str, is_restored: bool
) -> None:
    """The property ro.secure cannot be set, and is 1."""
    change = ReversibleChange(kind=ChangeKind.PROPERTY, key="property ro.secure", old=old)
    record = JournalRecord(serial=virtual_phone.serial, boot_id="", fence=1, changes=(change,))
    if is_restored:
        restore_changes(phone, record)
    else:
        with pytest.raises(ShellFailed, match="property ro.secure to '0'"):
            restore_changes(phone, record)


def test_a_reboot_restores_nodes_by_itself(
    phone: Phone, virtual_phone: VirtualPhone, tmp_path: Path
) -> None:
    """A journal of an earlier boot restores settings only: the kernel has reset its nodes."""
    node = "/sys/devices/system/cpu/cpufreq/policy4/scaling_max_freq"
    record = JournalRecord(
        serial=virtual_phone.serial,
        boot_id="an earlier boot",
        fence=1,
        changes=(
            ReversibleChange(kind=ChangeKind.NODE, key=node, old="710400"),
            ReversibleChange(kind=ChangeKind.SETTING, key="system screen_brightness", old="77"),
        ),
    )
    file = journal_file(tmp_path, virtual_phone.serial)
    file.parent.mkdir(parents=True)
    file.write_text(record.model_dump_json())
    assert restore_leftovers(phone, tmp_path)
    assert not virtual_phone.events("sysfs_write")
    assert [event["new"] for event in virtual_phone.events("setting_write")] == ["77"]


def test_a_forged_list_on_the_phone_writes_only_kernel_nodes() -> None:
    text = "/data/local/tmp/evil\tx\n/sys/../etc/passwd\tx\nno tab\n/sys/kernel/fine\t1\n"
    text += "global a;reboot\t1\nsystem screen_brightness\t77\n"
    assert [(change.key, change.old) for change in parse_changes(text)] == [
        ("/sys/kernel/fine", "1"),
        ("system screen_brightness", "77"),
    ]


def test_an_unset_setting_is_deleted() -> None:
    """A setting that was never written is deleted, not set to the word null."""
    undo = ReversibleChange(
        kind=ChangeKind.SETTING, key="system screen_brightness", old="null"
    ).undo_command()
    assert undo.words == ["settings", "delete", "system", "screen_brightness"]
    undo = ReversibleChange(
        kind=ChangeKind.SETTING, key="global low_power", old="1; reboot"
    ).undo_command()
    assert undo.line().startswith("settings put global low_power '1; reboot' ")


def test_a_phone_on_wifi_keeps_its_radio() -> None:
    assert {setting.name for setting in QUIET_SETTINGS} - {
        setting.name for setting in quiet_settings("192.168.0.7:5555")
    } == {"airplane_mode_on"}
    assert quiet_settings("ABC123") == QUIET_SETTINGS


def test_one_list_shows_whether_all_settings_are_restored() -> None:
    """On slow phones each call of `settings` takes a second."""
    listed = "screen_brightness=102\nzen_mode=\nlow_power_sticky=1\n"
    key = "system screen_brightness"
    restored = ReversibleChange(kind=ChangeKind.SETTING, key=key, old="102")
    assert restored.is_undone(listed)
    changed = ReversibleChange(kind=ChangeKind.SETTING, key=key, old="90")
    assert (changed.is_undone(listed), changed.shown_value(listed)) == (False, "102")
    never_set = ReversibleChange(kind=ChangeKind.SETTING, key="global low_power", old=UNSET)
    assert never_set.is_undone(listed)
    assert not never_set.is_undone("low_power=1\n")
