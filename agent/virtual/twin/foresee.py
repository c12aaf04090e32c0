"""Foresight: how long runs would take on a phone's twin, each with the cooling that follows it.

In the phone's own time; installing, quieting and checking are not part of it.
"""

from dataclasses import dataclass
from functools import lru_cache

from agent.virtual.profiles import load_profile, profile_ids
from agent.virtual.twin.bench import Bench, Job, job_of
from agent.virtual.twin.condition import UnknownCondition

_LOOK_S = 5.0
_RUNGS = {"free": None, "fixed": None}
_NAMES = ("ro.product.marketname", "ro.config.marketing_name", "ro.product.model")


@dataclass(frozen=True, slots=True)
class Wanted:
    """A run: what, on which cores and clocks, for how long, and from which temperature."""

    workload: str
    parameters: dict[str, int]
    cores: str
    freq: str
    warmup: int
    steps: int
    seconds: float
    max_seconds: float
    start_c: float | None
    wait_s: float


@dataclass(frozen=True, slots=True)
class Foreseen:
    """Seconds of measuring, and of cooling before the next such run may begin."""

    measured_s: float
    cooled_s: float


@lru_cache(maxsize=1)
def _profiles() -> dict[str, str]:
    """Profiles by the names that their phones tell, with and without the maker's."""
    named: dict[str, str] = {}
    for name in profile_ids():
        profile = load_profile(name)
        told = [profile.name, *(profile.build.get(key, "") for key in _NAMES)]
        maker = profile.build.get("ro.product.manufacturer", "")
        named |= {f"{maker} {each}".lower(): name for each in told if each}
        named |= {each.lower(): name for each in told if each}
    return named


def profile_of(model: str) -> str | None:
    """The profile of the phones that call themselves so."""
    return _profiles().get(model.lower())


def foresee(profile_id: str, wanted: Wanted) -> Foreseen | None:
    """Let a twin do a run and cool down; None where it cannot make sense of the condition."""
    job: Job = job_of(wanted.workload, tuple(sorted(wanted.parameters.items())))
    freq = _RUNGS.get(wanted.freq, wanted.freq.removesuffix("kHz"))
    try:
        bench = Bench(load_profile(profile_id), job, wanted.cores, freq)
    except UnknownCondition:
        return None
    step_s = bench.cost.seconds
    timed = min(max(wanted.seconds, wanted.steps * step_s), wanted.max_seconds)
    measured = wanted.warmup * step_s + timed
    bench.advance(measured)
    bench.rest()
    waited = 0.0
    while wanted.start_c is not None and waited < wanted.wait_s and bench.die_c > wanted.start_c:
        bench.advance(_LOOK_S)
        waited += _LOOK_S
    return Foreseen(round(measured, 2), waited)
