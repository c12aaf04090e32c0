"""A phone's physics with one piece of work on it, on a clock that moves only when told.

The same Soc, placement and roofline as in a running phone; only noise is left out.
"""

from dataclasses import dataclass
from functools import lru_cache

from agent.virtual.engines import Engine, engine_for
from agent.virtual.physics.memory import Pressure, needs_kb, pressure
from agent.virtual.physics.placement import Load
from agent.virtual.physics.roofline import Op, OpTable, Pace, StepCost, step_cost
from agent.virtual.physics.soc import AMBIENT_C, Soc
from agent.virtual.profiles import Profile
from agent.virtual.timeline import Timeline
from agent.virtual.twin.condition import UnknownCondition, clock_named, cores_named
from workloads.catalogue import CATALOGUE, bind, work_of


@dataclass(frozen=True, slots=True)
class Job:
    """One step of a workload at a batch, as a plan would list it."""

    workload: str
    ops: tuple[Op, ...]
    parameter_bytes: int
    activation_bytes: int
    threads: int | None  # None: one a core


@lru_cache(maxsize=256)
def job_named(workload: str, batch: int | None = None) -> Job:
    """Bind a workload of the catalogue; its first batch-like parameter takes the batch."""
    named = CATALOGUE.get(workload)
    sizes = [p.name for p in named.parameters if "batch" in p.name] if named else []
    return job_of(workload, ((sizes[0], batch),) if batch is not None and sizes else ())


@lru_cache(maxsize=256)
def job_of(workload: str, parameters: tuple[tuple[str, int], ...]) -> Job:
    """Bind a workload of the catalogue with parameters by name."""
    work = work_of(bind(workload, dict(parameters)))
    ops = tuple(Op(op.name, op.kind, op.flops, op.read_bytes, op.write_bytes) for op in work.ops)
    threads = CATALOGUE[workload].threads
    return Job(workload, ops, work.parameter_bytes, work.activation_bytes, threads)


class Bench:
    """One phone, one job, one condition."""

    def __init__(
        self,
        profile: Profile,
        job: Job,
        cores: str = "big4",
        freq: str | None = None,
        engine: Engine | None = None,
        on_gpu: bool = False,
    ) -> None:
        self.job = job
        self.engine = engine or engine_for(job.workload)
        room_c = profile.fitted.room_c if profile.fitted else AMBIENT_C
        self.soc = Soc(profile, Timeline(speed=0.0), ambient_c=room_c)
        cpus = cores_named(profile, cores)
        if freq is not None:
            self._pin(freq, cpus)
        if on_gpu and self.soc.gpu is None:
            raise UnknownCondition(f"{profile.name} has no GPU in its profile")
        threads = 1 if on_gpu else job.threads or len(cpus)
        mask = sum(1 << cpu for cpu in cpus)
        self.load = Load(mask, threads, self.engine, self._change_pace)
        self.load.gpu_busy = float(on_gpu)
        self.needed_kb = needs_kb(self.engine, job.ops, job.parameter_bytes, job.activation_bytes)
        memory = profile.memory
        self.pressure: Pressure = pressure(
            memory, memory.available_kb, self.needed_kb, self.engine.takes_all_first
        )
        self.idle_w = self.soc.system_w()
        self._table = OpTable(job.ops, self.engine)
        self.soc.attach(self.load)

    def advance(self, seconds: float) -> None:
        """Let the work go on."""
        self.soc.timeline.advance(seconds)
        self.soc.settle()

    def rest(self) -> None:
        """Let the work end."""
        self.soc.detach(self.load)

    @property
    def die_c(self) -> float:
        """How warm the silicon is."""
        return self.soc.heat.temps[0]

    def _pin(self, freq: str, cpus: tuple[int, ...]) -> None:
        for cluster in self.soc.clusters:
            if not set(cluster.cpus).isdisjoint(cpus):
                khz = clock_named(self.soc.profile, cluster.profile, freq)
                cluster.user_min_khz = cluster.user_max_khz = khz

    def _change_pace(self, pace: Pace) -> None:
        self.pace = pace
        gpu = self.soc.gpu if self.load.gpu_busy else None
        cost = gpu.step_cost(self._table) if gpu else step_cost(self._table, pace)
        if gpu:
            self.load.gpu_busy = gpu.busy = max(1.0 - cost.serial_share, 0.01)
        if self.pressure.extra_s:
            cost = cost.slower(1.0 + self.pressure.extra_s / cost.seconds)
        self.cost: StepCost = cost
        self.load.take(cost)
