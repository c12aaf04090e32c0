"""Which clocks the cores and the GPU really had during the timed part of a run. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from agent.collect.readings import Readings
from agent.collect.run_probe import ProbeSnapshot, RunProbe, residency_node
from agent.judge.observe_cycles import COUNTED_CHANGE_MAX, clock_blocks, lost_share
from agent.phone.kernel_nodes import (
    GPU_POLICY,
    clock_node,
    is_cooler_active,
    policy_node,
    ticks_between,
    used_clusters,
)

READINGS_MIN = 5
TOLERANCE = 0.01  # some drivers report the measured clock, which differs a little from the step
TICKS_MIN = 50  # time_in_state counts in 10 ms; below half a second it is not conclusive


@dataclass(frozen=True)
class ClockObservation:
    """How well the requested clocks were held."""

    pinned_share: float | None = None  # of the time, for the worst policy; None if unknown
    counted: bool = False  # by the kernel (time_in_state), not only sampled
    above_share: float = 0.0  # of the time above the requested clock, for the worst policy
    lowered_share: float = 0.0  # of the time below it while nothing reported a limit
    capped_khz: Mapping[int, int] = field(default_factory=dict)  # policies limited below
    active_coolers: tuple[str, ...] = ()  # CPU cooling devices that were not always at rest
    # When the policies were first limited and the cooling devices first active.
    limited_at_ns: Mapping[int | str, int] = field(default_factory=dict)
    gpu_pinned_share: float | None = None
    lost_share: float = 0.0  # of the shown clocks that the counted cycles do not reach


def observe_clocks(
    probe: RunProbe,
    before: ProbeSnapshot,
    after: ProbeSnapshot,
    readings: Readings,
    timed: Readings,
) -> ClockObservation:
    """Compare the clocks of a run with the requested ones."""
    counted = _counted_share(probe, before, after, timed)
    sampled = _sampled_share(probe, timed)
    # Counters miss nothing but include the moments around the run; samples are the opposite.
    shares = [share for share in (counted, sampled) if share is not None]
    return ClockObservation(
        pinned_share=min(shares, default=None),
        counted=counted is not None or _is_confirmed_by_cycles(probe, timed),
        above_share=_above_share(probe, timed),
        lowered_share=_lowered_share(probe, timed),
        capped_khz=_capped_khz(probe, readings),
        active_coolers=_active_coolers(probe, readings),
        limited_at_ns=_limited_at_ns(probe, readings),
        gpu_pinned_share=_gpu_share(probe, timed),
        lost_share=lost_share(clock_blocks(probe, timed)),
    )


def pinned_share(
    requested_khz: Mapping[int, int], before: Mapping[int, str], after: Mapping[int, str]
) -> float | None:
    """The share of time at the requested clock, for the worst policy; None if unknown."""
    shares = []
    for policy, khz in requested_khz.items():
        ticks = ticks_between(before.get(policy, ""), after.get(policy, ""))
        total = sum(ticks.values())
        if total < TICKS_MIN:
            return None
        shares.append(ticks.get(khz, 0) / total)
    return min(shares, default=None)


def _counted_share(
    probe: RunProbe, before: ProbeSnapshot, after: ProbeSnapshot, timed: Readings
) -> float | None:
    """The share of time at the requested clock, as the kernel counted it.

    A pinned clock does not change before and after the run. A clock that follows the load has to
    be counted within the timed part.
    """
    if probe.facts.clocks_writable:
        return pinned_share(probe.requested_khz, before.residency, after.residency)
    if len(timed.t_ns) < READINGS_MIN:
        return None
    columns = {
        policy: timed.column(residency_node(probe.facts, policy)) for policy in probe.requested_khz
    }
    first, last = (
        {
            policy: str(column[row]).replace(";", "\n")
            for policy, column in columns.items()
            if column
        }
        for row in (0, -1)
    )
    return pinned_share(probe.requested_khz, first, last)


def _sampled_share(probe: RunProbe, timed: Readings) -> float | None:
    """The share of readings that show the requested clock, for the worst policy."""
    shares = []
    for policy, khz in probe.requested_khz.items():
        clocks = timed.series(policy_node(probe.facts, policy, "scaling_cur_freq"))
        share = _share_at(khz, (clock for _, clock in clocks))
        if share is None:
            return None
        shares.append(share)
    return min(shares, default=None)


def _gpu_share(probe: RunProbe, timed: Readings) -> float | None:
    """The share of readings at which the GPU had the requested clock."""
    if probe.requested_gpu_khz is None:
        return None
    clocks = probe.gpu_series_khz(timed, probe.gpu_clock_node)
    return _share_at(probe.requested_gpu_khz, (khz for _, khz in clocks))


def _share_at(requested: int, clocks: Iterable[int]) -> float | None:
    """The share of clocks that equal the requested one; None with too few readings."""
    values = list(clocks)
    if len(values) < READINGS_MIN:
        return None
    return sum(abs(clock - requested) <= TOLERANCE * requested for clock in values) / len(values)


def _above_share(probe: RunProbe, timed: Readings) -> float:
    """The share of readings above the requested clock, for the worst policy."""
    shares = []
    for policy, requested in probe.requested_khz.items():
        clocks = timed.series(policy_node(probe.facts, policy, "scaling_cur_freq"))
        above = sum(khz > (1 + TOLERANCE) * requested for _, khz in clocks)
        shares.append(above / len(clocks) if len(clocks) >= READINGS_MIN else 0.0)
    return max(shares, default=0.0)


def _lowered_share(probe: RunProbe, timed: Readings) -> float:
    """The share of readings below a pinned clock at which neither limit nor cooler explains it."""
    if not probe.facts.clocks_writable:
        return 0.0  # the governor may choose any clock
    coolers = [(path, timed.column(path)) for path in probe.coolers]
    shares = []
    for policy, requested in probe.requested_khz.items():
        clocks = timed.numbers(policy_node(probe.facts, policy, "scaling_cur_freq"))
        limits = timed.numbers(policy_node(probe.facts, policy, "scaling_max_freq"))
        known = [row for row, khz in enumerate(clocks) if khz is not None]
        if len(known) < READINGS_MIN or not (limits or coolers):
            continue
        lowered = sum(
            (clocks[row] or 0) < (1 - TOLERANCE) * requested
            and not (limits and (limits[row] or 0) < requested)
            and not any(column and is_cooler_active(path, column[row]) for path, column in coolers)
            for row in known
        )
        shares.append(lowered / len(known))
    return max(shares, default=0.0)


def _capped_khz(probe: RunProbe, readings: Readings) -> dict[int, int]:
    """Policies whose limit was below the requested clock: the sign of a thermal cap."""
    capped = {}
    for policy, khz in probe.requested_khz.items():
        limits = readings.series(policy_node(probe.facts, policy, "scaling_max_freq"))
        lowest = min((limit for _, limit in limits), default=khz)
        if lowest < khz:
            capped[policy] = lowest
    return capped


def _is_confirmed_by_cycles(probe: RunProbe, timed: Readings) -> bool:
    """Whether the cores counted the cycles of the requested clock, where all have the same."""
    requested = set(probe.requested_khz.values())
    blocks = clock_blocks(probe, timed) if len(requested) == 1 else []
    return bool(blocks) and all(
        abs(block.khz / khz - 1) <= COUNTED_CHANGE_MAX for block in blocks for khz in requested
    )


def _limited_at_ns(probe: RunProbe, readings: Readings) -> dict[int | str, int]:
    moments: dict[int | str, int] = {}
    for policy, khz in probe.requested_khz.items():
        limits = readings.series(policy_node(probe.facts, policy, "scaling_max_freq"))
        for t_ns in [t_ns for t_ns, limit in limits if limit < khz][:1]:
            moments[policy] = t_ns
    for path, name in probe.coolers.items():
        column = readings.column(path)
        rows = [column.index(value) for value in set(column) if is_cooler_active(path, value)]
        if rows:
            moments[name] = min(readings.t_ns[min(rows)], moments.get(name, readings.t_ns[-1]))
    return moments


def clock_limits_khz(probe: RunProbe, readings: Readings) -> dict[int, tuple[int, int]]:
    """The lowest and the highest limit of each policy of the measured cores, and of the GPU."""
    limits = {}
    for cluster in used_clusters(probe.facts, probe.cores):
        series = readings.series(clock_node(cluster, "scaling_max_freq"))
        if series:
            values = [khz for _, khz in series]
            limits[cluster.policy] = (min(values), max(values))
    if probe.facts.gpu is not None:
        clocks = [khz for _, khz in probe.gpu_series_khz(readings, probe.gpu_limit_node)]
        if clocks:
            limits[GPU_POLICY] = (min(clocks), max(clocks))
    return limits


def _active_coolers(probe: RunProbe, readings: Readings) -> tuple[str, ...]:
    active = {
        name
        for path, name in probe.coolers.items()
        if any(is_cooler_active(path, value) for value in set(readings.column(path)))
    }
    return tuple(sorted(active))
