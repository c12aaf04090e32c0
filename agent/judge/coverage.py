"""Which share of a run the readings behind a metric cover. Pure.

Sensors that end in the middle of a run would give a peak that is too low, and the energy of a part.
A metric whose readings do not cover the run is absent, with the reason.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from statistics import median

from agent.collect.cpu_usage import STAT
from agent.collect.readings import Span
from agent.judge.run_observation import RunObservation
from workloads.protocol.verdict import Reason, ReasonCode

COVERED_MIN = 0.9
PARTS = 20
READINGS_PER_PART = 2
HEAT, ENERGY, LOAD = "peak_temp_c", "energy_per_step_mj", "cpu_util_pct"
_GROUPS = {
    **dict.fromkeys(("peak_temp_c",), HEAT),
    **dict.fromkeys(("energy_j", "energy_net_j", "power_w", "steps_per_charge"), ENERGY),
    **dict.fromkeys((f"energy_per_{unit}_mj" for unit in ("step", "sample", "token")), ENERGY),
    **dict.fromkeys(("cpu_util_pct", "core_util_pct", "core_idle_share"), LOAD),
}


def group_of(name: str) -> str:
    """The metric that stands for all that are made of the same readings; empty for the others."""
    return _GROUPS.get(name.partition(".")[0], "")


def covered_shares(run: RunObservation) -> dict[str, float]:
    """The share of the run that the readings of each group cover; nothing where there are none."""
    temps = run.readings.hottest_c(run.probe.facts.cpu_zones)
    loads = [t_ns for t_ns, value in run.readings.series(STAT) if value]
    # A counter of energy misses nothing between two readings.
    watts = [t_ns for t_ns, _ in run.power.points] if run.power.counted is None else []
    found = {
        HEAT: _covered(run, [t_ns for t_ns, _ in temps], run.span),
        ENERGY: _covered(run, watts, run.measured_span),
        LOAD: _covered(run, loads, run.measured_span),
    }
    return {group: share for group, share in found.items() if share is not None}


def check_coverage(run: RunObservation) -> Iterator[Reason]:
    """Readings cover the run; a metric that they do not cover is left out, with this remark."""
    for metric, share in covered_shares(run).items():
        if share < COVERED_MIN:
            yield Reason.remark(ReasonCode.READINGS_ENDED, metric=metric, share=share)


def _covered(run: RunObservation, moments: Sequence[int], span: Span) -> float | None:
    """The share of the parts of a span that have a reading."""
    sampled = run.readings.within(span).t_ns
    if len(sampled) <= READINGS_PER_PART or not moments:
        return None  # the sampler itself is judged by its gaps
    start_ns, end_ns = span
    usual_ns = median(after - before for before, after in pairwise(sampled))
    length_ns = end_ns - start_ns
    parts = min(PARTS, max(1, int(length_ns / (READINGS_PER_PART * max(usual_ns, 1)))))
    found = {
        min(int((t_ns - start_ns) * parts / length_ns), parts - 1)
        for t_ns in moments
        if start_ns <= t_ns <= end_ns
    }
    return len(found) / parts
