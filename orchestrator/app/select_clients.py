"""Selects clients for federated training from a sweep's results; simulates and exports them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from orchestrator.analysis.measurements import RunOutcome
from orchestrator.app.control_sweeps import find_sweep
from orchestrator.app.lab_connection import LabConnection
from orchestrator.app.operation import Role, operation
from orchestrator.app.read_status import list_connected_phones
from orchestrator.export.federated import CONSUMERS, write_consumer_files
from orchestrator.export.federated.consumer_files import ExportCheck, WrittenExport, verify_export
from orchestrator.selection.client_table import build_client_table
from orchestrator.selection.client_types import Client, ClientExclusion, ClientTable, ExcludedClient
from orchestrator.selection.policy_comparison import (
    POLICY_METRICS,
    PolicyDelta,
    PolicyMetric,
    compare_policies,
    summarize_policies,
)
from orchestrator.selection.population import (
    LINKS,
    LinkDistribution,
    PopulationPlan,
    read_availability,
)
from orchestrator.selection.ranking_agreement import RankingAgreement, ranking_agreement
from orchestrator.selection.recommend import (
    ClientState,
    LocalWork,
    Recommendation,
    RoundEstimate,
    recommend_clients,
)
from orchestrator.selection.round_fleet import fits_in_memory
from orchestrator.selection.round_state import RoundRequest
from orchestrator.selection.simulate import SimulationOutcome, SimulationPlan, simulate_policies
from orchestrator.store import results, sweep_queries
from workloads.protocol.faults import InvalidRequest
from workloads.protocol.messages import PhoneState

__all__ = ["LINKS", "POLICY_METRICS", "ExportCheck", "LinkDistribution", "PolicyDelta"]
__all__ += ["RoundEstimate", "verify_export"]


@dataclass(frozen=True)
class WorkloadChoice:
    """Which workload of a sweep the clients train."""

    sweep: str
    workload: str | None = None
    batch: int | None = None
    allow_mixed: bool = False


@operation(Role.VIEWER)
def read_clients(lab: LabConnection, choice: WorkloadChoice) -> ClientTable:
    """Return the clients that a sweep measured, and why other phones are excluded."""
    sweep = find_sweep(lab, choice.sweep)
    runs = results.measured_runs(lab.store, sweep.id, include_void=True)
    table = build_client_table(runs, choice.workload, choice.batch, choice.allow_mixed)
    without_result = sweep_queries.phones_of_sweep(lab.store, sweep.id) - {r.phone for r in runs}
    if without_result:
        outcomes = results.run_outcomes(lab.store, sweep.id)
        excluded = _why_without_result(without_result, outcomes, table)
        table = replace(table, left_out=(*table.left_out, *excluded))
    if not table.clients:
        reasons = "; ".join(f"{item.phone}: {item.text}" for item in table.left_out)
        raise InvalidRequest(f"no phone can be chosen: {reasons}")
    return table


@operation(Role.VIEWER)
def client_states(lab: LabConnection) -> dict[str, ClientState]:
    """Return temperature, charge and presence of the phones of a running lab."""
    return {
        phone.serial: ClientState(
            phone.temp_c,
            None if phone.battery_pct is None else phone.battery_pct / 100,
            phone.state is PhoneState.AWAY,
        )
        for phone in list_connected_phones(lab)
    }


def choose_clients(
    clients: ClientTable, policy: str, request: RoundRequest, work: LocalWork, seed: int
) -> Recommendation:
    """Choose the clients of one round."""
    return recommend_clients(clients, policy, request, work, seed)


@dataclass(frozen=True)
class SimulationResult:
    """The outcomes of a simulated federated training, and what can be said about them."""

    outcomes: tuple[SimulationOutcome, ...]
    rankings: RankingAgreement | None
    notes: tuple[str, ...]


def simulate_selection(
    clients: ClientTable, plan: SimulationPlan, policies: Sequence[str], seeds: Iterable[int]
) -> SimulationResult:
    """Simulate the policies with every seed."""
    phones = able_phones(clients)
    names = list(dict.fromkeys(["random", *policies]))
    outcomes: list[SimulationOutcome] = []
    count = 0
    for seed in seeds:
        count += 1
        outcomes += simulate_policies(phones, names, seed, plan)
    rankings = ranking_agreement(clients.clients)
    notes = _simulation_notes(outcomes, names, count, rankings) if plan.task else []
    source = "simulated phones" if clients.simulated else "measured phones"
    training = "Training is real, its clock is simulated" if plan.task else "Nothing was trained"
    notes.append(f"{training}: times are those of {source}.")
    return SimulationResult(tuple(outcomes), rankings, tuple(notes))


def able_phones(clients: ClientTable) -> tuple[Client, ...]:
    """Return the phones with enough memory."""
    able = tuple(client for client in clients.clients if fits_in_memory(client))
    if not able:
        raise InvalidRequest("no phone has enough memory for this workload; choose another one")
    return able


def export_clients(
    clients: ClientTable,
    consumer: str,
    folder: Path,
    plan: PopulationPlan,
    work: LocalWork,
    trace: Path | None,
    allow_simulated: bool,
) -> WrittenExport:
    """Write the clients, or a population drawn from them, for a consumer."""
    if trace is not None:
        try:
            with trace.open(newline="", encoding="utf-8") as lines:
                plan = replace(plan, trace=read_availability(lines))
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidRequest(f"{trace} cannot be read as a trace; pass a CSV file") from error
    target = CONSUMERS[consumer]
    return write_consumer_files(target, clients, folder, plan, work, allow_simulated)


def _why_without_result(
    phones: frozenset[str], outcomes: Iterable[RunOutcome], table: ClientTable
) -> list[ExcludedClient]:
    """Say why phones without any result have none."""
    case = (table.workload, table.batch)
    reasons = {
        outcome.phone: outcome.memory_outcome or outcome.note or f"its runs are {outcome.state}"
        for outcome in outcomes
        if outcome.phone in phones
        and case == (outcome.case.workload, outcome.case.parameters.get("batch_size", 1))
    }
    return [
        ExcludedClient(phone, ClientExclusion.NO_RESULT, text)
        for phone, text in sorted(reasons.items())
    ]


def _simulation_notes(
    outcomes: Sequence[SimulationOutcome],
    names: Sequence[str],
    seeds: int,
    rankings: RankingAgreement | None,
) -> list[str]:
    """Which policy won, and what choosing by cold figures costs."""
    notes = summarize_policies(outcomes, names, seeds)
    if rankings is None:
        notes.append(
            "The effect of heat on the ranking is unknown: fewer than two phones were measured hot."
        )
    else:
        count, most = rankings.worst
        notes.append(
            f"Cold and sustained rankings of {rankings.phones} phones agree to Kendall's tau = "
            f"{rankings.tau:.2f}; hot rounds chosen by the cold ranking are {rankings.mean:.1%} "
            f"longer on average over cohorts of all sizes, {most:.1%} with {count}."
        )
    length = PolicyMetric("round_s", "length of a round", relative=True, better=-1)
    delta = compare_policies(outcomes, "fastest", "fastest-sustained", length)
    if delta is not None:
        notes.append(
            "In this training, rounds of the phones that are fastest when cold took "
            f"{delta} times as long as rounds of the phones with the fastest sustained speed."
        )
    return notes
