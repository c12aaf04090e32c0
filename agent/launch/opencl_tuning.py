"""Tune OpenCL kernels for a phone: the search runs on the host, the runner times the candidates.

The result is stored with the phone's state on its host and given to every OpenCL run on that phone;
shapes that are tuned already are not searched again.
"""

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from agent.deadline import Deadline
from agent.launch.opencl_kernels import install_kernels
from agent.phone.phone_driver import Phone
from agent.phone.phone_paths import HOME
from agent.phone.runner_install import install_working_runner, runner_path
from kernels.autotuner import (
    MatmulCandidate,
    MatmulShape,
    OpenCLIdentity,
    OpenCLLimits,
    TunedMatmul,
    kernels_digest,
    parse_tuned,
    search,
    tuned_text,
)
from kernels.runner_builds import RunnerBuild, kernel_sources
from workloads.protocol.faults import BadOutput, FarmError, NeverStarts
from workloads.text import safe_text

TUNE_DIR = f"{HOME}/tune"
ERROR_MAX = 1e-4  # of a product, relative to the size of its terms
ROUNDS = 3
# Training multiplies matrices as they are, with B transposed (forward), with A transposed (back).
TRANSPOSITIONS = ((False, False), (False, True), (True, False))
_IDENTITY = ("name", "version", "driver")


def tuning_file(state_dir: Path, serial: str) -> Path:
    """The file of a phone's tuning on its host."""
    return state_dir / "tuned" / f"{serial.replace(':', '_')}.tuned"


def install_tuning_file(phone: Phone, state_dir: Path) -> str | None:
    """Push the phone's tuning file and return its path; None if none fits the present kernels."""
    file = tuning_file(state_dir, phone.facts.serial)
    try:
        text = file.read_text()
        if parse_tuned(text)[1] != kernels_digest():
            return None
    except (OSError, ValueError):
        return None
    path = f"{HOME}/tuned"
    phone.push(text.encode(), path)
    return path


def tuned_shapes(sizes: Sequence[int]) -> list[MatmulShape]:
    """Square products of these sizes, with the transpositions of training."""
    return [MatmulShape(n, n, n, *transposed) for n in sizes for transposed in TRANSPOSITIONS]


def tune_phone(
    phone: Phone,
    state_dir: Path,
    runner_for: Callable[[str], RunnerBuild],
    sizes: Sequence[int],
) -> tuple[bool, str, str | None]:
    """Tune a phone; return whether that worked, a text, and the content of the tuning file."""
    serial = phone.facts.serial
    file = tuning_file(state_dir, serial)
    try:
        device, limits, timer = _open_timer(phone, runner_for)
        tuned = {result.shape: result for result in _read_results(file, device)}
        missing = [shape for shape in tuned_shapes(sizes) if shape not in tuned]
        started = time.monotonic()
        budget_s = phone.timeouts.tuning_search_timeout_s
        for done, shape in enumerate(missing, start=1):
            until = started + budget_s * done / len(missing)
            tuned[shape] = _tune_shape(timer, shape, limits, until, tuned.values())
    except FarmError as error:
        return False, safe_text(f"{serial}: {error}", 600), None
    text = tuned_text(device, list(tuned.values()))
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return True, f"{serial}: {len(missing)} products tuned on {device.label}", text


def _tune_shape(
    timer: "CandidateTimer",
    shape: MatmulShape,
    limits: OpenCLLimits,
    until: float,
    known: Iterable[TunedMatmul],
) -> TunedMatmul:
    winner, seconds, tried = search(
        shape, limits, timer.for_shape(shape), lambda: time.monotonic() < until, known
    )
    return TunedMatmul(shape, winner, round(shape.flops / seconds / 1e9, 2), tried)


def _read_results(file: Path, device: OpenCLIdentity) -> list[TunedMatmul]:
    try:
        owner, digest, results = parse_tuned(file.read_text())
    except (OSError, ValueError):
        return []
    return results if (owner, digest) == (device, kernels_digest()) else []


def _open_timer(
    phone: Phone, runner_for: Callable[[str], RunnerBuild]
) -> tuple[OpenCLIdentity, OpenCLLimits, "CandidateTimer"]:
    """The phone's first OpenCL device, its limits, and a timer for products on it."""
    build, info = install_working_runner(phone, runner_for(phone.facts.abi))
    if isinstance(info, str):
        raise NeverStarts(info)
    runner = runner_path(build)
    record = json.loads(phone.shell_checked([runner, "info"]).strip().splitlines()[-1])
    devices = record.get("opencl") or []
    if not devices or not isinstance(devices[0], dict):
        raise NeverStarts("the vendor's OpenCL library shows no device")
    first = devices[0] | {"name": devices[0].get("device", "")}
    device = OpenCLIdentity(*(safe_text(first.get(member, ""), 200) for member in _IDENTITY))
    limits = OpenCLLimits(
        int(first.get("local_bytes", 0)), int(first.get("max_group", 1)), bool(first.get("images"))
    )
    phone.shell_checked(["mkdir", "-p", TUNE_DIR])
    return device, limits, CandidateTimer(phone, runner, install_kernels(phone, kernel_sources()))


class CandidateTimer:
    """Times candidates on the phone with `runner tune`."""

    def __init__(self, phone: Phone, runner: str, kernels: str) -> None:
        self._phone, self._runner, self._kernels = phone, runner, kernels

    def for_shape(
        self, shape: MatmulShape
    ) -> Callable[[Sequence[MatmulCandidate], int], Mapping[MatmulCandidate, float]]:
        """The timer of one shape."""
        return lambda candidates, repeats: self._time(shape, candidates, repeats)

    def _time(
        self, shape: MatmulShape, candidates: Sequence[MatmulCandidate], repeats: int
    ) -> Mapping[MatmulCandidate, float]:
        if not candidates:
            return {}
        transposed = f"{int(shape.transposed_a)} {int(shape.transposed_b)}"
        prefix = f"{shape.m} {shape.n} {shape.k} {transposed}"
        lines = "".join(f"{prefix} {candidate.label}\n" for candidate in candidates)
        self._phone.push(lines.encode(), f"{TUNE_DIR}/candidates")
        words = [self._runner, "tune", TUNE_DIR, "--kernels", self._kernels]
        words += ["--rounds", str(repeats * ROUNDS)]
        deadline = Deadline.after(self._phone.timeouts.tuning_call_timeout_s)
        output = self._phone.shell(words, deadline).text
        times = parse_candidate_times(output, len(candidates))
        return {candidates[index]: seconds for index, seconds in times}


def parse_candidate_times(text: str, count: int) -> Iterator[tuple[int, float]]:
    """The seconds of each candidate that gave the right result, by its number."""
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
