"""What is remembered about a phone from one run to the next, and across restarts of its agent."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from pydantic import ConfigDict, Field, ValidationError

from agent.phone.battery_wear import BatteryHours
from agent.phone.canary_reference import CanaryReference
from agent.phone.cooling_model import (
    PRIOR,
    REST_DRIFT_C,
    CoolingFit,
    CoolingPosterior,
    TempReading,
    fit_cooling,
    slope_c_per_min,
    update_posterior,
)
from workloads.protocol.base import WireModel
from workloads.protocol.phone_facts import Commission, FuelGauge

TRACE_MAX = 120
RESTED_S = 300.0  # a temperature that is constant for this long is the resting temperature
RESTED_C_PER_MIN = 0.1


class RestTemps(WireModel):
    """The temperatures of a phone at rest, in °C, in the room in which they were learned."""

    zones_c: dict[str, float] = Field(default_factory=dict, description="by the type of CPU zone")
    battery_c: float | None = Field(default=None, description="what shows the room best")
    waited: bool = Field(default=False, description="the phone was seen at rest for minutes")

    @property
    def hottest_c(self) -> float | None:
        """The temperature of the hottest CPU zone; None if no zone was readable."""
        return max(self.zones_c.values(), default=None)

    def above_k(self, zones_c: Mapping[str, float]) -> float | None:
        """How much warmer than at rest the CPU zones are: the one that differs most."""
        usual_c = self.hottest_c
        if usual_c is None:
            return None
        above = (temp_c - self.zones_c.get(zone, usual_c) for zone, temp_c in zones_c.items())
        return max(above, default=None)


class PhoneMemory(WireModel):
    """What survives the agent: how the phone cools, its gauge's calibration, its idle power."""

    model_config = ConfigDict(extra="ignore")  # what another version remembered is not lost

    cooling: CoolingPosterior = PRIOR
    rest: RestTemps | None = None
    gauge: FuelGauge | None = None
    idle_w: float | None = Field(default=None, ge=0)
    idle_meter: str = Field(default="battery", description="the meter that showed the idle power")
    canaries: dict[str, CanaryReference] = Field(
        default_factory=dict, description="by canary, runner, cores and clocks"
    )
    commission: Commission | None = None
    battery: BatteryHours = BatteryHours()
    limits_khz: dict[int, int] = Field(
        default_factory=dict, description="highest limit of the clock so far, by policy; -1: GPU"
    )
    unrest: dict[str, tuple[float, ...]] = Field(
        default_factory=dict,
        description="largest changes of the steps within the last runs, by held and free clocks",
    )
    core_flops: float | None = Field(
        default=None, gt=0, description="of a core, in the fastest step of an arithmetic canary"
    )
    temp_step_c: float | None = Field(
        default=None, gt=0, description="smallest change of the CPU temperature in a run so far"
    )


class CoolingHistory:
    """The temperatures since the phone last worked, and the posterior of all earlier coolings."""

    def __init__(self, posterior: CoolingPosterior = PRIOR) -> None:
        self.trace: list[TempReading] = []
        self.posterior = posterior

    def record(self, t_s: float, temp_c: float, body_c: float | None = None) -> None:
        """Add a reading; a clock that went back means a reboot and starts a new trace."""
        if self.trace and t_s < self.trace[-1].t_s:
            self.trace.clear()
        if not self.trace or t_s > self.trace[-1].t_s:
            self.trace.append(TempReading(t_s, temp_c, body_c))
        if len(self.trace) > TRACE_MAX:
            # The older half is kept at half the detail; the last minute decides about the slope.
            half = TRACE_MAX // 2
            self.trace[:half] = self.trace[:half:2]

    def fit(self) -> CoolingFit | None:
        """Fit the present cooling, as far as the trace and earlier coolings allow."""
        return fit_cooling(cooling_section(self.trace), self.posterior)

    def finish_trace(self) -> None:
        """Learn from the trace and start a new one: the phone is about to work."""
        fit = self.fit()
        if fit is not None:
            self.posterior = update_posterior(self.posterior, fit)
        elif (rest_c := resting_temp_c(self.trace)) is not None:
            changes = {"rest_c": rest_c, "rest_spread_c": REST_DRIFT_C}
            self.posterior = self.posterior.model_copy(update=changes)
        self.trace.clear()


def cooling_section(trace: Sequence[TempReading]) -> Sequence[TempReading]:
    """The part of a trace in which the phone cools: from its peak on."""
    if not trace:
        return trace
    peak = max(range(len(trace)), key=lambda index: trace[index].temp_c)
    return trace[peak:]


def resting_temp_c(trace: Sequence[TempReading]) -> float | None:
    """The temperature at which a phone settled; None if it was not constant for long enough."""
    late = [reading for reading in trace if trace[-1].t_s - reading.t_s <= RESTED_S]
    if len(late) < 4 or late[-1].t_s - late[0].t_s < RESTED_S / 2:
        return None
    if abs(slope_c_per_min(late)) > RESTED_C_PER_MIN:
        return None
    return sum(reading.temp_c for reading in late) / len(late)


def load_phone_memory(state_dir: Path, serial: str) -> PhoneMemory:
    """Load what an earlier agent of this host knew about a phone; empty where there is nothing."""
    try:
        return PhoneMemory.model_validate_json(_file(state_dir, serial).read_bytes())
    except (OSError, ValidationError):
        return PhoneMemory()


def save_phone_memory(state_dir: Path, serial: str, memory: PhoneMemory) -> None:
    """Save what is known about a phone; losing it costs a few wider intervals and nothing else."""
    file = _file(state_dir, serial)
    file.parent.mkdir(parents=True, exist_ok=True)
    part = file.with_suffix(".part")
    part.write_text(memory.model_dump_json())
    part.replace(file)


def _file(state_dir: Path, serial: str) -> Path:
    plain = "".join(letter if letter.isalnum() or letter in "._-" else "_" for letter in serial)
    return state_dir / "memory" / f"{plain}.json"
