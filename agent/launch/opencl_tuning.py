"""Tuning on a phone: the search runs here, its candidates are timed by the runner over there.

What is found is kept beside the phone (its host's state folder) and given to every run that wants
OpenCL there; asking again for what is known costs nothing.
"""

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from agent.deadline import Deadline
from agent.phone.install import install_one_that_starts
from agent.phone.phone import HOME, Phone
from agent.run.kernels import install_kernels
from kernels.manifest import RunnerBuild, kernel_shelf
from kernels.tuning import (
    Candidate,
    Limits,
    Shape,
    Tuned,
    TunedFor,
    kernels_digest,
    parse_tuned,
    search,
    tuned_text,
)
from workloads.fault import BadOutput, FarmError, NeverStarts
from workloads.text import safe_text

FOLDER = f"{HOME}/tune"
SECONDS = 60.0  # for the whole search, on the host's clock
CALL_S = 120.0  # for one call of the runner: it builds everything it is asked for
ERROR_MAX = 1e-4  # of a product, relative to the size of its terms
ROUNDS = 3
# Products of training come as they are, with B transposed (forward) and with A transposed (back).
TURNS = ((False, False), (False, True), (True, False))
_WORDS = ("name", "version", "driver")


def tuned_path(state_dir: Path, serial: str) -> Path:
    """Where a phone's tuning file is kept on its host."""
    return state_dir / "tuned" / f"{serial.replace(':', '_')}.tuned"


def install_tuned(phone: Phone, state_dir: Path) -> str | None:
    """Have the phone's tuning file there and answer its path; None where none fits the kernels."""
    path = tuned_path(state_dir, phone.known.serial)
    try:
        text = path.read_text()
        if parse_tuned(text)[1] != kernels_digest():
            return None
    except (OSError, ValueError):
        return None
    there = f"{HOME}/tuned"
    phone.push(text.encode(), there)
    return there


def shapes_of(sizes: Sequence[int]) -> list[Shape]:
    """Square products of these sizes, turned as training turns them."""
    return [Shape(n, n, n, *turned) for n in sizes for turned in TURNS]


def tune_phone(
    phone: Phone,
    state_dir: Path,
    runner_for: Callable[[str], RunnerBuild],
    sizes: Sequence[int],
) -> tuple[bool, str, str | None]:
    """Tune a phone; whether that worked, in words, and the tuning file."""
    serial = phone.known.serial
    path = tuned_path(state_dir, serial)
    try:
        device, limits, timer = _open(phone, runner_for)
        known = {each.shape: each for each in _kept(path, device)}
        missing = [shape for shape in shapes_of(sizes) if shape not in known]
        began = time.monotonic()
        for done, shape in enumerate(missing, start=1):
            until = began + SECONDS * done / len(missing)
            known[shape] = _tune(timer, shape, limits, until, known.values())
    except FarmError as error:
        return False, safe_text(f"{serial}: {error}", 600), None
    text = tuned_text(device, list(known.values()))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return True, f"{serial}: {len(missing)} products tuned on {device.label}.", text


def _tune(
    timer: "PhoneTimer", shape: Shape, limits: Limits, until: float, known: Iterable[Tuned]
) -> Tuned:
    winner, seconds, tried = search(
        shape, limits, timer.of(shape), lambda: time.monotonic() < until, known
    )
    return Tuned(shape, winner, round(shape.flops / seconds / 1e9, 2), tried)


def _kept(path: Path, device: TunedFor) -> list[Tuned]:
    try:
        owner, digest, found = parse_tuned(path.read_text())
    except (OSError, ValueError):
        return []
    return found if (owner, digest) == (device, kernels_digest()) else []


def _open(
    phone: Phone, runner_for: Callable[[str], RunnerBuild]
) -> tuple[TunedFor, Limits, "PhoneTimer"]:
    """The phone's first OpenCL device, and what times products on it."""
    build, info = install_one_that_starts(phone, runner_for(phone.known.abi))
    if isinstance(info, str):
        raise NeverStarts(info)
    runner = f"{HOME}/{build.file_name}"
    said = json.loads(phone.must([runner, "info"]).strip().splitlines()[-1])
    devices = said.get("opencl") or []
    if not devices or not isinstance(devices[0], dict):
        raise NeverStarts("its vendor's library shows no OpenCL device")
    first = devices[0] | {"name": devices[0].get("device", "")}
    device = TunedFor(*(safe_text(first.get(word, ""), 200) for word in _WORDS))
    limits = Limits(
        int(first.get("local_bytes", 0)), int(first.get("max_group", 1)), bool(first.get("images"))
    )
    phone.must(["mkdir", "-p", FOLDER])
    return device, limits, PhoneTimer(phone, runner, install_kernels(phone, kernel_shelf()))


class PhoneTimer:
    """Times candidates with `runner tune`."""

    def __init__(self, phone: Phone, runner: str, kernels: str) -> None:
        self._phone, self._runner, self._kernels = phone, runner, kernels

    def of(self, shape: Shape) -> Callable[[Sequence[Candidate], int], Mapping[Candidate, float]]:
        """A timer for one shape."""
        return lambda wanted, patience: self._timed(shape, wanted, patience)

    def _timed(
        self, shape: Shape, wanted: Sequence[Candidate], patience: int
    ) -> Mapping[Candidate, float]:
        if not wanted:
            return {}
        turned = f"{int(shape.transposed_a)} {int(shape.transposed_b)}"
        head = f"{shape.m} {shape.n} {shape.k} {turned}"
        listed = "".join(f"{head} {each.label}\n" for each in wanted)
        self._phone.push(listed.encode(), f"{FOLDER}/candidates")
        words = [self._runner, "tune", FOLDER, "--kernels", self._kernels]
        words += ["--rounds", str(patience * ROUNDS)]
        answer = self._phone.shell(words, Deadline.after(CALL_S))
        return {wanted[at]: seconds for at, seconds in read_times(answer.text, len(wanted))}


def read_times(text: str, count: int) -> Iterator[tuple[int, float]]:
    """The seconds of each candidate that gave the right answer, by its number."""
    try:
        # A vendor's compiler may talk to whoever is there; the runner's lines are objects.
        lines = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
        last = lines[-1]
        if last["line"] != "done":
            raise BadOutput(f"runner tune: {safe_text(last.get('text', 'no last line'), 300)}")
        for line in lines:
            right = line["line"] == "candidate" and "wall_ns" in line
            if right and 0 <= int(line["number"]) < count and float(line["error"]) <= ERROR_MAX:
                yield int(line["number"]), float(line["wall_ns"]) / 1e9
    except (IndexError, KeyError, TypeError, ValueError, AttributeError, RecursionError):
        raise BadOutput(f"runner tune breaks the contract: {safe_text(text, 120)}") from None
