"""The door to real phones: adb, its failures, and one shell for everything."""

import statistics
import threading
import time

import pytest

from agent.deadline import Deadline
from agent.phone.adb import AdbServer, find_adb, parse_states
from agent.phone.phone import Phone, whole_nodes
from tests.agent.virtual_phones import VirtualPhone
from workloads.fault import FarmTrouble, Hung, PhoneTrouble, ShellFailed, Unreachable


def test_one_shell_serves_hundreds_of_commands(phone: Phone) -> None:
    """No connection per command, and answers at the speed of a round trip."""
    times = []
    for at in range(200):
        began = time.perf_counter()
        assert phone.shell(["echo", str(at)]).text == f"{at}\n"
        times.append(1000 * (time.perf_counter() - began))
    print(f"shell command: median {statistics.median(times):.2f} ms")  # noqa: T201


def test_files_travel_whole(phone: Phone) -> None:
    """What is pushed is what is pulled, and nothing is left aside."""
    content = bytes(range(256)) * 2048
    phone.push(content, "/data/local/tmp/farmhand/some/file")
    assert phone.pull("/data/local/tmp/farmhand/some/file", limit=len(content)) == content
    assert ".part" not in phone.must(["ls", "/data/local/tmp"])


def test_a_file_over_its_limit_is_refused(phone: Phone) -> None:
    """A hostile phone cannot make us fetch more than we asked for."""
    phone.push(b"x" * 100_000, "/data/local/tmp/farmhand/big")
    with pytest.raises(ShellFailed, match="more than"):
        phone.pull("/data/local/tmp/farmhand/big", limit=50_000)
    with pytest.raises(ShellFailed, match="no/such"):
        phone.pull("/data/no/such", limit=10)


def test_a_phone_that_vanishes_is_unreachable_at_once(
    doomed_phone: Phone, doomed: VirtualPhone
) -> None:
    """A link lost in the middle of a command is an error within its deadline, never an answer."""
    phone = doomed_phone
    threading.Timer(0.2, doomed.kill).start()
    began = time.monotonic()
    with pytest.raises(Unreachable):
        phone.shell(["sleep", "10000"], Deadline.after(5))
    assert time.monotonic() - began < 4
    with pytest.raises(PhoneTrouble):
        phone.shell(["true"], Deadline.after(2))


def test_a_phone_that_hangs_is_given_up_at_the_deadline(phone: Phone, there: VirtualPhone) -> None:
    """adb still says 'device'; only our own clock helps. Afterwards it works again."""
    phone.shell(["true"])
    there.freeze()
    try:
        for call in (
            lambda: phone.shell(["true"], Deadline.after(0.4)),
            lambda: phone.push(b"x" * 3_000_000, "/data/local/tmp/x", deadline=Deadline.after(0.4)),
            lambda: phone.pull("/proc/uptime", 100, Deadline.after(0.4)),
        ):
            began = time.monotonic()
            with pytest.raises(Hung):
                call()
            assert time.monotonic() - began < 1.5
    finally:
        there.thaw()
    assert phone.shell(["echo", "back"], Deadline.after(5)).text == "back\n"


def test_a_phone_that_is_not_there_is_named(adb: AdbServer) -> None:
    """An address that nobody answers at."""
    assert adb.connect("127.0.0.1:9", Deadline.after(3)) != "device"
    with pytest.raises(Unreachable, match=r"127\.0\.0\.1:9"):
        Phone(adb.open("127.0.0.1:9")).shell(["true"], Deadline.after(2))
    adb.disconnect("127.0.0.1:9")


def test_the_list_is_followed(adb: AdbServer, there: VirtualPhone) -> None:
    """Coming and going is told without asking."""
    stop, seen = threading.Event(), []

    def follow() -> None:
        for states in adb.track(stop):
            seen.append(states)

    follower = threading.Thread(target=follow)
    follower.start()
    adb.disconnect(there.address)
    adb.connect(there.address, Deadline.after(5))
    deadline = Deadline.after(5)
    while not any(states.get(there.address) == "device" for states in seen):
        assert not deadline.expired
        time.sleep(0.02)
    adb.disconnect(there.address)
    while there.address in seen[-1]:
        assert not deadline.expired
        time.sleep(0.02)
    stop.set()
    follower.join(timeout=3)
    assert not follower.is_alive()


def test_a_dead_server_is_replaced_and_finds_its_phones(adb: AdbServer, phone: Phone) -> None:
    """adb itself may die; the phones it knew come back with it."""
    assert adb._child is not None
    adb._child.kill()
    deadline = Deadline.after(10)
    while True:
        try:
            assert phone.shell(["echo", "back"], Deadline.after(2)).text == "back\n"
            break
        except (PhoneTrouble, FarmTrouble):
            assert not deadline.expired
            time.sleep(0.05)


def test_a_missing_adb_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    """One sentence that says what to install."""
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("ADBUTILS_ADB_PATH", raising=False)
    monkeypatch.setattr("agent.phone.adb.os.access", lambda *_: False)
    with pytest.raises(FarmTrouble, match="install it"):
        find_adb(private=True)


def test_states_are_read_line_by_line() -> None:
    """adb's list, with whatever else it prints left out."""
    text = "127.0.0.1:5001\tdevice\nABC\tunauthorized\n\nno tab here\n"
    assert parse_states(text) == {"127.0.0.1:5001": "device", "ABC": "unauthorized"}


def test_half_an_answer_is_no_answer() -> None:
    """Half a number is a number too: nodes count only with the clock behind them, to its end."""
    text = "/sys/class/thermal/zone:31000\n/proc/uptime:12.34 56.78\n"
    assert whole_nodes(text)["/sys/class/thermal/zone"] == "31000"
    for cut in range(len(text) - 1):
        with pytest.raises(PhoneTrouble, match="cut short"):
            whole_nodes(text[:cut])
