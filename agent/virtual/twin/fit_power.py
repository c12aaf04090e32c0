"""Power of the Meizu 16T: the whole phone under schedutil, and above idle by core set."""

from collections.abc import Callable, Sequence

import numpy as np

from agent.virtual.engines import Engine
from agent.virtual.profiles import Profile
from agent.virtual.twin.bench import Bench, job_named
from agent.virtual.twin.measured import CoreSetRow, Measured, PowerRow
from agent.virtual.twin.report import Fit, leave_out, mean_error
from agent.virtual.twin.solve import Array, Prior, Values, solve

# Believed before: the device tree's coefficients within a factor, voltages of a 7 nm phone.
PRIORS = {
    "heat.vector_factor": Prior(0.8, 0.5),
    "heat.stalled_share": Prior(0.55, 0.4),
    "heat.scalar_share": Prior(0.6, 0.4),
    "heat.uncore_w": Prior(1.0, 0.8),
    "memory.watts_per_gbs": Prior(0.09, 0.5),
    "cluster.little.volts.0": Prior(0.57, 0.1),
    "cluster.little.volts.1": Prior(0.85, 0.1),
    "cluster.big.volts.0": Prior(0.60, 0.1),
    "cluster.big.volts.1": Prior(0.97, 0.06),
    "cluster.prime.volts.0": Prior(0.60, 0.1),
    "cluster.prime.volts.1": Prior(1.03, 0.06),
}
_SPREAD = 0.08
_SETTLE_S = 10.0  # the die is warm, the body is not


def whole_w(profile: Profile, engine: Engine, rows: Sequence[PowerRow]) -> list[float]:
    """The phone's power in each row, a while into the phase."""
    return [
        working(Bench(profile, job_named(row.workload, row.batch), engine=engine)).soc.system_w()
        for row in rows
    ]


def above_idle_w(profile: Profile, engine: Engine, rows: Sequence[CoreSetRow]) -> list[float]:
    job = job_named("emdl-cpuconf")
    benches = [working(Bench(profile, job, row.cores, row.freq, engine)) for row in rows]
    return [bench.soc.system_w() - bench.idle_w for bench in benches]


def working(bench: Bench) -> Bench:
    """A bench whose die has had time to warm."""
    bench.advance(_SETTLE_S)
    return bench


def fit_power(profile: Profile, engine: Engine, measured: Measured) -> list[Fit]:
    """Fit all rows at once; then without each row."""
    profile = profile.model_copy(update={"throttle": ()})  # phases too short for any trip

    def solved(whole: Sequence[PowerRow], sets: Sequence[CoreSetRow]) -> Profile:
        found = solve(_Residuals(profile, engine, whole, sets), PRIORS)
        return profile.with_values(found)

    def without_whole(rows: Sequence[PowerRow]) -> Callable[[PowerRow], float]:
        fitted = solved(rows, measured.core_set)
        return lambda row: whole_w(fitted, engine, [row])[0]

    def without_sets(rows: Sequence[CoreSetRow]) -> Callable[[CoreSetRow], float]:
        fitted = solved(measured.power, rows)
        return lambda row: above_idle_w(fitted, engine, [row])[0]

    values = solve(_Residuals(profile, engine, measured.power, measured.core_set), PRIORS)
    best = profile.with_values(values)
    return [
        Fit(
            "power",
            "energy",
            len(measured.power),
            mean_error(
                whole_w(best, engine, measured.power), [row.power_w for row in measured.power]
            ),
            {
                "model": leave_out(
                    measured.power, lambda row: row.workload, without_whole, lambda r: r.power_w
                ),
                "batch": leave_out(
                    measured.power, lambda row: row.batch, without_whole, lambda r: r.power_w
                ),
            },
            values=values,
        ),
        Fit(
            "power by core set",
            "core sets",
            len(measured.core_set),
            mean_error(
                above_idle_w(best, engine, measured.core_set),
                [row.power_w for row in measured.core_set],
            ),
            {
                "core set": leave_out(
                    measured.core_set,
                    lambda r: (r.cores, r.freq),
                    without_sets,
                    lambda r: r.power_w,
                )
            },
        ),
    ]


class _Residuals:
    """How far a set of values is from the rows, in standard deviations."""

    def __init__(
        self,
        profile: Profile,
        engine: Engine,
        whole: Sequence[PowerRow],
        sets: Sequence[CoreSetRow],
    ) -> None:
        self._profile, self._engine = profile, engine
        self._whole, self._sets = whole, sets

    def __call__(self, values: Values) -> Array:
        tried = self._profile.with_values(values)
        said = whole_w(tried, self._engine, self._whole)
        said += above_idle_w(tried, self._engine, self._sets)
        seen = [row.power_w for row in self._whole] + [row.power_w for row in self._sets]
        weights = [1.0] * len(self._whole) + [row.weight for row in self._sets]
        return np.asarray(np.array(weights) * np.log(np.array(said) / np.array(seen)) / _SPREAD)
