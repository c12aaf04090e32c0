"""Builds the client table from a sweep's reports: one row per phone, for one workload and batch.

Each value has its interval and its provenance. Values that a sweep did not measure stay unknown and
are listed as missing; no default is filled in.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from orchestrator.analysis.measurements import MeasuredRun, MeasurementKind, refuse_mixed_sources
from orchestrator.analysis.stats import median
from orchestrator.selection.client_estimate import (
    Estimate,
    PooledSpread,
    estimate_from,
    pool_spread,
)
from orchestrator.selection.client_types import (
    Client,
    ClientExclusion,
    ClientTable,
    DataGap,
    ExcludedClient,
    MissingData,
)
from workloads.protocol.condition import HEADLINES, Protocol
from workloads.protocol.faults import InvalidRequest
from workloads.protocol.metrics import Metric

SETTLED_SHARE = 0.63  # of an exponential rise after one time constant
FEW_RUNS_MIN = 3  # with fewer, the spread of the other phones is used
RISE_MIN = 1.02  # a smaller rise of the step time is not a slowdown


@dataclass(frozen=True)
class PooledSpreads:
    """The spread of the runs of a sweep, in time and in energy."""

    time: PooledSpread
    energy: PooledSpread


def build_client_table(
    runs: Sequence[MeasuredRun],
    workload: str | None = None,
    batch: int | None = None,
    mix: bool = False,
) -> ClientTable:
    """Build clients from the runs of one workload and batch, and list what is missing.

    Void runs are passed too: they explain why a phone is left out.
    """
    chosen = _select_case(runs, workload, batch)
    by_phone: dict[str, list[MeasuredRun]] = {}
    for run in chosen:
        by_phone.setdefault(run.phone, []).append(run)
    spreads = _pooled_spreads([run for run in chosen if run.valid])
    clients: list[Client] = []
    left_out: list[ExcludedClient] = []
    for phone, members in sorted(by_phone.items()):
        valid = [run for run in members if run.valid]
        client = _client(valid, spreads) if valid else None
        if client is not None:
            clients.append(client)
        else:
            left_out.append(_excluded_client(phone, members, has_valid=bool(valid)))
    _refuse_mixed_clients(clients, mix)
    first = chosen[0].case
    size = first.parameters.get("batch_size", 1)
    return ClientTable(
        first.workload, size, tuple(clients), tuple(left_out), _missing_data(clients)
    )


def _excluded_client(phone: str, runs: Sequence[MeasuredRun], has_valid: bool) -> ExcludedClient:
    if has_valid:
        text = "it has no cold run; the sustained time alone does not show the time at the start"
        return ExcludedClient(phone, ClientExclusion.NO_COLD_RUN, text)
    reasons = sorted({reason.text for run in runs for reason in run.verdict.reasons})
    why = f" ({'; '.join(reasons[:2])})" if reasons else ""
    text = f"none of its {len(runs)} runs is valid{why}"
    return ExcludedClient(phone, ClientExclusion.NO_VALID_RUN, text)


def _select_case(
    runs: Sequence[MeasuredRun], workload: str | None, batch: int | None
) -> list[MeasuredRun]:
    """Return the runs of one case; a sweep with several needs --workload and --batch-size.

    Of a case that was run on both processors, the CPU's runs are taken.
    """
    kept = [
        run
        for run in runs
        if workload in (None, run.case.workload)
        and batch in (None, run.case.parameters.get("batch_size", 1))
    ]
    cases = {run.case.label for run in kept}
    on_cpu = [run for run in kept if run.case.backend == "cpu"]
    if len(cases) > 1 and len({run.case.label for run in on_cpu}) == 1:
        return on_cpu
    if not runs:
        raise InvalidRequest("this sweep has no report yet; try again when a run has ended")
    if not kept:
        labels = ", ".join(sorted({run.case.label for run in runs}))
        raise InvalidRequest(f"no run has this workload and batch; choose from {labels}")
    if len(cases) > 1:
        labels = ", ".join(sorted({run.case.label for run in on_cpu or kept}))
        raise InvalidRequest(
            "the sweep has several workloads; choose one with --workload and --batch-size: "
            f"{labels}"
        )
    return kept


def _pooled_spreads(runs: Sequence[MeasuredRun]) -> PooledSpreads:
    trials: dict[str, list[MeasuredRun]] = {}
    for run in runs:
        trials.setdefault(run.trial, []).append(run)

    def values(metric: str | None) -> Iterator[list[float]]:
        for members in trials.values():
            name = metric or members[0].condition.headline
            yield [run.metrics[name].value for run in members if name in run.metrics]

    return PooledSpreads(pool_spread(values(None)), pool_spread(values("energy_per_sample_mj")))


def _client(runs: Sequence[MeasuredRun], spreads: PooledSpreads) -> Client | None:
    """Build one phone's row, for the cores and clock that are fastest when it is cool."""
    settings: dict[tuple[str, str], list[MeasuredRun]] = {}
    for run in runs:
        settings.setdefault((run.condition.cores, run.condition.freq), []).append(run)
    rows = [
        row
        for (cores, freq), members in settings.items()
        if (row := _row(members, f"{cores} {freq}", spreads))
    ]
    return min(rows, key=lambda row: row.cold_ms.value) if rows else None


def _row(runs: Sequence[MeasuredRun], setting: str, spreads: PooledSpreads) -> Client | None:
    cold = [run for run in runs if run.condition.protocol is Protocol.COLD]
    hot = [run for run in runs if run.condition.protocol is not Protocol.COLD]
    protocol = hot[0].condition.protocol if hot else Protocol.ENDURANCE
    hot = [run for run in hot if run.condition.protocol is protocol]
    cold_ms = _time_per_sample(cold, "step_ms", spreads.time)
    if cold_ms is None:
        return None
    facts = runs[-1].facts
    peaks = _values(runs, "peak_rss_mb")
    return Client(
        phone=runs[0].phone,
        model=facts.model,
        soc=facts.soc,
        setting=setting,
        control=runs[-1].control,
        cold_ms=cold_ms,
        sustained_ms=_time_per_sample(hot, HEADLINES[protocol], spreads.time),
        heating_s=_median_or_none(
            [s for run in hot if (s := _time_constant_s(run.step_time_curve)) is not None]
        ),
        temp_range_c=_temp_range_c(cold, hot),
        # The energy of a long run is more precise: the gauge's update period matters less in it.
        energy_mj=_energy(hot, spreads.energy) or _energy(cold, spreads.energy),
        battery_j=_battery_j(runs),
        peak_mb=max(peaks) if peaks else None,
        ram_mb=facts.ram_mb,
        runs=tuple(f"{run.trial}.{run.repeat}" for run in runs),
    )


def _values(runs: Iterable[MeasuredRun], metric: str) -> list[float]:
    return [run.metrics[metric].value for run in runs if metric in run.metrics]


def _median_or_none(values: Sequence[float]) -> float | None:
    return median(values) if values else None


def _time_per_sample(
    runs: Sequence[MeasuredRun], metric: str, spread: PooledSpread
) -> Estimate | None:
    known = [run for run in runs if metric in run.metrics]
    return estimate_from(
        [run.metrics[metric].value / run.case.parameters.get("batch_size", 1) for run in known],
        [run.metrics[metric] for run in known],
        spread,
    )


def _energy(runs: Sequence[MeasuredRun], spread: PooledSpread) -> Estimate | None:
    metrics = [metric for run in runs if (metric := _energy_metric(run.metrics)) is not None]
    return estimate_from([metric.value for metric in metrics], metrics, spread)


def _energy_metric(metrics: Mapping[str, Metric]) -> Metric | None:
    metric = metrics.get("energy_per_sample_mj")
    is_usable = metric is not None and metric.grade != "rejected" and metric.value > 0
    return metric if is_usable else None


def _battery_j(runs: Sequence[MeasuredRun]) -> float | None:
    """Return the energy of a full battery, from the number of steps per charge."""
    needed = {"steps_per_charge", "energy_per_step_mj"}
    return _median_or_none(
        [
            run.metrics["steps_per_charge"].value * run.metrics["energy_per_step_mj"].value / 1000
            for run in runs
            if needed <= run.metrics.keys()
        ]
    )


def _temp_range_c(
    cold: Sequence[MeasuredRun], hot: Sequence[MeasuredRun]
) -> tuple[float, float] | None:
    starts, peaks = _values(cold, "start_temp_c"), _values(hot, "peak_temp_c")
    if not starts or not peaks or median(peaks) <= median(starts):
        return None
    return median(starts), median(peaks)


def _time_constant_s(curve: Sequence[tuple[float, float]]) -> float | None:
    """Return the time constant of a slowdown; None without one."""
    if len(curve) < 2:
        return None
    start, end = curve[0][1], curve[-1][1]
    if end < start * RISE_MIN:
        return None
    threshold = start + SETTLED_SHARE * (end - start)
    return next(seconds for seconds, step_ms in curve if step_ms >= threshold)


def _refuse_mixed_clients(clients: Sequence[Client], mix: bool) -> None:
    """Refuse phones with different sources, or (unless `mix`) with different control levels."""
    sources = {source.value for client in clients for source in client.sources}
    refuse_mixed_sources(
        (MeasurementKind(source, "", "") for source in sources),
        remedy="use one sweep for each source",
    )
    if not mix:
        levels = {str(client.control or "unknown") for client in clients}
        refuse_mixed_sources(
            (MeasurementKind("", level, "") for level in levels),
            remedy="pass --allow-mixed to allow it",
        )


def _missing_data(clients: Sequence[Client]) -> tuple[MissingData, ...]:
    gaps = {
        DataGap.NO_HOT_RUN: [c.phone for c in clients if c.sustained_ms is None],
        DataGap.NO_ENERGY: [c.phone for c in clients if c.energy_mj is None],
        DataGap.NO_MEMORY: [c.phone for c in clients if c.peak_mb is None],
        DataGap.FEW_RUNS: [c.phone for c in clients if c.cold_ms.n < FEW_RUNS_MIN],
    }
    return tuple(MissingData(gap, tuple(phones)) for gap, phones in gaps.items() if phones)
