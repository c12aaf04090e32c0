"""Cross-validation of the power of one core: measured rows, predicted from fits without them."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass

import numpy as np

from agent.virtual.socs import SocCluster, SocTable
from agent.virtual.twin.core_power_model import CorePowerModel, running_rows
from agent.virtual.twin.curve_error import INTERVAL_SCALE, NORMAL_95, LeftOut


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
        """Whether the row is within the stated interval."""
        return abs(self.log_error) <= NORMAL_95 * INTERVAL_SCALE[self.left_out] * self.spread


def cross_validate(
    socs: list[SocTable], left_out: LeftOut, tested_ids: Collection[str] = ()
) -> Iterator[LeftOutPoint]:
    """Predict the rows of each measured cluster, or of some SoCs, from a fit without them."""
    full = CorePowerModel(socs)
    for soc in socs:
        if tested_ids and soc.id not in tested_ids:
            continue
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
