"""The verdict: what was asked, held against what was so. Pure.

A rule looks at the evidence and yields its doubts; RULES lists them all. Under the cold protocol a
clock that slipped voids the run. Under the long ones, throttling is the thing measured: it is
recorded, and voids nothing.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from agent.phone.nodes import ticks_between
from agent.run.canary import AGED_MAX, CHANGE_MAX, NO_CANARY, Canary
from agent.run.energy import Power
from agent.run.gates import Doubt, Effort, failed_gates
from agent.run.lines import Done
from agent.run.surroundings import NOTHING_AROUND, Surroundings
from workloads.condition import Condition, Protocol
from workloads.fit import SWAPS_MB
from workloads.measure import Standing, Verdict
from workloads.phone import FIXED

TICKS_MIN = 50  # time_in_state counts in 10 ms; below half a second it says nothing
HELD_MIN = 0.98
START_SLACK_C = 1.0  # pinning to a high clock warms the die before the first step
SPAN_SLACK = 0.98
CLAMP_FREE = 1024  # uclamp.max of a task that may ask for the fastest clock there is
SLEPT_S, SLEPT_SHARE = 0.5, 0.02
OTHERS_PCT_MAX = 30.0
INSIDE_PCT_MAX = 10.0  # interrupts and the kernel's own threads stay below that
COLD_RISE_C = 3.0
DRIFTED = "the phone itself drifted"
UNSEEN_S, UNSEEN_SHARE = 3.0, 0.1  # a sampler stumbles; it does not sleep


@dataclass(frozen=True)
class Evidence:
    """What was seen of the phone before, during and after the timed part."""

    condition: Condition
    asked_mask: int
    found_mask: int
    asked_khz: Mapping[int, int]
    held_share: float | None
    counted: bool
    capped_khz: Mapping[int, int]
    coolers: tuple[str, ...]
    start_temp_c: float | None
    temps_c: tuple[float, ...]
    span_s: float
    boot_ids: tuple[str, str]
    effort: Effort
    unseen_s: float = 0.0  # the longest part of the run without a reading
    strays: Mapping[int, int] = field(default_factory=dict)  # threads with masks not asked for
    around: Surroundings = NOTHING_AROUND
    charger_cut: bool = False  # whether the phone has a switch for its charger
    canary: Canary = NO_CANARY
    power: Power | None = None  # None where the phone offers no energy at all
    settled: bool = False  # whether a long run became steady
    clamp_max: int | None = None  # what the scheduler lets the run ask for, of 1024
    swapped_mb: float | None = None
    asked_gpu_khz: int | None = None
    gpu_held_share: float | None = None

    @property
    def done(self) -> Done:
        """The runner's last word."""
        return self.effort.done


def judge(seen: Evidence) -> Verdict:
    """Valid, suspect or void, and every reason in words."""
    doubts = [doubt for rule in RULES for doubt in rule(seen)]
    reasons = tuple(reason for _, reason in doubts)
    standings = {standing for standing, _ in doubts}
    for worst in (Standing.VOID, Standing.SUSPECT):
        if worst in standings:
            return Verdict(standing=worst, reasons=reasons, finding=_is_finding(seen))
    # What does not count against a run may still be worth knowing.
    return Verdict(standing=Standing.VALID, reasons=reasons)


def _is_finding(seen: Evidence) -> bool:
    return any(standing is Standing.VOID for standing, _ in failed_gates(seen.effort))


def held_share(
    asked_khz: Mapping[int, int], before: Mapping[int, str], after: Mapping[int, str]
) -> float | None:
    """The share of time at the asked clock, of the policy that held it worst; None if unknown."""
    shares = []
    for policy, khz in asked_khz.items():
        ticks = ticks_between(before.get(policy, ""), after.get(policy, ""))
        total = sum(ticks.values())
        if total < TICKS_MIN:
            return None
        shares.append(ticks.get(khz, 0) / total)
    return min(shares, default=None)


def _same_boot(seen: Evidence) -> Iterator[Doubt]:
    if seen.boot_ids[0] != seen.boot_ids[1]:
        yield Standing.VOID, "the phone restarted during the run"


def _right_cores(seen: Evidence) -> Iterator[Doubt]:
    if seen.found_mask != seen.asked_mask:
        yield (
            Standing.VOID,
            f"the runner found itself on cores {seen.found_mask:x}, asked were {seen.asked_mask:x}",
        )

    for tid, mask in seen.strays.items():
        yield Standing.VOID, f"thread {tid} could run on cores {mask:x}, asked {seen.asked_mask:x}"
    if seen.clamp_max is not None and seen.clamp_max < CLAMP_FREE and not seen.asked_khz:
        yield Standing.SUSPECT, f"the scheduler clamps it to {seen.clamp_max} of {CLAMP_FREE}"


def _cool_start(seen: Evidence) -> Iterator[Doubt]:
    limit = seen.condition.start_temp_max_c
    if limit is None:
        return
    if seen.start_temp_c is None:
        yield Standing.VOID, "the start temperature is not known"
    elif seen.start_temp_c > limit + START_SLACK_C:
        yield Standing.VOID, f"it started at {seen.start_temp_c:.1f} °C, asked were {limit:.1f} °C"
    if not seen.temps_c:
        yield Standing.SUSPECT, "no temperature was read during the run"


def _live_sensors(seen: Evidence) -> Iterator[Doubt]:
    if seen.temps_c and _stood_still(seen):
        yield Standing.SUSPECT, f"the CPU zone stood still at {seen.temps_c[0]:.1f} °C under load"
    if seen.unseen_s > max(UNSEEN_S, UNSEEN_SHARE * seen.span_s):
        yield Standing.SUSPECT, f"nothing was read for {seen.unseen_s:.1f} s of the run"


def _stood_still(seen: Evidence) -> bool:
    """Whether the sensor did not move under load; one of whole degrees may rest on a new one."""
    first = seen.temps_c[0]
    if len(seen.temps_c) < 10 or any(temp != first for temp in seen.temps_c):
        return False
    start = first if seen.start_temp_c is None else seen.start_temp_c
    return first == start or any(abs(temp - round(temp)) > 0.01 for temp in (first, start))


def _long_enough(seen: Evidence) -> Iterator[Doubt]:
    launch = seen.condition.launch
    if seen.done.steps < launch.steps:
        yield Standing.SUSPECT, f"{seen.done.steps} steps were measured, asked were {launch.steps}"
    if seen.span_s < SPAN_SLACK * min(launch.seconds, launch.max_seconds):
        yield Standing.VOID, f"it measured {seen.span_s:.1f} s, asked were {launch.seconds:.0f} s"


def _undisturbed(seen: Evidence) -> Iterator[Doubt]:
    around = seen.around
    if around.slept_s > max(SLEPT_S, SLEPT_SHARE * seen.span_s):
        yield Standing.VOID, f"the phone slept for {around.slept_s:.1f} s of the run"
    if around.others_pct is not None and around.others_pct > OTHERS_PCT_MAX:
        yield Standing.SUSPECT, f"other work kept the other cores {around.others_pct:.0f} % busy"
    if around.inside_pct is not None and around.inside_pct > INSIDE_PCT_MAX:
        yield Standing.SUSPECT, f"other work took {around.inside_pct:.0f} % of its own cores"
    if around.charging_share > 0:
        standing = Standing.SUSPECT if seen.charger_cut else Standing.VALID
        yield standing, f"it charged for {around.charging_share:.0%} of the run"
    steady = around.steady_share
    if seen.condition.freq == FIXED and steady is not None and steady < HELD_MIN:
        yield Standing.SUSPECT, f"the fixed-performance clock was steady for {steady:.1%} of it"
    rise_c = around.body_rise_c
    if seen.condition.protocol is Protocol.COLD and rise_c is not None and rise_c > COLD_RISE_C:
        yield Standing.SUSPECT, f"its body warmed by {rise_c:.1f} °C: it was not cold to the end"


def _no_drift(seen: Evidence) -> Iterator[Doubt]:
    """The same small work before and after; on free or hot clocks it tells of these alone."""
    if not seen.asked_khz or seen.condition.protocol is not Protocol.COLD:
        return
    change = seen.canary.change
    if change is not None and abs(change) > CHANGE_MAX:
        yield Standing.VOID, f"{DRIFTED}: a canary after the run took {change:+.1%}"
    aged = seen.canary.aged
    if aged is not None and abs(aged) > AGED_MAX:
        yield Standing.SUSPECT, f"{DRIFTED}: its canary takes {aged:+.1%} against its own record"


def _energy(seen: Evidence) -> Iterator[Doubt]:
    """An energy that cannot be trusted takes nothing from the times; it is told beside them."""
    if seen.power is None:
        return
    if seen.power.why:
        yield Standing.VALID, f"energy {seen.power.grade}: {seen.power.why}"
    if seen.power.saturated:
        yield Standing.VALID, "the port gave all it could: the battery gave the rest"


def _settled(seen: Evidence) -> Iterator[Doubt]:
    if seen.condition.protocol is Protocol.SOAKED and not seen.settled:
        yield Standing.SUSPECT, "heat and clocks did not settle within the run"


def _held_clocks(seen: Evidence) -> Iterator[Doubt]:
    if not seen.asked_khz or seen.condition.protocol is not Protocol.COLD:
        return
    if seen.held_share is None:
        yield Standing.SUSPECT, "the clocks could not be verified over the run"
    elif seen.held_share < HELD_MIN:
        yield Standing.VOID, f"the clocks held for {seen.held_share:.1%} of the run"
    elif not seen.counted:
        yield Standing.SUSPECT, "the clocks were only sampled: the kernel shows no time_in_state"
    for policy, khz in seen.capped_khz.items():
        yield (
            Standing.VOID if seen.held_share is None else Standing.SUSPECT,
            f"policy{policy} was capped to {khz} kHz, asked were {seen.asked_khz[policy]} kHz",
        )
    for cooler in seen.coolers:
        yield Standing.SUSPECT, f"the cooling device {cooler} was at work"


def _held_gpu(seen: Evidence) -> Iterator[Doubt]:
    if seen.asked_gpu_khz is None or seen.condition.protocol is not Protocol.COLD:
        return
    if seen.gpu_held_share is None:
        yield Standing.SUSPECT, "the GPU's clock could not be verified over the run"
    elif seen.gpu_held_share < HELD_MIN:
        yield Standing.VOID, f"the GPU's clock held for {seen.gpu_held_share:.1%} of the run"


def _in_memory(seen: Evidence) -> Iterator[Doubt]:
    """Who asked to try what is too large, asked for this."""
    if seen.condition.too_large is None and (seen.swapped_mb or 0.0) >= SWAPS_MB:
        yield Standing.SUSPECT, f"{seen.swapped_mb:.0f} MB went to swap during the run"


def _right_work(seen: Evidence) -> Iterator[Doubt]:
    return failed_gates(seen.effort)


RULES: tuple[Callable[[Evidence], Iterator[Doubt]], ...] = (
    _same_boot,
    _right_work,
    _right_cores,
    _cool_start,
    _live_sensors,
    _long_enough,
    _settled,
    _undisturbed,
    _no_drift,
    _energy,
    _held_clocks,
    _held_gpu,
    _in_memory,
)
