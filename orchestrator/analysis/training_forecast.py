"""Which phones can train a language model for a token budget in a given time, and at what cost.

The forecast of a trial extends what its valid runs measured: the speed of the last minute, which a
hot phone keeps, and the energy per token. Pure.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from statistics import median

from orchestrator.analysis.cell_axes import WORKLOAD, cell_settings, varying_axes
from orchestrator.analysis.measurements import MeasuredRun, RunOutcome, weakest_provenance
from orchestrator.planning.states import RunState
from workloads.catalogue import cost_of
from workloads.protocol.faults import Blame, Fault, FaultKind
from workloads.protocol.memory_outcome import MemoryOutcome
from workloads.protocol.metrics import Source
from workloads.protocol.stage import Stage
from workloads.protocol.verdict import ReasonCode, Validity
from workloads.text import natural_sort_key

KILLED_FROM = 1.0  # memory_share from which a phone kills processes
_WAITING = (RunState.QUEUED, RunState.LEASED)
_KILLS = (FaultKind.KILLED, FaultKind.DIES_LATER)  # without a checkpoint, a kill is a result
_TOO_LARGE = (MemoryOutcome.TOO_LARGE, MemoryOutcome.NEVER_STARTS, MemoryOutcome.KILLED)


class Feasibility(StrEnum):
    """Whether a phone can do a training, or why not."""

    YES = "yes"
    TOO_SLOW = "too_slow"
    TOO_LARGE = "too_large"
    NOT_SURVIVED = "not_survived"
    NOT_TEXT = "not_text"
    NOT_TRAINING = "not_training"
    NOT_MEASURED = "not_measured"


@dataclass(frozen=True)
class TrainingForecast:
    """What a training to the token budget takes on one phone; None: not known."""

    phone: str
    model: str
    case: str  # the workload and the settings that differ between the trials
    feasibility: Feasibility
    note: str = ""  # why there is no forecast
    memory_share: float | None = None
    tokens_per_s: float | None = None  # of the last minute
    hours: float | None = None
    energy_j: float | None = None
    runs: int = 0  # planned
    runs_lost: int = 0  # those of which the phone ended every attempt
    interruptions: int = 0  # attempts that the phone ended during the training
    lost_s: float | None = None  # by the last of them
    measured_s: float | None = None  # since the last of them, if every run was interrupted
    tokens_trained: float | None = None
    loss: float | None = None  # at the budget
    has_loss: bool = False  # whether the phone reported any
    source: str = ""
    simulated: bool = False


@dataclass(frozen=True)
class _Trial:
    name: str
    outcomes: Sequence[RunOutcome]
    runs: Sequence[MeasuredRun]  # the usable ones
    faults: Sequence[Fault]
    verdict_text: str = ""  # of a run that does not count

    def middle(self, metric: str, of_whole_runs: bool = False) -> float | None:
        """Return the median over the runs that have a metric; of whole runs, if there are any."""
        runs = [run for run in self.runs if metric in run.metrics]
        if of_whole_runs:
            runs = [run for run in runs if _continued_s(run) is None] or runs
        found = [run.metrics[metric] for run in runs]
        values = [each.value for each in found if each.grade != "rejected"]
        return median(values) if values else None

    @property
    def lost(self) -> list[RunOutcome]:
        """The runs of which the phone ended every attempt."""
        failed = (outcome for outcome in self.outcomes if outcome.state is RunState.FAILED)
        return [outcome for outcome in failed if outcome.fault and _ends_training(outcome.fault)]


def _continued_s(run: MeasuredRun) -> float | None:
    """Return the measured seconds of a run that continued from a checkpoint; None: a whole run."""
    for reason in run.verdict.reasons:
        if reason.code is ReasonCode.CONTINUED:
            seconds = reason.values.get("seconds")
            return seconds if isinstance(seconds, int | float) else 0.0
    return None


def _is_usable(run: MeasuredRun) -> bool:
    """Whether a run is valid, or suspect only because it continued: the forecast names its time."""
    reasons = run.verdict.reasons
    objections = {each.code for each in reasons if each.validity is not Validity.VALID}
    return run.valid or objections == {ReasonCode.CONTINUED}


def _ends_training(fault: Fault) -> bool:
    """Whether the phone ended a training: by a kill, a restart, heat, or an empty battery."""
    by_phone = fault.blame in (Blame.PHONE, Blame.CONDITION) or fault.kind in _KILLS
    return fault.stage is Stage.RUN and by_phone


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
        if _is_usable(run):
            valid.setdefault(run.trial, []).append(run)
        else:
            verdicts[run.trial] = f"{run.verdict.validity}: {run.verdict.text}"
    names = _case_names(group[0] for group in by_trial.values())
    trials = [
        _Trial(name, group, valid.get(key, ()), faults.get(key, ()), verdicts.get(key, ""))
        for name, (key, group) in zip(names, by_trial.items(), strict=True)
    ]
    forecasts = [_forecast(trial, models, tokens, hours_max) for trial in trials]
    return sorted(forecasts, key=_order)


def _case_names(trials: Iterable[RunOutcome]) -> list[str]:
    """Name trials by workload and the settings that differ between them."""
    cells = [cell_settings(trial.case, trial.condition) for trial in trials]
    differing = [axis.name for axis in varying_axes(cells) if axis.name != WORKLOAD]
    return [
        " ".join([str(cell[WORKLOAD]), *(f"{key}={cell[key]}" for key in differing if key in cell)])
        for cell in cells
    ]


def _order(forecast: TrainingForecast) -> tuple[object, ...]:
    is_no = forecast.feasibility is not Feasibility.YES
    hours = forecast.hours if forecast.hours is not None else float("inf")
    return forecast.model, forecast.phone, is_no, hours, natural_sort_key(forecast.case)


def _forecast(
    trial: _Trial, models: Mapping[str, str], tokens: int, hours_max: float
) -> TrainingForecast:
    first, cost = trial.outcomes[0], cost_of(trial.outcomes[0].case)
    model = models.get(first.phone, first.phone)
    base = TrainingForecast(
        *(first.phone, model, trial.name, Feasibility.NOT_MEASURED),
        runs=len(trial.outcomes),
        runs_lost=len(trial.lost),
        interruptions=sum(map(_ends_training, trial.faults)),
    )
    if not cost.tokens_per_step:
        return replace(base, feasibility=Feasibility.NOT_TEXT)
    if not cost.training:
        return replace(base, feasibility=Feasibility.NOT_TRAINING)
    mean = trial.middle("tokens_per_s", of_whole_runs=True)
    if mean is None:
        feasibility, note = _why_not_measured(trial)
        return replace(base, feasibility=feasibility, note=note)
    last_ms = trial.middle("last_minute_step_ms", of_whole_runs=True)
    speed = cost.tokens_per_step * 1000 / last_ms if last_ms else mean
    hours, token_mj = tokens / speed / 3600, trial.middle("energy_per_token_mj", of_whole_runs=True)
    continued_s = [seconds for run in trial.runs if (seconds := _continued_s(run)) is not None]
    provenance = weakest_provenance(run.metrics["tokens_per_s"].provenance for run in trial.runs)
    forecast = replace(
        base,
        memory_share=trial.middle("memory_share"),
        tokens_per_s=speed,
        hours=hours,
        energy_j=None if token_mj is None else token_mj * tokens / 1000,
        lost_s=trial.middle("resume_lost_s"),
        measured_s=min(continued_s) if len(continued_s) == len(trial.runs) else None,
        tokens_trained=trial.middle("tokens_trained"),
        loss=trial.middle("loss_at_budget") if tokens == first.condition.token_budget else None,
        has_loss=trial.middle("loss_last") is not None,
        source=str(provenance),
        simulated=provenance.source is Source.SIMULATED,
    )
    return replace(forecast, feasibility=_feasibility(trial, forecast, hours <= hours_max))


def _feasibility(trial: _Trial, forecast: TrainingForecast, is_in_time: bool) -> Feasibility:
    share = forecast.memory_share
    if any(map(_is_too_large, trial.outcomes)) or (share is not None and share >= KILLED_FROM):
        return Feasibility.TOO_LARGE
    if trial.lost:
        return Feasibility.NOT_SURVIVED
    return Feasibility.YES if is_in_time else Feasibility.TOO_SLOW


def _is_too_large(outcome: RunOutcome) -> bool:
    return outcome.memory_outcome in _TOO_LARGE


def _why_not_measured(trial: _Trial) -> tuple[Feasibility, str]:
    for outcome in filter(_is_too_large, trial.outcomes):
        return Feasibility.TOO_LARGE, str(outcome.memory_outcome)
    for outcome in trial.lost:
        return Feasibility.NOT_SURVIVED, outcome.fault.text if outcome.fault else ""
    outcome = trial.outcomes[-1]
    if outcome.state in _WAITING:
        return Feasibility.NOT_MEASURED, f"its run is {outcome.state}"
    text = outcome.fault.text if outcome.fault else outcome.note or trial.verdict_text
    return Feasibility.NOT_MEASURED, text or f"its run is {outcome.state}"
