"""Reads power_profile.xml: the currents that Android's battery statistics assume.

It is the lowest grade of power: makers measure it on prototypes, per cluster and clock step. Its
voltage is not in the file; the statistics multiply by the battery's, here by its nominal value.
"""

import itertools
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from xml.etree import ElementTree

from agent.virtual.socs import SocTable

NOMINAL_V = 3.85
_SIZE_MAX = 1 << 20


class InvalidPowerProfile(ValueError):
    """A file that is not a power profile, in one sentence."""


@dataclass(frozen=True, slots=True)
class ProfileCluster:
    """Power of one busy core of a cluster by clock step."""

    cores: int
    milliwatts: dict[int, float]  # by kHz


def read_power_profile(path: Path) -> tuple[ProfileCluster, ...]:
    """Read the clusters; everything else in the file is ignored."""
    try:
        text = path.read_bytes()[:_SIZE_MAX].decode("utf-8")
        root = ElementTree.fromstring(_from_declaration(text))
        items = {item.get("name"): float(item.text or "0") for item in root.iter("item")}
        arrays = {
            array.get("name"): [float(value.text or "0") for value in array.iter("value")]
            for array in root.iter("array")
        }
        return tuple(
            _cluster(index, int(cores), items, arrays)
            for index, cores in enumerate(arrays["cpu.clusters.cores"])
        )
    except (OSError, UnicodeDecodeError, ElementTree.ParseError) as error:
        raise InvalidPowerProfile(f"{path.name}: {error}") from None
    except (KeyError, ValueError) as error:
        raise InvalidPowerProfile(f"{path.name} is not a power profile: {error}") from None


def profile_errors(soc: SocTable, profile: tuple[ProfileCluster, ...]) -> dict[str, float]:
    """Return the median error of the profile by role, where the SoC was measured."""
    errors: dict[str, float] = {}
    for part, cluster in zip(soc.cluster, profile, strict=False):
        ratios = [
            abs(profile_mw(cluster, khz) / milliwatts - 1.0)
            for khz, _, milliwatts in part.rows
            if min(cluster.milliwatts) <= khz <= max(cluster.milliwatts)
        ]
        if ratios:
            errors[part.role] = median(ratios)
    return errors


def profile_mw(cluster: ProfileCluster, khz: float) -> float:
    """Return the power at a clock, interpolated linearly between the steps of the profile."""
    steps = sorted(cluster.milliwatts.items())
    for (low, low_mw), (high, high_mw) in itertools.pairwise(steps):
        if khz <= high:
            return low_mw + (high_mw - low_mw) * (khz - low) / (high - low)
    return steps[-1][1]


def _cluster(
    index: int, cores: int, items: dict[str | None, float], arrays: dict[str | None, list[float]]
) -> ProfileCluster:
    speeds = arrays[f"cpu.core_speeds.cluster{index}"]
    currents = arrays[f"cpu.core_power.cluster{index}"]
    # cpu.active is left out: it is drawn by an idle phone too, and curves are above idle.
    shared_ma = items.get(f"cpu.cluster_power.cluster{index}", 0.0)
    return ProfileCluster(
        cores,
        {
            int(khz): (current + shared_ma) * NOMINAL_V
            for khz, current in zip(speeds, currents, strict=True)
        },
    )


def _from_declaration(text: str) -> str:
    """Return the document without what precedes its root element."""
    start = text.find("<device")
    return text[max(start, 0) :]
