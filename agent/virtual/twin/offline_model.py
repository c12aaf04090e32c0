"""The physics of a phone with one workload on it, without a phone: for predictions and fits.

It uses the same Soc, placement and step timing as a running phone, without noise, on a clock that
only `advance` moves.
"""

import json
from dataclasses import dataclass
from functools import lru_cache

from agent.virtual.engines import EngineModel, engine_for
from agent.virtual.phone_clock import PhoneClock
from agent.virtual.physics.gpu_model import FEEDS, KERNELS, GpuSettings
from agent.virtual.physics.memory_pressure import MemoryPressure, assess_memory, peak_memory_kb
from agent.virtual.physics.soc import AMBIENT_C, Soc
from agent.virtual.physics.step_model import CpuStepModel, GpuStepModel, StepModel
from agent.virtual.physics.step_timing import ComputeSpeed, OpTable, SimulatedOp, StepTiming
from agent.virtual.physics.thread_placement import CoreLoad
from agent.virtual.profiles import PhoneProfile
from agent.virtual.twin.cores_and_clocks import UnknownCondition, parse_clock, parse_cores
from workloads.catalogue import CATALOGUE, bind, cost_of, lower


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
    return bind_parameters(workload, batch_parameters(workload, batch))


def batch_parameters(workload: str, batch: int | None) -> tuple[tuple[str, int], ...]:
    """Return the parameters that give a workload a batch size, if it has such a parameter."""
    parameters = CATALOGUE[workload].parameters if workload in CATALOGUE else ()
    names = [parameter.name for parameter in parameters if "batch" in parameter.name]
    return () if batch is None else tuple((name, batch) for name in names[:1])


@lru_cache(maxsize=256)
def bind_parameters(workload: str, parameters: tuple[tuple[str, int], ...]) -> WorkloadStep:
    """Bind a workload of the catalogue with parameters by name."""
    if workload not in CATALOGUE:
        raise UnknownCondition(f"unknown workload '{workload}'; see 'farm workload list'")
    cost = cost_of(bind(workload, dict(parameters)))
    ops = tuple(
        SimulatedOp(op.name, op.kind, op.flops, op.read_bytes, op.write_bytes, op.time_steps)
        for op in cost.ops
    )
    threads = CATALOGUE[workload].threads
    return WorkloadStep(workload, ops, cost.parameter_bytes, cost.activation_bytes, threads)


@lru_cache(maxsize=256)
def batch_bytes(workload: str, parameters: tuple[tuple[str, int], ...]) -> int:
    """Return the size of the batch that a step of a workload reads, by its plan."""
    header = json.loads(lower(bind(workload, dict(parameters)), 1).split(b"\n", 2)[1])
    memory = header["memory"]
    return int(memory["input"]) if memory["dataset"] else 0


class OfflineModel:
    """One phone with one workload in one condition."""

    def __init__(
        self,
        profile: PhoneProfile,
        step: WorkloadStep,
        cores: str = "big4",
        freq: str | None = None,
        engine: EngineModel | None = None,
        gpu: GpuSettings | None = None,
    ) -> None:
        self.step = step
        self.engine = engine or engine_for(step.workload)
        room_c = profile.fitted.room_c if profile.fitted else AMBIENT_C
        self.soc = Soc(profile, PhoneClock(speed=0.0), ambient_c=room_c)
        cpus = parse_cores(profile, cores)
        if freq is not None:
            self._pin(freq, cpus)
        self._model = self._step_model(gpu)
        threads = 1 if gpu else step.threads or len(cpus)
        mask = sum(1 << cpu for cpu in cpus)
        self.load = CoreLoad(mask, threads, self.engine, self._on_speed_change)
        self.load.gpu_busy = float(gpu is not None)
        self.needed_kb = peak_memory_kb(
            self.engine, step.ops, step.parameter_bytes, step.activation_bytes
        )
        memory = profile.memory
        self.pressure: MemoryPressure = assess_memory(
            memory, memory.available_kb, self.needed_kb, self.engine.allocates_upfront
        )
        self.idle_w = self.soc.system_w()
        self.soc.attach(self.load)

    def advance(self, seconds: float) -> None:
        """Let the workload run for some seconds."""
        self.soc.clock.advance(seconds)
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

    def _step_model(self, settings: GpuSettings | None) -> StepModel:
        table = OpTable(self.step.ops, self.engine)
        if settings is None:
            return CpuStepModel(table)
        if self.soc.gpu is None or self.soc.profile.opencl is None:
            raise UnknownCondition(f"{self.soc.profile.name} has no usable GPU")
        if settings.kernel not in KERNELS or settings.feed not in FEEDS:
            raise UnknownCondition(f"unknown kernel '{settings.kernel}' or feed '{settings.feed}'")
        return GpuStepModel(table, self.soc.gpu, settings)

    def _on_speed_change(self, speed: ComputeSpeed) -> None:
        self.speed = speed
        timing = self._model.time(speed)
        if self.pressure.extra_s:
            timing = timing.slowed_down(1.0 + self.pressure.extra_s / timing.seconds)
        self.timing: StepTiming = timing
        self.load.apply_timing(timing)
