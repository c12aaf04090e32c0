"""What is remembered of a phone from one run to the next, and over a restart of its agent."""

from collections.abc import Sequence
from pathlib import Path

from pydantic import Field, ValidationError

from workloads.heat import (
    NEVER_SEEN,
    REST_DRIFT_C,
    Cooled,
    CoolingFit,
    Reading,
    fit_cooling,
    learn,
    slope_c_per_min,
)
from workloads.noun import Noun
from workloads.phone import Gauge

TRACE_MAX = 120
RESTED_S = 300.0  # a phone that stands still for so long shows where it comes to rest
RESTED_C_PER_MIN = 0.1


class Remembered(Noun):
    """What outlives the agent: how the phone cools, how its gauge speaks, what it draws at rest."""

    cooled: Cooled = NEVER_SEEN
    gauge: Gauge | None = None
    idle_w: float | None = Field(default=None, ge=0)
    canary_ms: dict[str, float] = Field(default_factory=dict, description="by cores and clocks")


class HeatMemory:
    """The trace since the phone was last disturbed, and what all its coolings have taught."""

    def __init__(self, known: Cooled = NEVER_SEEN) -> None:
        self.trace: list[Reading] = []
        self.known = known

    def record(self, t_s: float, temp_c: float, body_c: float | None = None) -> None:
        """Take a reading; a clock that went back means a reboot, and a new trace."""
        if self.trace and t_s < self.trace[-1].t_s:
            self.trace.clear()
        if not self.trace or t_s > self.trace[-1].t_s:
            self.trace.append(Reading(t_s, temp_c, body_c))
        if len(self.trace) > TRACE_MAX:
            # The past is kept at half the detail; the last minute decides about the slope.
            half = TRACE_MAX // 2
            self.trace[:half] = self.trace[:half:2]

    def fit(self) -> CoolingFit | None:
        """Explain how the phone cools, as far as the trace and the past allow."""
        return fit_cooling(cooling_part(self.trace), self.known)

    def disturbed(self) -> None:
        """Learn from the trace and start a new one: the phone is about to work."""
        fit = self.fit()
        if fit is not None:
            self.known = learn(self.known, fit)
        elif (rest_c := rested_c(self.trace)) is not None:
            changes = {"rest_c": rest_c, "rest_spread_c": REST_DRIFT_C}
            self.known = self.known.model_copy(update=changes)
        self.trace.clear()


def cooling_part(trace: Sequence[Reading]) -> Sequence[Reading]:
    """The part of a trace in which the phone cools: from its peak on."""
    if not trace:
        return trace
    peak = max(range(len(trace)), key=lambda at: trace[at].temp_c)
    return trace[peak:]


def rested_c(trace: Sequence[Reading]) -> float | None:
    """Where a phone that stood still came to rest; None for one that did not."""
    late = [reading for reading in trace if trace[-1].t_s - reading.t_s <= RESTED_S]
    if len(late) < 4 or late[-1].t_s - late[0].t_s < RESTED_S / 2:
        return None
    if abs(slope_c_per_min(late)) > RESTED_C_PER_MIN:
        return None
    return sum(reading.temp_c for reading in late) / len(late)


def recall(state_dir: Path, serial: str) -> Remembered:
    """What an earlier agent of this host knew of a phone; nothing where it knew nothing."""
    try:
        return Remembered.model_validate_json(_file(state_dir, serial).read_bytes())
    except (OSError, ValidationError):
        return Remembered()


def remember(state_dir: Path, serial: str, memory: Remembered) -> None:
    """Keep what is known of a phone; losing it costs a few wider intervals and nothing else."""
    file = _file(state_dir, serial)
    file.parent.mkdir(parents=True, exist_ok=True)
    part = file.with_suffix(".part")
    part.write_text(memory.model_dump_json())
    part.replace(file)


def _file(state_dir: Path, serial: str) -> Path:
    plain = "".join(letter if letter.isalnum() or letter in "._-" else "_" for letter in serial)
    return state_dir / "memory" / f"{plain}.json"
