"""Compares the autotuner's search with trying all candidates: its result and its duration.

    python -m benchmarks.opencl_tuning [--device NUMBER|TEXT] [--size 256] [--seconds 60]

The search runs first, with nothing built yet, as for a user. Then all candidates of the same space
are timed, in a random order with a fixed seed; if the time for that ends early, the output says how
many were left out, and "all" means those that were timed. The winner of the search and the best few
of all then compete in the same turns.
"""

import argparse
import random
import time
from collections.abc import Sequence

from benchmarks.peers.engine_comparison import load_average
from kernels.autotuner import (
    CandidateTimer,
    MatmulCandidate,
    MatmulShape,
    OpenCLLimits,
    all_candidates,
)
from kernels.harness.local_runner import open_runner
from kernels.harness.opencl_device import choose_device
from kernels.tuning_run import SearchTime, candidate_timer, tune_missing

AT_ONCE = 12  # candidates that take turns with each other
FINALISTS = 5
PATIENCE = 5  # how many times longer the final is than a first timing
_SEED = 5


def main() -> None:
    """Print both winners and the difference between them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="0")
    parser.add_argument("--size", type=int, default=256)
    parser.add_argument("--seconds", type=float, default=60.0, help="Limit the search.")
    parser.add_argument("--all-seconds", type=float, default=600.0, help="Limit trying all.")
    options = parser.parse_args()
    device = choose_device(options.device)
    shape = MatmulShape(options.size, options.size, options.size)
    limits = OpenCLLimits(device.facts.local_bytes, device.facts.max_group)
    with open_runner(device.facts.identity) as runner:
        start = time.monotonic()
        (found,) = tune_missing([shape], {}, limits, runner.tune, SearchTime(options.seconds))
        search_s = time.monotonic() - start
        candidates = all_candidates(shape, limits)
        timer = candidate_timer(shape, runner.tune)
        start = time.monotonic()
        times = _time_all(timer, candidates, start + options.all_seconds)
        all_s = time.monotonic() - start
        finalists = sorted(times, key=times.__getitem__)[:FINALISTS]
        final = timer([*{*finalists, found.candidate}], PATIENCE)
    best = min(final, key=final.__getitem__)
    print(f"{device.facts.label}, {shape.label}; load {load_average()}")
    print(f"search: {found.candidate.label}, {found.tried} tried in {search_s:.0f} s")
    print(f"all: {best.label}, {len(times)} of {len(candidates)} tried in {all_s:.0f} s")
    slower = final[found.candidate] / final[best] - 1
    print(f"the winner of the search takes {100 * slower:.1f} % more time than the best of all")


def _time_all(
    timer: CandidateTimer, candidates: Sequence[MatmulCandidate], deadline: float
) -> dict[MatmulCandidate, float]:
    order = random.Random(_SEED).sample(candidates, len(candidates))
    times: dict[MatmulCandidate, float] = {}
    for start in range(0, len(order), AT_ONCE):
        if time.monotonic() < deadline:
            times |= timer(order[start : start + AT_ONCE], 1)
    return times


if __name__ == "__main__":
    main()
