"""The records that a run writes to out.jsonl, as kernels/runner/runner.h defines them."""

from collections.abc import Iterator
from dataclasses import dataclass
from math import fsum

from agent.virtual.physics.gpu_model import GpuSettings
from agent.virtual.physics.step_timing import Array, OpTable, SimulatedOp, StepTiming
from agent.virtual.runner.plan_header import PlanHeader
from agent.virtual.runner.runner_contract import CONTRACT, RunnerRecord
from agent.virtual.twin.gpu_error import gpu_time_error
from agent.virtual.twin.simulated_provenance import RunCondition, provenance_by_family
from agent.virtual.virtual_phone import VirtualPhone

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
