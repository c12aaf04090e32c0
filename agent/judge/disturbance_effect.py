"""What a disturbance did to the steps of the run itself. Pure.

Other work that comes and goes shows what it costs: steps are slower while it is there. Where that
is certainly less than a percent of the run, the run counts, with a remark. Work that never changes
shows nothing, and the reason stays.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from agent.collect.cpu_usage import OWN_STAT, core_ticks, ticks_together
from agent.judge.observe_steps import HARMLESS, StepSeries
from agent.judge.run_observation import RunObservation
from workloads.protocol.verdict import Reason, ReasonCode, Validity

PARTS, PARTS_MIN = 24, 12
ERRORS = 2.0  # standard errors
Array = NDArray[np.float64]
Levels = tuple[NDArray[np.int64], Array]  # moments, and the accumulated disturbance until then


class Effect(NamedTuple):
    """The relative change of the run's step time, and two standard errors of it."""

    change: float
    error: float

    @property
    def is_harmless(self) -> bool:
        """Whether it is certainly less than one percent."""
        return abs(self.change) + self.error < HARMLESS


def effect_on_steps(series: StepSeries, levels: Levels) -> Effect | None:
    """Compare the parts of a run by how much they were disturbed (least squares)."""
    t_ns, total = levels
    count = min(PARTS, len(t_ns) // 3)
    if count < PARTS_MIN:
        return None
    edges = np.linspace(t_ns[0], t_ns[-1], count + 1)
    level = np.diff(np.interp(edges, t_ns, total)) / np.diff(edges)
    middle = (series.t_ns + series.end_ns) / 2
    part = np.searchsorted(edges, middle, "right") - 1
    known = [index for index in range(count) if (part == index).any()]
    if len(known) < PARTS_MIN:
        return None
    steps = np.array([np.log(np.median(series.step_ms[part == index])) for index in known])
    level = level[known]
    off = level - level.mean()
    square = float(off @ off)
    if square <= 0:
        return None
    slope = float(off @ steps) / square
    rest = steps - steps.mean() - slope * off
    error = (float(rest @ rest) / (len(known) - 2) / square) ** 0.5
    usual = float(level.mean())
    return Effect(slope * usual, ERRORS * error * usual)


def weigh_disturbances(run: RunObservation, reasons: Sequence[Reason]) -> list[Reason]:
    """Turn the reasons into remarks whose disturbance certainly hardly changed the steps."""
    series = StepSeries.of(run.measured_windows) if run.measured_windows else None
    return [_weighed(run, series, reason) for reason in reasons]


def _weighed(run: RunObservation, series: StepSeries | None, reason: Reason) -> Reason:
    levels_of = _LEVELS.get(reason.code)
    if series is None or levels_of is None or reason.validity is not Validity.SUSPECT:
        return reason
    levels = levels_of(run)
    effect = effect_on_steps(series, levels) if levels is not None else None
    if effect is None or not effect.is_harmless:
        return reason
    values = {name: value for name, value in reason.values.items() if name != "limit"}
    return Reason.remark(reason.code, **values, effect=effect.change, error=effect.error)


def _own_cores(run: RunObservation) -> Levels | None:
    """The processor time that others took of the run's cores."""
    timed = run.readings.within(run.measured_span)
    own = timed.numbers(OWN_STAT)
    rows, busy, _ = ticks_together(timed, run.probe.cores.cpus)
    known = [index for index, row in enumerate(rows) if row < len(own) and own[row] is not None]
    if not known:
        return None
    t_ns = np.array([timed.t_ns[rows[index]] for index in known])
    others = np.array([float(busy[index]) - float(own[rows[index]] or 0) for index in known])
    return t_ns, others


def _other_cores(run: RunObservation) -> Levels | None:
    """The processor time of the cores that the run may not use."""
    timed = run.readings.within(run.measured_span)
    others = sorted(set(core_ticks(timed).cpu.tolist()) - {*run.probe.cores.cpus})
    rows, busy, _ = ticks_together(timed, others)
    t_ns = np.array([timed.t_ns[row] for row in rows])
    return (t_ns, busy.astype(float)) if others and len(rows) else None


_LEVELS: Mapping[ReasonCode, Callable[[RunObservation], Levels | None]] = {
    ReasonCode.OWN_CORES_SHARED: _own_cores,
    ReasonCode.OTHER_CORES_BUSY: _other_cores,
    ReasonCode.OTHER_APPS_BUSY: _other_cores,
}
