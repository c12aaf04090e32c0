"""`farm sweep feasible`: which phones can train to a token budget in time."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from orchestrator.analysis.measurements import MeasuredRun, RunOutcome
from orchestrator.analysis.training_forecast import Feasibility, forecast_training
from orchestrator.cli import farm
from orchestrator.planning.states import RunState
from orchestrator.store.database import Database
from tests.analysis.builders import EXTRAPOLATED, endurance
from tests.stored_runs import store_runs
from workloads.catalogue import bind
from workloads.protocol.condition import Condition
from workloads.protocol.faults import (
    DiesLater,
    FarmError,
    Fault,
    Killed,
    LeaseLost,
    Restarted,
    TooHot,
    TrainingKilled,
    Unreachable,
)
from workloads.protocol.memory_outcome import MemoryOutcome
from workloads.protocol.stage import Stage
from workloads.protocol.verdict import Reason, ReasonCode, Validity, Verdict

BUDGET = 512 * 3600 * 8  # at one step of 512 tokens per second: exactly eight hours


def trained(serial: str, last_minute_ms: float, **changes: Any) -> MeasuredRun:
    """Build half an hour of a decoder of 15 M parameters, 512 tokens per step."""
    figures = {"tokens_per_s": 900.0, "memory_share": 0.1, "energy_per_token_mj": 2.0}
    condition = {"token_budget": BUDGET, **changes.pop("condition", {})}
    workload = changes.pop("workload", "decoder-15m")
    return endurance(
        serial, last_minute_ms, workload=workload, condition=condition, **(figures | changes)
    )


def outcome(run: MeasuredRun, **changes: Any) -> RunOutcome:
    """Build the outcome of a finished run."""
    base = RunOutcome(
        *(run.trial, 0, 0, 0, run.phone, run.case, run.condition, RunState.DONE),
        *(Validity.VALID, MemoryOutcome.FITS, None, None, ""),
    )
    return replace(base, **changes)


def fault_of(kind: type[FarmError], stage: Stage = Stage.RUN) -> Fault:
    """Build the fault of an attempt."""
    return Fault(blame=kind.blame, kind=kind.kind, stage=stage, text=kind.kind)


def test_hours_and_joules_extend_what_the_last_minute_showed() -> None:
    fast, slow = trained("a", 1000.0), trained("b", 1001.0)
    outcomes = [outcome(fast), outcome(slow)]
    first, second = forecast_training([fast, slow], outcomes, {}, {}, BUDGET, 8)
    assert (first.feasibility, first.hours, first.tokens_per_s) == (Feasibility.YES, 8.0, 512.0)
    assert first.energy_j == pytest.approx(2.0 * BUDGET / 1000)
    assert second.feasibility is Feasibility.TOO_SLOW


def test_a_kill_that_was_survived_is_counted_and_one_that_was_not_is_the_answer() -> None:
    run = trained("a", 500.0, resume_lost_s=41.0)
    fault = fault_of(TrainingKilled)
    (survived,) = forecast_training([run], [outcome(run)], {run.trial: [fault]}, {}, BUDGET, 8)
    assert (survived.feasibility, survived.interruptions, survived.lost_s) == ("yes", 1, 41.0)
    lost = outcome(run, state=RunState.FAILED, memory_outcome=None, fault=fault)
    (died,) = forecast_training([], [lost], {run.trial: [fault]}, {}, BUDGET, 8)
    assert (died.feasibility, died.note) == (Feasibility.NOT_SURVIVED, "training_killed")


def test_a_training_that_is_lost_in_one_repeat_is_not_feasible() -> None:
    run = trained("a", 500.0)
    lost = outcome(run, state=RunState.FAILED, memory_outcome=None, fault=fault_of(Restarted))
    for outcomes in ([outcome(run), lost], [lost, outcome(run)]):
        (forecast,) = forecast_training([run], outcomes, {}, {}, BUDGET, 8)
        assert forecast.feasibility is Feasibility.NOT_SURVIVED
        assert (forecast.runs, forecast.runs_lost, forecast.hours) == (2, 1, 4.0)


def test_the_speed_is_that_of_whole_runs_where_there_are_any() -> None:
    for reason in (Reason.remark, Reason.suspect):
        continued = reason(ReasonCode.CONTINUED, step=9, seconds=90.0)
        verdict = Verdict(validity=continued.validity, reasons=(continued,))
        cool = replace(trained("a", 250.0), verdict=verdict)
        (forecast,) = forecast_training([cool], [outcome(cool)], {}, {}, BUDGET, 8)
        assert (forecast.hours, forecast.measured_s) == (2.0, 90.0)
    runs = [cool, trained("a", 500.0)]
    (forecast,) = forecast_training(runs, [outcome(run) for run in runs], {}, {}, BUDGET, 8)
    assert (forecast.hours, forecast.measured_s) == (4.0, None)


def test_only_the_ends_of_a_training_are_interruptions() -> None:
    run = trained("a", 500.0)
    ended = [fault_of(kind) for kind in (DiesLater, Restarted, TooHot)]
    before = [fault_of(Unreachable, Stage.COOL), fault_of(LeaseLost)]
    faults = {run.trial: ended + before}
    (forecast,) = forecast_training([run], [outcome(run)], faults, {}, BUDGET, 8)
    assert forecast.interruptions == 3
    lost = outcome(run, state=RunState.FAILED, memory_outcome=None, fault=ended[-1])
    (forecast,) = forecast_training([], [lost], faults, {}, BUDGET, 8)
    assert (forecast.feasibility, forecast.interruptions) == (Feasibility.NOT_SURVIVED, 3)
    away = outcome(run, state=RunState.FAILED, memory_outcome=None, fault=before[0])
    (forecast,) = forecast_training([], [away], faults, {}, BUDGET, 8)
    assert (forecast.feasibility, forecast.note) == (Feasibility.NOT_MEASURED, "unreachable")


def test_cases_are_told_apart_by_what_differs() -> None:
    runs = [trained("a", 500.0, condition={"cores": cores}) for cores in ("big2", "all4")]
    forecasts = forecast_training(runs, [outcome(run) for run in runs], {}, {}, BUDGET, 8)
    assert [each.case for each in forecasts] == ["decoder-15m cores=all4", "decoder-15m cores=big2"]


def test_a_loss_is_that_of_the_budget_asked_for() -> None:
    run = trained("a", 500.0, loss_last=2.0, loss_at_budget=2.2, tokens_trained=2.0 * BUDGET)
    for tokens, loss in ((BUDGET, 2.2), (BUDGET + 1, None)):
        (forecast,) = forecast_training([run], [outcome(run)], {}, {}, tokens, 8)
        assert forecast.loss == loss


def test_memory_decides_before_speed() -> None:
    large = trained("a", 500.0, memory_share=1.2)
    (forecast,) = forecast_training([large], [outcome(large)], {}, {}, BUDGET, 8)
    assert forecast.feasibility is Feasibility.TOO_LARGE
    killed = {"memory_outcome": MemoryOutcome.KILLED, "fault": fault_of(Killed)}
    failed = outcome(large, state=RunState.FAILED, **killed)
    (forecast,) = forecast_training([], [failed], {}, {}, BUDGET, 8)
    assert (forecast.feasibility, forecast.note) == (Feasibility.TOO_LARGE, "killed")


@pytest.mark.parametrize(
    ("changes", "note"),
    [
        ({"state": RunState.QUEUED, "validity": None}, "its run is queued"),
        ({"validity": Validity.VOID}, "void: "),
        ({"state": RunState.BLOCKED, "note": "crashed twice"}, "crashed twice"),
    ],
)
def test_what_was_not_measured_has_a_reason(changes: dict[str, Any], note: str) -> None:
    run = trained("a", 500.0, validity=Validity.VOID)
    (forecast,) = forecast_training([run], [outcome(run, **changes)], {}, {}, BUDGET, 8)
    assert forecast.feasibility is Feasibility.NOT_MEASURED
    assert forecast.note.startswith(note)


def test_a_workload_without_tokens_is_not_a_model_of_text() -> None:
    run = endurance("a", 10.0)
    (forecast,) = forecast_training([run], [outcome(run)], {}, {}, BUDGET, 8)
    assert (run.case, forecast.feasibility) == (bind("mlp-4", {}), Feasibility.NOT_TEXT)
    assert run.condition == Condition(protocol="endurance")
    inference = trained("a", 500.0, workload="decoder-15m-inference")
    (forecast,) = forecast_training([inference], [outcome(inference)], {}, {}, BUDGET, 8)
    assert forecast.feasibility is Feasibility.NOT_TRAINING


@pytest.fixture
def lab_of_decoders(store: Database, tmp_path: Path) -> Path:
    """A lab with a sweep of a decoder on three phones, one of them simulated, and another sweep."""
    runs = [
        trained("fast", 500.0, loss_last=2.4, tokens_trained=4e6),
        trained("slow", 3000.0, loss_last=2.4, loss_at_budget=2.25),
        trained("virtual", 900.0, provenance=EXTRAPOLATED),
    ]
    store_runs(store, runs, "night")
    store_runs(store, [endurance("fast", 10.0)], "other")
    return tmp_path


def feasible(folder: Path, *words: str) -> Result:
    """Run the command in this process."""
    words = ("sweep", "feasible", *words, "--lab", str(folder))
    return CliRunner().invoke(farm, words, standalone_mode=False)


def test_one_table_answers_for_every_phone(lab_of_decoders: Path) -> None:
    result = feasible(lab_of_decoders, "night")
    headings, *lines = (line.split("\t") for line in result.stdout.splitlines())
    rows = {line[0]: dict(zip(headings, line, strict=True)) for line in lines}
    answers = [rows[name]["FEASIBLE"] for name in ("fast", "slow", "virtual")]
    assert answers == ["yes", "no: too slow", "yes"]
    fast = rows["fast"]
    assert (fast["MEMORY"], fast["TOKENS/S"], fast["HOURS"]) == ("10.0 %", "1,024", "4.0")
    assert (fast["ENERGY"], fast["INTERRUPTED"]) == ("29.5 kJ", "never")
    assert fast["LOSS"] == "after 4,000,000 of 14,745,600 tokens: not reached"
    assert (rows["slow"]["LOSS"], rows["slow"]["SOURCE"]) == ("2.25", "phone")
    assert rows["virtual"]["LOSS"] == "none: a virtual phone does not train"
    assert "2 of 3 phones can train 14,745,600 tokens within 8 h" in result.stderr


def test_time_and_tokens_can_be_asked_for(lab_of_decoders: Path) -> None:
    answer = json.loads(feasible(lab_of_decoders, "night", "--within", "24h", "--json").stdout)
    assert {row["feasibility"] for row in answer["forecasts"]} == {"yes"}
    fewer = json.loads(feasible(lab_of_decoders, "night", "--tokens", "1024", "--json").stdout)
    hours = [row["hours"] for row in fewer["forecasts"]]
    assert max(hours) < 0.01
    refused = feasible(lab_of_decoders, "other")
    assert "has no token_budget among its conditions; pass --tokens" in str(refused.exception)
