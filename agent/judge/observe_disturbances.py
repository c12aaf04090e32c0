"""Disturbances of a run: other work, a suspend, a charger, a warming body. Pure."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from agent.collect.cpu_usage import (
    TICKS_PER_SECOND,
    CoreUsage,
    core_ticks,
    own_cores_shared_pct,
)
from agent.collect.energy import CHARGING, STATUS
from agent.collect.readings import Readings
from workloads.protocol.phone_facts import ThermalZone
from workloads.protocol.verdict import (
    OF_THE_MOMENT,
    Reason,
    ReasonCode,
    Validity,
    Verdict,
)

# A change without a known cause. On a noisy phone it is what has to be learned.
_UNEXPLAINED = frozenset(
    {
        *(ReasonCode.STEP_TIMES_CHANGED, ReasonCode.STEP_TIMES_TWO_MODES),
        *(ReasonCode.CANARY_CHANGED, ReasonCode.POWER_CHANGED),
    }
)


def disturbing_reasons(verdict: Verdict) -> list[Reason]:
    """Return why nothing may be learned from a run: it is void, or something else was active."""
    return [
        reason
        for reason in verdict.objections
        if reason.code not in _UNEXPLAINED
        and (reason.validity is Validity.VOID or reason.code in OF_THE_MOMENT)
    ]


@dataclass(frozen=True)
class Disturbances:
    """What else happened on the phone during the timed part of a run."""

    other_cores_busy_pct: float | None = None  # of the busiest core that the run may not use
    other_cores_total_pct: float = 0.0  # of all of them together; one core is 100 %
    own_cores_shared_pct: float | None = None  # share of the run's cores that others used
    suspended_s: float = 0.0
    charging_share: float = 0.0
    charged_at_s: float = 0.0
    body_rise_c: float | None = None
    steady_clock_share: float | None = None  # of the readings, at the most common clock


NO_DISTURBANCES = Disturbances()


def observe_disturbances(
    timed: Readings,
    usage: Sequence[CoreUsage],
    cpus: tuple[int, ...],
    body: ThermalZone | None,
    clock_nodes: Sequence[str] = (),
) -> Disturbances:
    """Find what disturbed a run on these cores, in the readings of its timed part."""
    others = [core.util_pct for core in usage if core.cpu not in cpus]
    return Disturbances(
        other_cores_busy_pct=max(others, default=None),
        other_cores_total_pct=sum(others),
        own_cores_shared_pct=own_cores_shared_pct(timed, cpus),
        suspended_s=suspended_s(timed),
        charging_share=_charging_share(timed),
        charged_at_s=_charged_at_s(timed),
        body_rise_c=_body_rise_c(timed, body),
        steady_clock_share=min(_steady_shares(timed, clock_nodes), default=None),
    )


def suspended_s(timed: Readings) -> float:
    """Seconds that no core counted: the boot clock continues while a phone is suspended."""
    ticks = core_ticks(timed)
    if not ticks.row.size:
        return 0.0
    first, last = (ticks.row == ticks.row[row] for row in (0, -1))
    total_at_first = dict(zip(ticks.cpu[first].tolist(), ticks.total[first].tolist(), strict=True))
    total_at_last = dict(zip(ticks.cpu[last].tolist(), ticks.total[last].tolist(), strict=True))
    # A core that is off counts nothing; the core that counted most was on all the time.
    both = total_at_first.keys() & total_at_last.keys()
    counted = max((total_at_last[cpu] - total_at_first[cpu] for cpu in both), default=0)
    elapsed_s = (timed.t_ns[ticks.row[-1]] - timed.t_ns[ticks.row[0]]) / 1e9
    return max(0.0, elapsed_s - counted / TICKS_PER_SECOND) if counted > 0 else 0.0


def _steady_shares(timed: Readings, clock_nodes: Sequence[str]) -> Iterator[float]:
    for path in clock_nodes:
        clocks = [khz for _, khz in timed.series(path)]
        if clocks:
            yield max(Counter(clocks).values()) / len(clocks)


def _charging_share(timed: Readings) -> float:
    statuses = timed.column(STATUS)
    return statuses.count(CHARGING) / len(statuses) if statuses else 0.0


def _charged_at_s(timed: Readings) -> float:
    statuses = timed.column(STATUS)
    first = statuses.index(CHARGING) if CHARGING in statuses else 0
    return (timed.t_ns[first] - timed.t_ns[0]) / 1e9 if timed.t_ns else 0.0


def _body_rise_c(timed: Readings, body: ThermalZone | None) -> float | None:
    temps = timed.hottest_c([body]) if body is not None else []
    return temps[-1][1] - temps[0][1] if len(temps) > 1 else None
