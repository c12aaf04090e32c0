"""Judges the runs of one phone, case and condition together, by the numbers of their reports.

A run alone cannot show a disturbance that acts equally from its first step to its last one. Its
siblings can: they are the same work on the same phone. A report and its verdict stay as sent; what
follows from here is kept beside them, and is computed again when a run arrives or a rule changes.

The limits are quantiles of the scatter of the other runs, so a noisy phone gets wide ones. Two
values that several runs share are two modes of the phone, which the statistics have to see.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from statistics import median
from typing import Any, NamedTuple, Self

from workloads.protocol.condition import Protocol
from workloads.protocol.verdict import OF_THE_MOMENT, Reason, ReasonCode, Validity, Verdict

RULES = 2  # the version of these rules: judgements of another version are computed again
OTHERS_MIN = 2  # runs that a run is compared with
SURE_RUNS = 4  # with fewer, a run that differs and one that is compared look alike
SIMILAR_MIN = 2  # other runs with the same value: a mode of the phone
ERROR_RATE = 0.002  # of the limits, for runs that scatter normally
PRIOR_RUNS = 4  # with the usual scatter, which are added: few runs do not show their own
CORROBORATED = 0.5  # of the limit, where a canary changed the same way
AGREEMENT = 0.015  # of the times of a run whose disturbance did not change them


class Limits(NamedTuple):
    """The least change that counts, and the usual scatter of runs."""

    least: float
    scatter: float


TIME, LONG_TIME, CANARY, ENERGY = (
    *(Limits(0.04, 0.01), Limits(0.06, 0.015)),  # a long run is measured with its throttling
    *(Limits(0.03, 0.01), Limits(0.06, 0.015)),
)
CANARIES = ("canary_arithmetic_ms", "canary_memory_ms", "canary_gpu_ms")
STEP_MS, LATE_MS, RATE = "step_ms", "last_minute_step_ms", "samples_per_s"
ENERGY_MJ = "energy_per_step_mj"
READ_METRICS = (STEP_MS, RATE, "step_p90_ms", LATE_MS, ENERGY_MJ, *CANARIES)
# Signs of a disturbance: what counts is what it did to the run.
SIGNS = OF_THE_MOMENT - {ReasonCode.SCREEN_LIT, ReasonCode.POWER_CHANGED, ReasonCode.SWAPPED} | {
    *(ReasonCode.CANARY_DRIFTED, ReasonCode.CANARY_FAILED, ReasonCode.CLOCK_LIMIT_LOWERED),
    *(ReasonCode.WORK_RATE_LOW, ReasonCode.WORK_RATE_HIGH, ReasonCode.CLOCK_NOT_COUNTED),
    ReasonCode.COOLING_DEVICE_ACTIVE,
}


@dataclass(frozen=True)
class RunNumbers:
    """What the joint rules read of a report."""

    verdict: Verdict  # as sent
    values: Mapping[str, float]  # of READ_METRICS
    energy_grade: str = ""
    source: str = ""  # of its times
    is_long: bool = False  # not of the cold protocol
    remarks: tuple[Reason, ...] = ()  # what else is known of the run: see expected_ranges.py

    @classmethod
    def of_report(cls, content: Mapping[str, Any], protocol: str) -> Self:
        """Read the numbers of a report, as JSON has it, of a run under a protocol."""
        metrics = {item["name"]: item for item in content["metrics"]}
        return cls(
            verdict=Verdict.model_validate(content["verdict"]),
            values={
                name: float(metrics[name]["value"]) for name in READ_METRICS if name in metrics
            },
            energy_grade=metrics[ENERGY_MJ].get("grade", "") if ENERGY_MJ in metrics else "",
            source=metrics[STEP_MS]["provenance"]["source"] if STEP_MS in metrics else "",
            is_long=protocol != Protocol.COLD,
        )


@dataclass(frozen=True)
class JointJudgement:
    """Whether a run counts, beside its siblings: the state, why, and with how many runs."""

    validity: Validity
    reasons: tuple[Reason, ...] = ()
    runs: int = 1  # that were judged together, with this one
    rules: int = RULES

    def applied_to(self, sent: Verdict) -> Verdict:
        """The verdict that readers use: as sent, with what the other runs show."""
        if not self.reasons:
            return sent
        is_excused = any(item.code is ReasonCode.AGREES_WITH_RUNS for item in self.reasons)
        kept = (_as_remark(item) if is_excused else item for item in sent.reasons)
        reasons = (*self.reasons, *kept)[:100]
        return sent.model_copy(update={"validity": self.validity, "reasons": reasons})


def judge_together(runs: Sequence[RunNumbers]) -> list[JointJudgement]:
    """Judge runs of the same work on the same phone, in any order."""
    counted, metered = (
        {index: run for index, run in enumerate(runs) if family not in run.verdict.doubted}
        for family in ("time", "energy")
    )
    found: dict[int, list[Reason]] = {index: [] for index in range(len(runs))}
    for index, change in _odd_times(counted).items():
        found[index].append(Reason.suspect(ReasonCode.WORK_RATE_CHANGED, **change))
    for index, change in _odd_energies(metered).items():
        found[index].append(Reason.suspect(ReasonCode.STEP_ENERGY_CHANGED, **change))
    sound = [run for index, run in counted.items() if not found[index]]
    for index, run in enumerate(runs):
        if run.verdict.validity is Validity.SUSPECT and (remark := _agreement(run, sound)):
            found[index].append(remark)
    return [
        _judgement(run, found[index], len(counted) + (index not in counted))
        for index, run in enumerate(runs)
    ]


def _judgement(run: RunNumbers, found: Sequence[Reason], count: int) -> JointJudgement:
    reasons = (*found, *run.remarks)
    sent = run.verdict.validity
    if any(reason.validity is Validity.SUSPECT for reason in reasons) and sent is Validity.VALID:
        return JointJudgement(Validity.SUSPECT, reasons, count)
    is_excused = any(item.code is ReasonCode.AGREES_WITH_RUNS for item in reasons)
    return JointJudgement(Validity.VALID if is_excused else sent, reasons, count)


def _odd_times(runs: Mapping[int, RunNumbers]) -> dict[int, dict[str, float]]:
    """Runs whose headline differs from the others, with the change and its limit."""
    name = LATE_MS if all(LATE_MS in run.values for run in runs.values()) else STEP_MS
    limits = LONG_TIME if any(run.is_long for run in runs.values()) else TIME
    changed = [_changes(runs, canary, CANARY) for canary in CANARIES]
    return _odd_values(_known(runs, name), limits, changed)


def _odd_energies(runs: Mapping[int, RunNumbers]) -> dict[int, dict[str, float]]:
    """Runs whose energy differs from the others that were measured in the same way."""
    odd: dict[int, dict[str, float]] = {}
    for grade in {run.energy_grade for run in runs.values()} - {"", "rejected", "coarse"}:
        same = {index: run for index, run in runs.items() if run.energy_grade == grade}
        odd |= _odd_values(_known(same, ENERGY_MJ), ENERGY)
    return odd


def _known(runs: Mapping[int, RunNumbers], name: str) -> dict[int, float]:
    return {index: run.values[name] for index, run in runs.items() if name in run.values}


def _changes(runs: Mapping[int, RunNumbers], name: str, limits: Limits) -> dict[int, float]:
    """The change of a canary of each run whose canary differs from those of the others."""
    odd = _odd_values(_known(runs, name), limits)
    return {index: found["change"] for index, found in odd.items()}


def _odd_values(
    values: Mapping[int, float],
    limits: Limits,
    corroborating: Sequence[Mapping[int, float]] = (),
) -> dict[int, dict[str, float]]:
    """The values that differ from the others: the most distant one first, at most a minority."""
    left = {index: value for index, value in values.items() if value > 0}
    at_most = (len(left) - 1) / 2
    odd: dict[int, dict[str, float]] = {}
    while len(left) > OTHERS_MIN and len(odd) < at_most:
        distances = {}
        for index, value in left.items():
            others = [other for key, other in left.items() if key != index]
            found = compare_value(value, others, limits)
            change = found["change"]
            is_seen_twice = any(change * seen.get(index, 0) > 0 for seen in corroborating)
            if is_seen_twice:
                found["limit"] *= CORROBORATED
            similar = sum(abs(other / value - 1) <= found["limit"] / 2 for other in others)
            if abs(change) > found["limit"] and (is_seen_twice or similar < SIMILAR_MIN):
                distances[index] = found
        if not distances:
            break
        farthest = max(distances, key=lambda i: abs(distances[i]["change"]) / distances[i]["limit"])
        odd[farthest] = distances[farthest]
        del left[farthest]
    return odd


def compare_value(value: float, others: Sequence[float], limits: Limits) -> dict[str, float]:
    """How far a value is from the median of others, and how far it may be."""
    usual = median(others)
    squares = sum((other / usual - 1) ** 2 for other in others)
    freedom = len(others) - 1 + PRIOR_RUNS
    scatter = ((squares + PRIOR_RUNS * limits.scatter**2) / freedom) ** 0.5
    limit = max(limits.least, _quantile(freedom) * scatter * (1 + 1 / len(others)) ** 0.5)
    return {"change": value / usual - 1, "count": len(others), "limit": limit}


@cache
def _quantile(freedom: int) -> float:
    """How many standard errors a good run may be away."""
    from scipy.special import stdtrit

    return float(stdtrit(freedom, 1 - ERROR_RATE / 2))


def _agreement(run: RunNumbers, sound: Sequence[RunNumbers]) -> Reason | None:
    """A remark, if a disturbance did not change what the run measured.

    Its times have to be those of at least three runs that nothing disturbed, and so does its
    energy where it was measured.
    """
    signs = [item for item in run.verdict.reasons if item.validity is not Validity.VALID]
    if len(sound) < SURE_RUNS - 1 or not signs or any(item.code not in SIGNS for item in signs):
        return None
    limits = dict.fromkeys((STEP_MS, RATE, LATE_MS), AGREEMENT)
    limits |= {"step_p90_ms": TIME.least, ENERGY_MJ: ENERGY.least}
    for name, limit in limits.items():
        if name not in run.values:
            continue
        peers = sound if name != ENERGY_MJ else _same_meter(run, sound)
        others = [peer.values[name] for peer in peers if name in peer.values]
        if not others or abs(run.values[name] / median(others) - 1) > limit:
            return None
    if STEP_MS not in run.values:
        return None
    change = run.values[STEP_MS] / median(peer.values[STEP_MS] for peer in sound) - 1
    return Reason.remark(
        ReasonCode.AGREES_WITH_RUNS, change=change, count=len(sound), limit=AGREEMENT
    )


def _same_meter(run: RunNumbers, sound: Sequence[RunNumbers]) -> list[RunNumbers]:
    return [peer for peer in sound if peer.energy_grade == run.energy_grade]


def _as_remark(reason: Reason) -> Reason:
    return reason.model_copy(update={"validity": Validity.VALID})
