"""The records that a run writes to out.jsonl, as kernels/runner/runner.h defines them.

A write that fails is the fault `io`.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import fsum

from agent.virtual.files.file_tree import error_text
from agent.virtual.physics.gpu_model import GpuSettings
from agent.virtual.physics.step_timing import Array, OpTable, SimulatedOp, StepTiming
from agent.virtual.runner.plan_header import PlanHeader
from agent.virtual.runner.runner_contract import (
    CONTRACT,
    RunnerExit,
    RunnerFailure,
    RunnerRecord,
    RunSettings,
    encode_record,
)
from agent.virtual.twin.gpu_error import gpu_time_error
from agent.virtual.twin.simulated_provenance import RunCondition, provenance_by_family
from agent.virtual.virtual_phone import VirtualPhone


class JsonlFile:
    """An open file; every line is whole or absent."""

    def __init__(self, phone: VirtualPhone, path: str, uid: int, append: bool = False) -> None:
        self._phone = phone
        self._path = path
        self._uid = uid
        try:
            self._node = phone.tree.open_for_writing(path, uid, append=append)
        except OSError as error:
            raise RunnerFailure(
                RunnerExit.IO, f"cannot write {path}: {error_text(error)}"
            ) from None

    def write(self, record: RunnerRecord) -> None:
        self.write_text(encode_record(record))

    def write_text(self, line: str) -> None:
        """Append a line that is already JSON."""
        try:
            self._phone.tree.append(self._node, f"{line}\n".encode(), self._uid)
        except OSError as error:
            raise RunnerFailure(
                RunnerExit.IO, f"cannot write {self._path}: {error_text(error)}"
            ) from None


_TRACE_OPS_MAX = 2000  # per line; the contract's limit of 64 KiB has room for more


def hello_record(
    phone: VirtualPhone, pid: int, mask: int, plan: PlanHeader, gpu: GpuSettings
) -> RunnerRecord:
    """Return the first record of a run."""
    gpu_error = None
    if plan.backend != "cpu":
        gpu_error = gpu_time_error(phone.profile, OpTable(plan.ops, plan.engine), gpu)
    return {
        "line": "hello",
        "contract": CONTRACT,
        "pid": pid,
        "case": plan.case,
        "mask": f"{mask:x}",
        "threads": plan.threads,
        "t_ns": phone.uptime_ns(),
        "provenance": provenance_by_family(
            phone.profile,
            plan.engine,
            plan.backend,
            RunCondition.of(phone.soc, mask, plan.training, gpu_error),
        ),
    }


@dataclass(frozen=True, slots=True)
class StepShares:
    """Which shares of a step its phases take, and the GPU's copies, queue and kernels."""

    load: float
    backward: float
    update: float
    gpu: tuple[float, float, float] | None  # None: the cores compute
    ops: Array  # of each operation in the time that is not load

    @classmethod
    def of(cls, plan: PlanHeader, timing: StepTiming, op_shares: Array) -> "StepShares":
        """Add up the operations of each phase."""
        load = timing.load_s / timing.seconds
        phases = [phase_index(op) for op in plan.ops]
        backward, update = (
            (1.0 - load) * fsum(s for s, p in zip(op_shares, phases, strict=True) if p == phase)
            for phase in (1, 2)
        )
        copy_s, queue_s, compute_s = timing.gpu or (0.0, 0.0, 0.0)
        gpu = (copy_s / timing.seconds, queue_s / timing.seconds, compute_s / timing.seconds)
        return cls(load, backward, update, gpu if timing.gpu else None, op_shares)

    def text(self, length_ns: int) -> str:
        """Return the members phases_ns and device_ns of a window."""
        load_ns, backward_ns, update_ns = (
            int(length_ns * share) for share in (self.load, self.backward, self.update)
        )
        forward_ns = length_ns - load_ns - backward_ns - update_ns
        phases = f'"phases_ns":[{load_ns},{forward_ns},{backward_ns},{update_ns}]'
        if self.gpu is None:
            return phases
        copy_ns, queue_ns, compute_ns = (int(length_ns * share) for share in self.gpu)
        return f'{phases},"device_ns":[{copy_ns},{queue_ns},{compute_ns}]'


def input_record(plan: PlanHeader) -> RunnerRecord:
    """Return the record of --input storage."""
    return {
        "line": "input",
        "source": "storage",
        "direct": True,
        "batch_bytes": plan.stored_batch_bytes,
    }


def trace_records(step: int, started_ns: int, op_ns: Array) -> Iterator[RunnerRecord]:
    """Yield when the operations of a step ended, in as many records as they need."""
    for first in range(0, len(op_ns), _TRACE_OPS_MAX):
        ends = op_ns[first : first + _TRACE_OPS_MAX].cumsum().round().astype(int).tolist()
        yield {"line": "trace", "step": step, "t_ns": started_ns, "first": first, "ends_ns": ends}
        started_ns += ends[-1]


def done_record(
    steps: int,
    measured_ns: int,
    now_ns: int,
    peak_rss_kb: int,
    loss: tuple[float, float] | None = None,
) -> RunnerRecord:
    """Return the last record of a run that succeeded; a loss is in false output only."""
    loss_first, loss_last = loss or (None, None)
    return {
        "line": "done",
        "steps": steps,
        "ns": measured_ns,
        "t_ns": now_ns,
        "peak_rss_kb": peak_rss_kb,
        # A virtual phone computes nothing, so it has no loss and no counts.
        "loss_first": loss_first,
        "loss_last": loss_last,
        "parameters_changed": True,
        "parameters": None,
        "macs": None,
        "learned": None,
        "moved": None,
        "fallbacks": 0,
        "answer_error": None,
        "first_step_ns": None,
        "waited_ns": 0,
    }


def phase_index(op: SimulatedOp) -> int:
    """Return 0 for forward, 1 for backward, 2 for update, by the names that lowering gives."""
    if op.kind == "update":
        return 2
    return 1 if "gradient" in op.name else 0


@dataclass(frozen=True, slots=True)
class ClosedWindow:
    """Consecutive steps that were timed together."""

    steps: int
    opened_ns: int
    length_ns: int
    shortest_ns: int
    longest_ns: int


class WindowWriter:
    """The part of out.jsonl between the records before the steps and the last one."""

    def __init__(self, output: JsonlFile, settings: RunSettings) -> None:
        self._output = output
        self._settings = settings
        self._trace_count = 0
        self._untraced_from = 0  # the first step after the last traced one
        self.steps = 0  # in closed windows
        self.ns = 0

    def write(self, window: ClosedWindow, shares: StepShares, step_s: float) -> None:
        """Write a window and the traced steps in it; `step_s` is the time of an expected step."""
        # Formatted by hand because a long run writes thousands of these.
        self._output.write_text(
            f'{{"line":"window","first":{self.steps},"n":{window.steps},'
            f'"t_ns":{window.opened_ns},"ns":{window.length_ns},"ns_min":{window.shortest_ns},'
            f'"ns_max":{window.longest_ns},{shares.text(window.length_ns)}}}'
        )
        self._write_traces(window, shares, step_s)
        self.steps += window.steps
        self.ns += window.length_ns

    def _write_traces(self, window: ClosedWindow, shares: StepShares, step_s: float) -> None:
        """Write when the operations of this window's traced steps ended."""
        settings, step_ns = self._settings, window.length_ns / window.steps
        while self._trace_count < settings.trace_steps:
            expected_s = min(settings.seconds, settings.max_seconds)
            expected_steps = max(settings.steps, int(expected_s / step_s))
            distance = max(1, expected_steps // settings.trace_steps)
            # A slowdown shortens the distance; still no step is traced twice.
            step = max(self._trace_count * distance, self._untraced_from)
            if step >= self.steps + window.steps:
                return
            offset = max(step - self.steps, 0)
            load_ns = shares.load * step_ns
            started_ns = window.opened_ns + round(offset * step_ns + load_ns)
            op_ns = shares.ops * (step_ns - load_ns)
            for record in trace_records(self.steps + offset, started_ns, op_ns):
                self._output.write(record)
            self._trace_count += 1
            self._untraced_from = self.steps + offset + 1
