"""The shell link, with a real shell of this computer behind adb's shell protocol."""

import os
import shutil
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from agent.deadline import Deadline
from agent.phone.phone_driver import Phone
from agent.phone.shell_command import ShellCommand, parse_nodes, write_node_command
from agent.phone.shell_link import ShellLink
from workloads.protocol.faults import Hung, PhoneTrouble, ShellFailed, Unreachable

BASH = shutil.which("bash")


class ShellService:
    """The service `shell,v2,raw:sh` of adb's server: stdin and stdout in packets."""

    def __init__(self) -> None:
        self.opened = 0
        self.path, self.shell = os.environ["PATH"], "/bin/sh"
        self.processes: list[subprocess.Popen[bytes]] = []

    def dial(self, address: str, name: str, deadline: Deadline) -> socket.socket:
        """Open the service."""
        assert name == "shell,v2,raw:sh"
        self.opened += 1
        ours, theirs = socket.socketpair()
        process = subprocess.Popen(
            [self.shell],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
            env={**os.environ, "PATH": self.path},
        )
        self.processes.append(process)
        threading.Thread(target=self._into, args=(theirs, process), daemon=True).start()
        threading.Thread(target=self._out, args=(theirs, process), daemon=True).start()
        return ours

    @staticmethod
    def _into(stream: socket.socket, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin is not None
        file = stream.makefile("rb")
        with suppress(OSError):
            while header := file.read(5):
                process.stdin.write(file.read(struct.unpack("<BI", header)[1]))
        process.kill()

    @staticmethod
    def _out(stream: socket.socket, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        while data := process.stdout.read(4096):
            try:
                stream.sendall(struct.pack("<BI", 1, len(data)) + data)
            except OSError:
                return
        with suppress(OSError):
            stream.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def service() -> Iterator[ShellService]:
    service = ShellService()
    yield service
    for process in service.processes:
        process.kill()
        process.wait()


@pytest.fixture
def phone(service: ShellService) -> Iterator[Phone]:
    phone = Phone(ShellLink("here", service.dial))
    yield phone
    phone.close()


@pytest.mark.parametrize(
    "word",
    [
        "plain",
        "two words",
        "$(reboot)",
        "'; reboot; '",
        "`id`",
        "a\nb",
        "*",
        "\\",
        '"',
        "$?",
        "ümlaut 电话",
        "",
    ],
)
def test_words_reach_the_phone_unchanged(phone: Phone, word: str) -> None:
    assert phone.shell(["printf", "%s|", word]).text == f"{word}|"


def test_results_contain_status_and_stderr(phone: Phone) -> None:
    result = phone.shell(["ls", "/no/such/place"])
    assert result.status != 0
    assert "/no/such/place" in result.text


def test_a_batch_is_answered_in_order(phone: Phone, service: ShellService) -> None:
    results = phone.shell_batch([ShellCommand(["echo", str(number)]) for number in range(50)])
    assert [result.text for result in results] == [f"{number}\n" for number in range(50)]
    assert service.opened == 1


def test_output_without_a_final_newline_is_complete(phone: Phone) -> None:
    assert phone.shell(["printf", "no newline"]).text == "no newline"


def test_a_command_cannot_read_the_next_line(phone: Phone) -> None:
    assert (
        phone.shell_batch([ShellCommand(["cat"]), ShellCommand(["echo", "still here"])])[1].text
        == "still here\n"
    )


def test_too_much_output_is_an_error(phone: Phone) -> None:
    with pytest.raises(ShellFailed):
        phone.shell_batch_raw([ShellCommand(["head", "-c", "300000", "/dev/zero"])], limit=100_000)
    assert phone.shell(["echo", "ok"]).text == "ok\n"


def test_a_hanging_command_ends_at_its_deadline(phone: Phone) -> None:
    with pytest.raises(Hung):
        phone.shell(["sleep", "120"], Deadline.after(0.2))
    assert phone.shell(["echo", "ok"]).text == "ok\n"


def test_a_dead_shell_is_an_error_and_then_a_new_shell(phone: Phone, service: ShellService) -> None:
    with pytest.raises(Unreachable):
        phone.shell(["kill", "-9", str(phone_pid(phone))])
    assert phone.shell(["echo", "ok"]).text == "ok\n"
    assert service.opened == 2


# Like a phone's shell, bash reads no further than the line that it executes.
@pytest.mark.skipif(BASH is None, reason="there is no bash")
@pytest.mark.parametrize(("refusals", "root"), [(0, True), (1, True), (9, False)])
def test_root_is_requested_twice(
    phone: Phone, service: ShellService, tmp_path: Path, refusals: int, root: bool
) -> None:
    """The link may break while su is asked; that does not mean refusal."""
    calls = tmp_path / "calls"
    programs = {
        "id": 'echo "${ROOT:-2000}"',
        "su": f'echo x >>{calls}; [ "$(wc -l <{calls})" -gt {refusals} ] && ROOT=0 exec {BASH}',
    }
    for name, text in programs.items():
        program = tmp_path / name
        program.write_text(f"#!/bin/sh\n{text}\n")
        program.chmod(0o755)
    service.path, service.shell = f"{tmp_path}:{service.path}", str(BASH)
    assert phone.shell_checked(["echo", "here"]).strip() == "here"
    assert phone.link.root == root


def test_a_shell_that_died_between_commands_is_replaced(
    phone: Phone, service: ShellService
) -> None:
    phone.shell(["true"])
    service.processes[0].kill()
    service.processes[0].wait()
    time.sleep(0.05)
    assert phone.shell(["echo", "ok"]).text == "ok\n"


def test_closing_wakes_a_waiting_command(phone: Phone) -> None:
    phone.shell(["true"])
    threading.Timer(0.1, phone.close).start()
    with pytest.raises(Unreachable):
        phone.shell(["sleep", "120"], Deadline.after(600))


def test_threads_take_turns(phone: Phone) -> None:
    wrong: list[str] = []

    def work(name: str) -> None:
        for number in range(20):
            if phone.shell(["echo", f"{name}{number}"]).text != f"{name}{number}\n":
                wrong.append(f"{name}{number}")

    threads = [threading.Thread(target=work, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_detached_commands_print_their_pid(phone: Phone) -> None:
    pid = phone.shell_batch([ShellCommand(["sleep", "5"], into="/dev/null", detached=True)])[0].text
    assert phone.shell(["kill", "-0", pid.strip()]).status == 0
    phone.shell(["kill", pid.strip()])


@pytest.mark.parametrize(
    "path",
    [
        "/data/local/tmp/x",
        "/etc/passwd",
        "/sys/../data/x",
        "/sys/a b",
        "/sys/$(id)",
        "sys/x",
        "/proc/1/mem",
    ],
)
def test_only_kernel_nodes_are_written(path: str) -> None:
    with pytest.raises(PhoneTrouble):
        write_node_command(path, "1")


def test_nodes_of_several_lines_stay_together() -> None:
    pad = "/sys/class/power_supply/hid-a0:b1:c2:d3:e4:f5-battery/capacity"  # a game pad
    text = "/sys/a:1\n/sys/t:300000 1\n/sys/t:600000 2\n/proc/meminfo:MemTotal: 5 kB\ngrep: no\n"
    assert parse_nodes(f"{text}{pad}:80\n") == {
        pad: "80",
        "/sys/a": "1",
        "/sys/t": "300000 1\n600000 2",
        "/proc/meminfo": "MemTotal: 5 kB",
    }


def test_nodes_are_read_by_path_and_by_pattern(phone: Phone) -> None:
    assert list(phone.read_nodes(["/proc/uptime", "/no/such/node"])) == ["/proc/uptime"]
    assert "/proc/sys/kernel/ostype" in phone.find_nodes(["/proc/sys/kernel/os*"])
    with pytest.raises(PhoneTrouble):
        phone.find_nodes(["/proc/$(reboot)"])


def phone_pid(phone: Phone) -> int:
    """Return the process id of the phone's shell."""
    status = phone.read_nodes(["/proc/self/status"])["/proc/self/status"]
    line = next(line for line in status.splitlines() if line.startswith("PPid"))
    return int(line.split()[1])


@pytest.mark.parametrize("drains", [True, False], ids=["new", "old"])
def test_a_full_phone_gives_the_reason(drains: bool) -> None:
    """adbd of Android 8 and newer reads the rest of the file; older ones close at once."""
    ours, theirs = socket.socketpair()

    def refuse() -> None:
        theirs.recv(64)
        reason = b"write failed: No space left on device"
        theirs.sendall(struct.pack("<4sI", b"FAIL", len(reason)) + reason)
        while drains and theirs.recv(1 << 20):
            pass
        theirs.close()

    thread = threading.Thread(target=refuse)
    thread.start()
    link = ShellLink("here", lambda *_: ours)
    with pytest.raises(ShellFailed, match="No space left on device"):
        link.send_file(bytes(8 << 20), "/data/local/tmp/x", 0o644, Deadline.after(10))
    thread.join()


def test_a_link_that_returns_never_becomes_a_terminal(service: ShellService) -> None:
    """A bare stream, for old phones, is a terminal on newer ones: its echo is no answer."""
    refuses = True

    def dial(address: str, name: str, deadline: Deadline) -> socket.socket:
        if name != "exec:sh":
            if refuses:
                raise Unreachable("adbd restarts")
            return service.dial(address, name, deadline)
        ours, theirs = socket.socketpair()
        terminal, inside = os.openpty()
        process = subprocess.Popen(["/bin/sh"], stdin=inside, stdout=inside, stderr=inside)
        service.processes.append(process)

        def copy(read: Callable[[int], bytes], write: Callable[[bytes], object]) -> None:
            with suppress(OSError):
                while data := read(4096):
                    write(data)

        for pair in (
            (theirs.recv, lambda data: os.write(terminal, data)),
            (lambda size: os.read(terminal, size), theirs.sendall),
        ):
            threading.Thread(target=copy, args=pair, daemon=True).start()
        return ours

    phone = Phone(ShellLink("pipe", dial, use_root=False))
    with pytest.raises(Unreachable):
        phone.shell(["echo", "hello"])
    refuses = False
    assert phone.shell(["echo", "hello"]).text == "hello\n"
    refuses = True
    phone.close()
    opened = len(service.processes)
    with pytest.raises(Unreachable, match="adbd restarts"):
        phone.shell(["echo", "hello"])
    assert len(service.processes) == opened
