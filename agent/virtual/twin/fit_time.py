"""Step times of the Meizu 16T: one engine and one memory system for all models and core sets."""

from collections.abc import Callable, Sequence

import numpy as np

from agent.virtual.engines import Engine
from agent.virtual.physics.roofline import OpTable, StepCost, step_cost
from agent.virtual.profiles import Profile
from agent.virtual.twin.bench import Bench, job_named
from agent.virtual.twin.measured import CoreSetRow, Measured, StepRow
from agent.virtual.twin.report import Fit, leave_out, mean_error
from agent.virtual.twin.solve import Array, Prior, Values, solve

_JOB = "emdl-cpuconf"
# Believed before: half of a good product's rate, some passes for packing, a tenth of a
# millisecond an operation, and the caches as data sheets have them.
PRIORS = {
    "engine.gemm_share": Prior(0.55, 0.4),
    "engine.traffic": Prior(7.0, 0.5),
    "engine.update_traffic": Prior(3.0, 0.6),
    "engine.launch_kcycles": Prior(310.0, 0.8),
    "engine.sync_kcycles": Prior(250.0, 0.8),
    "engine.parallel_loss": Prior(0.15, 0.6),
    "engine.kind_share.pointwise": Prior(1.0, 0.15),
    "engine.kind_share.matmul": Prior(1.0, 0.15),
    "cluster.little.flops_per_cycle": Prior(4.0, 0.4),
    "memory.cache_kb": Prior(4096.0, 0.4),
    "memory.cache_gbs": Prior(35.0, 0.4),
}
_TIME_SPREAD, _BUSY_SPREAD, _SET_SPREAD = 0.05, 0.05, 0.07


def with_values(profile: Profile, engine: Engine, values: Values) -> tuple[Profile, Engine]:
    """Phone and engine with some figures replaced."""
    shares = dict(engine.kind_share)
    plain: dict[str, object] = {}
    for path, value in values.items():
        if path.startswith("engine.kind_share."):
            shares[path.rpartition(".")[2]] = value
        elif path.startswith("engine."):
            plain[path.removeprefix("engine.")] = value
    changed = engine.model_copy(update={**plain, "kind_share": shares})
    own = {path: value for path, value in values.items() if not path.startswith("engine.")}
    return profile.with_values(own), changed


def step_costs(profile: Profile, engine: Engine, rows: Sequence[StepRow]) -> list[StepCost]:
    """Each row's step, on four big cores under the default governor."""
    if not rows:
        return []
    pace = Bench(profile, job_named(rows[0].workload, rows[0].batch), engine=engine).pace
    jobs = [job_named(row.workload, row.batch) for row in rows]
    return [step_cost(OpTable(job.ops, engine), pace) for job in jobs]


def set_costs(profile: Profile, engine: Engine, rows: Sequence[CoreSetRow]) -> list[StepCost]:
    job = job_named(_JOB)
    return [Bench(profile, job, row.cores, row.freq, engine).cost for row in rows]


def fit_time(profile: Profile, engine: Engine, measured: Measured) -> list[Fit]:
    """Fit all rows at once; then without each model, each batch, each core set."""

    def solved(steps: Sequence[StepRow], sets: Sequence[CoreSetRow]) -> tuple[Profile, Engine]:
        return with_values(profile, engine, solve(_Residuals(profile, engine, steps, sets), PRIORS))

    def without_steps(steps: Sequence[StepRow]) -> Callable[[StepRow], float]:
        fitted = solved(steps, measured.core_set)
        return lambda row: step_costs(*fitted, [row])[0].seconds * 1e3

    def without_sets(sets: Sequence[CoreSetRow]) -> Callable[[CoreSetRow], float]:
        fitted = solved(measured.step, sets)
        return lambda row: set_costs(*fitted, [row])[0].seconds

    values = solve(_Residuals(profile, engine, measured.step, measured.core_set), PRIORS)
    best = with_values(profile, engine, values)
    steps = [cost.seconds * 1e3 for cost in step_costs(*best, measured.step)]
    sets = [cost.seconds for cost in set_costs(*best, measured.core_set)]
    own = {path: value for path, value in values.items() if not path.startswith("engine.")}
    habits = {p.removeprefix("engine."): v for p, v in values.items() if p not in own}
    return [
        Fit(
            "step time",
            "time",
            len(steps),
            mean_error(steps, [row.step_ms for row in measured.step]),
            {
                "model": leave_out(
                    measured.step, lambda row: row.workload, without_steps, lambda r: r.step_ms
                ),
                "batch": leave_out(
                    measured.step, lambda row: row.batch, without_steps, lambda row: row.step_ms
                ),
            },
            values=own,
            engine=habits,
        ),
        Fit(
            "time by core set",
            "core sets",
            len(sets),
            mean_error(sets, [row.seconds for row in measured.core_set]),
            {
                "core set": leave_out(
                    measured.core_set,
                    lambda r: (r.cores, r.freq),
                    without_sets,
                    lambda r: r.seconds,
                )
            },
        ),
    ]


class _Residuals:
    """How far a set of values is from the rows, in standard deviations."""

    def __init__(
        self, profile: Profile, engine: Engine, steps: Sequence[StepRow], sets: Sequence[CoreSetRow]
    ) -> None:
        self._base = (profile, engine)
        self._steps, self._sets = steps, sets

    def __call__(self, values: Values) -> Array:
        tried = with_values(*self._base, values)
        found: list[float] = []
        for cost, row in zip(step_costs(*tried, self._steps), self._steps, strict=True):
            found.append(float(np.log(cost.seconds * 1e3 / row.step_ms)) / _TIME_SPREAD)
            if row.others_busy is not None:
                found.append((1.0 - cost.serial_share - row.others_busy) / _BUSY_SPREAD)
        for cost, spot in zip(set_costs(*tried, self._sets), self._sets, strict=True):
            found.append(spot.weight * float(np.log(cost.seconds / spot.seconds)) / _SET_SPREAD)
        return np.array(found)
