"""Tunes products with `runner tune`, on a phone or on this computer.

The caller starts the runner; this module writes its candidates, reads its records and decides what
is tuned. Shapes whose winner is known are not searched again.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any

from kernels.autotuner import (
    CandidateTimer,
    MatmulCandidate,
    MatmulShape,
    OpenCLIdentity,
    OpenCLLimits,
    TunedMatmul,
    kernels_digest,
    parse_tuned,
    search,
)
from workloads.protocol.faults import BadOutput
from workloads.text import safe_text

ERROR_MAX = 1e-4  # of a product, relative to the size of its terms
ROUNDS = 3
_IDENTITY = ("device", "version", "driver")

RunTune = Callable[[str, int], str]  # candidates and rounds; returns the records of the runner


@dataclass(frozen=True)
class SearchTime:
    """How long a search may take, by the clock of what it tunes."""

    seconds: float
    clock_s: Callable[[], float] = monotonic

    def is_before(self, until_s: float) -> bool:
        """Whether the clock has not reached this time."""
        return self.clock_s() < until_s


def read_opencl_limits(entry: Mapping[str, Any]) -> tuple[OpenCLIdentity, OpenCLLimits]:
    """Read a device from the runner's record "info"."""
    identity = OpenCLIdentity(*(safe_text(entry.get(member, ""), 200) for member in _IDENTITY))
    limits = OpenCLLimits(int(entry.get("local_bytes", 0)), int(entry.get("max_group", 1)))
    return identity, limits


def read_known(file: Path, device: OpenCLIdentity) -> dict[MatmulShape, TunedMatmul]:
    """Read the winners of a tuning file; none if it is broken, or not for these kernels."""
    try:
        owner, digest, winners = parse_tuned(file.read_text())
    except (OSError, ValueError):
        return {}
    if (owner, digest) != (device, kernels_digest()):
        return {}
    return {winner.shape: winner for winner in winners}


def tune_missing(
    shapes: Sequence[MatmulShape],
    known: Mapping[MatmulShape, TunedMatmul],
    limits: OpenCLLimits,
    run_tune: RunTune,
    time: SearchTime,
) -> Iterator[TunedMatmul]:
    """Yield a winner for every shape without one; each shape gets an equal part of the time."""
    winners = dict(known)
    missing = [shape for shape in shapes if shape not in known]
    start_s = time.clock_s()
    for number, shape in enumerate(missing, start=1):
        has_time = partial(time.is_before, start_s + time.seconds * number / len(missing))
        timer = candidate_timer(shape, run_tune)
        winner, best_s, tried = search(shape, limits, timer, has_time, winners.values())
        winners[shape] = TunedMatmul(shape, winner, round(shape.flops / best_s / 1e9, 2), tried)
        yield winners[shape]


def candidate_timer(shape: MatmulShape, run_tune: RunTune) -> CandidateTimer:
    """Return what times candidates for a shape, those with the right result."""

    def times(
        candidates: Sequence[MatmulCandidate], repeats: int
    ) -> Mapping[MatmulCandidate, float]:
        if not candidates:
            return {}
        lines = "".join(f"{shape.candidate_prefix} {one.label}\n" for one in candidates)
        output = run_tune(lines, repeats * ROUNDS)
        found = parse_candidate_times(output, len(candidates))
        return {candidates[index]: seconds for index, seconds in found}

    return times


def parse_candidate_times(text: str, count: int) -> Iterator[tuple[int, float]]:
    """Yield the seconds of each candidate that gave the right result, by its number."""
    try:
        # A vendor's compiler may print messages; the runner's lines are JSON objects.
        records = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
        last = records[-1]
        if last["line"] != "done":
            raise BadOutput(f"runner tune: {safe_text(last.get('text', 'no final record'), 300)}")
        for record in records:
            timed = record["line"] == "candidate" and "wall_ns" in record
            if not timed or not 0 <= int(record["number"]) < count:
                continue
            if float(record["error"]) <= ERROR_MAX:
                yield int(record["number"]), float(record["wall_ns"]) / 1e9
    except (IndexError, KeyError, TypeError, ValueError, AttributeError, RecursionError):
        raise BadOutput(f"runner tune breaks the contract: {safe_text(text, 120)}") from None
