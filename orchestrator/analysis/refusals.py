"""Why a question about figures gets no answer."""

from workloads.fault import Refused


class NothingMatches(Refused):
    """Nothing matches what was asked for."""


class NothingToCompare(Refused):
    """There is no valid run to compare."""


class Mixture(Refused):
    """Figures of unlike making are not compared unless that is meant."""
