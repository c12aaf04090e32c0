"""The provenance of simulated figures by family, for one condition: fitted with the error of that
condition, extrapolated beyond all measurements, or uncalibrated.

The error is that of rows which the fit had not seen: other models on the measured cores, other
core sets, other clocks, other GPUs.
"""

from dataclasses import dataclass

from agent.virtual.engines import EngineModel
from agent.virtual.physics.soc import Soc
from agent.virtual.profiles import FittedBlock, PhoneProfile
from agent.virtual.twin.gpu_error import gpu_error_range

FAMILIES = ("time", "clock", "heat", "energy")
_ENGINE_FAMILIES = ("time", "energy")  # families that depend on the engine as well as on the phone


@dataclass(frozen=True, slots=True)
class RunCondition:
    """What of a run decides how well it can be predicted."""

    mask: int
    pinned_khz: dict[str, int]  # by role of the clusters in use; empty: free clocks
    training: bool = True
    gpu_error: float | None = None  # of the time of a step on the GPU; None: unknown

    @classmethod
    def of(
        cls, soc: Soc, mask: int, training: bool = True, gpu_error: float | None = None
    ) -> "RunCondition":
        """Return the condition of a run that would start now."""
        used = [part for part in soc.clusters if any(mask >> cpu & 1 for cpu in part.cpus)]
        pinned: dict[str, int] = {}
        if soc.is_pinned(mask):
            pinned.update((part.profile.role, part.clock_khz) for part in used)
        return cls(mask, pinned, training, gpu_error)


def provenance_by_family(
    profile: PhoneProfile,
    engine: EngineModel | None,
    backend: str = "cpu",
    condition: RunCondition | None = None,
) -> dict[str, dict[str, object]]:
    """Return the provenance by family of metrics; of any run without an engine or a condition."""
    errors: dict[str, float] = {}
    unknown = "uncalibrated" if profile.calibration == "uncalibrated" else "extrapolated"
    if condition is not None and backend != "cpu":
        if condition.gpu_error is not None and unknown == "extrapolated":
            errors = {"time": condition.gpu_error}
    elif profile.fitted is not None and condition is not None:
        errors = _condition_errors(profile, profile.fitted, engine, condition)
    return {
        family: (
            {"source": "simulated", "model": "fitted", "error_rel": round(errors[family], 3)}
            if family in errors
            else {"source": "simulated", "model": unknown}
        )
        for family in FAMILIES
    }


def error_ranges(profile: PhoneProfile) -> dict[str, tuple[float, float]]:
    """Return the smallest and the largest stated error by family, and of time on the GPU."""
    by_family = profile.fitted.error_rel if profile.fitted else {}
    ranges = {
        family: (min(errors.values()), max(errors.values())) for family, errors in by_family.items()
    }
    gpu = gpu_error_range(profile) if profile.calibration != "uncalibrated" else None
    return ranges | ({"time on the GPU": gpu} if gpu else {})


def _condition_errors(
    profile: PhoneProfile, fitted: FittedBlock, engine: EngineModel | None, condition: RunCondition
) -> dict[str, float]:
    """Return the error of each family that was fitted for such a condition."""
    groups = _left_out_groups(profile, fitted, condition)
    is_fitted_engine = engine is not None and engine.id == fitted.engine and condition.training
    return {
        family: max(by_group[group] for group in groups if group in by_group)
        for family, by_group in fitted.error_rel.items()
        if (is_fitted_engine or family not in _ENGINE_FAMILIES)
        and any(group in by_group for group in groups)
    }


def _left_out_groups(
    profile: PhoneProfile, fitted: FittedBlock, condition: RunCondition
) -> tuple[str, ...]:
    """Return what was left out of fits to find the error of a condition; none: extrapolated."""
    if condition.mask == fitted.mask and not condition.pinned_khz:
        return ("model", "batch", "last two fifths")
    roles = [
        part.role for part in profile.cluster if any(condition.mask >> cpu & 1 for cpu in part.cpus)
    ]
    if "little" in roles and len(roles) > 1:
        return ()  # no set of different cores was measured
    for role, khz in condition.pinned_khz.items():
        low, high = fitted.clocks_khz.get(role, (0, 0))
        if not low <= khz <= high:
            return ()
    kind = "little" if roles == ["little"] else "big"
    return (group_name("core set", kind), group_name("clock", kind))


def group_name(group: str, kind: str) -> str:
    """Return the name of what was left out, for one kind of core."""
    return f"{group}, {kind}"
