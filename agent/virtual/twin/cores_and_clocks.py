"""Names of core sets and clocks: big4, little2, all8, prime; kHz, high, mid, low."""

import re
from collections.abc import Iterable

from agent.virtual.profiles import ClusterProfile, PhoneProfile

_CORES = re.compile(r"(big|little|all)([1-9]\d?)|(prime)|mask:([0-9a-f]{1,8})")
# If no study defined the levels, a level is the rung nearest to this share of the highest one. As
# in a lab, low leaves out the two lowest rungs, which are idle clocks.
_FRACTIONS = {"high": 1.0, "mid": 0.65, "low": 0.40}


class UnknownCondition(ValueError):
    """A workload, core set or clock that does not exist on this phone."""


def parse_cores(profile: PhoneProfile, name: str) -> tuple[int, ...]:
    """Return the cores of a set; `bigN` takes the slower of the fast kinds first: big4 of 4+3+1 is
    mask f0.

    If there are fewer fast cores, little ones fill up from the highest number, as the study's mask
    f0 did on every phone.
    """
    match = _CORES.fullmatch(name)
    if match is None:
        raise UnknownCondition(f"'{name}' is not a core set; write big4, little2, all8 or mask:f0")
    kind, count, prime, mask = match.groups()
    clusters = sorted(profile.cluster, key=lambda cluster: cluster.capacity)
    little = _cpus(cluster for cluster in clusters if cluster.capacity == clusters[0].capacity)
    big = (
        _cpus(cluster for cluster in clusters if cluster.capacity > clusters[0].capacity) or little
    )
    if mask:
        return tuple(cpu for cpu in sorted(big + little) if int(mask, 16) >> cpu & 1)
    rest = [cpu for cpu in little if cpu not in big]
    pool = {"big": big + rest[::-1], "little": little, "all": big[::-1] + rest}
    cpus = clusters[-1].cpus if prime else tuple(pool[kind][: int(count)])
    if not prime and int(count) > len(pool[kind]):
        raise UnknownCondition(f"{profile.name} has {len(pool[kind])} of {kind}, not {count}")
    return tuple(sorted(cpus))


def parse_clock(profile: PhoneProfile, cluster: ClusterProfile, name: str) -> int:
    """Return the rung of a cluster that is nearest to a clock in kHz or to a level."""
    ladder = cluster.ladder_khz
    if name in _FRACTIONS:
        level_khz = profile.levels.get(name, {}).get(cluster.role)
        wanted_khz = float(level_khz or ladder[-1] * _FRACTIONS[name])
        if name == "low" and level_khz is None:
            ladder = ladder[2:] or ladder
    elif name.isdigit():
        wanted_khz = float(name)
    else:
        raise UnknownCondition(f"'{name}' is not a clock; write kHz, high, mid or low")
    return min(ladder, key=lambda rung: (abs(rung - wanted_khz), rung))


def _cpus(clusters: Iterable[ClusterProfile]) -> list[int]:
    return [cpu for cluster in clusters for cpu in cluster.cpus]
