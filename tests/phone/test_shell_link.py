"""The link, against a real shell of this computer behind adb's shell protocol."""

import os
import shutil
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from agent.deadline import Deadline
from agent.phone.link import Link
from agent.phone.phone import Command, Phone, split_nodes, writing
from workloads.fault import Hung, PhoneTrouble, ShellFailed, Unreachable

BASH = shutil.which("bash")


class ShellService:
    """What adb's server does for `shell,v2,raw:sh`: stdin and stdout in packets."""

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
    made = ShellService()
    yield made
    for process in made.processes:
        process.kill()
        process.wait()


@pytest.fixture
def phone(service: ShellService) -> Iterator[Phone]:
    made = Phone(Link("here", service.dial))
    yield made
    made.close()


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
def test_words_arrive_as_they_are(phone: Phone, word: str) -> None:
    """Whatever stands in a word, the phone's shell does not act on it."""
    assert phone.shell(["printf", "%s|", word]).text == f"{word}|"


def test_answers_carry_status_and_stderr(phone: Phone) -> None:
    """A failing command says so, and why."""
    answer = phone.shell(["ls", "/no/such/place"])
    assert answer.status != 0
    assert "/no/such/place" in answer.text


def test_a_batch_is_answered_in_order(phone: Phone, service: ShellService) -> None:
    """Many commands, one round trip, one answer each, one shell for all."""
    answers = phone.batch([Command(["echo", str(at)]) for at in range(50)])
    assert [answer.text for answer in answers] == [f"{at}\n" for at in range(50)]
    assert service.opened == 1


def test_output_without_a_last_newline_is_whole(phone: Phone) -> None:
    """The end mark needs no line of its own."""
    assert phone.shell(["printf", "no newline"]).text == "no newline"


def test_a_command_cannot_eat_the_next_line(phone: Phone) -> None:
    """stdin of a command is empty, not our own conversation."""
    assert (
        phone.batch([Command(["cat"]), Command(["echo", "still here"])])[1].text == "still here\n"
    )


def test_too_much_output_is_a_fault(phone: Phone) -> None:
    """A hostile phone cannot fill our memory; the next command works again."""
    with pytest.raises(ShellFailed, match="more than"):
        phone.exchange([Command(["head", "-c", "300000", "/dev/zero"])], limit=100_000)
    assert phone.shell(["echo", "ok"]).text == "ok\n"


def test_a_hanging_command_ends_at_its_deadline(phone: Phone) -> None:
    """Its answer is not taken for the next one."""
    began = time.monotonic()
    with pytest.raises(Hung):
        phone.shell(["sleep", "5"], Deadline.after(0.2))
    assert time.monotonic() - began < 1.0
    assert phone.shell(["echo", "ok"]).text == "ok\n"


def test_a_dead_shell_is_an_error_and_then_a_new_shell(phone: Phone, service: ShellService) -> None:
    """A lost link never passes for empty output."""
    with pytest.raises(Unreachable):
        phone.shell(["kill", "-9", str(phone_pid(phone))])
    assert phone.shell(["echo", "ok"]).text == "ok\n"
    assert service.opened == 2


# As a phone's shell does, it reads no further than the line that it carries out.
@pytest.mark.skipif(BASH is None, reason="there is no bash")
@pytest.mark.parametrize(("refusals", "root"), [(0, True), (1, True), (9, False)])
def test_root_is_asked_for_again_before_it_is_given_up(
    phone: Phone, service: ShellService, tmp_path: Path, refusals: int, root: bool
) -> None:
    """A link may break just then; a phone that was root a moment ago has not become another."""
    asked = tmp_path / "asked"
    programs = {
        "id": 'echo "${ROOT:-2000}"',
        "su": f'echo x >>{asked}; [ "$(wc -l <{asked})" -gt {refusals} ] && ROOT=0 exec {BASH}',
    }
    for name, text in programs.items():
        program = tmp_path / name
        program.write_text(f"#!/bin/sh\n{text}\n")
        program.chmod(0o755)
    service.path, service.shell = f"{tmp_path}:{service.path}", str(BASH)
    assert "here" == phone.must(["echo", "here"]).strip()
    assert root == phone.link.root


def test_a_shell_that_died_between_commands_is_replaced(
    phone: Phone, service: ShellService
) -> None:
    """Nobody has to notice."""
    phone.shell(["true"])
    service.processes[0].kill()
    service.processes[0].wait()
    time.sleep(0.05)
    assert phone.shell(["echo", "ok"]).text == "ok\n"


def test_closing_wakes_whoever_waits(phone: Phone) -> None:
    """A phone that is given up does not keep its lane waiting."""
    phone.shell(["true"])
    threading.Timer(0.1, phone.close).start()
    began = time.monotonic()
    with pytest.raises(Unreachable):
        phone.shell(["sleep", "5"], Deadline.after(5))
    assert time.monotonic() - began < 2.0


def test_threads_take_turns(phone: Phone) -> None:
    """Every thread gets its own answers."""
    wrong: list[str] = []

    def work(name: str) -> None:
        for at in range(20):
            if phone.shell(["echo", f"{name}{at}"]).text != f"{name}{at}\n":
                wrong.append(f"{name}{at}")

    threads = [threading.Thread(target=work, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_detached_commands_answer_their_pid(phone: Phone) -> None:
    """They run on while the next command is answered."""
    pid = phone.batch([Command(["sleep", "5"], into="/dev/null", detached=True)])[0].text
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
    """A bad path never reaches the phone."""
    with pytest.raises(PhoneTrouble):
        writing(path, "1")


def test_nodes_of_several_lines_stay_together() -> None:
    """time_in_state and meminfo have many lines, and colons of their own."""
    text = "/sys/a:1\n/sys/t:300000 1\n/sys/t:600000 2\n/proc/meminfo:MemTotal: 5 kB\ngrep: no\n"
    assert split_nodes(text) == {
        "/sys/a": "1",
        "/sys/t": "300000 1\n600000 2",
        "/proc/meminfo": "MemTotal: 5 kB",
    }


def test_nodes_are_read_by_path_and_by_pattern(phone: Phone) -> None:
    """One round trip; what is not there is left out."""
    assert list(phone.read_nodes(["/proc/uptime", "/no/such/node"])) == ["/proc/uptime"]
    assert "/proc/sys/kernel/ostype" in phone.find_nodes(["/proc/sys/kernel/os*"])
    with pytest.raises(PhoneTrouble):
        phone.find_nodes(["/proc/$(reboot)"])


def phone_pid(phone: Phone) -> int:
    """The number of the phone's shell."""
    status = phone.read_nodes(["/proc/self/status"])["/proc/self/status"]
    line = next(line for line in status.splitlines() if line.startswith("PPid"))
    return int(line.split()[1])
