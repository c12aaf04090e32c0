"""Where each family of a phone's figures comes from: fitted with its error, or extrapolated."""

from agent.virtual.profiles import Profile

FAMILIES = ("time", "clock", "heat", "energy")


def provenance_of(profile: Profile) -> dict[str, dict[str, object]]:
    """By family; the error is the leave-one-out one."""
    errors = profile.fitted.error_rel if profile.fitted else {}
    return {
        family: (
            {"source": "simulated", "model": "fitted", "error_rel": errors[family]}
            if family in errors
            else {"source": "simulated", "model": "extrapolated"}
        )
        for family in FAMILIES
    }
