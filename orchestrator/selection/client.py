"""A phone as a federated learner sees it: what a training sample costs it, and how surely."""

from dataclasses import dataclass

from orchestrator.selection.figure import Figure
from workloads.measure import Source
from workloads.phone import ControlLevel


@dataclass(frozen=True)
class Client:
    """One phone and one workload."""

    phone: str
    model: str
    soc: str
    setting: str  # the cores and clock that it trains with
    control: ControlLevel | None
    cold_ms: Figure  # a sample, at first
    sustained_ms: Figure | None  # a sample, when the heat has arrived
    heating_s: float | None  # how soon that is: the time constant of the slowing down
    band_c: tuple[float, float] | None  # its die as a cold run begins and as a long one ends
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
    def figures(self) -> tuple[Figure, ...]:
        """All that is known of it with an interval."""
        known = (self.cold_ms, self.sustained_ms, self.energy_mj)
        return tuple(figure for figure in known if figure is not None)

    @property
    def sources(self) -> frozenset[Source]:
        """Where its figures were made."""
        return frozenset(figure.provenance.source for figure in self.figures)


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
        return any(Source.SIMULATED in client.sources for client in self.clients)
