"""A phone as a federated learner sees it: what a training sample costs it, and how surely.

One row a phone, all of one workload and batch, each figure with its interval and its provenance.
What a sweep did not measure stays unknown and is named; nothing is filled in.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from orchestrator.analysis.provenance import weakest
from orchestrator.analysis.stats import median, median_interval
from orchestrator.nouns import MeasuredRun
from workloads.condition import HEADLINES, Protocol
from workloads.fault import Refused
from workloads.measure import Metric, Model, Provenance, Source

# What a model that was fitted to nothing may be wrong by is not known; half is taken for it.
UNKNOWN_ERROR = 0.5
SETTLED_SHARE = 0.63  # of a rise, after one time constant
RISE_MIN = 1.02  # below this a phone has not slowed down


@dataclass(frozen=True)
class Figure:
    """A median over runs, with the interval that it may lie in."""

    value: float
    low: float
    high: float
    n: int
    provenance: Provenance

    @property
    def spread(self) -> float:
        """Half the interval, as a share of the value."""
        return (self.high - self.low) / (2 * self.value) if self.value else 0.0


@dataclass(frozen=True)
class Client:
    """One phone and one workload."""

    phone: str
    model: str
    soc: str
    setting: str  # the cores and clock that it trains with
    cold_ms: Figure  # a sample, at first
    sustained_ms: Figure | None  # a sample, when the heat has arrived
    heating_s: float | None  # how soon that is: the time constant of the slowing down
    batch_p90_ms: float | None  # time that nine of ten batches stay under, at first
    energy_mj: Figure | None  # a sample
    battery_j: float | None
    peak_mb: float | None
    ram_mb: int
    runs: tuple[str, ...]  # what all this was read from

    @property
    def slowdown(self) -> float:
        """How many times longer a sample takes when the heat has arrived; 1 where unknown."""
        if self.sustained_ms is None:
            return 1.0
        return max(1.0, self.sustained_ms.value / self.cold_ms.value)

    @property
    def source(self) -> Source:
        """Where its times were made."""
        return self.cold_ms.provenance.source


@dataclass(frozen=True)
class Census:
    """The clients that a sweep's reports make, and what they leave open."""

    workload: str
    batch: int
    clients: tuple[Client, ...]
    left_out: tuple[tuple[str, str], ...]  # phone, why
    missing: tuple[str, ...]  # what would make the selection better, and how to get it

    @property
    def simulated(self) -> bool:
        """Whether any of it was simulated."""
        return any(client.source is Source.SIMULATED for client in self.clients)


def take_census(
    runs: Sequence[MeasuredRun], workload: str | None = None, batch: int | None = None
) -> Census:
    """Read clients from the runs of one workload and batch; say what is missing."""
    chosen = _of_one_case(runs, workload, batch)
    by_phone: dict[str, list[MeasuredRun]] = {}
    for run in chosen:
        by_phone.setdefault(run.phone, []).append(run)
    clients, left_out = [], []
    for phone, members in sorted(by_phone.items()):
        valid = [run for run in members if run.valid]
        client = _client(valid) if valid else None
        if client is not None:
            clients.append(client)
        elif not valid:
            left_out.append((phone, f"none of its {len(members)} runs is valid"))
        else:
            left_out.append((phone, "it has no cold run, and heat alone says nothing of the start"))
    _refuse_mixture(clients)
    first = chosen[0].case
    size = first.parameters.get("batch_size", 1)
    return Census(first.workload, size, tuple(clients), tuple(left_out), _missing(clients))


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
        raise Refused("this sweep has no accepted run yet")
    if not kept:
        there = ", ".join(sorted({run.case.label for run in runs}))
        raise Refused(f"no run of that workload and batch; there are {there}")
    if len(cases) > 1:
        there = ", ".join(sorted(cases))
        raise Refused(f"one workload at a time: choose with --workload and --batch from {there}")
    return kept


def _client(runs: Sequence[MeasuredRun]) -> Client | None:
    """Read one phone's row, under the cores and clock that are quickest when it is cool."""
    settings: dict[tuple[str, str], list[MeasuredRun]] = {}
    for run in runs:
        settings.setdefault((run.condition.cores, run.condition.freq), []).append(run)
    rows = [
        row for (cores, freq), members in settings.items() if (row := _row(members, cores, freq))
    ]
    return min(rows, key=lambda row: row.cold_ms.value) if rows else None


def _row(runs: Sequence[MeasuredRun], cores: str, freq: str) -> Client | None:
    cold = _figure([run for run in runs if run.condition.protocol is Protocol.COLD], "step_ms")
    if cold is None:
        return None
    hot = [run for run in runs if run.condition.protocol is not Protocol.COLD]
    protocol = hot[0].condition.protocol if hot else Protocol.ENDURANCE
    of_one = [run for run in hot if run.condition.protocol is protocol]
    facts = runs[-1].facts
    peaks = [run.metrics["peak_rss_mb"].value for run in runs if "peak_rss_mb" in run.metrics]
    return Client(
        phone=runs[0].phone,
        model=facts.model,
        soc=facts.soc,
        setting=f"{cores} {freq}",
        cold_ms=cold,
        sustained_ms=_figure(of_one, HEADLINES[protocol]),
        heating_s=_heating_s(of_one),
        batch_p90_ms=_batch_p90_ms(runs),
        energy_mj=_energy(runs),
        battery_j=_battery_j(runs),
        peak_mb=max(peaks) if peaks else None,
        ram_mb=facts.ram_mb,
        runs=tuple(f"{run.trial}.{run.repeat}" for run in runs),
    )


def _figure(runs: Sequence[MeasuredRun], metric: str) -> Figure | None:
    """The median time of a sample over runs, in the metric's own unit."""
    found = [
        (run.metrics[metric].value / run.case.parameters.get("batch_size", 1), run)
        for run in runs
        if metric in run.metrics
    ]
    return _of_values([value for value, _ in found], [run.metrics[metric] for _, run in found])


def _energy(runs: Sequence[MeasuredRun]) -> Figure | None:
    found = [run.metrics["energy_per_sample_mj"] for run in runs if _has_energy(run)]
    return _of_values([metric.value for metric in found], found)


def _batch_p90_ms(runs: Sequence[MeasuredRun]) -> float | None:
    found = [
        run.metrics["step_p90_ms"].value
        for run in runs
        if run.condition.protocol is Protocol.COLD and "step_p90_ms" in run.metrics
    ]
    return median(found) if found else None


def _has_energy(run: MeasuredRun) -> bool:
    metric = run.metrics.get("energy_per_sample_mj")
    return metric is not None and metric.grade != "rejected" and metric.value > 0


def _of_values(values: Sequence[float], metrics: Iterable[Metric]) -> Figure | None:
    if not values:
        return None
    provenance = weakest(metric.provenance for metric in metrics)
    error = UNKNOWN_ERROR if provenance.model is Model.EXTRAPOLATED else provenance.error_rel or 0.0
    interval = median_interval(values).widened(error)
    return Figure(median(values), max(0.0, interval.low), interval.high, len(values), provenance)


def _battery_j(runs: Sequence[MeasuredRun]) -> float | None:
    """What a full battery holds, from what it was said to last for."""
    found = [
        run.metrics["steps_per_charge"].value * run.metrics["energy_per_step_mj"].value / 1000
        for run in runs
        if {"steps_per_charge", "energy_per_step_mj"} <= run.metrics.keys()
    ]
    return median(found) if found else None


def _heating_s(runs: Sequence[MeasuredRun]) -> float | None:
    """When a long run had done most of its slowing down, as a median over runs."""
    found = [seconds for run in runs if (seconds := _settled_s(run.curve)) is not None]
    return median(found) if found else None


def _settled_s(curve: Sequence[tuple[float, float]]) -> float | None:
    if len(curve) < 2:
        return None
    start, end = curve[0][1], curve[-1][1]
    if end < start * RISE_MIN:
        return None
    reached = start + SETTLED_SHARE * (end - start)
    return next(seconds for seconds, step_ms in curve if step_ms >= reached)


def _refuse_mixture(clients: Sequence[Client]) -> None:
    sources = sorted({client.source.value for client in clients})
    if len(sources) > 1:
        raise Refused(
            f"times come from {' and '.join(sources)}; such phones cannot be held against each "
            "other: choose from one sweep of each"
        )


def _missing(clients: Sequence[Client]) -> tuple[str, ...]:
    def names(which: Iterable[Client]) -> str:
        return ", ".join(client.phone for client in which)

    few = [client for client in clients if client.cold_ms.n < 3]
    unheated = [client for client in clients if client.sustained_ms is None]
    hungry = [client for client in clients if client.energy_mj is None]
    found = []
    if unheated:
        found.append(
            f"what heat does to {names(unheated)}: add 'protocol: [cold, endurance]' to the matrix"
        )
    if hungry:
        found.append(f"what a sample costs {names(hungry)} in energy: no meter there can be read")
    if few:
        found.append(f"an interval for {names(few)}: 'repeat: 3' or more")
    return tuple(found)
