"""The provenance of simulated figures by family, for one condition: fitted with the error of that
condition, extrapolated beyond all measurements, or uncalibrated.

The error is that of rows which the fit had not seen: other models on the measured cores, other
core sets, other clocks.
"""

from dataclasses import dataclass

from agent.virtual.engines import EngineModel
from agent.virtual.physics.soc import Soc
from agent.virtual.profiles import FittedBlock, PhoneProfile
from agent.virtual.twin.core_set_errors import group_name

FAMILIES = ("time", "clock", "heat", "energy")
_ENGINE_FAMILIES = ("time", "energy")  # families that depend on the engine as well as on the phone


@dataclass(frozen=True, slots=True)
class RunCondition:
    """What of a run decides how well it can be predicted."""

    mask: int
    pinned_khz: dict[str, int]  # by role of the clusters in use; empty: free clocks
    training: bool = True

    @classmethod
    def of(cls, soc: Soc, mask: int, training: bool = True) -> "RunCondition":
        """Return the condition of a run that would start now."""
        used = [part for part in soc.clusters if any(mask >> cpu & 1 for cpu in part.cpus)]
        pinned: dict[str, int] = {}
        if soc.is_pinned(mask):
            pinned.update((part.profile.role, part.clock_khz) for part in used)
        return cls(mask, pinned, training)


def provenance_by_family(
    profile: PhoneProfile,
    engine: EngineModel | None,
    backend: str = "cpu",
    condition: RunCondition | None = None,
) -> dict[str, dict[str, object]]:
    """Return the provenance by family of metrics; of any run without an engine or a condition."""
    errors: dict[str, float] = {}
    if profile.fitted is not None and backend != "cpu":
        errors = profile.fitted.gpu_error_rel
    elif profile.fitted is not None and condition is not None:
        errors = _condition_errors(profile, profile.fitted, engine, condition)
    unknown = "uncalibrated" if profile.calibration == "uncalibrated" else "extrapolated"
    return {
        family: (
            {"source": "simulated", "model": "fitted", "error_rel": round(errors[family], 3)}
            if family in errors
            else {"source": "simulated", "model": unknown}
        )
        for family in FAMILIES
    }


def _condition_errors(
    profile: PhoneProfile,
    fitted: FittedBlock,
    engine: EngineModel | None,
    condition: RunCondition,
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
        return ()  # no set of unlike cores was measured
    for role, khz in condition.pinned_khz.items():
        low, high = fitted.clocks_khz.get(role, (0, 0))
        if not low <= khz <= high:
            return ()
    kind = "little" if roles == ["little"] else "big"
    return (group_name("core set", kind), group_name("clock", kind))
