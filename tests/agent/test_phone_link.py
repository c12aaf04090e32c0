"""adb and the shell link: commands, files, deadlines, and a server that dies."""

import threading
import time
from dataclasses import replace

import pytest

from agent.deadline import Deadline
from agent.lane import run_attempt
from agent.lane_context import LaneContext
from agent.phone.adb import AdbServer, find_adb, parse_phone_states
from agent.phone.phone_driver import SHA1_TOOL, Phone
from agent.phone.runner_install import runner_path
from agent.phone.shell_command import ShellCommand, parse_complete_nodes
from agent.timeouts import DEFAULT_TIMEOUTS
from kernels.runner_builds import runner_for
from tests.agent.conftest import StartPhone
from tests.agent.jobs import a_job
from tests.agent.lane_harness import assert_valid
from tests.agent.virtual_phones import VirtualPhone, open_phone
from workloads.protocol.faults import FarmTrouble, Hung, PhoneTrouble, ShellFailed, Unreachable


def test_one_shell_serves_hundreds_of_commands(phone: Phone, virtual_phone: VirtualPhone) -> None:
    virtual_phone.forget()
    for number in range(200):
        assert phone.shell(["echo", str(number)]).text == f"{number}\n"
    assert len(virtual_phone.events("adb_service")) <= 1  # no connection per command


def test_files_arrive_complete(phone: Phone) -> None:
    content = bytes(range(256)) * 2048
    phone.push(content, "/data/local/tmp/farmhand/some/file")
    assert phone.pull("/data/local/tmp/farmhand/some/file", limit=len(content)) == content
    assert ".part" not in phone.shell_checked(["ls", "/data/local/tmp"])


def test_a_file_over_its_limit_is_refused(phone: Phone) -> None:
    phone.push(b"x" * 100_000, "/data/local/tmp/farmhand/big")
    with pytest.raises(ShellFailed):
        phone.pull("/data/local/tmp/farmhand/big", limit=50_000)
    with pytest.raises(ShellFailed, match="/data/no/such"):
        phone.pull("/data/no/such", limit=10)


def test_a_phone_that_disconnects_is_unreachable_before_the_deadline(
    opened_phone: Phone, disposable_phone: VirtualPhone
) -> None:
    threading.Timer(0.2, disposable_phone.kill).start()
    with pytest.raises(Unreachable):
        opened_phone.shell(["sleep", "10000"], Deadline.after(120))
    with pytest.raises(PhoneTrouble):
        opened_phone.shell(["true"], Deadline.after(2))


def test_a_phone_that_hangs_is_given_up_at_the_deadline(
    phone: Phone, virtual_phone: VirtualPhone
) -> None:
    """adb still reports 'device'; only our own deadline helps."""
    phone.shell(["true"])
    virtual_phone.freeze()
    try:
        for call in (
            lambda: phone.shell(["true"], Deadline.after(0.4)),
            lambda: phone.push(b"x" * 3_000_000, "/data/local/tmp/x", deadline=Deadline.after(0.4)),
        ):
            with pytest.raises(Hung):
                call()
    finally:
        virtual_phone.thaw()
    assert phone.shell(["echo", "back"], Deadline.after(120)).text == "back\n"


def test_an_unreachable_phone_is_named(adb: AdbServer) -> None:
    assert adb.connect("127.0.0.1:9", Deadline.after(3)) != "device"
    with pytest.raises(Unreachable, match=r"127\.0\.0\.1:9"):
        Phone(adb.open("127.0.0.1:9")).shell(["true"], Deadline.after(2))
    adb.disconnect("127.0.0.1:9")


def test_changes_of_the_phone_list_are_followed(
    adb: AdbServer, virtual_phone: VirtualPhone
) -> None:
    stop = threading.Event()
    lists: list[dict[str, str]] = []

    def follow() -> None:
        for states in adb.track(stop):
            lists.append(states)

    follower = threading.Thread(target=follow)
    follower.start()
    adb.disconnect(virtual_phone.address)
    adb.connect(virtual_phone.address, Deadline.after(120))
    deadline = Deadline.after(120)
    while not any(states.get(virtual_phone.address) == "device" for states in lists):
        assert not deadline.expired
        time.sleep(0.02)
    adb.disconnect(virtual_phone.address)
    while virtual_phone.address in lists[-1]:
        assert not deadline.expired
        time.sleep(0.02)
    stop.set()
    follower.join(timeout=120)
    assert not follower.is_alive()


def test_a_dead_server_is_replaced_and_finds_its_phones(adb: AdbServer, phone: Phone) -> None:
    adb.kill()
    deadline = Deadline.after(120)
    while True:
        try:
            assert phone.shell(["echo", "back"], Deadline.after(2)).text == "back\n"
            break
        except (PhoneTrouble, FarmTrouble):
            assert not deadline.expired
            time.sleep(0.05)


def test_a_missing_adb_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("ADBUTILS_ADB_PATH", raising=False)
    monkeypatch.setattr("agent.phone.adb.os.access", lambda *_: False)
    with pytest.raises(FarmTrouble, match="install it"):
        find_adb(private=True)


def test_states_are_parsed_line_by_line() -> None:
    text = "127.0.0.1:5001\tdevice\nABC\tunauthorized\n\nno tab here\n"
    assert parse_phone_states(text) == {"127.0.0.1:5001": "device", "ABC": "unauthorized"}


def test_truncated_output_is_an_error() -> None:
    """A truncated number still parses: nodes count only if the uptime after them is complete."""
    text = "/sys/class/thermal/zone:31000\n/proc/uptime:12.34 56.78\n"
    assert parse_complete_nodes(text)["/sys/class/thermal/zone"] == "31000"
    for cut in range(len(text) - 1):
        with pytest.raises(PhoneTrouble):
            parse_complete_nodes(text[:cut])


def test_a_phone_without_sha256sum_is_used_with_sha1sum(
    adb: AdbServer, start_phone: StartPhone, context: LaneContext
) -> None:
    """Android 7: pushed files, runner and plan are verified, and nothing is pushed twice."""
    virtual_phone = start_phone("huawei-honor-8")
    phone = open_phone(adb, virtual_phone.address)
    assert phone.shell(["sha256sum", "/dev/null"]).status == 127
    assert phone.digest_tool == SHA1_TOOL
    pushes = []
    for fence in (1, 2):
        virtual_phone.forget()
        assert_valid(run_attempt(a_job(phone.facts.serial, fence), phone, context).report)
        pushes.append(sum(e["name"] == "sync:" for e in virtual_phone.events("adb_service")))
    assert pushes[1] == pushes[0] - 1  # the plan is there already
    runner = runner_path(runner_for(phone.facts.abi))
    phone.shell_checked(["sh", "-c", f"echo damaged >>{runner}"])
    virtual_phone.forget()
    assert_valid(run_attempt(a_job(phone.facts.serial, 3), phone, context).report)
    phone.close()
    adb.disconnect(virtual_phone.address)


def test_a_slow_phone_gets_a_deadline_per_command(
    opened_phone: Phone, disposable_phone: VirtualPhone
) -> None:
    """Thirty commands of a second are not one command of thirty; a hanging one is given up."""
    opened_phone.timeouts = replace(DEFAULT_TIMEOUTS, command_timeout_s=0.5)
    opened_phone.shell(["true"])
    slow = ShellCommand(["sleep", "25"])  # the clock of the phone runs at 100x
    assert [result.status for result in opened_phone.shell_batch([slow] * 4)] == [0] * 4
    with pytest.raises(Hung):
        opened_phone.shell_batch([slow, ShellCommand(["sleep", "10000"])])
    with pytest.raises(Hung):  # a given deadline stays one for all commands
        opened_phone.shell_batch([slow] * 4, Deadline.after(0.5))
