"""How well the power of one core is known, by what was measured of its cluster.

Errors are cross-validated: every measured cluster is predicted from a fit that has not seen the
step, all but two points, the cluster, or the SoC. The 95 % interval of a prediction is wide
enough to contain 95 % of such rows.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from agent.virtual.socs import SocCluster, SocTable
from agent.virtual.twin.core_power_model import CorePowerModel, model_for, running_rows

_NORMAL_95 = 1.96


class LeftOut(StrEnum):
    """What the fit has not seen of a cluster that is predicted."""

    STEP = "step"
    ALL_BUT_POINTS = "all but two points"
    CLUSTER = "cluster"
    SOC = "SoC"


# Found by benchmarks/virtual_accuracy.py: the quantile of errors, in units of the fit's own.
INTERVAL_SCALE = {
    LeftOut.STEP: 1.39,
    LeftOut.ALL_BUT_POINTS: 1.77,
    LeftOut.CLUSTER: 1.2,
    LeftOut.SOC: 1.31,
}


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """One core at one clock step: predicted power with its 95 % interval, beside the measured."""

    role: str
    khz: int
    coremark_per_s: float
    milliwatts: float
    low_mw: float
    high_mw: float
    grade: str
    measured_mw: float | None


@dataclass(frozen=True, slots=True)
class LeftOutPoint:
    """A measured row, predicted without it."""

    soc: str
    role: str
    khz: float
    left_out: LeftOut
    log_error: float
    spread: float

    @property
    def is_covered(self) -> bool:
        return abs(self.log_error) <= _NORMAL_95 * INTERVAL_SCALE[self.left_out] * self.spread


def knowledge_of(soc: SocTable, part: SocCluster) -> LeftOut:
    """Return what a fit lacks of a cluster."""
    if part.curve:
        return LeftOut.STEP
    if part.points:
        return LeftOut.ALL_BUT_POINTS
    return LeftOut.CLUSTER if soc.is_measured else LeftOut.SOC


def predict_curve(soc: SocTable) -> list[CurvePoint]:
    """Predict every clock step of every cluster, whether it was measured or not."""
    model = model_for(soc)
    points = []
    for part in soc.cluster:
        measured = {khz: milliwatts for khz, _, milliwatts in part.rows}
        running = [
            khz * share for khz, share in zip(part.ladder_khz, part.work_shares, strict=True)
        ]
        estimate = model.estimate(soc, part, running)
        width = np.exp(_NORMAL_95 * INTERVAL_SCALE[knowledge_of(soc, part)] * estimate.spread)
        points += [
            CurvePoint(
                part.role,
                khz,
                round(part.work_per_mhz * ran / 1000, 1),
                round(float(milliwatts), 1),
                round(float(milliwatts / factor), 1),
                round(float(milliwatts * factor), 1),
                part.grade,
                measured.get(khz),
            )
            for khz, ran, milliwatts, factor in zip(
                part.ladder_khz, running, estimate.milliwatts, width, strict=True
            )
        ]
    return points


def cross_validate(socs: list[SocTable], left_out: LeftOut) -> Iterator[LeftOutPoint]:
    """Predict the rows of each measured cluster from a fit that has not seen them."""
    full = CorePowerModel(socs)
    for soc in socs:
        model_without_soc = None
        for part in soc.cluster:
            if not part.curve:
                continue
            if left_out is LeftOut.SOC:
                others = [other for other in socs if other is not soc]
                model_without_soc = model_without_soc or CorePowerModel(others, full)
                folds = [(model_without_soc, list(range(len(part.curve))))]
            else:
                folds = [
                    (CorePowerModel(_without(socs, soc, part, kept), full), tested)
                    for kept, tested in _folds(part, left_out)
                ]
            for model, tested in folds:
                yield from _test_rows(model, soc, part, left_out, tested)


def _folds(part: SocCluster, left_out: LeftOut) -> list[tuple[list[int], list[int]]]:
    """Return the indices of rows that are kept, and of those that are tested."""
    every = list(range(len(part.curve)))
    if left_out is LeftOut.CLUSTER:
        return [([], every)]
    if left_out is LeftOut.ALL_BUT_POINTS:
        best = min(every, key=lambda i: part.curve[i][2] / part.curve[i][1])
        kept = sorted({best, every[-1]})
        return [(kept, [i for i in every if i not in kept])]
    return [([i for i in every if i % 4 != fold], every[fold::4]) for fold in range(4)]


def _without(
    socs: list[SocTable], soc: SocTable, part: SocCluster, kept: list[int]
) -> Iterator[SocTable]:
    """Return the tables with only some rows of one cluster."""
    rows = tuple(part.curve[i] for i in kept)
    shares = zip(part.ladder_khz, part.work_shares, strict=True)
    slow = tuple((khz, share) for khz, share in shares if share < 1.0)
    thinned = part.model_copy(update={"curve": (), "points": rows, "slow_steps": slow})
    clusters = tuple(thinned if other is part else other for other in soc.cluster)
    for other in socs:
        yield soc.model_copy(update={"cluster": clusters}) if other is soc else other


def _test_rows(
    model: CorePowerModel, soc: SocTable, part: SocCluster, left_out: LeftOut, tested: list[int]
) -> Iterator[LeftOutPoint]:
    clocks, log_mw = running_rows(part)
    estimate = model.estimate(soc, part, [float(clocks[i]) for i in tested])
    errors = np.log(estimate.milliwatts) - log_mw[tested]
    for i, error, spread in zip(tested, errors, estimate.spread, strict=True):
        yield LeftOutPoint(
            soc.id, part.role, float(clocks[i]), left_out, float(error), float(spread)
        )
