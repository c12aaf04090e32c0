"""Which phones can train a language model for a token budget in a given time, and at what cost.

The forecast of a trial extends what its valid runs measured: the speed of the last minute, which a
hot phone keeps, and the energy per token. Pure.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import median

from orchestrator.analysis.measurements import MeasuredRun, RunOutcome, weakest_provenance
from orchestrator.decisions.states import RunState
from workloads.catalogue import cost_of
from workloads.protocol.faults import Blame, Fault
from workloads.protocol.memory_outcome import MemoryOutcome
from workloads.protocol.metrics import Source

KILLED_FROM = 1.0  # memory_share from which a phone kills processes
_WAITING = (RunState.QUEUED, RunState.LEASED)


class Feasibility(StrEnum):
    """Whether a phone can do a training, or why not."""

    YES = "yes"
    TOO_SLOW = "too_slow"
    TOO_LARGE = "too_large"
    NOT_SURVIVED = "not_survived"
    NOT_TEXT = "not_text"
    NOT_MEASURED = "not_measured"


@dataclass(frozen=True)
class TrainingForecast:
    """What a training to the token budget takes on one phone; None: not known."""

    phone: str
    model: str
    case: str
    feasibility: Feasibility
    note: str = ""  # why there is no forecast
    memory_share: float | None = None
    tokens_per_s: float | None = None  # of the last minute
    hours: float | None = None
    energy_j: float | None = None
    interruptions: int = 0  # attempts that the phone ended
    lost_s: float | None = None  # by the last of them
    tokens_trained: float | None = None
    loss: float | None = None  # at the budget
    has_loss: bool = False  # whether the phone reported any
    source: str = ""
    simulated: bool = False


@dataclass(frozen=True)
class _Trial:
    outcomes: Sequence[RunOutcome]
    runs: Sequence[MeasuredRun]  # the valid ones
    faults: Sequence[Fault]
    verdict_text: str = ""  # of a run that does not count

    def middle(self, metric: str) -> float | None:
        """Return the median over the runs that have a metric."""
        found = [run.metrics[metric] for run in self.runs if metric in run.metrics]
        values = [each.value for each in found if each.grade != "rejected"]
        return median(values) if values else None


def forecast_training(
    runs: Iterable[MeasuredRun],
    outcomes: Iterable[RunOutcome],
    faults: Mapping[str, Sequence[Fault]],
    models: Mapping[str, str],
    tokens: int,
    hours_max: float,
) -> list[TrainingForecast]:
    """Return one forecast per trial, by phone, what is feasible and fast first.

    `faults` are those of attempts, by trial; `models` the names of the phones' models.
    """
    by_trial: dict[str, list[RunOutcome]] = {}
    for outcome in outcomes:
        by_trial.setdefault(outcome.trial, []).append(outcome)
    valid: dict[str, list[MeasuredRun]] = {}
    verdicts: dict[str, str] = {}
    for run in runs:
        if run.valid:
            valid.setdefault(run.trial, []).append(run)
        else:
            verdicts[run.trial] = f"{run.verdict.validity}: {run.verdict.text}"
    forecasts = [
        _forecast(
            _Trial(group, valid.get(trial, ()), faults.get(trial, ()), verdicts.get(trial, "")),
            models.get(group[0].phone, group[0].phone),
            tokens,
            hours_max,
        )
        for trial, group in by_trial.items()
    ]
    return sorted(forecasts, key=_order)


def _order(forecast: TrainingForecast) -> tuple[object, ...]:
    is_no = forecast.feasibility is not Feasibility.YES
    hours = forecast.hours if forecast.hours is not None else float("inf")
    return forecast.model, forecast.phone, is_no, hours, forecast.case


def _forecast(trial: _Trial, model: str, tokens: int, hours_max: float) -> TrainingForecast:
    first = trial.outcomes[0]
    where = (first.phone, model, first.case.label)
    if not trial.runs:
        return TrainingForecast(*where, *_why_not_measured(trial))
    total = trial.middle("tokens_per_s")
    if total is None:
        return TrainingForecast(*where, Feasibility.NOT_TEXT, "it predicts no tokens")
    last_ms = trial.middle("last_minute_step_ms")
    per_step = cost_of(first.case).tokens_per_step
    speed = per_step * 1000 / last_ms if last_ms else total
    hours, share = tokens / speed / 3600, trial.middle("memory_share")
    token_mj = trial.middle("energy_per_token_mj")
    provenance = weakest_provenance(run.metrics["tokens_per_s"].provenance for run in trial.runs)
    feasibility = Feasibility.YES if hours <= hours_max else Feasibility.TOO_SLOW
    if share is not None and share >= KILLED_FROM:
        feasibility = Feasibility.TOO_LARGE
    return TrainingForecast(
        *where,
        feasibility,
        memory_share=share,
        tokens_per_s=speed,
        hours=hours,
        energy_j=None if token_mj is None else token_mj * tokens / 1000,
        interruptions=sum(fault.blame is Blame.PHONE for fault in trial.faults),
        lost_s=trial.middle("resume_lost_s"),
        tokens_trained=trial.middle("tokens_trained"),
        loss=trial.middle("loss_at_budget"),
        has_loss=trial.middle("loss_last") is not None,
        source=str(provenance),
        simulated=provenance.source is Source.SIMULATED,
    )


def _why_not_measured(trial: _Trial) -> tuple[Feasibility, str]:
    outcome = trial.outcomes[-1]
    if outcome.memory_outcome not in (None, MemoryOutcome.FITS, MemoryOutcome.SWAPS):
        return Feasibility.TOO_LARGE, str(outcome.memory_outcome)
    if outcome.fault is not None and outcome.fault.blame is Blame.PHONE:
        return Feasibility.NOT_SURVIVED, outcome.fault.text
    if outcome.state in _WAITING:
        return Feasibility.NOT_MEASURED, f"its run is {outcome.state}"
    text = outcome.fault.text if outcome.fault else outcome.note or trial.verdict_text
    return Feasibility.NOT_MEASURED, text or f"its run is {outcome.state}"
