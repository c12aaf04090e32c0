"""The phone: the one interface that the rest of the agent uses.

No string reaches the phone's shell unquoted: commands are lists of words, redirections are paths.
"""

import re
import secrets
import shlex
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import PurePosixPath
from typing import NamedTuple

from agent.deadline import Deadline
from agent.phone.framework import is_framework, parse_thermalservice
from agent.phone.link import MIB, Link, Reply
from agent.phone.memory import HeatMemory, Remembered
from workloads.fault import PhoneTrouble, ShellFailed
from workloads.phone import Gauge, PhoneFacts
from workloads.text import safe_text

UPTIME_MAX_S = 1e10
CALL_S = 15.0
PUSH_S = 60.0
HOME = "/data/local/tmp/farmhand"
UPTIME = "/proc/uptime"
BOOT_ID = "/proc/sys/kernel/random/boot_id"

_WRITABLE = re.compile(r"/(sys|proc/sys|dev/cpuset)/[A-Za-z0-9_./:,@-]+")
# The kernel's own names hold no colon, but for the folders of its industrial I/O: iio:device0.
_NODE_LINE = re.compile(r"(/(?:[^:]|:(?=device\d))*):(.*)", re.DOTALL)
_CLOCK = re.compile(rf"^{UPTIME}:\d+\.\d\d \d+\.\d\d$", re.MULTILINE | re.ASCII)
_PATTERN = re.compile(r"/(sys|proc|dev/cpuset)/[A-Za-z0-9_./*-]+")


_DAMAGED = 76
# A pushed part takes its name only if it arrived whole.
_TAKE_OVER = (
    'sum=$(sha256sum "$0") || exit 1; [ "${sum%% *}" = "$4" ] || exit ' + str(_DAMAGED) + "; "
    'mkdir -p "$2" && chmod "$3" "$0" && mv -f "$0" "$1"'
)


class Answer(NamedTuple):
    """What a command came to. The text is the phone's word: show it by safe_text only."""

    status: int
    text: str


@dataclass(frozen=True)
class Command:
    """A command as words, with the file its output goes to; a detached one answers its pid."""

    words: Sequence[str]
    into: str | None = None
    detached: bool = False

    def line(self) -> str:
        """Write it for the phone's shell; stdin is closed so that it cannot eat the next line."""
        into = f" >{shlex.quote(self.into)}" if self.into is not None else ""
        line = f"{shlex.join(self.words)} </dev/null{into} 2>&1"
        return f"{line} &\necho $!" if self.detached else line


class ClockRatio:
    """Phone seconds per host second, from pairs of clock readings. It only scales polling."""

    def __init__(self) -> None:
        self.value = 1.0
        self._anchor: tuple[float, float] | None = None

    def observe(self, host_s: float, phone_s: float) -> None:
        """Take one more pair; a clock that went back (a reboot) starts afresh."""
        if self._anchor is None or phone_s < self._anchor[1]:
            self._anchor = (host_s, phone_s)
            return
        host_passed = host_s - self._anchor[0]
        phone_passed = phone_s - self._anchor[1]
        # /proc/uptime counts in 10 ms; a few of them make a ratio good enough to sleep by.
        if host_passed >= 0.05 and phone_passed >= 0.05:
            self.value = min(max(phone_passed / host_passed, 0.01), 10_000.0)
        if host_passed > 30.0:
            self._anchor = (host_s, phone_s)

    def to_phone_s(self, host_s: float) -> float:
        """A moment of the host's clock on the phone's."""
        host_then, phone_then = self._anchor or (host_s, 0.0)
        return phone_then + (host_s - host_then) * self.value


class Phone:
    """One phone behind adb. Calls from several threads take turns."""

    def __init__(self, link: Link) -> None:
        self.link = link
        self.clock = ClockRatio()
        self.heat = HeatMemory()
        self.facts: PhoneFacts | None = None
        self.rest_looks: list[tuple[float, dict[str, str]]] = []  # of the wait for this run
        self._kept = Remembered()
        self._lasting: tuple[str, dict[str, str]] | None = None

    @property
    def address(self) -> str:
        """How adb reaches it; never its identity."""
        return self.link.address

    @property
    def known(self) -> PhoneFacts:
        """What the probe learned; asking before it is a mistake of ours."""
        assert self.facts is not None, f"{self.address} was not probed"
        return self.facts

    @property
    def memory(self) -> Remembered:
        """All that is worth keeping of this phone."""
        return self._kept.model_copy(update={"cooled": self.heat.known})

    @memory.setter
    def memory(self, kept: Remembered) -> None:
        self._kept = kept
        self.heat.known = kept.cooled

    def note_power(self, gauge: Gauge | None, idle_w: float | None) -> None:
        """Keep how the gauge speaks, and what the phone draws at rest."""
        self._kept = self._kept.model_copy(update={"gauge": gauge, "idle_w": idle_w})
        self.facts = self.known.model_copy(update={"gauge": gauge})

    def note_canary(self, key: str, record_ms: float) -> None:
        """Keep how long the canary takes on such cores and clocks."""
        records = {**self._kept.canary_ms, key: record_ms}
        self._kept = self._kept.model_copy(update={"canary_ms": records})

    def shell(self, words: Sequence[str], deadline: Deadline | None = None) -> Answer:
        """Run one command."""
        return self.batch([Command(words)], deadline)[0]

    def must(self, words: Sequence[str], deadline: Deadline | None = None) -> str:
        """Run one command that has to succeed, and answer what it printed."""
        answer = self.shell(words, deadline)
        if answer.status != 0:
            said = safe_text(answer.text) or f"status {answer.status}"
            raise ShellFailed(f"{self.address}: `{safe_text(shlex.join(words), 80)}`: {said}")
        return answer.text

    def batch(
        self, commands: Sequence[Command], deadline: Deadline | None = None, limit: int = MIB
    ) -> list[Answer]:
        """Run commands one after the other in one round trip."""
        return [_answer(reply) for reply in self.exchange(commands, deadline, limit)]

    def exchange(
        self, commands: Sequence[Command], deadline: Deadline | None = None, limit: int = MIB
    ) -> tuple[Reply, ...]:
        """The same, with what they printed as bytes."""
        lines = [command.line() for command in commands]
        return self.link.exchange(lines, deadline or Deadline.after(CALL_S), limit)

    def read_nodes(self, paths: Iterable[str], deadline: Deadline | None = None) -> dict[str, str]:
        """Read kernel nodes in one round trip; what cannot be read is left out."""
        wanted = list(paths)
        nodes = whole_nodes(self.batch([reading(wanted)], deadline)[0].text)
        return {path: nodes[path] for path in wanted if path in nodes}

    def find_nodes(
        self, patterns: Iterable[str], deadline: Deadline | None = None
    ) -> dict[str, str]:
        """Read every kernel node whose path matches a pattern with stars, in one round trip."""
        wanted = list(patterns)
        for pattern in wanted:
            if _PATTERN.fullmatch(pattern) is None:
                raise PhoneTrouble(f"'{safe_text(pattern)}' is no pattern of kernel nodes")
        line = f'grep -s "" /dev/null {" ".join(wanted)} {UPTIME} </dev/null'
        reply = self.link.exchange([line], deadline or Deadline.after(CALL_S))[0]
        nodes = whole_nodes(reply.output.decode(errors="replace"))
        del nodes[UPTIME]
        return nodes

    def lasting_nodes(self, patterns: Iterable[str], boot_id: str) -> dict[str, str]:
        """The same for nodes that the kernel makes at boot and leaves alone: read once a boot."""
        if self._lasting is None or self._lasting[0] != boot_id:
            self._lasting = (boot_id, self.find_nodes(patterns))
        return self._lasting[1]

    def write_node(self, path: str, value: str, deadline: Deadline | None = None) -> None:
        """Write one kernel node."""
        answer = self.batch([writing(path, value)], deadline)[0]
        if answer.status != 0:
            raise ShellFailed(f"{path} did not take '{safe_text(value)}': {safe_text(answer.text)}")

    def push(
        self, content: bytes, path: str, mode: int = 0o644, deadline: Deadline | None = None
    ) -> None:
        """Put a file on the phone: whole and checked under its name, or not at all."""
        deadline = deadline or Deadline.after(PUSH_S)
        # adb writes as its own user, so the part lands where that user may write; root moves it.
        part = f"/data/local/tmp/farmhand-{secrets.token_hex(4)}.part"
        self.link.send_file(content, part, mode, deadline)
        folder, digest = str(PurePosixPath(path).parent), sha256(content).hexdigest()
        words = ["sh", "-c", _TAKE_OVER, part, path, folder, f"{mode:o}", digest]
        taken, _ = self.batch([Command(words), Command(["rm", "-f", part])], deadline)
        if taken.status == _DAMAGED:
            raise PhoneTrouble(f"{path} arrived damaged on {self.address}")
        if taken.status != 0:
            raise ShellFailed(f"{path} on {self.address}: {safe_text(taken.text)}")

    def pull(self, path: str, limit: int, deadline: Deadline | None = None) -> bytes:
        """Fetch a file of at most that many bytes."""
        cat = [Command(["cat", path])]
        reply = self.exchange(cat, deadline or Deadline.after(PUSH_S), limit)[0]
        if reply.status != 0:
            said = safe_text(reply.output[:400].decode(errors="replace"))
            raise ShellFailed(f"{path} cannot be fetched from {self.address}: {said}")
        return reply.output

    def uptime_s(self, deadline: Deadline | None = None) -> float:
        """The phone's own clock, the time axis of everything physical."""
        return self.note_uptime(self.read_nodes([UPTIME], deadline).get(UPTIME, ""))

    def note_uptime(self, text: str) -> float:
        """Read a text of /proc/uptime that came with other nodes."""
        try:
            uptime = float(text.split(maxsplit=1)[0])
        except (IndexError, ValueError):
            uptime = -1.0
        if not 0 <= uptime < UPTIME_MAX_S:  # nan and inf fail this too
            raise PhoneTrouble(f"{self.address} does not tell its uptime")
        self.clock.observe(time.monotonic(), uptime)
        return uptime

    def boot_id(self, deadline: Deadline | None = None) -> str:
        """Which boot this is: changes exactly when the phone restarts."""
        return safe_text(self.read_nodes([BOOT_ID], deadline).get(BOOT_ID, ""), 64)

    def close(self) -> None:
        """Let go of the link."""
        self.link.close()


def _answer(reply: Reply) -> Answer:
    return Answer(reply.status, reply.output.decode(errors="replace"))


def reading(paths: Iterable[str]) -> Command:
    """A command that prints kernel nodes, and the framework's where asked, for whole_nodes.

    The clock comes last: where it stands in full, nothing before it was cut off.
    """
    wanted = list(paths)
    kernel = [path for path in wanted if path != UPTIME and not is_framework(path)]
    # grep names the file before each line when there are several: /dev/null makes it several.
    words = ["grep", "-s", "", "/dev/null", *kernel, UPTIME]
    if any(map(is_framework, wanted)):
        return Command(["sh", "-c", f"{shlex.join(words)}; dumpsys thermalservice"])
    return Command(words)


def writing(path: str, value: str) -> Command:
    """A command that writes one kernel node, and nothing but a kernel node."""
    if not is_writable(path):
        raise PhoneTrouble(f"'{safe_text(path)}' is not a node that the farm may write")
    return Command(["echo", value], into=path)


def is_writable(path: str) -> bool:
    """Whether the farm may write this path: kernel nodes only."""
    return _WRITABLE.fullmatch(path) is not None and ".." not in path


def whole_nodes(text: str) -> dict[str, str]:
    """The nodes that `reading` shows; half a number is a number too, so a part is not enough."""
    if _CLOCK.search(text) is None:
        raise PhoneTrouble("The phone's answer was cut short.")
    return split_nodes(text)


def split_nodes(text: str) -> dict[str, str]:
    """Take `path:line` lines apart; a node of several lines keeps them all."""
    nodes: dict[str, list[str]] = {}
    told = []
    for line in text.splitlines():
        match = _NODE_LINE.fullmatch(line)
        if match:
            nodes.setdefault(match[1], []).append(match[2])
        else:
            told.append(line)
    framework = parse_thermalservice("\n".join(told)) if told else {}
    return {path: "\n".join(lines) for path, lines in nodes.items()} | framework


def phone_clock_ratio(phone: Phone, deadline: Deadline) -> float:
    """Measure phone seconds per host second from two looks at its clock."""
    first = time.monotonic()
    phone.uptime_s(deadline)
    while time.monotonic() - first < 0.1 and not deadline.expired:
        time.sleep(0.02)
    phone.uptime_s(deadline)
    return phone.clock.value
