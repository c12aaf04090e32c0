"""Whether a workload fitted into a phone's memory, derived from a run's fault and metrics."""

from workloads.protocol.faults import Fault, FaultKind
from workloads.protocol.metrics import Metric
from workloads.text import TextEnum

SWAPPED_MIN_MB = 16.0  # less may come from another process
# What the runner takes besides its plan: code, stacks and buffers; 2.3 MB with 1 to 8 threads.
RUNNER_MB = 4.0
# The same with the workspace that its threads share, where the engine cannot be asked for it. BERT
# with eight threads takes the most of all workloads: half of it.
ENGINE_OVERHEAD_MB = 32.0


class MemoryOutcome(TextEnum):
    """Whether a workload fitted into a phone's memory."""

    FITS = "fits", "the run did not swap"
    SWAPS = "swaps", "at least 16 MB were swapped out"
    TOO_LARGE = "predicted too large", "the plan does not fit; it was not tried"
    NEVER_STARTS = "never starts", "the runner ended before its first step"
    KILLED = "killed", "the phone killed the runner because memory ran out"
    DIES_LATER = "dies later", "the runner ended in the middle of its work"


_FAULT_OUTCOMES = {
    FaultKind.TOO_LARGE: MemoryOutcome.TOO_LARGE,
    FaultKind.NEVER_STARTS: MemoryOutcome.NEVER_STARTS,
    FaultKind.KILLED: MemoryOutcome.KILLED,
    FaultKind.DIES_LATER: MemoryOutcome.DIES_LATER,
}


def memory_outcome(fault: Fault | None, metrics: dict[str, Metric]) -> MemoryOutcome | None:
    """Return what a run shows about memory; None if it failed for another reason."""
    if fault is not None:
        return _FAULT_OUTCOMES.get(fault.kind)
    swapped = metrics.get("swapped_mb")
    has_swapped = swapped is not None and swapped.value >= SWAPPED_MIN_MB
    return MemoryOutcome.SWAPS if has_swapped else MemoryOutcome.FITS
