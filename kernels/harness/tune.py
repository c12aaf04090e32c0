"""The tuner: which way, with which numbers, is fastest for a shape on a device.

Everything in the space is tried once and briefly; the better half goes on to a longer look, and
so on until one is left. What it finds is kept by device, driver and kernels, and is worth nothing
for any other.
"""

import itertools
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path

from kernels.harness.device import Device
from kernels.harness.products import FILE, WAYS, Launches, Shape, Way, make_bench, operands
from kernels.harness.timing import take_turns
from workloads.fault import Refused
from workloads.noun import digest_of_bytes

FORMAT = "farmhand-tuned 1"
# Rows and columns of a register tile, strips an item, sides of a local tile.
_SPACE: dict[str, dict[str, tuple[int, ...]]] = {
    "vector": {},
    "tiled_vector": {"TILE": (8, 16, 32)},
    "direct": {"MR": (2, 4, 6, 8), "NR": (8, 16, 24, 32)},
    "packed": {"MR": (4, 6, 8), "NR": (8, 16, 24), "STRIPS": (1, 2, 4, 8)},
    "image": {"MR": (4, 8, 12)},
}
_FIRST_LOOK, _LAST_LOOK = 2, 50  # launches


@dataclass(frozen=True)
class Tuned:
    """The winner for one shape."""

    shape: Shape
    way: str
    defines: Mapping[str, int]
    gflops: float
    tried: int


def candidates(device: Device) -> Iterator[Way]:
    """Every way with every combination of its numbers that the device can hold."""
    for name, space in _SPACE.items():
        way = WAYS[name]
        if way.needs_images and not device.facts.images:
            continue
        for values in itertools.product(*space.values()):
            chosen = dict(zip(space, values, strict=True))
            if _fits(device, chosen):
                yield replace(way, defines={**way.defines, **chosen})


def tune(device: Device, shape: Shape, step: Callable[[], None] = lambda: None) -> Tuned:
    """Find the fastest way for a shape; `step` is called after each candidate's first look."""
    a, b = operands(shape, seed=0)
    ready: dict[str, Launches] = {}
    ways: dict[str, Way] = {}
    for way in candidates(device):
        key = f"{way.name} {dict(way.defines)}"
        try:
            ready[key], ways[key] = make_bench(device, shape, way, a, b)[1], way
        except Refused:
            continue  # a tile that this device has no room for is no candidate
        finally:
            step()
    tried, launches = len(ready), _FIRST_LOOK
    timed = take_turns(device, ready, rounds=1, launches=launches)
    while len(ready) > 1 or launches < _LAST_LOOK:
        launches = min(2 * launches, _LAST_LOOK)
        better = sorted(ready, key=lambda key: timed[key].wall_s)[: max(1, len(ready) // 2)]
        ready = {key: ready[key] for key in better}
        timed = take_turns(device, ready, rounds=2, launches=launches)
    (winner,) = ready
    way = ways[winner]
    gflops = shape.flops / timed[winner].wall_s / 1e9
    return Tuned(shape, way.name, dict(way.defines), gflops, tried)


def kernels_digest() -> str:
    """The identity of the kernels that were tuned."""
    return digest_of_bytes((files("kernels") / "opencl" / FILE).read_bytes())


def write_tuned(path: Path, device: Device, found: list[Tuned]) -> None:
    """Keep what was found, with what it holds for."""
    content = {
        "format": FORMAT,
        "device": device.facts.digest,
        "device_label": device.facts.label,
        "kernels": kernels_digest(),
        "sgemm": [
            {
                "m": tuned.shape.m,
                "n": tuned.shape.n,
                "k": tuned.shape.k,
                "transposed": [tuned.shape.transposed_a, tuned.shape.transposed_b],
                "way": tuned.way,
                "defines": dict(tuned.defines),
                "gflops": round(tuned.gflops, 2),
                "tried": tuned.tried,
            }
            for tuned in found
        ],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=2) + "\n")


def read_tuned(path: Path, device: Device) -> list[Tuned]:
    """What was kept for this device, driver and kernels; anything else is refused."""
    try:
        content = json.loads(path.read_text())
        rows = content["sgemm"]
        known = (content["format"], content["device"], content["kernels"])
        found = [
            Tuned(
                Shape(row["m"], row["n"], row["k"], *row["transposed"]),
                row["way"],
                {str(name): int(value) for name, value in row["defines"].items()},
                float(row["gflops"]),
                int(row["tried"]),
            )
            for row in rows
        ]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise Refused(f"{path} is no tuning file: {error}") from None
    if known != (FORMAT, device.facts.digest, kernels_digest()):
        raise Refused(f"{path} was tuned for another device, driver or kernel; tune again")
    return found


def _fits(device: Device, chosen: Mapping[str, int]) -> bool:
    """Whether a local tile fits; both matrices have one."""
    side = chosen.get("TILE", 0)
    fits_memory = 2 * 4 * side * side <= device.facts.local_bytes
    return fits_memory and side * side // 4 <= device.facts.max_group
