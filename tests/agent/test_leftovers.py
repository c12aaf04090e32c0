"""What a dead agent left changed is put back: by the next one, or by the phone itself."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from agent.control.change import Change, parse_changes
from agent.control.clocks import read_policies
from agent.control.guard import lane_file
from agent.control.journal import Page, journal_file, restore_leftovers
from agent.control.quiet import QUIET, settings_for
from agent.deadline import Deadline
from agent.desk import Desk
from agent.lane import attempt
from agent.phone.adb import AdbServer
from agent.phone.phone import Phone
from tests.agent.jobs import a_job
from tests.agent.virtual_phones import VirtualPhone

POLICIES = (0, 4, 7)
LANE = """
import sys
from pathlib import Path
from agent.desk import Desk
from agent.lane import attempt
from agent.phone.adb import AdbServer
from tests.agent.jobs import a_job
from tests.agent.virtual_phones import open_phone

address, port, state, silence_s = sys.argv[1:]
server = AdbServer(Path(state) / "adb", private=False, port=int(port))
phone = open_phone(server, address)
desk = Desk(host="host-a", state_dir=Path(state), silence_s=float(silence_s), canary=False)
attempt(a_job(phone.known.serial, protocol="endurance"), phone, desk)
"""


class DeadLane:
    """A process that held a lane and was killed in its run."""

    def __init__(self, phone: Phone, there: VirtualPhone, port: int, state: Path) -> None:
        self.phone, self.there, self.port, self.state = phone, there, port, state
        self.clocks = read_policies(phone, POLICIES)

    def die(self, silence_s: float, at: str = "run_start") -> None:
        """Get to a moment of the lane, into its run by default, then kill -9."""
        words = [self.there.address, str(self.port), str(self.state), str(silence_s)]
        process = subprocess.Popen([sys.executable, "-c", LANE, *words])
        deadline = Deadline.after(20)
        while not self.there.events(at):
            assert process.poll() is None
            assert not deadline.expired
            time.sleep(0.02)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        if at == "run_start":
            assert read_policies(self.phone, POLICIES) != self.clocks

    def check_settings(self) -> None:
        """Every setting has the value that it had before its first change."""
        settings = self.there.events("setting")
        first = {event["name"]: event["old"] for event in reversed(settings)}
        assert first
        assert first == {event["name"]: event["new"] for event in settings}


@pytest.fixture
def dead_lane(phone: Phone, there: VirtualPhone, adb: AdbServer, tmp_path: Path) -> DeadLane:
    return DeadLane(phone, there, adb.port, tmp_path / "state")


def test_the_next_agent_puts_the_phone_back(dead_lane: DeadLane) -> None:
    """Clocks and settings as they were, the orphaned runner ended, the journal closed."""
    dead_lane.die(silence_s=60)
    phone, there = dead_lane.phone, dead_lane.there
    assert restore_leftovers(phone, dead_lane.state)
    assert read_policies(phone, POLICIES) == dead_lane.clocks
    dead_lane.check_settings()
    assert there.events("run_stop")
    assert phone.shell(["test", "-e", lane_file("restore")]).status != 0
    assert not journal_file(dead_lane.state, there.serial).exists()
    assert not restore_leftovers(phone, dead_lane.state)


@pytest.mark.slow
@pytest.mark.parametrize("at", ["setting", "property", "service", "sysfs", "run_stop"])
def test_killed_at_any_stage_it_is_put_back(dead_lane: DeadLane, at: str) -> None:
    """Noted before it was changed, whatever it was, and so undone."""
    dead_lane.die(silence_s=60, at=at)
    restore_leftovers(dead_lane.phone, dead_lane.state)
    assert read_policies(dead_lane.phone, POLICIES) == dead_lane.clocks
    dead_lane.check_settings()
    charging = dead_lane.phone.known.charging
    assert charging is not None
    assert dead_lane.phone.must(["cat", charging.path]).strip() == charging.on
    services = {event["name"]: event["running"] for event in dead_lane.there.events("service")}
    assert all(services.values())
    assert not journal_file(dead_lane.state, dead_lane.there.serial).exists()


def test_another_host_puts_back_what_the_phone_remembers(
    dead_lane: DeadLane, tmp_path: Path
) -> None:
    """Without the dead host's journal, the phone's own lists are enough for the next lease."""
    dead_lane.die(silence_s=60)
    assert not restore_leftovers(dead_lane.phone, tmp_path / "another"), "it was fed just now"
    assert restore_leftovers(dead_lane.phone, tmp_path / "another", ours=True)
    assert read_policies(dead_lane.phone, POLICIES) == dead_lane.clocks
    dead_lane.check_settings()
    assert not restore_leftovers(dead_lane.phone, tmp_path / "another", ours=True)


def test_the_phone_puts_itself_back_after_silence(dead_lane: DeadLane) -> None:
    """Nobody comes: the dead-man ends the runner and restores the clocks."""
    dead_lane.die(silence_s=3.0)
    deadline = Deadline.after(20)
    while read_policies(dead_lane.phone, POLICIES) != dead_lane.clocks:
        assert not deadline.expired
        time.sleep(0.05)
    assert dead_lane.there.events("run_stop")
    assert dead_lane.phone.shell(["test", "-e", lane_file("restored")]).status == 0
    seen = len(dead_lane.there.events("sysfs"))
    assert restore_leftovers(dead_lane.phone, dead_lane.state)
    assert len(dead_lane.there.events("sysfs")) == seen
    dead_lane.check_settings()


@pytest.mark.slow
def test_a_lane_that_lives_is_not_put_back(phone: Phone, there: VirtualPhone, desk: Desk) -> None:
    """Silence is counted from the last sign of life, however long the run."""
    desk.silence_s = 2.0  # of a run of six
    report = attempt(a_job(phone.known.serial, protocol="endurance"), phone, desk).report
    assert report.fault is None, report.fault
    assert not there.events("guard_restores")


def test_a_reboot_restores_nodes_by_itself(
    phone: Phone, there: VirtualPhone, tmp_path: Path
) -> None:
    """A journal of an earlier boot touches settings only: the kernel has made its nodes anew."""
    node = "/sys/devices/system/cpu/cpufreq/policy4/scaling_max_freq"
    page = Page(
        serial=there.serial,
        boot_id="an earlier boot",
        fence=1,
        changes=(
            Change(kind="node", key=node, old="710400"),
            Change(kind="setting", key="system screen_brightness", old="77"),
        ),
    )
    file = journal_file(tmp_path, there.serial)
    file.parent.mkdir(parents=True)
    file.write_text(page.model_dump_json())
    assert restore_leftovers(phone, tmp_path)
    assert not there.events("sysfs")
    assert [event["new"] for event in there.events("setting")] == ["77"]


def test_a_forged_list_on_the_phone_writes_nothing_else() -> None:
    """The phone's file is the phone's word: only kernel nodes are taken from it."""
    text = "/data/local/tmp/evil\tx\n/sys/../etc/passwd\tx\nno tab\n/sys/kernel/fine\t1\n"
    text += "global a;reboot\t1\nsystem screen_brightness\t77\n"
    assert [(change.key, change.old) for change in parse_changes(text)] == [
        ("/sys/kernel/fine", "1"),
        ("system screen_brightness", "77"),
    ]


def test_undoing_restores_the_real_value() -> None:
    """A setting that was never made is deleted, not set to the word null."""
    undo = Change(kind="setting", key="system screen_brightness", old="null").undo()
    assert undo.words == ["settings", "delete", "system", "screen_brightness"]
    undo = Change(kind="setting", key="global low_power", old="1; reboot").undo()
    assert undo.line().startswith("settings put global low_power '1; reboot' ")


def test_a_phone_on_wifi_keeps_its_radio() -> None:
    """Airplane mode is for phones on a cable."""
    assert {setting.name for setting in QUIET} - {
        setting.name for setting in settings_for("192.168.0.7:5555")
    } == {"airplane_mode_on"}
    assert settings_for("ABC123") == QUIET
