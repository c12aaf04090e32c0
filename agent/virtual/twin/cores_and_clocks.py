"""Core sets and clocks by name, for a profile: big4, little2, all8, prime; kHz, high, mid, low."""

import re
from collections.abc import Iterable

from agent.virtual.profiles import ClusterProfile, Profile

_CORES = re.compile(r"(big|little|all)([1-9]\d?)|(prime)|mask:([0-9a-f]{1,8})")
# Where no study fixed the levels: the highest rung, two thirds of it, and two fifths.
_FRACTIONS = {"high": 1.0, "mid": 0.65, "low": 0.40}


class UnknownCondition(ValueError):
    """A name that this phone cannot make sense of."""


def cores_named(profile: Profile, name: str) -> tuple[int, ...]:
    """The cores of a set; `bigN` takes the slower fast kind first: big4 of 4+3+1 is mask f0.

    Where there are fewer fast cores than that, little ones fill up from the highest number, as the
    study's mask f0 did on every phone.
    """
    match = _CORES.fullmatch(name)
    if match is None:
        raise UnknownCondition(f"'{name}' is not a core set; write big4, little2, all8 or mask:f0")
    kind, count, prime, mask = match.groups()
    ranked = sorted(profile.cluster, key=lambda cluster: cluster.capacity)
    little = _cpus(cluster for cluster in ranked if cluster.capacity == ranked[0].capacity)
    big = _cpus(cluster for cluster in ranked if cluster.capacity > ranked[0].capacity) or little
    if mask:
        return tuple(cpu for cpu in sorted(big + little) if int(mask, 16) >> cpu & 1)
    rest = [cpu for cpu in little if cpu not in big]
    pool = {"big": big + rest[::-1], "little": little, "all": big[::-1] + rest}
    wanted = ranked[-1].cpus if prime else tuple(pool[kind][: int(count)])
    if not prime and int(count) > len(pool[kind]):
        raise UnknownCondition(f"{profile.name} has {len(pool[kind])} of {kind}, not {count}")
    return tuple(sorted(wanted))


def clock_named(profile: Profile, cluster: ClusterProfile, name: str) -> int:
    """The rung of a cluster for kHz or a level: the nearest one there is."""
    ladder = cluster.ladder_khz
    if name in _FRACTIONS:
        stated = profile.levels.get(name, {}).get(cluster.role)
        wanted = float(stated or ladder[-1] * _FRACTIONS[name])
    elif name.isdigit():
        wanted = float(name)
    else:
        raise UnknownCondition(f"'{name}' is not a clock; write kHz, high, mid or low")
    return min(ladder, key=lambda rung: (abs(rung - wanted), rung))


def _cpus(clusters: Iterable[ClusterProfile]) -> list[int]:
    return [cpu for cluster in clusters for cpu in cluster.cpus]
