"""The runner's sampler: reads the listed nodes once per period, at exact phone times."""

import errno
import json
import re
from collections.abc import Callable
from functools import reduce
from operator import and_, or_

from agent.virtual.files.file_nodes import FileNode, LiveNode, live_node
from agent.virtual.phone_clock import ScheduledAction
from agent.virtual.process_table import Process
from agent.virtual.runner.run_records import JsonlFile
from agent.virtual.runner.runner_contract import RunnerExit, RunnerFailure, RunnerRecord
from agent.virtual.virtual_phone import VirtualPhone

_INTEGER = re.compile(r"-?(?:0|[1-9]\d{0,17})")
_TEXT_BYTES_MAX = 256
_WHOLE_BYTES_MAX = 1024
_UNREADABLE = live_node(str)  # reads as null


class NodeSampler:
    """Reads DIR/nodes and appends to DIR/readings.jsonl until it is stopped."""

    def __init__(
        self,
        phone: VirtualPhone,
        folder: str,
        process: Process,
        period_s: float,
        on_fault: Callable[[RunnerFailure], None],
    ) -> None:
        self._phone = phone
        self._process = process
        self._uid = uid = process.uid
        self._period_s = period_s
        self.readings = 0
        self.thread = 0  # the id of the thread that samples
        self._on_fault = on_fault
        self._next_sample: ScheduledAction | None = None
        node_list = phone.tree.read(f"{folder}/nodes", uid).decode("utf-8", "replace")
        entries = [line.partition("\t") for line in node_list.splitlines() if line.strip()]
        self._paths = [path for path, _, _ in entries]
        self._nodes = [
            (
                self._find_node(path, reading_mode),
                _WHOLE_BYTES_MAX if reading_mode else _TEXT_BYTES_MAX,
            )
            for path, _, reading_mode in entries
        ]
        self._file = JsonlFile(phone, f"{folder}/readings.jsonl", uid, append=True)

    def start(self) -> None:
        self._file.write({"line": "nodes", "paths": self._paths})
        self.sample()

    def stop(self) -> None:
        if self._next_sample is not None:
            self._next_sample.cancel()
            self._next_sample = None

    def sample(self) -> None:
        """Read every node once, and schedule the next sample."""
        clock = self._phone.clock
        self._phone.soc.update()
        try:
            # Written out because it is most of what a busy phone does. Nodes are read through their
            # functions each time, because a fault may replace those in mid-run.
            values = ",".join(
                [
                    str(node.number() if node.number is not None else self._text(node, max_bytes))
                    for node, max_bytes in self._nodes
                ]
            )
        except OSError:
            values = ",".join([self._text_or_null(*node) for node in self._nodes])
        now_ns = self._phone.uptime_ns()
        self.readings += 1
        try:
            self._file.write_text(f'{{"line":"reading","t_ns":{now_ns},"v":[{values}]}}')
        except RunnerFailure as fault:
            self.stop()
            self._on_fault(fault)
            return
        self._next_sample = clock.schedule(clock.now + self._period_s, self.sample)

    def cost_record(self) -> RunnerRecord:
        """Return the cost of sampling: none, because the simulated work does not wait for it."""
        return {
            "line": "sampler",
            "readings": self.readings,
            "cpu_ns": 0,
            "late_p50_ns": 0,
            "late_p99_ns": 0,
            "late_max_ns": 0,
            "core": -1,
        }

    def _find_node(self, path: str, reading_mode: str) -> LiveNode:
        """Return the node behind a path, to be read as a number or a text."""
        if reading_mode == "cycles":  # counters are for root, and for all if the shell allows it
            is_hardened = self._phone.properties.get("security.perf_harden") != "0"
            return _UNREADABLE if is_hardened and self._uid else live_node(self._cycles)
        try:
            process_path = path.replace("/proc/self/", f"/proc/{self._process.pid}/", 1)
            node, _ = self._phone.tree.resolve(process_path, self._uid)
        except OSError:
            return _UNREADABLE
        if not node.allows(self._uid, 4):
            return _UNREADABLE
        if reading_mode == "masks":
            return live_node(self._thread_masks)
        if reading_mode == "cores":
            return live_node(lambda: core_times(self._content(node)))
        if reading_mode == "ticks":
            return live_node(lambda: _process_ticks(self._content(node)))
        if reading_mode == "memory":
            return live_node(lambda: _memory_rows(self._content(node)))
        if reading_mode == "whole":
            return live_node(lambda: _join_lines(self._content(node)))
        return node if isinstance(node, LiveNode) else live_node(lambda: self._content(node))

    def _thread_masks(self) -> str:
        """Return the threads, the cores that all and any may use, and the threads elsewhere."""
        if not self.thread:  # the command `sample`: a process that does nothing else
            return "0 0 0 0"
        process = self._process
        masks = {tid: mask for tid, mask in process.masks.items() if tid != self.thread}
        all_masks, any_masks = reduce(and_, masks.values()), reduce(or_, masks.values())
        unpinned = sum(process.pins.get(tid) != mask for tid, mask in masks.items())
        return f"{len(masks)} {all_masks:x} {any_masks:x} {unpinned}"

    def _cycles(self) -> str:
        """Return the cycles of the process, and the time in which they were counted."""
        cpu_s, cycles = self._process.cpu_s(), self._process.cycles()
        if not cpu_s:
            raise OSError(errno.ENODATA, "nothing was counted")
        return f"{cycles:.0f}/{cpu_s * 1e9:.0f}"

    def _content(self, node: FileNode) -> str:
        return self._phone.tree.read_node(node).decode("utf-8", "replace")

    def _text_or_null(self, node: LiveNode, max_bytes: int) -> str:
        try:
            return str(node.number()) if node.number is not None else self._text(node, max_bytes)
        except OSError:
            return "null"

    def _text(self, node: LiveNode, max_bytes: int) -> str:
        if node is _UNREADABLE:
            return "null"
        text = self._phone.tree.read_node(node).decode("utf-8", "replace")
        first = text.partition("\n")[0].strip()
        if _INTEGER.fullmatch(first):
            return first
        return json.dumps(first.encode()[:max_bytes].decode("utf-8", "ignore"))


def core_times(text: str) -> str:
    """Convert /proc/stat to CPU:BUSY/TOTAL in ticks, for every online core."""
    cores = []
    for line in text.splitlines():
        name, *words = line.split()
        if name.startswith("cpu") and name[3:].isdigit() and len(words) >= 5:
            ticks = [int(word) for word in words[:8]]  # guest time is already counted as user time
            total = sum(ticks)
            cores.append(f"{name[3:]}:{total - ticks[3] - ticks[4]}/{total}")
    return " ".join(cores)


def _process_ticks(text: str) -> str:
    """Convert /proc/PID/stat to user and system time, in ticks."""
    words = text.rpartition(")")[2].split()
    if len(words) < 13:
        raise OSError(errno.ENODATA, "not /proc/PID/stat")
    return str(int(words[11]) + int(words[12]))


def _memory_rows(text: str) -> str:
    """Convert /proc/meminfo to memory and swap: total and available, in kB."""
    rows = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
    names = ("MemTotal", "MemAvailable", "SwapTotal", "SwapFree")
    if not rows.keys() >= {*names}:
        raise OSError(errno.ENODATA, "not /proc/meminfo")
    return " ".join(rows[name].split()[0] for name in names)


def _join_lines(text: str) -> str:
    return ";".join(text.splitlines())


def has_node_list(phone: VirtualPhone, folder: str, uid: int) -> bool:
    try:
        phone.tree.read(f"{folder}/nodes", uid)
    except OSError:
        return False
    return True


def make_sampler(
    phone: VirtualPhone,
    folder: str,
    process: Process,
    period_s: float,
    on_fault: Callable[[RunnerFailure], None],
) -> NodeSampler:
    """Make the sampler of `sample`, which needs a node list."""
    if not has_node_list(phone, folder, process.uid):
        raise RunnerFailure(
            RunnerExit.IO, f"cannot read {folder}/nodes; write one node path per line there"
        )
    return NodeSampler(phone, folder, process, period_s, on_fault)
