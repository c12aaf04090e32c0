"""Tune OpenCL kernels for a phone: the search runs on the host, the runner times the candidates.

The result is stored with the phone's state on its host and given to every OpenCL run on that phone;
shapes that are tuned already are not searched again.
"""

import json
from collections.abc import Callable, Sequence
from pathlib import Path

from agent.deadline import Deadline
from agent.launch.opencl_kernels import install_kernels
from agent.phone.phone_driver import Phone
from agent.phone.phone_paths import HOME
from agent.phone.runner_install import install_working_runner, runner_path
from kernels.autotuner import (
    MatmulShape,
    OpenCLIdentity,
    OpenCLLimits,
    kernels_digest,
    parse_tuned,
    tuned_text,
)
from kernels.runner_builds import RunnerBuild, kernel_sources
from kernels.tuning_run import RunTune, SearchTime, read_known, read_opencl_limits, tune_missing
from workloads.protocol.faults import FarmError, NeverStarts
from workloads.text import safe_text

TUNE_DIR = f"{HOME}/tune"
# Training multiplies matrices as they are, with B transposed (forward), with A transposed (back).
TRANSPOSITIONS = ((False, False), (False, True), (True, False))


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
        device, limits, run_tune = _open_tuner(phone, runner_for)
        known = read_known(file, device)
        budget = SearchTime(phone.timeouts.tuning_search_timeout_s, lambda: phone.clock_s or 0.0)
        found = list(tune_missing(tuned_shapes(sizes), known, limits, run_tune, budget))
    except FarmError as error:
        return False, safe_text(f"{serial}: {error}", 600), None
    text = tuned_text(device, [*known.values(), *found])
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return True, f"{serial}: {len(found)} products tuned on {device.label}", text


def _open_tuner(
    phone: Phone, runner_for: Callable[[str], RunnerBuild]
) -> tuple[OpenCLIdentity, OpenCLLimits, RunTune]:
    """The phone's first OpenCL device, its limits, and how to time products on it."""
    build, info = install_working_runner(phone, runner_for(phone.facts.abi))
    if isinstance(info, str):
        raise NeverStarts(info)
    runner = runner_path(build)
    record = json.loads(phone.shell_checked([runner, "info"]).strip().splitlines()[-1])
    devices = record.get("opencl") or []
    if not devices or not isinstance(devices[0], dict):
        raise NeverStarts("the vendor's OpenCL library shows no device")
    phone.shell_checked(["mkdir", "-p", TUNE_DIR])
    kernels = install_kernels(phone, kernel_sources())

    def run_tune(candidates: str, rounds: int) -> str:
        phone.push(candidates.encode(), f"{TUNE_DIR}/candidates")
        words = [runner, "tune", TUNE_DIR, "--kernels", kernels, "--rounds", str(rounds)]
        deadline = Deadline.after(phone.timeouts.tuning_call_timeout_s)
        return phone.shell(words, deadline).text

    return *read_opencl_limits(devices[0]), run_tune
