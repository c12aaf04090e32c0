"""What was observed, brought to one form: of phones, of computers, of kernels without any phone.

An observation is one figure under one set of circumstances on one phone, with a value a run. Beside
them stand the outcomes, so that what is missing has a reason.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from orchestrator.nouns import MeasuredRun, RunOutcome, RunState
from orchestrator.study.telemetry import figures_told
from workloads.catalogue import Case
from workloads.condition import Condition
from workloads.fit import Fit
from workloads.measure import Provenance, Provenances, Standing, kind_of
from workloads.text import safe_text

Circumstances = Mapping[str, str | int]
Told = Mapping[str, Any]  # an unpacked telemetry blob

NOTHING_RUN = "nothing of the kind was run there"
_LACKING = {
    "gpu_util_pct": "nothing there tells how busy its GPU is",
    "rail_power_w": "it has no meter on that rail",
    "time_to_throttle_s": "its clocks did not fall",
    "step_similarity": "fewer than two of its steps were traced",
    "accuracy_last": "nothing was judged: a virtual phone trains nothing",
    "accuracy_first": "nothing was judged: a virtual phone trains nothing",
    "op_share": "its operations were not traced",
    "op_energy_share": "no energy was sampled beside its operations",
}


@dataclass(frozen=True)
class Observation:
    """One figure, a value a run."""

    phone: str
    at: Circumstances
    metric: str
    values: tuple[float, ...]
    provenance: Provenance


@dataclass(frozen=True)
class Outcome:
    """What became of a run that was planned."""

    phone: str
    at: Circumstances
    word: str
    counts: bool
    why: str = ""
    provenance: Provenance | None = None
    standing: str = ""  # of one that does not count, though it ran


@dataclass(frozen=True)
class Evidence:
    """All that can be held against a study's claims."""

    phones: Mapping[str, str] = field(default_factory=dict)  # name of its model, by serial
    observations: tuple[Observation, ...] = ()
    outcomes: tuple[Outcome, ...] = ()
    left_out: Mapping[str, str] = field(default_factory=dict)  # why, by serial
    kernels: bool = False  # of the OpenCL harness, on this computer

    def of(self, phone: str, metric: str, at: Circumstances) -> list[Observation]:
        """A phone's observations of a figure under these circumstances."""
        return [
            each
            for each in self.observations
            if each.phone == phone and each.metric == metric and is_at(each.at, at)
        ]

    def why_not(self, phone: str, metric: str, at: Circumstances) -> str:
        """Why a phone has no such figure."""
        tried = [each for each in self.outcomes if each.phone == phone and is_at(each.at, at)]
        if not tried:
            return self.left_out.get(phone, NOTHING_RUN)
        if not any(each.counts for each in tried):
            return f"{tried[0].standing or tried[0].word}: {tried[0].why}".rstrip(": ")
        name, _, which = metric.partition(".")
        if (
            (kind := kind_of(metric))
            and kind.family != "time"
            and not self._offers(phone, kind.family)
        ):
            return f"it offers no {kind.family}"
        return f"{_LACKING.get(name, 'not reported')}{f' ({which})' if which else ''}"

    def _offers(self, phone: str, family: str) -> bool:
        seen = (kind_of(each.metric) for each in self.observations if each.phone == phone)
        return any(kind is not None and kind.family == family for kind in seen)


def is_at(circumstances: Circumstances, wanted: Circumstances) -> bool:
    """Whether these are among the wanted ones."""
    return all(circumstances.get(key) == value for key, value in wanted.items())


def circumstances_of(case: Case, condition: Condition) -> dict[str, str | int]:
    """What a run may be asked for by."""
    return {
        "workload": case.name,
        "engine": "ours" if case.manifest is None else "external",
        **case.parameters,
        "backend": case.backend,
        "protocol": condition.protocol.value,
        "cores": condition.cores,
        "freq": condition.freq,
    }


def evidence_of(
    runs: Sequence[MeasuredRun],
    outcomes: Iterable[RunOutcome],
    told: Iterable[tuple[MeasuredRun, Told]] = (),
    left_out: Mapping[str, str] | None = None,
    known: Mapping[str, tuple[str, Provenances | None]] | None = None,
) -> Evidence:
    """Gather the runs of a study's sweeps; only valid ones are observations.

    `known` says of every phone what it is called and where its figures come from.
    """
    known = known or {run.phone: (run.facts.model, run.facts.provenance) for run in runs}
    seen: dict[tuple[str, tuple[tuple[str, str | int], ...], str], list[Any]] = {}
    for run, figures in _figures(runs, told):
        for at, metric, value, provenance in figures:
            key = (run.phone, tuple(sorted(at.items())), metric)
            seen.setdefault(key, []).append((value, provenance))
    observations = tuple(
        Observation(phone, dict(at), metric, tuple(v for v, _ in found), found[0][1])
        for (phone, at, metric), found in seen.items()
    )
    reasons = {
        (run.trial, run.repeat): "; ".join(run.verdict.reasons) for run in runs if not run.valid
    }
    phones = {phone: safe_text(model, 40) for phone, (model, _) in known.items()}
    return Evidence(
        phones,
        observations,
        tuple(_outcome(each, reasons, known) for each in outcomes),
        dict(left_out or {}),
    )


Figured = tuple[Circumstances, str, float, Provenance]


def _figures(
    runs: Sequence[MeasuredRun], told: Iterable[tuple[MeasuredRun, Told]]
) -> Iterator[tuple[MeasuredRun, Iterable[Figured]]]:
    for run in runs:
        if run.valid:
            yield run, _reported(run)
    for run, blob in told:
        if run.valid:
            at = circumstances_of(run.case, run.condition)
            yield (
                run,
                (
                    (at | more, name, value, made)
                    for more, name, value, made in figures_told(run, blob)
                ),
            )


def _reported(run: MeasuredRun) -> Iterator[Figured]:
    at = circumstances_of(run.case, run.condition)
    for name, metric in run.metrics.items():
        if metric.grade != "rejected":
            yield at, name, metric.value, metric.provenance
    # The studies' joules are those above rest; both parts are one meter's.
    parts = [run.metrics.get(name) for name in ("energy_net_j", "energy_j", "energy_per_step_mj")]
    if all(part is not None and part.grade != "rejected" for part in parts):
        net, whole, step = (part.value for part in parts if part is not None)
        if whole > 0:
            provenance = run.metrics["energy_net_j"].provenance
            yield at, "energy_net_per_step_mj", step * net / whole, provenance


_STAGE = re.compile(r"^\w+ while \w+: ")


def _plainly(note: str) -> str:
    """The first sentence of what the store says of a run, without kind and stage."""
    return _STAGE.sub("", note).partition(". ")[0].rstrip(".")


def _outcome(
    planned: RunOutcome,
    reasons: Mapping[tuple[str, int], str],
    known: Mapping[str, tuple[str, Provenances | None]],
) -> Outcome:
    why = reasons.get((planned.trial, planned.repeat)) or _plainly(planned.why)
    counts = planned.state is RunState.DONE and planned.verdict is Standing.VALID
    ran = planned.fit in (Fit.FITS, Fit.SWAPS)
    provenances = known[planned.phone][1] if planned.phone in known else None
    return Outcome(
        planned.phone,
        circumstances_of(planned.case, planned.condition),
        str(planned.fit or planned.state),
        counts,
        safe_text(why, 240),
        provenances.time if provenances else None,
        str(planned.verdict or planned.state) if ran and not counts else "",
    )
