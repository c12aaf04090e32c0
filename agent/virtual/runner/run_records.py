"""The records that a run writes to out.jsonl, as kernels/runner/runner.h defines them."""

from collections.abc import Iterator

from agent.virtual.physics.step_timing import Array, SimulatedOp
from agent.virtual.process_table import Process
from agent.virtual.runner.plan_header import PlanHeader
from agent.virtual.runner.runner_contract import CONTRACT, RunnerRecord
from agent.virtual.twin.simulated_provenance import provenance_by_family
from agent.virtual.virtual_phone import VirtualPhone

_TRACE_OPS_MAX = 2000  # per line; the contract's limit of 64 KiB has room for more


def hello_record(phone: VirtualPhone, process: Process, plan: PlanHeader) -> RunnerRecord:
    """Return the first record of a run."""
    return {
        "line": "hello",
        "contract": CONTRACT,
        "pid": process.pid,
        "case": plan.case,
        "mask": f"{process.mask:x}",
        "threads": plan.threads,
        "t_ns": phone.uptime_ns(),
        "provenance": provenance_by_family(phone.profile, plan.engine),
    }


def trace_records(step: int, started_ns: int, op_ns: Array) -> Iterator[RunnerRecord]:
    """Yield when the operations of a step ended, in as many records as they need."""
    for first in range(0, len(op_ns), _TRACE_OPS_MAX):
        ends = op_ns[first : first + _TRACE_OPS_MAX].cumsum().round().astype(int).tolist()
        yield {"line": "trace", "step": step, "t_ns": started_ns, "first": first, "ends_ns": ends}
        started_ns += ends[-1]


def done_record(steps: int, measured_ns: int, now_ns: int, peak_rss_kb: int) -> RunnerRecord:
    """Return the last record of a run that succeeded."""
    return {
        "line": "done",
        "steps": steps,
        "ns": measured_ns,
        "t_ns": now_ns,
        "peak_rss_kb": peak_rss_kb,
        # A virtual phone computes nothing, so it has no loss and no counts.
        "loss_first": None,
        "loss_last": None,
        "parameters_changed": True,
        "parameters": None,
        "macs": None,
        "learned": None,
        "moved": None,
        "fallbacks": 0,
        "answer_error": None,
    }


def phase_index(op: SimulatedOp) -> int:
    """Return 0 for forward, 1 for backward, 2 for update, by the names that lowering gives."""
    if op.kind == "update":
        return 2
    return 1 if "gradient" in op.name else 0
