"""What is remembered of a phone's heat, from one run to the next."""

from collections.abc import Sequence

from workloads.heat import CoolingFit, Reading, fit_cooling

TRACE_MAX = 120
DIE_COOLS_S = 45.0  # the die gives its heat to the body first; only then does the body show


class HeatMemory:
    """The trace since the phone was last disturbed, and the coolest it was ever seen at rest."""

    def __init__(self) -> None:
        self.trace: list[Reading] = []
        self.rest_c: float | None = None

    def record(self, t_s: float, temp_c: float) -> None:
        """Take a reading; a clock that went back means a reboot, and a new trace."""
        if self.trace and t_s < self.trace[-1].t_s:
            self.trace.clear()
        if not self.trace or t_s > self.trace[-1].t_s:
            self.trace.append(Reading(t_s, temp_c))
            self.rest_c = temp_c if self.rest_c is None else min(self.rest_c, temp_c)
        if len(self.trace) > TRACE_MAX:
            # The past is kept at half the detail; the last minute decides about the slope.
            half = TRACE_MAX // 2
            self.trace[:half] = self.trace[:half:2]

    def fit(self) -> CoolingFit | None:
        """Explain how the phone cools, as far as the trace and the past allow."""
        falling = cooling_part(self.trace)
        # The coolest reading is news only if it is not the end of this very trace.
        known = self.rest_c is not None and falling and falling[-1].temp_c > self.rest_c + 0.5
        return fit_cooling(falling, self.rest_c if known else None)

    def disturbed(self) -> None:
        """Start a new trace: the phone has worked."""
        self.trace.clear()


def cooling_part(trace: Sequence[Reading]) -> Sequence[Reading]:
    """The part of a trace in which the body cools: after the peak, and after the die's own fall."""
    if not trace:
        return trace
    peak = max(trace, key=lambda reading: reading.temp_c)
    return [reading for reading in trace if reading.t_s >= peak.t_s + DIE_COOLS_S]
