"""What is remembered of a phone's heat, from one run to the next."""

from workloads.heat import CoolingFit, Reading, fit_cooling

TRACE_MAX = 120
GOOD_FIT_C = 0.6


class HeatMemory:
    """The cooling trace since the phone was last disturbed, and where it came to rest before."""

    def __init__(self) -> None:
        self.trace: list[Reading] = []
        self.rest_c: float | None = None

    def record(self, t_s: float, temp_c: float) -> None:
        """Take a reading; a clock that went back means a reboot, and a new trace."""
        if self.trace and t_s < self.trace[-1].t_s:
            self.trace.clear()
        if not self.trace or t_s > self.trace[-1].t_s:
            self.trace.append(Reading(t_s, temp_c))
        if len(self.trace) > TRACE_MAX:
            # The past is kept at half the detail; the last minute decides about the slope.
            half = TRACE_MAX // 2
            self.trace[:half] = self.trace[:half:2]

    def fit(self) -> CoolingFit | None:
        """Explain how the phone cools, as far as the trace and the past allow."""
        fit = fit_cooling(self.trace, self.rest_c)
        if fit is not None and fit.error_c < GOOD_FIT_C and len(fit.taus_s) <= 6:
            self.rest_c = fit.best[1]
        return fit

    def disturbed(self) -> None:
        """Start a new trace: the phone has worked."""
        self.trace.clear()
