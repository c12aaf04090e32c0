"""The verdict on a run: compares the requested condition with what was observed. Pure.

A rule looks at the observation and yields its reasons; RULES lists all rules. Under the cold
protocol a clock that was not held voids the run. Under the long protocols throttling is what is
measured: it is recorded and voids nothing.
"""

from collections.abc import Callable, Iterator
from itertools import groupby
from math import inf

from agent.collect.runner_output import ResumeRecord
from agent.judge.coverage import check_coverage
from agent.judge.disturbance_effect import weigh_disturbances
from agent.judge.evidence_rules import (
    check_own_time,
    check_power,
    check_readings,
    check_time_stamps,
)
from agent.judge.run_observation import RunObservation
from agent.judge.surroundings_rules import (
    check_bus_clocks,
    check_foreground,
    check_phone_used,
    check_refused_settings,
    check_wakefulness,
)
from agent.judge.work_rate_rules import (
    check_claimed_speed,
    check_counted_clock,
    check_gpu_work,
    check_online_cores,
    check_step_times,
    check_threads,
)
from agent.judge.work_rules import work_objections
from agent.phone.kernel_nodes import GPU_POLICY
from agent.phone.start_limit import StartBy
from workloads.protocol.condition import REST, Protocol
from workloads.protocol.memory_outcome import SWAPPED_MIN_MB
from workloads.protocol.metrics import Source
from workloads.protocol.phone_facts import FIXED
from workloads.protocol.verdict import Reason, ReasonCode, ReasonValue, Validity, Verdict
from workloads.text import safe_text

SEVERITY = (Validity.VOID, Validity.SUSPECT, Validity.VALID)
PINNED_SHARE_MIN = 0.98
LOWERED_SHARE_MAX = 0.05  # a limit is reported some readings after it took effect
START_TOLERANCE_C = 1.0  # pinning to a high clock warms the die before the first step
LENGTH_TOLERANCE = 0.98
# Of a run, since it continued: the phone was cool again then. Soaked runs count once steady.
CONTINUED_SHARE_MIN = {
    Protocol.COLD: 0.5,
    Protocol.SOAKED: 0.0,
    Protocol.ENDURANCE: LENGTH_TOLERANCE,  # phones throttle late: some after 75 % of 600 s
}
UNCLAMPED = 1024  # uclamp.max of a task that may use the fastest clock
SUSPENDED_S, SUSPENDED_SHARE = 0.5, 0.02
OTHER_CORES_BUSY_PCT_MAX, OTHER_CORES_TOTAL_PCT_MAX = 30.0, 45.0  # of the busiest one, of all
OWN_CORES_SHARED_PCT_MAX = 4.0  # interrupts and kernel threads stay below this
OWN_CORES_SHARED_PCT_MIN = 1.0  # also if the clock was lower than shown
COLD_RISE_MAX_C = 3.0
GAP_S, GAP_SHARE = 3.0, 0.1  # a sampler may be late, but not for this long
FROZEN_READINGS = 10
FINE_SENSOR_C = 0.2
WARMED_CPU_K = 15.0  # so much that its body warms too
WHOLE_DEGREE_S = 60.0  # little work may warm a phone by less than a degree in a shorter time
LIT_SHARE = 0.2  # of the highest brightness; runs are made with the lowest
OTHER_APPS_CORES_MAX = 0.5


def judge(run: RunObservation) -> Verdict:
    """Valid, suspect or void, with every reason: those that decide come first, remarks last."""
    found = weigh_disturbances(run, [reason for rule in RULES for reason in rule(run)])
    reasons = tuple(sorted(found, key=lambda reason: SEVERITY.index(reason.validity)))
    validities = {reason.validity for reason in reasons}
    for worst in (Validity.VOID, Validity.SUSPECT):
        if worst in validities:
            deterministic = _is_deterministic(run)
            return Verdict(validity=worst, reasons=reasons, deterministic=deterministic)
    # Remarks do not count against a run.
    return Verdict(validity=Validity.VALID, reasons=reasons)


def _is_deterministic(run: RunObservation) -> bool:
    """Whether the run is void because of what ran: another attempt would end the same."""
    return any(reason.validity is Validity.VOID for reason in work_objections(run.claimed))


def check_same_boot(run: RunObservation) -> Iterator[Reason]:
    """The phone did not restart."""
    if run.before.boot_id != run.after.boot_id:
        yield Reason.void(ReasonCode.PHONE_RESTARTED)


def check_claimed_work(run: RunObservation) -> Iterator[Reason]:
    """The runner did the work that its workload is named after."""
    return work_objections(run.claimed)


def check_cores(run: RunObservation) -> Iterator[Reason]:
    """Every thread could run on the requested cores and on no others."""
    requested = f"{run.probe.cores.mask:x}"
    if run.found_mask != run.probe.cores.mask:
        yield Reason.void(ReasonCode.WRONG_CORES, actual=f"{run.found_mask:x}", requested=requested)
    for tid, mask in run.strays.items():
        yield Reason.void(
            ReasonCode.THREAD_ON_OTHER_CORES, tid=tid, actual=f"{mask:x}", requested=requested
        )
    clamp = run.clamp_max
    if clamp is not None and clamp < UNCLAMPED and not run.probe.requested_khz:
        yield Reason.suspect(ReasonCode.UTILISATION_CLAMPED, clamp=clamp, limit=UNCLAMPED)


def check_start_temperature(run: RunObservation) -> Iterator[Reason]:
    """The run started at or below the requested temperature, as far as one can be read."""
    start, start_c = run.start, run.before.temp_c
    limit_c = run.condition.start_limit_c(None)
    if run.condition.start_temp_max_c == REST:
        if start.by is StartBy.BATTERY:
            yield Reason.remark(ReasonCode.START_BY_BATTERY)
        elif start.by is StartBy.ANY and run.probe.facts.cpu_zones:
            yield Reason.remark(ReasonCode.START_UNCHECKED)
        limit_c = start.max_c if start.by is StartBy.REST else None
    if limit_c is None:
        return
    if start_c is None:
        yield Reason.void(ReasonCode.START_TEMP_UNKNOWN)
    elif start_c > limit_c + START_TOLERANCE_C:
        yield Reason.void(ReasonCode.START_TOO_WARM, temp_c=start_c, limit_c=limit_c)
    if not run.temps_c:
        yield Reason.suspect(ReasonCode.NO_TEMP_READINGS)


def check_sensors(run: RunObservation) -> Iterator[Reason]:
    """The thermometer reacted to the load, and was sampled without long gaps.

    A computer that shows no clocks or no thermometer gets a remark.
    """
    if run.provenance is not None and run.provenance.clock is None:
        yield Reason.remark(ReasonCode.CLOCKS_NOT_SHOWN)
    if run.provenance is not None and run.provenance.heat is None:
        yield Reason.remark(ReasonCode.TEMP_NOT_SHOWN)
    frozen_c = _frozen_c(run)
    if frozen_c is not None:
        yield Reason.suspect(ReasonCode.SENSOR_FROZEN, temp_c=frozen_c)
    body_c = [temp_c for _, temp_c in run.readings.within(run.span).hottest_c(run.probe.body_zones)]
    cpu_rise_c = max(run.temps_c, default=0.0) - min(run.temps_c, default=0.0)
    is_long = run.span_s >= WHOLE_DEGREE_S and len(body_c) >= FROZEN_READINGS
    if is_long and len(set(body_c)) == 1 and cpu_rise_c >= WARMED_CPU_K:
        yield Reason.remark(ReasonCode.BODY_SENSOR_FROZEN, temp_c=body_c[0], seconds=run.span_s)
    gap, gap_max_s = run.sampling_gap, max(GAP_S, GAP_SHARE * run.span_s)
    if gap.seconds > gap_max_s:
        yield Reason.suspect(
            ReasonCode.SAMPLING_GAP, gap_s=gap.seconds, limit=gap_max_s, at_s=gap.at_s
        )


def _frozen_c(run: RunObservation) -> float | None:
    """The temperature at which the sensor stopped, or from which it never moved, under load.

    A sensor of whole degrees may stay on a new value for long; one that shows tenths, in this run
    or in earlier ones, may not.
    """
    finest_c = min(run.finest_temp_step_c or inf, run.temp_step_c or inf)
    stretches = [(temp_c, len(list(group))) for temp_c, group in groupby(run.temps_c)]
    if len(run.temps_c) < FROZEN_READINGS:
        return None
    if len(stretches) == 1:
        first = run.temps_c[0]
        start = first if run.before.temp_c is None else run.before.temp_c
        is_fine = finest_c <= FINE_SENSOR_C
        is_fine |= any(abs(temp_c - round(temp_c)) > 0.01 for temp_c in (first, start))
        is_long = run.span_s >= WHOLE_DEGREE_S
        return first if is_fine or (first == start and is_long) else None
    (_, second), (frozen_c, longest) = sorted(stretches, key=lambda stretch: stretch[1])[-2:]
    stopped = longest >= max(2 * FROZEN_READINGS, len(run.temps_c) / 4, 5 * second)
    return frozen_c if stopped and finest_c <= FINE_SENSOR_C else None


def check_length(run: RunObservation) -> Iterator[Reason]:
    """Enough steps were measured for long enough; what was measured before a resume counts."""
    launch, done, resume = run.condition.launch, run.claimed.done, run.output.resume
    windows_ns = sum(window.ns for window in run.output.windows)
    seconds = run.span_s + (max(done.ns - windows_ns, 0) / 1e9 if resume is not None else 0.0)
    if done.steps < launch.steps:
        yield Reason.suspect(ReasonCode.TOO_FEW_STEPS, steps=done.steps, requested=launch.steps)
    if seconds < LENGTH_TOLERANCE * min(launch.seconds, launch.max_seconds):
        yield Reason.void(ReasonCode.TOO_SHORT, seconds=seconds, requested_s=launch.seconds)
    if resume is not None:
        yield from _check_continuation(run, resume)


def _check_continuation(run: RunObservation, resume: ResumeRecord) -> Iterator[Reason]:
    """Enough of the run was measured after it continued from a checkpoint, on the same cores."""
    limit_s = CONTINUED_SHARE_MIN[run.condition.protocol] * run.claimed.done.ns / 1e9
    values: dict[str, ReasonValue] = {"step": resume.step, "seconds": run.span_s}
    if run.span_s < limit_s:
        yield Reason.suspect(ReasonCode.CONTINUED, **values, limit=limit_s)
    else:
        yield Reason.remark(ReasonCode.CONTINUED, **values)
    if not resume.same_cores:
        yield Reason.remark(ReasonCode.CONTINUED_ON_OTHER_CORES, step=resume.step)


def check_steady_state(run: RunObservation) -> Iterator[Reason]:
    """A soaked run reached its steady state."""
    if run.condition.protocol is Protocol.SOAKED and run.steady_from_ns is None:
        yield Reason.suspect(ReasonCode.NOT_STEADY)


def check_disturbances(run: RunObservation) -> Iterator[Reason]:
    """Nothing else used the phone, suspended it, charged it or warmed it."""
    disturbances = run.disturbances
    if run.probe.wireless:
        yield Reason.remark(ReasonCode.CONNECTED_BY_WIFI)
    slept_max_s = max(SUSPENDED_S, SUSPENDED_SHARE * run.span_s)
    if disturbances.suspended_s > slept_max_s:
        slept_s = disturbances.suspended_s
        yield Reason.void(ReasonCode.PHONE_SLEPT, seconds=slept_s, limit=slept_max_s)
    busy_pct, shared_pct = disturbances.other_cores_busy_pct, disturbances.own_cores_shared_pct
    total_pct = disturbances.other_cores_total_pct
    if busy_pct is not None and busy_pct > OTHER_CORES_BUSY_PCT_MAX:
        yield Reason.suspect(
            ReasonCode.OTHER_CORES_BUSY, busy_pct=busy_pct, limit=OTHER_CORES_BUSY_PCT_MAX
        )
    elif total_pct > OTHER_CORES_TOTAL_PCT_MAX:
        yield Reason.suspect(
            ReasonCode.OTHER_CORES_BUSY, busy_pct=total_pct, limit=OTHER_CORES_TOTAL_PCT_MAX
        )
    # Losses of different kinds add up.
    limit_pct = OWN_CORES_SHARED_PCT_MAX - 100 * run.clocks.lost_share
    limit_pct = max(limit_pct, OWN_CORES_SHARED_PCT_MIN)
    if shared_pct is not None and shared_pct > limit_pct:
        yield Reason.suspect(ReasonCode.OWN_CORES_SHARED, busy_pct=shared_pct, limit=limit_pct)
    if disturbances.charging_share > 0:
        avoidable = run.probe.facts.charging is not None
        objection = Reason.suspect if avoidable else Reason.remark
        at_s = disturbances.charged_at_s
        yield objection(ReasonCode.CHARGED, share=disturbances.charging_share, at_s=at_s)
    steady = disturbances.steady_clock_share
    if run.condition.freq == FIXED and steady is not None and steady < PINNED_SHARE_MIN:
        yield Reason.suspect(ReasonCode.FIXED_CLOCK_UNSTEADY, share=steady, limit=PINNED_SHARE_MIN)
    rise_c = disturbances.body_rise_c
    if run.condition.protocol is Protocol.COLD and rise_c is not None and rise_c > COLD_RISE_MAX_C:
        yield Reason.suspect(ReasonCode.BODY_WARMED, rise_c=rise_c, limit=COLD_RISE_MAX_C)


def check_canary(run: RunObservation) -> Iterator[Reason]:
    """The phone itself did not become faster or slower, and it is known how fast it is.

    After a long run with a reported limit, the second canary would only show that limit. Simulated
    phones and computers need no commissioning: they learn their references on first use.
    """
    time = run.provenance.time if run.provenance is not None else None
    if time is not None and time.source is Source.PHONE and run.probe.facts.commission is None:
        yield Reason.suspect(ReasonCode.NOT_COMMISSIONED)
    if any(times.is_new for times in run.canaries.values()):
        yield Reason.remark(ReasonCode.NEW_REFERENCE)
    may_change = run.condition.protocol is not Protocol.COLD and run.has_reported_limit
    for kind, times in run.canaries.items():
        if times.before_ms is None or times.after_ms is None:
            yield Reason.suspect(ReasonCode.CANARY_FAILED, canary=kind)
        limit = times.change_max
        if not may_change and times.change is not None and abs(times.change) > limit:
            objection = Reason.void if times.is_held else Reason.suspect
            yield objection(
                ReasonCode.CANARY_CHANGED, canary=kind, change=times.change, limit=limit
            )
        if times.is_held and times.has_drifted and times.reference and times.drift is not None:
            yield Reason.suspect(
                ReasonCode.CANARY_DRIFTED,
                canary=kind,
                change=times.drift,
                accumulated=times.accumulated,
                limit=times.drift_max,
                total_limit=times.reference.sum_max,
            )


def check_energy(run: RunObservation) -> Iterator[Reason]:
    """The energy can be trusted; if not, that is remarked and the times still count."""
    if run.provenance is None:
        return
    if run.provenance.energy is None:
        yield Reason.remark(ReasonCode.ENERGY_NOT_READ)
        return
    if run.power.remark is not None:
        yield run.power.remark
    if run.gauge is not None and run.gauge.cells > 1:
        yield Reason.remark(ReasonCode.ENERGY_CELLS_ASSUMED, cells=run.gauge.cells)
    if run.power.saturated:
        yield Reason.remark(ReasonCode.USB_PORT_SATURATED)


def check_cpu_clocks(run: RunObservation) -> Iterator[Reason]:
    """The CPU had the requested clocks: in cold runs throughout, in long ones unless limited.

    A long run is measured with its throttling; but a clock above the requested one, or one that is
    lower although nothing reports a limit, is never part of that.
    """
    requested_khz, clocks = run.probe.requested_khz, run.clocks
    if clocks.above_share > 1 - PINNED_SHARE_MIN:
        limit = 1 - PINNED_SHARE_MIN
        yield Reason.void(ReasonCode.CLOCK_ABOVE_REQUEST, share=clocks.above_share, limit=limit)
    if run.condition.protocol is not Protocol.COLD:
        if clocks.lowered_share > LOWERED_SHARE_MAX:
            share = clocks.lowered_share
            yield Reason.suspect(ReasonCode.CLOCK_LOWERED, share=share, limit=LOWERED_SHARE_MAX)
        return
    yield from _check_caps(run)
    if not requested_khz:
        return
    if clocks.pinned_share is None:
        yield Reason.suspect(ReasonCode.CLOCKS_UNVERIFIED)
    elif clocks.pinned_share < PINNED_SHARE_MIN:  # guard: pinned-clock-share
        share = clocks.pinned_share
        yield Reason.void(ReasonCode.CLOCKS_NOT_PINNED, share=share, limit=PINNED_SHARE_MIN)
    elif not clocks.counted:
        yield Reason.suspect(ReasonCode.CLOCKS_ONLY_SAMPLED)


def _check_caps(run: RunObservation) -> Iterator[Reason]:
    """Nothing limited the clocks of a cold run.

    A limit of a moment, or of a cluster that the run does not use, leaves the counted clock: then
    it is a remark.
    """
    requested_khz, clocks = run.probe.requested_khz, run.clocks
    is_held = clocks.counted and (clocks.pinned_share or 0.0) >= PINNED_SHARE_MIN
    objection = Reason.remark if requested_khz and is_held else Reason.suspect
    for cooler in clocks.active_coolers:
        name, at_s = safe_text(cooler, 100), _limited_at_s(run, cooler)
        yield objection(ReasonCode.COOLING_DEVICE_ACTIVE, name=name, at_s=at_s)
    if clocks.pinned_share is None:
        objection = Reason.void
    for policy, khz in clocks.capped_khz.items():
        requested = requested_khz[policy]
        yield objection(
            ReasonCode.CLOCK_CAPPED,
            policy=policy,
            khz=khz,
            requested_khz=requested,
            at_s=_limited_at_s(run, policy),
        )


def _limited_at_s(run: RunObservation, what: int | str) -> float:
    """When a limit was first seen, in seconds after the start; 0 if it was there before."""
    return max(0, run.clocks.limited_at_ns.get(what, run.span[0]) - run.span[0]) / 1e9


def check_gpu_clock(run: RunObservation) -> Iterator[Reason]:
    """The GPU had the requested clock over the whole cold run."""
    if run.probe.requested_gpu_khz is None or run.condition.protocol is not Protocol.COLD:
        return
    share = run.clocks.gpu_pinned_share
    if share is None:
        yield Reason.suspect(ReasonCode.GPU_CLOCK_UNVERIFIED)
    elif share < PINNED_SHARE_MIN:
        yield Reason.void(ReasonCode.GPU_CLOCK_NOT_PINNED, share=share, limit=PINNED_SHARE_MIN)


def check_screen(run: RunObservation) -> Iterator[Reason]:
    """The screen stayed dark: a lit one draws power and warms the phone."""
    timed = run.readings.within(run.span)
    for path, highest in run.probe.backlights.items():
        lit = [(t_ns, value) for t_ns, value in timed.series(path) if value > LIT_SHARE * highest]
        if lit:
            brightness = max(value for _, value in lit) / highest
            at_s = (lit[0][0] - run.span[0]) / 1e9
            yield Reason.suspect(
                ReasonCode.SCREEN_LIT, brightness=brightness, limit=LIT_SHARE, at_s=at_s
            )


def check_swapping(run: RunObservation) -> Iterator[Reason]:
    """The run stayed in memory, unless the condition asked to try a model that is too large."""
    swapped_mb = run.swapped_mb or 0.0
    if run.condition.too_large is None and swapped_mb >= SWAPPED_MIN_MB:
        yield Reason.suspect(ReasonCode.SWAPPED, swapped_mb=swapped_mb, limit=SWAPPED_MIN_MB)


def check_unheld_speed(run: RunObservation) -> Iterator[Reason]:
    """A phone whose clocks are not pinned was as fast as usual, by its work and not by a sensor."""
    for kind, times in run.canaries.items():
        if times.is_held or times.drift is None or times.reference is None:
            continue
        limit, change = times.drift_max, times.drift
        if change > limit:
            yield Reason.suspect(ReasonCode.WORK_RATE_LOW, canary=kind, change=change, limit=limit)
        elif change < -limit:
            yield Reason.suspect(ReasonCode.WORK_RATE_HIGH, canary=kind, change=change, limit=limit)
    # That mode lowers the limits on purpose; a long run is measured with its throttling.
    is_free = not run.probe.requested_khz and run.condition.freq != FIXED
    if is_free and run.condition.protocol is Protocol.COLD:
        for policy, (khz, _) in run.limits_khz.items():
            usual_khz = run.usual_limits_khz.get(policy, 0)
            if khz < usual_khz and policy != GPU_POLICY:
                yield Reason.suspect(
                    ReasonCode.CLOCK_LIMIT_LOWERED, policy=policy, khz=khz, usual_khz=usual_khz
                )


def check_vendor_limits(run: RunObservation) -> Iterator[Reason]:
    """The vendor's thermal status can explain a run; it never counts against the run."""
    views = run.views
    if views.status:
        yield Reason.remark(ReasonCode.THERMAL_STATUS_RAISED, status=views.status)
    if views.headroom is not None and views.headroom >= 1:
        yield Reason.remark(ReasonCode.HEADROOM_USED_UP, headroom=views.headroom)
    if views.siop_level is not None and views.siop_level > 0:
        yield Reason.remark(ReasonCode.SIOP_LEVEL_RAISED, level=views.siop_level)


def check_other_apps(run: RunObservation) -> Iterator[Reason]:
    """No other app worked on the phone."""
    cores = run.views.other_cores
    total = sum(cores.values())
    if total > OTHER_APPS_CORES_MAX:
        busiest = max(cores, key=lambda uid: cores[uid])
        yield Reason.suspect(ReasonCode.OTHER_APPS_BUSY, cores=total, uid=busiest)


RULES: tuple[Callable[[RunObservation], Iterator[Reason]], ...] = (
    check_same_boot,
    check_claimed_work,
    check_cores,
    check_threads,
    check_claimed_speed,
    check_time_stamps,
    check_start_temperature,
    check_sensors,
    check_readings,
    check_coverage,
    check_length,
    check_steady_state,
    check_disturbances,
    check_energy,
    check_cpu_clocks,
    check_counted_clock,
    check_gpu_clock,  # guard: gpu-clock-held
    check_gpu_work,
    check_online_cores,
    check_screen,
    check_foreground,
    check_phone_used,
    check_wakefulness,
    check_refused_settings,
    check_bus_clocks,
    check_swapping,
    check_vendor_limits,
    check_other_apps,
    check_own_time,
    # Rules that detect an effect, but not its cause, come last.
    check_unheld_speed,
    check_step_times,
    check_canary,
    check_power,
)
