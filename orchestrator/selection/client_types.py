"""A phone as a federated-learning client: its time and energy per sample, with uncertainty."""

from dataclasses import dataclass
from enum import StrEnum

from orchestrator.selection.client_estimate import Estimate
from workloads.protocol.metrics import Source
from workloads.protocol.phone_facts import ControlLevel
from workloads.text import TextEnum, list_text

NAMED_MAX = 8  # phones that a text lists


@dataclass(frozen=True)
class Client:
    """One phone with one workload."""

    phone: str
    model: str
    soc: str
    setting: str  # the cores and clock that it trains with
    control: ControlLevel | None
    cold_ms: Estimate  # per sample, while cool
    sustained_ms: Estimate | None  # per sample, when hot
    heating_s: float | None  # time constant of the slowdown
    temp_range_c: tuple[float, float] | None  # CPU temperature when a cold run starts, and when hot
    energy_mj: Estimate | None  # per sample
    battery_j: float | None
    peak_mb: float | None
    ram_mb: int
    runs: tuple[str, ...]  # the runs that all this was read from

    @property
    def slowdown(self) -> float:
        """How many times longer a sample takes when hot; 1 if unknown."""
        if self.sustained_ms is None:
            return 1.0
        return max(1.0, self.sustained_ms.value / self.cold_ms.value)

    @property
    def estimates(self) -> tuple[Estimate, ...]:
        """All values that have an interval."""
        known = (self.cold_ms, self.sustained_ms, self.energy_mj)
        return tuple(estimate for estimate in known if estimate is not None)

    @property
    def sources(self) -> frozenset[Source]:
        """The sources of its values."""
        return frozenset(estimate.provenance.source for estimate in self.estimates)


class ClientExclusion(StrEnum):
    """Why a phone cannot be chosen."""

    NO_RESULT = "no_result"
    NO_VALID_RUN = "no_valid_run"
    NO_COLD_RUN = "no_cold_run"
    TOO_LITTLE_MEMORY = "too_little_memory"
    OFFLINE = "offline"
    BATTERY_LOW = "battery_low"


@dataclass(frozen=True)
class ExcludedClient:
    """A phone that cannot be chosen, and why."""

    phone: str
    code: ClientExclusion
    text: str


class DataGap(TextEnum):
    """What a sweep did not measure."""

    NO_HOT_RUN = (
        "no_hot_run",
        "no endurance run for {}; add 'protocol: [cold, endurance]' to the matrix",
    )
    NO_ENERGY = (
        "no_energy",
        "no energy per sample for {}; these phones have no meter that can be read",
    )
    NO_MEMORY = "no_memory", "no memory use for {}; the model is assumed to fit"
    FEW_RUNS = (
        "few_runs",
        "too few runs of {} for an interval; use 'repeat: 3' or more (until then "
        "the spread of all runs of the sweep is used)",
    )


@dataclass(frozen=True)
class MissingData:
    """What is missing for some phones, and how to get it."""

    gap: DataGap
    phones: tuple[str, ...]

    @property
    def text(self) -> str:
        """The gap as text."""
        return self.gap.text.format(list_text(self.phones, NAMED_MAX))


@dataclass(frozen=True)
class ClientTable:
    """The clients of a sweep, and the phones and data that are missing."""

    workload: str
    batch: int
    clients: tuple[Client, ...]
    left_out: tuple[ExcludedClient, ...]
    missing: tuple[MissingData, ...]

    @property
    def simulated(self) -> bool:
        """Whether any value was simulated."""
        return any(Source.SIMULATED in client.sources for client in self.clients)
