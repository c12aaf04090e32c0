"""Fuzzing: the runner ends as its contract says, however a plan is damaged.

The runner is built with ASan and UBSan. Every operation runs once from a valid plan, and then
hundreds of times from damaged plans.
"""

import json
import os
import platform
import random
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from kernels.build import BIONIC_ONLY, HERE, sources
from tests.kernels.plans import a_plan, perceptron, product
from tests.kernels.pocl import pocl_in
from tests.kernels.test_gradients import BATCH, MODELS
from workloads.lowering import lower_step
from workloads.run_options import FEEDS
from workloads.training import SGD, Adam, training_step

GCC = shutil.which("gcc")
ROUNDS = int(os.environ.get("FARM_FUZZ_ROUNDS", "400"))
HANG_S = 60
EXITS = {0, 3, 4, 5, 6}  # done, bad_plan, unsupported, out_of_memory, wrong_answer
SANITIZERS = {
    "ASAN_OPTIONS": "exitcode=99:detect_leaks=0:allocator_may_return_null=1:"
    "max_allocation_size_mb=1024",
    "UBSAN_OPTIONS": "halt_on_error=1:exitcode=98:print_stacktrace=1",
}
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        GCC is None or platform.machine() != "x86_64",
        reason="gcc with its sanitizers is not installed (Debian: apt install gcc)",
    ),
]
EXTREMES = ["0", "1", "-1", "2", "3", "7", "63", "64", "65", "255", "4096", "1048576", "2147483647"]
EXTREMES += ["2147483648", "4294967296", "1099511627776", "4398046511104", "999999999999999999"]
EXTREMES += [
    "-999999999999999999",
    "9999999999999999999",
    "1e38",
    "1e-38",
    "-0",
    "nan",
    "",
    "-",
    ":",
]


@pytest.fixture(scope="session")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the runner with ASan and UBSan."""
    output = tmp_path_factory.mktemp("watched") / "runner"
    files = [path for path in sources() if path.suffix == ".c" and path.as_posix() != BIONIC_ONLY]
    command = [GCC or "gcc", "-std=c11", "-D_GNU_SOURCE=", "-O1", "-g", "-mavx2", "-mfma", "-w"]
    command += ["-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"]
    command += [*map(str, files), "-o", str(output), "-lm", "-lpthread", "-ldl"]
    subprocess.run(command, cwd=HERE, check=True)
    return output


def seeds() -> dict[str, bytes]:
    """Return plans that contain every operation."""
    bodies = {
        name: lower_step(training_step(each, BATCH, SGD(0.1))) for name, each in MODELS.items()
    }
    bodies["adam"] = lower_step(training_step(MODELS["linear"], BATCH, Adam(0.01)))
    found = {name: a_plan(body.text("case-1", 2)) for name, body in bodies.items()}
    return {**found, "product": product(40, threads=2), "perceptron": perceptron(evaluate=1)}


def run(
    runner: Path,
    folder: Path,
    plan: bytes,
    opencl: Mapping[str, str] | None = None,
    extra: Sequence[str] = (),
) -> tuple[int, str]:
    (folder / "plan").write_bytes(plan)
    words = ["--warmup", "0", "--steps", "2", "--max-seconds", "3", "--trace-steps", "1"]
    words += ["--kernels", str(HERE / "opencl"), "--fallback", "cpu"] if opencl else []
    done = subprocess.run(
        [runner, "run", "plan", ".", *words, *extra],
        cwd=folder,
        env={**os.environ, **SANITIZERS, **(opencl or {})},
        capture_output=True,
        timeout=HANG_S,
        check=False,
    )
    return done.returncode, done.stderr.decode(errors="replace")[-3000:]


def test_every_operation_stays_within_its_memory(watched: Path, tmp_path: Path) -> None:
    for name, plan in seeds().items():
        status, wrong = run(watched, tmp_path, plan)
        assert status in {0, 6}, f"{name}: {wrong}"


def test_batches_from_storage_stay_within_their_memory(watched: Path, tmp_path: Path) -> None:
    for name, plan in seeds().items():
        status, wrong = run(watched, tmp_path, plan, extra=("--input", "storage"))
        assert status in {0, 6}, f"{name}: {wrong}"


@pytest.mark.parametrize("feed", FEEDS)
def test_every_feed_stays_within_its_memory(watched: Path, tmp_path: Path, feed: str) -> None:
    pocl = pocl_in(tmp_path)
    for name in ("linear", "lstm", "attention", "cross-entropy", "embedding"):
        step = training_step(MODELS[name], BATCH, SGD(0.1))
        plan = a_plan(lower_step(step, backend="opencl").text("case-1", 2))
        status, wrong = run(watched, tmp_path, plan, pocl, ("--feed", feed))
        assert status == 0, f"{name}: {wrong}"


def _flip_bytes(rng: random.Random, body: list[str]) -> None:
    at = rng.randrange(len(body))
    line = bytearray(body[at].encode())
    for _ in range(rng.randint(1, 4)):
        if line:
            line[rng.randrange(len(line))] = rng.randrange(256)
    body[at] = line.decode("latin-1")


def _change_number(rng: random.Random, body: list[str]) -> None:
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(body))
        words = body[at].split(" ")
        words[rng.randrange(len(words))] = rng.choice(EXTREMES)
        body[at] = " ".join(words)


def _nudge_number(rng: random.Random, body: list[str]) -> None:
    """Change a number a little: nearly valid plans reach more code than absurd ones."""
    at = rng.randrange(len(body))
    words = body[at].split(" ")
    numbers = [i for i, word in enumerate(words) if word.lstrip("-").isdigit()]
    if numbers:
        i = rng.choice(numbers)
        value = int(words[i])
        words[i] = str(
            rng.choice([value + 1, value - 1, value * 2, value // 2, value + 64, -value])
        )
    body[at] = " ".join(words)


def _move_words(rng: random.Random, body: list[str]) -> None:
    at, other = rng.randrange(len(body)), rng.randrange(len(body))
    words, others = body[at].split(" "), body[other].split(" ")
    words[rng.randrange(len(words))] = rng.choice(others)
    body[at] = " ".join(words)


def _move_lines(rng: random.Random, body: list[str]) -> None:
    at, other = rng.randrange(len(body)), rng.randrange(len(body))
    match rng.randrange(3):
        case 0:
            body[at], body[other] = body[other], body[at]
        case 1:
            body.insert(at, body[other])
        case _:
            del body[at]


def _tear(rng: random.Random, body: list[str]) -> None:
    del body[rng.randrange(len(body)) :]


DAMAGES: tuple[Callable[[random.Random, list[str]], None], ...] = (
    _flip_bytes,
    _change_number,
    _nudge_number,
    _nudge_number,
    _move_words,
    _move_lines,
    _tear,
)


def damaged(rng: random.Random, plan: bytes) -> bytes:
    head, mark, rest = plan.partition(b"farmhand-body")
    body = (mark + rest).decode().split("\n")
    for _ in range(rng.choice([1, 1, 1, 2, 4])):
        if len(body) > 1:
            rng.choice(DAMAGES)(rng, body)
    return head + "\n".join(body).encode("latin-1")


@pytest.mark.parametrize("seed", range(4))
def test_a_damaged_plan_gives_an_exit_code_and_a_message(
    watched: Path, tmp_path: Path, seed: int
) -> None:
    rng = random.Random(seed)
    plans = list(seeds().items())
    for number in range(ROUNDS):
        name, plan = rng.choice(plans)
        damaged_plan = damaged(rng, plan)
        status, wrong = run(watched, tmp_path, damaged_plan)
        saved = tmp_path / f"damaged-{number}"
        if status not in EXITS:
            saved.write_bytes(damaged_plan)
        assert status in EXITS, f"{name}, saved as {saved}: {wrong}"
        last = json.loads((tmp_path / "out.jsonl").read_text().splitlines()[-1])
        assert ("done" if status == 0 else "fault") == last["line"]


def test_a_damaged_header_gives_an_exit_code_and_a_message(watched: Path, tmp_path: Path) -> None:
    rng = random.Random(5)
    plan = perceptron()
    for _ in range(100):
        damaged_plan = bytearray(plan)
        for _ in range(rng.randint(1, 3)):
            damaged_plan[rng.randrange(30)] = rng.randrange(256)
        assert run(watched, tmp_path, bytes(damaged_plan))[0] in EXITS


@pytest.fixture(scope="session")
def pocl(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return pocl_in(tmp_path_factory.mktemp("pocl"))


def test_the_opencl_backend_stays_within_its_memory(
    watched: Path, tmp_path: Path, pocl: dict[str, str]
) -> None:
    """Run every operation once on the device, or as a fallback on the CPU, with sanitizers."""
    for name, model in MODELS.items():
        body = lower_step(training_step(model, BATCH, SGD(0.1, 0.9)), backend="opencl")
        status, wrong = run(watched, tmp_path, a_plan(body.text("case-1", 2)), pocl)
        assert status in {0, 6}, f"{name}: {wrong}"


def test_a_damaged_plan_for_opencl_gives_an_exit_code_and_a_message(
    watched: Path, tmp_path: Path, pocl: dict[str, str]
) -> None:
    rng = random.Random(7)
    plan = perceptron(evaluate=1).replace(b"\nbackend cpu\n", b"\nbackend opencl\n")
    for _ in range(ROUNDS // 4):
        status, wrong = run(watched, tmp_path, damaged(rng, plan), pocl)
        assert status in EXITS | {11}, wrong
