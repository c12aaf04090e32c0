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
from orchestrator.export.federated.consumer_files import (
    AGREES_WITHIN,
    ConsumerEstimate,
    NetworkLink,
    WrittenExport,
    verify_export,
)
from orchestrator.selection.client_table import build_client_table
from orchestrator.selection.client_types import ClientExclusion, ClientTable, ExcludedClient
from orchestrator.selection.policy_comparison import (
    OURS,
    POLICY_METRICS,
    PolicyDelta,
    PolicyMetric,
    compare_policies,
    summarize_policies,
)
from orchestrator.selection.ranking_agreement import RankingAgreement, ranking_agreement
from orchestrator.selection.recommend import (
    ClientState,
    LocalWork,
    Recommendation,
    RoundEstimate,
    recommend_clients,
)
from orchestrator.selection.round_fleet import build_round_fleet
from orchestrator.selection.round_state import RoundRequest
from orchestrator.selection.simulate import (
    SimulationOutcome,
    SimulationPlan,
    rename_policy,
    simulate_policies,
)
from orchestrator.store import results, sweep_queries
from workloads.protocol.faults import InvalidRequest
from workloads.protocol.messages import PhoneState

__all__ = [
    "AGREES_WITHIN",
    "POLICY_METRICS",
    "ClientTable",
    "ConsumerEstimate",
    "LocalWork",
    "NetworkLink",
    "PolicyDelta",
    "PolicyMetric",
    "RankingAgreement",
    "Recommendation",
    "RoundEstimate",
    "RoundRequest",
    "SimulationOutcome",
    "SimulationPlan",
    "SimulationResult",
    "WorkloadChoice",
    "WrittenExport",
    "choose_clients",
    "client_states",
    "compare_policies",
    "export_clients",
    "read_clients",
    "simulate_selection",
    "verify_export",
]

NOISE_TRIED = 0.2  # our policy is also simulated with figures that are wrong by this much


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
    clients: ClientTable,
    plan: SimulationPlan,
    policies: Sequence[str],
    seeds: Iterable[int],
) -> SimulationResult:
    """Simulate the policies with every seed; our policy is simulated with noisy figures as well."""
    fleet = build_round_fleet(clients.clients)
    names = list(dict.fromkeys(["random", *policies]))
    outcomes: list[SimulationOutcome] = []
    count = 0
    for seed in seeds:
        count += 1
        outcomes += simulate_policies(fleet, names, seed, plan)
        if OURS in names and plan.estimate_error < NOISE_TRIED:
            noisy = simulate_policies(
                fleet, [OURS], seed, replace(plan, estimate_error=NOISE_TRIED)
            )
            outcomes += rename_policy(noisy, f"{OURS}, {NOISE_TRIED:.0%} wrong")
    rankings = ranking_agreement(clients.clients)
    notes = _simulation_notes(outcomes, names, count, rankings)
    source = "simulated phones" if clients.simulated else "measured phones"
    notes.append(f"The training is real, its clock is not: times are those of {source}.")
    return SimulationResult(tuple(outcomes), rankings, tuple(notes))


def export_clients(
    clients: ClientTable,
    consumer: str,
    folder: Path,
    link: NetworkLink | None,
    allow_simulated: bool,
) -> tuple[str, WrittenExport]:
    """Write the clients for a consumer; return the consumer's title and what was written."""
    target = CONSUMERS[consumer]
    return target.title, write_consumer_files(target, clients, folder, link, allow_simulated)


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
