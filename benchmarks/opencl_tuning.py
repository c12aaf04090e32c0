"""How near the tuner's search comes to trying everything, and how long each takes.

    python -m benchmarks.opencl_tuning [--device NUMBER|TEXT] [--size 256] [--seconds 60]

The search runs first, as a user has it: with nothing built yet. Then every candidate of the same
space, in an order that was drawn with a fixed seed; if the time for that is over before all had
their turn, the line says how many were left out, and the best of all is the best of those that had
it. The search's winner and the best few then run against each other, so that both are judged by
the same turns.
"""

import argparse
import random
import time
from collections.abc import Sequence

from kernels.harness.device import choose_device
from kernels.harness.timing import load_average
from kernels.harness.tune import TuningBench, limits_of, tune
from kernels.tuning import Candidate, Shape, everything

AT_ONCE = 12  # candidates that take turns with each other
FINALISTS = 5
PATIENCE = 5  # the last contest is so many times longer than a look
_SEED = 5


def main() -> None:
    """Print both winners and how far apart they are."""
    words = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    words.add_argument("--device", default="0")
    words.add_argument("--size", type=int, default=256)
    words.add_argument("--seconds", type=float, default=60.0, help="for the search")
    words.add_argument("--everything-seconds", type=float, default=600.0, help="for the rest")
    given = words.parse_args()
    device = choose_device(given.device)
    shape = Shape(given.size, given.size, given.size)
    began = time.monotonic()
    found = tune(device, shape, began + given.seconds)
    searched_s = time.monotonic() - began
    everyone = everything(shape, limits_of(device))
    bench = TuningBench(device, shape)
    began = time.monotonic()
    seen = _try_all(bench, everyone, began + given.everything_seconds)
    all_s = time.monotonic() - began
    finalists = sorted(seen, key=seen.__getitem__)[:FINALISTS]
    last = bench.timed([*{*finalists, found.candidate}], PATIENCE)
    best = min(last, key=last.__getitem__)
    print(f"{device.facts.label}, {shape.label}; load {load_average():.1f}")
    print(f"searched: {found.candidate.label}, {found.tried} tried in {searched_s:.0f} s")
    print(f"everything: {best.label}, {len(seen)} of {len(everyone)} tried in {all_s:.0f} s")
    slower = last[found.candidate] / last[best] - 1
    print(f"the search's winner takes {100 * slower:.1f} % more time than the best of all")


def _try_all(
    bench: TuningBench, everyone: Sequence[Candidate], until: float
) -> dict[Candidate, float]:
    order = random.Random(_SEED).sample(everyone, len(everyone))
    seen: dict[Candidate, float] = {}
    for start in range(0, len(order), AT_ONCE):
        if time.monotonic() < until:
            seen |= bench.timed(order[start : start + AT_ONCE], 1)
    return seen


if __name__ == "__main__":
    main()
