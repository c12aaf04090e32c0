"""How near the tuner's search comes to trying everything, and how long each takes.

    python -m benchmarks.opencl_tuning [--device NUMBER|TEXT] [--size 256] [--seconds 60]

The search runs first, then every candidate of the same space. The search's winner and the best few
of the exhaustive look then run against each other, so that both are judged by the same turns.
"""

import argparse
import time

from kernels.harness.device import choose_device
from kernels.harness.tune import TuningBench, limits_of, tune
from kernels.tuning import Shape, everything

FINALISTS = 5
PATIENCE = 5  # the last contest is so many times longer than a look


def main() -> None:
    """Print both winners and how far apart they are."""
    words = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    words.add_argument("--device", default="0")
    words.add_argument("--size", type=int, default=256)
    words.add_argument("--seconds", type=float, default=60.0)
    given = words.parse_args()
    device = choose_device(given.device)
    shape = Shape(given.size, given.size, given.size)
    began = time.monotonic()
    found = tune(device, shape, began + given.seconds)
    searched_s = time.monotonic() - began
    everyone = everything(shape, limits_of(device))
    bench = TuningBench(device, shape)
    began = time.monotonic()
    seen = bench.timed(everyone, 1)
    all_s = time.monotonic() - began
    finalists = sorted(seen, key=seen.__getitem__)[:FINALISTS]
    last = bench.timed([*{*finalists, found.candidate}], PATIENCE)
    best = min(last, key=last.__getitem__)
    print(f"{device.facts.label}, {shape.label}")
    print(f"searched: {found.candidate.label}, {found.tried} tried in {searched_s:.0f} s")
    print(f"everything: {best.label}, {len(everyone)} tried in {all_s:.0f} s")
    slower = last[found.candidate] / last[best] - 1
    print(f"the search's winner takes {100 * slower:.1f} % more time than the best of all")


if __name__ == "__main__":
    main()
