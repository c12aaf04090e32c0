"""Commissioning: a short series of runs that learns what later runs of a phone are compared with.

Full: the canaries, the noise of steps, the fuel gauge, how the phone cools, and its power at rest.
Quick: without waiting for a cool phone. How much a phone varies is learned from six runs: a noisy
phone gets wide limits, and a sentence that says what it can show. It can be repeated at any time.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from agent.judge.observe_disturbances import disturbing_reasons
from agent.lane import run_attempt
from agent.lane_context import LaneContext
from agent.phone.canary_reference import (
    FULL_SERIES,
    QUICK_SERIES,
    RUNS_LEARNED,
    SHOWN_CHANGE,
)
from agent.phone.phone_driver import Phone
from agent.phone.phone_memory import save_phone_memory
from agent.restore.fence import held_fence
from workloads.catalogue import bind
from workloads.protocol.condition import REST, Condition, Protocol
from workloads.protocol.faults import FarmError
from workloads.protocol.messages import Job, Report, RunId
from workloads.protocol.metrics import Source
from workloads.protocol.phone_facts import FREE, CanaryFacts, CanaryKind, Commission, PhoneFacts
from workloads.text import safe_text

LOAD = bind("sgemm-square", {"n": 512})
WARM_S, COLD_S = 120.0, 10.0
AT_ONCE = {"start_temp_max_c": 60.0, "start_slope_max_c_per_min": 60.0}  # after a look at its rest
CORES_MAX = 4
_TRIAL = f"tr-{0:016x}"  # no trial of a sweep


def commission_phone(phone: Phone, context: LaneContext, quick: bool) -> tuple[bool, str]:
    """Commission a phone; return whether that worked, and a sentence.

    A series that fails leaves the earlier references as they were.
    """
    serial, before = phone.facts.serial, phone.memory
    phone.memory = before.model_copy(update={"canaries": {}, "unrest": {}, "gauge": None})
    phone.facts = phone.facts.model_copy(update={"gauge": None})
    try:
        relearn = QUICK_SERIES if quick else FULL_SERIES
        problem = _run_series(phone, replace(context, relearn=relearn), quick)
        canaries = _canary_facts(phone)
        problem = problem or canary_problem(canaries)
    except FarmError as error:
        problem = str(error)
    if phone.memory.gauge is None:  # as on a charger that cannot be cut
        phone.remember_power(before.gauge, phone.memory.idle_w, phone.memory.idle_meter)
    if problem:
        kept = {"canaries": before.canaries, "unrest": before.unrest}
        phone.memory = phone.memory.model_copy(update=kept)
    else:
        today = datetime.now(UTC).date()
        phone.remember_commission(Commission(on=today, quick=quick, canaries=canaries))
    save_phone_memory(context.state_dir, serial, phone.memory)
    if problem:
        return False, safe_text(f"{serial} was not commissioned: {problem}", 600)
    shown = ", ".join(f"{canary.kind} {canary.detectable:.1%}" for canary in canaries)
    text = f"{serial} is commissioned; its canaries detect changes from: {shown}"
    return True, f"{text}{noise_text(canaries)}"


def is_commissioning_due(facts: PhoneFacts) -> bool:
    """Whether a phone has to be commissioned before its first run.

    Simulated phones and computers learn their references from their first runs.
    """
    time = facts.provenance.time if facts.provenance is not None else None
    is_physical = time is not None and time.source is Source.PHONE
    return is_physical and facts.commission is None and facts.runner_error is None


def conditions(facts: PhoneFacts, quick: bool) -> Iterator[Condition]:
    """The conditions of the series: a warm phone first, then cold ones, or any at once."""
    lowest = min(cluster.capacity for cluster in facts.clusters)
    big = sum(len(cluster.cpus) for cluster in facts.clusters if cluster.capacity > lowest)
    cores = f"big{min(big, CORES_MAX)}" if big else f"all{min(facts.cores, CORES_MAX)}"
    freq = "high" if facts.clocks_writable else FREE
    unknown = Condition(cores=cores, freq=freq, start_temp_max_c=None, time_min_s=COLD_S)
    any_start = unknown.model_copy(update=AT_ONCE) if facts.cpu_zones else unknown
    if quick:
        yield from [any_start] * RUNS_LEARNED
        return
    # The long protocol: this phone may throttle while it warms up.
    yield any_start.model_copy(update={"protocol": Protocol.ENDURANCE, "time_min_s": WARM_S})
    cool = unknown.model_copy(update={"start_temp_max_c": REST})
    yield from [cool] * RUNS_LEARNED


def _run_series(phone: Phone, context: LaneContext, quick: bool) -> str:
    """Run the series; return what went wrong, or nothing."""
    fence = held_fence(phone)
    learns_anew = 1 if quick else 2  # canaries of a warm phone are no reference
    for number, condition in enumerate(conditions(phone.facts, quick), start=1):
        if number > learns_anew:
            context = replace(context, relearn=None)
        # After the warm run, so that how the phone cools is learned on the way.
        context = replace(context, learns_rest=not quick and number == learns_anew)
        job = Job(
            run=RunId(trial=_TRIAL, repeat=0, attempt=number),
            phone=phone.facts.serial,
            fence=fence,
            lease_timeout_s=60,
            case=LOAD,
            condition=condition,
            telemetry=False,
        )
        if problem := _problem(run_attempt(job, phone, context).report):
            return problem
    return ""


def _problem(report: Report) -> str:
    if report.fault is not None:
        return report.fault.text
    if report.restore_error is not None:
        return report.restore_error
    assert report.verdict is not None
    found = [reason.text for reason in disturbing_reasons(report.verdict)]
    return f"a run was disturbed ({'; '.join(found)}); repeat it" if found else ""


def canary_problem(canaries: Sequence[CanaryFacts]) -> str:
    """Return why later runs cannot be compared with these canaries, or nothing.

    A phone whose GPU fails can still be used for runs on its cores.
    """
    if {item.kind for item in canaries} >= {*CanaryKind} - {CanaryKind.GPU}:
        return ""
    return "a canary failed; 'farm phone check' tests the phone"


def noise_text(canaries: Sequence[CanaryFacts]) -> str:
    """Return what a noisy phone can show; nothing for a steady one."""
    worst = max((item.detectable for item in canaries if item.kind != CanaryKind.GPU), default=0.0)
    if worst <= SHOWN_CHANGE:
        return ""
    return f"; it is noisy: only changes from {worst:.0%} on can be told from its noise"


def _canary_facts(phone: Phone) -> tuple[CanaryFacts, ...]:
    """The canaries of the phone; of several references of one, the one that shows least."""
    found = []
    for kind in CanaryKind:
        learned = [item for key, item in phone.memory.canaries.items() if key.startswith(kind)]
        if learned:
            worst = max(learned, key=lambda reference: reference.detectable)
            seconds = max(reference.seconds for reference in learned)
            facts = CanaryFacts(kind=kind, seconds=seconds, detectable=worst.detectable)
            found.append(facts)
    return tuple(found)
