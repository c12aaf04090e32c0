"""The physics of a phone with one workload on it, without a phone: for predictions and fits.

It uses the same Soc, placement and step timing as a running phone, without noise, on a clock that
only `advance` moves.
"""

from dataclasses import dataclass
from functools import lru_cache

from agent.virtual.engines import EngineModel, engine_for
from agent.virtual.model_clock import ModelClock
from agent.virtual.physics.memory_pressure import MemoryPressure, assess_memory, peak_memory_kb
from agent.virtual.physics.soc import AMBIENT_C, Soc
from agent.virtual.physics.step_timing import (
    ComputeSpeed,
    OpTable,
    SimulatedOp,
    StepTiming,
    time_step,
)
from agent.virtual.physics.thread_placement import CoreLoad
from agent.virtual.profiles import PhoneProfile
from agent.virtual.twin.cores_and_clocks import UnknownCondition, parse_clock, parse_cores
from workloads.catalogue import CATALOGUE, bind, cost_of


@dataclass(frozen=True, slots=True)
class WorkloadStep:
    """One step of a workload, as a plan would list it."""

    workload: str
    ops: tuple[SimulatedOp, ...]
    parameter_bytes: int
    activation_bytes: int
    threads: int | None  # None: one per core


@lru_cache(maxsize=256)
def bind_workload(workload: str, batch: int | None = None) -> WorkloadStep:
    """Bind a workload of the catalogue with a batch size, if it has such a parameter."""
    if batch is None:
        return bind_parameters(workload, ())
    parameters = CATALOGUE[workload].parameters if workload in CATALOGUE else ()
    batch_parameters = [parameter.name for parameter in parameters if "batch" in parameter.name]
    return bind_parameters(workload, tuple((name, batch) for name in batch_parameters[:1]))


@lru_cache(maxsize=256)
def bind_parameters(workload: str, parameters: tuple[tuple[str, int], ...]) -> WorkloadStep:
    """Bind a workload of the catalogue with parameters by name."""
    if workload not in CATALOGUE:
        raise UnknownCondition(f"unknown workload '{workload}'; see 'farm workload list'")
    cost = cost_of(bind(workload, dict(parameters)))
    ops = tuple(
        SimulatedOp(op.name, op.kind, op.flops, op.read_bytes, op.write_bytes) for op in cost.ops
    )
    threads = CATALOGUE[workload].threads
    return WorkloadStep(workload, ops, cost.parameter_bytes, cost.activation_bytes, threads)


class OfflineModel:
    """One phone with one workload in one condition."""

    def __init__(
        self,
        profile: PhoneProfile,
        step: WorkloadStep,
        cores: str = "big4",
        freq: str | None = None,
        engine: EngineModel | None = None,
        on_gpu: bool = False,
    ) -> None:
        self.step = step
        self.engine = engine or engine_for(step.workload)
        room_c = profile.fitted.room_c if profile.fitted else AMBIENT_C
        self.soc = Soc(profile, ModelClock(speed=0.0), ambient_c=room_c)
        cpus = parse_cores(profile, cores)
        if freq is not None:
            self._pin(freq, cpus)
        if on_gpu and self.soc.gpu is None:
            raise UnknownCondition(f"{profile.name} has no GPU in its profile")
        threads = 1 if on_gpu else step.threads or len(cpus)
        mask = sum(1 << cpu for cpu in cpus)
        self.load = CoreLoad(mask, threads, self.engine, self._on_speed_change)
        self.load.gpu_busy = float(on_gpu)
        self.needed_kb = peak_memory_kb(
            self.engine, step.ops, step.parameter_bytes, step.activation_bytes
        )
        memory = profile.memory
        self.pressure: MemoryPressure = assess_memory(
            memory, memory.available_kb, self.needed_kb, self.engine.allocates_upfront
        )
        self.idle_w = self.soc.system_w()
        self._table = OpTable(step.ops, self.engine)
        self.soc.attach(self.load)

    def advance(self, seconds: float) -> None:
        """Let the workload run for some seconds."""
        self.soc.model_clock.advance(seconds)
        self.soc.update()

    def end_work(self) -> None:
        """Stop the workload."""
        self.soc.detach(self.load)

    @property
    def die_c(self) -> float:
        """Return the temperature of the die."""
        return self.soc.heat.temps[0]

    def _pin(self, freq: str, cpus: tuple[int, ...]) -> None:
        for cluster in self.soc.clusters:
            if not set(cluster.cpus).isdisjoint(cpus):
                khz = parse_clock(self.soc.profile, cluster.profile, freq)
                cluster.user_min_khz = cluster.user_max_khz = khz

    def _on_speed_change(self, speed: ComputeSpeed) -> None:
        self.speed = speed
        gpu = self.soc.gpu if self.load.gpu_busy else None
        timing = gpu.time_step(self._table) if gpu else time_step(self._table, speed)
        if gpu:
            self.load.gpu_busy = gpu.busy = max(1.0 - timing.serial_share, 0.01)
        if self.pressure.extra_s:
            timing = timing.slowed_down(1.0 + self.pressure.extra_s / timing.seconds)
        self.timing: StepTiming = timing
        self.load.apply_timing(timing)
