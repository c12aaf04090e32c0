"""What a phone should reach, by other phones of the same product. Pure.

A first run has no earlier runs to be compared with, and a disturbance that lasts since before it
shows in none of its signs. Units of one product differ by a few percent in speed, so a run far
outside of what the others need is not taken on trust. Hot phones differ by more: of a long run only
the canaries are compared.
"""

from collections.abc import Sequence
from statistics import median

from orchestrator.analysis.joint_rules import STEP_MS, RunNumbers
from workloads.protocol.verdict import Reason, ReasonCode

PHONES_MIN = 2
BETWEEN_PHONES = 0.15  # relative; units of one product, also worn ones, differ by less
COMPARED = (STEP_MS, "canary_arithmetic_ms", "canary_memory_ms")


def outside_of_peers(run: RunNumbers, peers: Sequence[Sequence[RunNumbers]]) -> tuple[Reason, ...]:
    """Return the reason if a run is far from the runs of each other phone of its product."""
    for name in COMPARED[1:] if run.is_long else COMPARED:
        values = ([each.values[name] for each in runs if name in each.values] for runs in peers)
        usual = [median(known) for known in values if known]
        if name not in run.values or len(usual) < PHONES_MIN:
            continue
        low, high = min(usual) * (1 - BETWEEN_PHONES), max(usual) * (1 + BETWEEN_PHONES)
        if not low <= run.values[name] <= high:
            reason = Reason.suspect(
                ReasonCode.OUTSIDE_EXPECTED,
                metric=name,
                value=run.values[name],
                low=low,
                high=high,
                count=len(usual),
            )
            return (reason,)
    return ()
