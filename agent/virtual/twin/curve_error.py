"""How well the power of one core is known, by what was measured of its cluster.

Errors are cross-validated (benchmarks/curve_cross_validation.py): every measured cluster is
predicted from a fit that has not seen the step, all but two points, the cluster, or the SoC. The
95 % interval of a prediction is wide enough to contain 95 % of such rows.
"""

from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from agent.virtual.socs import SocCluster, SocTable
from agent.virtual.twin.core_power_model import model_for

NORMAL_95 = 1.96


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
        width = np.exp(NORMAL_95 * INTERVAL_SCALE[knowledge_of(soc, part)] * estimate.spread)
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
