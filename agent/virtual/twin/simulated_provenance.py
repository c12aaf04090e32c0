"""Where each family of a phone's figures comes from: fitted with its error, or extrapolated."""

from agent.virtual.engines import Engine
from agent.virtual.profiles import Profile

FAMILIES = ("time", "clock", "heat", "energy")
ENGINES_OWN = ("time", "energy")  # what an engine has its part in, beside the phone


def provenance_of(profile: Profile, engine: Engine | None) -> dict[str, dict[str, object]]:
    """By family, for what an engine runs, or (None) for whatever may be run.

    The error is the leave-one-out one. It holds for the engine that the phone was fitted with: of
    another engine's times and joules nothing is known.
    """
    errors = dict(profile.fitted.error_rel) if profile.fitted else {}
    if engine is None or not engine.fitted:
        for family in ENGINES_OWN:
            errors.pop(family, None)
    return {
        family: (
            {"source": "simulated", "model": "fitted", "error_rel": errors[family]}
            if family in errors
            else {"source": "simulated", "model": "extrapolated"}
        )
        for family in FAMILIES
    }
