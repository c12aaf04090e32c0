"""Assesses for which phones a training to a token budget is feasible, from a sweep's results."""

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from orchestrator.analysis.training_forecast import Feasibility, TrainingForecast, forecast_training
from orchestrator.app.control_sweeps import find_sweep
from orchestrator.app.lab_connection import LabConnection
from orchestrator.app.operation import Role, operation
from orchestrator.store import phone_queries, results
from workloads.protocol.faults import InvalidRequest

__all__ = ["Feasibility", "TrainingForecast"]


@dataclass(frozen=True)
class TrainingAssessment:
    """The forecasts of a sweep's trials, and the question that they answer."""

    sweep: str
    tokens: int
    hours: float
    forecasts: tuple[TrainingForecast, ...]


@operation(Role.VIEWER)
def assess_training(
    lab: LabConnection,
    name: str,
    hours: Annotated[float, Field(gt=0)],
    tokens: Annotated[int, Field(gt=0)] | None = None,
) -> TrainingAssessment:
    """Forecast a training to a token budget on every phone of a sweep.

    Without `tokens` it is the token_budget of the sweep's conditions.
    """
    sweep_id = find_sweep(lab, name).id
    outcomes = results.run_outcomes(lab.store, sweep_id)
    budgets = {outcome.condition.token_budget for outcome in outcomes} - {None}
    tokens = tokens or max((each for each in budgets if each is not None), default=None)
    if tokens is None:
        raise InvalidRequest(f"{sweep_id} has no token_budget among its conditions; pass --tokens")
    models = {phone.serial: phone.facts.model for phone in phone_queries.known_phones(lab.store)}
    forecasts = forecast_training(
        results.measured_runs(lab.store, sweep_id, include_void=True),
        outcomes,
        results.faults_by_trial(lab.store, sweep_id),
        models,
        tokens,
        hours,
    )
    return TrainingAssessment(sweep_id, tokens, hours, tuple(forecasts))
