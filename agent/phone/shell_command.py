"""Commands for a phone's shell, and what they print taken apart. Pure.

No string reaches the shell unquoted: a command is a list of words, and its output goes to a path.
"""

import re
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from agent.phone.phone_paths import UPTIME
from agent.phone.thermalservice import is_thermalservice, parse_thermalservice
from workloads.protocol.faults import PhoneTrouble
from workloads.text import safe_text

_WRITABLE = re.compile(r"/(sys|proc/sys|dev/cpuset)/[A-Za-z0-9_./:,@-]+")
# Kernel paths contain no colon, except in some folders: iio:device0, intel-rapl:0:1, soc:NAME, and
# supplies with the address of a game pad or of a port: ucsi-source-psy-USBC000:001.
_NODE_LINE = re.compile(
    r"(/sys/class/power_supply/[^/]*/[a-z_]+"
    r"|/(?:[^:]|:(?=device\d)|(?<=/soc):(?=[a-z])|(?<=intel-rapl):|(?<=intel-rapl:\d):(?=\d/))*)"
    r":(.*)",
    re.DOTALL,
)
# When init stops adbd, as several phones do when the cable is pulled, it kills everything in adbd's
# cgroup, whatever its session. Only root may leave the group, so elsewhere this has no effect; on a
# computer the groups have other names. 0 is the process that writes.
_LEAVE_ADBD_GROUP = (
    "while read -r group; do case $group in "
    "*:cpuacct:/uid_*) echo 0 >/acct/cgroup.procs;; "
    "*:memory:*/uid_*) echo 0 >/dev/memcg/cgroup.procs;; "
    "0::/uid_*) echo 0 >/sys/fs/cgroup/cgroup.procs;; "
    "esac; done </proc/self/cgroup 2>/dev/null; "
)
_UPTIME_LINE = re.compile(rf"^{UPTIME}:\d+\.\d\d \d+\.\d\d$", re.MULTILINE | re.ASCII)


class ShellResult(NamedTuple):
    """Exit status and output of a command; the text is the phone's: show it with safe_text only."""

    status: int
    text: str


@dataclass(frozen=True)
class ShellCommand:
    """A command as words, and the file its output goes to; a detached one prints its pid."""

    words: Sequence[str]
    into: str | None = None
    detached: bool = False

    def line(self) -> str:
        """The shell line; stdin is closed so that the command cannot read the next line."""
        into = f" >{shlex.quote(self.into)}" if self.into is not None else ""
        line = f"{shlex.join(self.words)} </dev/null{into} 2>&1"
        return f"{{ {_LEAVE_ADBD_GROUP}exec {line}; }} &\necho $!" if self.detached else line


def read_nodes_command(paths: Iterable[str]) -> ShellCommand:
    """The command that prints kernel nodes, and thermalservice values, for parse_complete_nodes.

    /proc/uptime comes last: if it is complete, nothing before it was cut off.
    """
    wanted = list(paths)
    kernel = [path for path in wanted if path != UPTIME and not is_thermalservice(path)]
    # grep prints the file name before each line only if there are several files, hence /dev/null.
    words = ["grep", "-s", "", "/dev/null", *kernel, UPTIME]
    if any(map(is_thermalservice, wanted)):
        return ShellCommand(["sh", "-c", f"{shlex.join(words)}; dumpsys thermalservice"])
    return ShellCommand(words)


def write_node_command(path: str, value: str) -> ShellCommand:
    """The command that writes one kernel node; any other path is refused."""
    if not is_writable(path):
        raise PhoneTrouble(f"'{safe_text(path)}' is not a kernel node that Farmhand may write")
    return ShellCommand(["echo", value], into=path)


def is_writable(path: str) -> bool:
    """Whether Farmhand may write this path: kernel nodes only."""
    return _WRITABLE.fullmatch(path) is not None and ".." not in path  # guard: kernel-nodes-only


def parse_complete_nodes(text: str) -> dict[str, str]:
    """Parse what read_nodes_command printed; fail if it was cut off.

    A truncated number would still parse as a number.
    """
    if _UPTIME_LINE.search(text) is None:  # guard: truncated-output
        raise PhoneTrouble("the phone's output was cut off before its end")
    return parse_nodes(text)


def parse_nodes(text: str) -> dict[str, str]:
    """Parse `path:line` lines; a node of several lines keeps them all."""
    nodes: dict[str, list[str]] = {}
    other_lines = []
    for line in text.splitlines():
        match = _NODE_LINE.fullmatch(line)
        if match:
            nodes.setdefault(match[1], []).append(match[2])
        else:
            other_lines.append(line)
    thermal = parse_thermalservice("\n".join(other_lines)) if other_lines else {}
    return {path: "\n".join(lines) for path, lines in nodes.items()} | thermal
