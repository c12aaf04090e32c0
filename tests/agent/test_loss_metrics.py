"""The loss at a token budget, and the time and energy to a loss."""

from dataclasses import replace
from typing import Any

import pytest

from agent.collect.energy import EnergyGrade, PowerObservation
from agent.collect.runner_output import ResumeRecord, StepWindow
from agent.judge.loss_metrics import LOSS_STEPS, loss_curve
from agent.judge.run_metrics import measure
from tests.agent.observations import CLAIMED, an_observation, output_of
from workloads.catalogue import bind, cost_of
from workloads.protocol.condition import Condition
from workloads.protocol.metrics import Provenance, Provenances, Source

S = 10**9
PHONE = Provenance(source=Source.PHONE)
COST = cost_of(bind("decoder-1m", {"batch_size": 2, "text_length": 64}))
TOKENS = 2 * 64
POWER = PowerObservation([(t * S, 2.0) for t in range(100)], EnergyGrade.GAUGE)


def falling(*losses: float | None, n: int = 8, first: int = 0) -> list[StepWindow]:
    """Build windows of n steps of one second with these losses."""
    return [
        StepWindow(
            first=first + i * n,
            n=n,
            t_ns=i * n * S,
            ns=n * S,
            ns_min=S,
            ns_max=S,
            loss=loss,
        )
        for i, loss in enumerate(losses)
    ]


def metrics_of(
    windows: list[StepWindow], resumed: bool = False, **condition: Any
) -> dict[str, float]:
    """Measure a run of a small decoder with these windows."""
    output = output_of(windows)
    if resumed:
        output.resume = ResumeRecord(step=windows[0].first, t_ns=0, same_cores=True, lost_ns=S)
    run = an_observation(
        condition=Condition(**condition),
        output=output,
        claimed=replace(CLAIMED, cost=COST),
        provenance=Provenances(time=PHONE, clock=None, heat=None, energy=PHONE),
        power=POWER,
    )
    return {metric.name: metric.value for metric in measure(run)}


def test_the_loss_is_the_mean_over_the_last_steps() -> None:
    curve = loss_curve(falling(4.0, 2.0, 1.0))
    assert LOSS_STEPS == 16
    assert [(point.steps, point.loss) for point in curve] == [(16, 3.0), (24, 1.5)]
    assert loss_curve(falling(4.0, n=8)) == []
    assert [point.loss for point in loss_curve(falling(4.0, 2.0, n=40))] == [4.0, 2.0]
    assert loss_curve(falling(4.0, None, 1.0)) == []


def test_loss_at_a_budget_and_the_cost_of_a_loss() -> None:
    windows = falling(4.0, 2.0, 1.0, 0.5)
    found = metrics_of(windows, token_budget=20 * TOKENS, target_loss=1.5)
    assert found["tokens_trained"] == 32 * TOKENS
    assert found["loss_at_budget"] == 1.5
    assert found["time_to_loss_s"] == 24.0
    assert found["energy_to_loss_j"] == pytest.approx(48.0)


def test_what_is_not_reached_or_not_asked_for_is_absent() -> None:
    windows = falling(4.0, 2.0, 1.0)
    names = {"loss_at_budget", "time_to_loss_s", "energy_to_loss_j"}
    assert not names & set(metrics_of(windows))
    assert not names & set(metrics_of(windows, token_budget=25 * TOKENS, target_loss=0.1))
    assert not names & set(metrics_of(falling(None, None), token_budget=1, target_loss=9.0))


def test_a_resumed_run_has_no_time_to_a_loss_and_counts_all_tokens() -> None:
    later = falling(1.0, 0.5, first=80)
    found = metrics_of(later, resumed=True, token_budget=90 * TOKENS, target_loss=2.0)
    assert found["tokens_trained"] == 96 * TOKENS
    assert found["loss_at_budget"] == 0.75
    assert "time_to_loss_s" not in found
    passed = metrics_of(later, resumed=True, token_budget=70 * TOKENS)
    assert "loss_at_budget" not in passed, "the budget was reached before the resume"
    soon = metrics_of(later, resumed=True, token_budget=84 * TOKENS)
    assert "loss_at_budget" not in soon, "too few steps for a mean since the resume"
