"""The provenance of simulated figures by family: fitted with its error, or extrapolated."""

from agent.virtual.engines import EngineModel
from agent.virtual.profiles import PhoneProfile

FAMILIES = ("time", "clock", "heat", "energy")
_ENGINE_FAMILIES = ("time", "energy")  # families that depend on the engine as well as on the phone


def provenance_by_family(
    profile: PhoneProfile, engine: EngineModel | None, backend: str = "cpu"
) -> dict[str, dict[str, object]]:
    """Return the provenance by family of metrics for an engine, or for any engine (None).

    The error is the leave-one-out error. It holds for the engine and the processor that the phone
    was fitted with: for another engine, the errors of time and energy are unknown, and on the GPU
    all that were found on the CPU.
    """
    fitted = profile.fitted
    errors = dict(
        (fitted.error_rel if backend == "cpu" else fitted.gpu_error_rel) if fitted else {}
    )
    if engine is None or not engine.fitted:
        for family in _ENGINE_FAMILIES:
            errors.pop(family, None)
    return {
        family: (
            {"source": "simulated", "model": "fitted", "error_rel": errors[family]}
            if family in errors
            else {"source": "simulated", "model": "extrapolated"}
        )
        for family in FAMILIES
    }
