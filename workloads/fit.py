"""Fit: what became of a run as far as memory is concerned, as data. Pure."""

from enum import StrEnum

from workloads.fault import Fault
from workloads.measure import Metric

SWAPS_MB = 16.0  # less may be anybody's
# What the runner takes beside its plan: code, stacks, and the workspace that its threads share,
# which is known to the engine alone. Eight threads of BERT, the most of all workloads, take half.
ALLOWANCE_MB = 32.0


class Fit(StrEnum):
    """Whether a workload fits into a phone."""

    FITS = "fits"
    SWAPS = "swaps"
    TOO_LARGE = "predicted too large"  # and therefore not tried
    NEVER_STARTS = "never starts"
    KILLED = "killed"
    DIES_LATER = "dies later"


# the faults that say so, by their kind
_OF_FAULT = {
    "TooLarge": Fit.TOO_LARGE,
    "NeverStarts": Fit.NEVER_STARTS,
    "Killed": Fit.KILLED,
    "DiesLater": Fit.DIES_LATER,
}


def fit_of(fault: Fault | None, metrics: dict[str, Metric]) -> Fit | None:
    """What a run says about memory; None when it failed for another reason."""
    if fault is not None:
        return _OF_FAULT.get(fault.kind)
    swapped = metrics.get("swapped_mb")
    return Fit.SWAPS if swapped is not None and swapped.value >= SWAPS_MB else Fit.FITS
