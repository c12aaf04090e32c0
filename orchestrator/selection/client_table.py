"""Clients from a sweep's reports: one row a phone, all of one workload and batch.

Each figure has its interval and its provenance. What a sweep did not measure stays unknown and is
named; nothing is filled in.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from orchestrator.analysis.refusals import Mixture
from orchestrator.analysis.stats import RUNS_FOR_AN_INTERVAL, median
from orchestrator.nouns import MeasuredRun
from orchestrator.selection.client import Census, Client
from orchestrator.selection.figure import Figure, Scatter, figure_of, scatter_of
from workloads.condition import HEADLINES, Protocol
from workloads.fault import Refused
from workloads.measure import Metric

SETTLED_SHARE = 0.63  # of a rise, after one time constant
RISE_MIN = 1.02  # below this a phone has not slowed down
NAMED = 8  # phones of which something is missing


@dataclass(frozen=True)
class Scatters:
    """How far the runs of this sweep lie apart, in time and in energy."""

    time: Scatter
    energy: Scatter


def take_census(
    runs: Sequence[MeasuredRun],
    workload: str | None = None,
    batch: int | None = None,
    mix: bool = False,
) -> Census:
    """Read clients from the runs of one workload and batch, void ones too; say what is missing."""
    chosen = _of_one_case(runs, workload, batch)
    by_phone: dict[str, list[MeasuredRun]] = {}
    for run in chosen:
        by_phone.setdefault(run.phone, []).append(run)
    scatters = _scatters([run for run in chosen if run.valid])
    clients, left_out = [], []
    for phone, members in sorted(by_phone.items()):
        valid = [run for run in members if run.valid]
        client = _client(valid, scatters) if valid else None
        if client is not None:
            clients.append(client)
        elif not valid:
            left_out.append((phone, _none_is_valid(members)))
        else:
            left_out.append((phone, "it has no cold run, and heat alone says nothing of the start"))
    _refuse_mixture(clients, mix)
    first = chosen[0].case
    size = first.parameters.get("batch_size", 1)
    return Census(first.workload, size, tuple(clients), tuple(left_out), _missing(clients))


def _none_is_valid(runs: Sequence[MeasuredRun]) -> str:
    reasons = sorted({reason for run in runs for reason in run.verdict.reasons})
    why = f" ({'; '.join(reasons[:2])})" if reasons else ""
    return f"none of its {len(runs)} runs is valid{why}"


def _of_one_case(
    runs: Sequence[MeasuredRun], workload: str | None, batch: int | None
) -> list[MeasuredRun]:
    """Keep the runs of one case; a sweep of several must be told which is meant."""
    kept = [
        run
        for run in runs
        if workload in (None, run.case.workload)
        and batch in (None, run.case.parameters.get("batch_size", 1))
    ]
    cases = {run.case.label for run in kept}
    if not runs:
        raise Refused("this sweep has no report yet")
    if not kept:
        there = ", ".join(sorted({run.case.label for run in runs}))
        raise Refused(f"no run of that workload and batch; there are {there}")
    if len(cases) > 1:
        there = ", ".join(sorted(cases))
        raise Refused(f"one workload at a time: choose with --workload and --batch from {there}")
    return kept


def _scatters(runs: Sequence[MeasuredRun]) -> Scatters:
    trials: dict[str, list[MeasuredRun]] = {}
    for run in runs:
        trials.setdefault(run.trial, []).append(run)

    def values(metric: str | None) -> Iterator[list[float]]:
        for members in trials.values():
            name = metric or members[0].condition.headline
            yield [run.metrics[name].value for run in members if name in run.metrics]

    return Scatters(scatter_of(values(None)), scatter_of(values("energy_per_sample_mj")))


def _client(runs: Sequence[MeasuredRun], scatters: Scatters) -> Client | None:
    """Read one phone's row, under the cores and clock that are quickest when it is cool."""
    settings: dict[tuple[str, str], list[MeasuredRun]] = {}
    for run in runs:
        settings.setdefault((run.condition.cores, run.condition.freq), []).append(run)
    rows = [
        row
        for (cores, freq), members in settings.items()
        if (row := _row(members, f"{cores} {freq}", scatters))
    ]
    return min(rows, key=lambda row: row.cold_ms.value) if rows else None


def _row(runs: Sequence[MeasuredRun], setting: str, scatters: Scatters) -> Client | None:
    cold = [run for run in runs if run.condition.protocol is Protocol.COLD]
    hot = [run for run in runs if run.condition.protocol is not Protocol.COLD]
    protocol = hot[0].condition.protocol if hot else Protocol.ENDURANCE
    hot = [run for run in hot if run.condition.protocol is protocol]
    cold_ms = _a_sample(cold, "step_ms", scatters.time)
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
        sustained_ms=_a_sample(hot, HEADLINES[protocol], scatters.time),
        heating_s=_heating_s(hot),
        band_c=_band_c(cold, hot),
        batch_p90_ms=_middle(_values(cold, "step_p90_ms")),
        # A long run's energy is the surer one: ends of the gauge's period weigh less in it.
        energy_mj=_energy(hot, scatters.energy) or _energy(cold, scatters.energy),
        battery_j=_battery_j(runs),
        peak_mb=max(peaks) if peaks else None,
        ram_mb=facts.ram_mb,
        runs=tuple(f"{run.trial}.{run.repeat}" for run in runs),
    )


def _values(runs: Iterable[MeasuredRun], metric: str) -> list[float]:
    return [run.metrics[metric].value for run in runs if metric in run.metrics]


def _middle(values: Sequence[float]) -> float | None:
    return median(values) if values else None


def _a_sample(runs: Sequence[MeasuredRun], metric: str, scatter: Scatter) -> Figure | None:
    """The median time of a sample over runs, in the metric's own unit."""
    found = [run for run in runs if metric in run.metrics]
    return figure_of(
        [run.metrics[metric].value / run.case.parameters.get("batch_size", 1) for run in found],
        [run.metrics[metric] for run in found],
        scatter,
    )


def _energy(runs: Sequence[MeasuredRun], scatter: Scatter) -> Figure | None:
    found = [metric for run in runs if (metric := _energy_of(run.metrics)) is not None]
    return figure_of([metric.value for metric in found], found, scatter)


def _energy_of(metrics: Mapping[str, Metric]) -> Metric | None:
    metric = metrics.get("energy_per_sample_mj")
    counts = metric is not None and metric.grade != "rejected" and metric.value > 0
    return metric if counts else None


def _battery_j(runs: Sequence[MeasuredRun]) -> float | None:
    """What a full battery holds, from what it was said to last for."""
    both = {"steps_per_charge", "energy_per_step_mj"}
    found = [
        run.metrics["steps_per_charge"].value * run.metrics["energy_per_step_mj"].value / 1000
        for run in runs
        if both <= run.metrics.keys()
    ]
    return _middle(found)


def _band_c(cold: Sequence[MeasuredRun], hot: Sequence[MeasuredRun]) -> tuple[float, float] | None:
    starts, peaks = _values(cold, "start_temp_c"), _values(hot, "peak_temp_c")
    if not starts or not peaks or median(peaks) <= median(starts):
        return None
    return median(starts), median(peaks)


def _heating_s(runs: Sequence[MeasuredRun]) -> float | None:
    """When a long run had done most of its slowing down, as a median over runs."""
    return _middle([s for run in runs if (s := _settled_s(run.curve)) is not None])


def _settled_s(curve: Sequence[tuple[float, float]]) -> float | None:
    if len(curve) < 2:
        return None
    start, end = curve[0][1], curve[-1][1]
    if end < start * RISE_MIN:
        return None
    reached = start + SETTLED_SHARE * (end - start)
    return next(seconds for seconds, step_ms in curve if step_ms >= reached)


def _refuse_mixture(clients: Sequence[Client], mix: bool) -> None:
    """Hold no phones against each other whose figures were made in unlike ways."""
    sources = sorted({source.value for client in clients for source in client.sources})
    if len(sources) > 1:
        raise Mixture(
            f"figures come from {' and '.join(sources)}; such phones cannot be held against each "
            "other: choose from one sweep of each"
        )
    levels = sorted({str(client.control or "unknown") for client in clients})
    if len(levels) > 1 and not mix:
        raise Mixture(
            f"the control levels differ ({', '.join(levels)}), so not all clocks were held alike; "
            "say --mix if that is meant"
        )


def _missing(clients: Sequence[Client]) -> tuple[str, ...]:
    def names(which: Sequence[Client]) -> str:
        more = f" and {len(which) - NAMED} more" if len(which) > NAMED else ""
        return ", ".join(client.phone for client in which[:NAMED]) + more

    few = [client for client in clients if client.cold_ms.n < RUNS_FOR_AN_INTERVAL]
    unheated = [client for client in clients if client.sustained_ms is None]
    hungry = [client for client in clients if client.energy_mj is None]
    roomy = [client for client in clients if client.peak_mb is None]
    found = []
    if unheated:
        found.append(
            f"what heat does to {names(unheated)}: add 'protocol: [cold, endurance]' to the matrix"
        )
    if hungry:
        found.append(f"what a sample costs {names(hungry)} in energy: no meter there can be read")
    if roomy:
        found.append(f"the memory that {names(roomy)} needed, so it is taken to fit")
    if few:
        found.append(
            f"how far runs of {names(few)} lie apart: 'repeat: 3' or more; "
            "until then as far as all runs of the sweep do"
        )
    return tuple(found)
