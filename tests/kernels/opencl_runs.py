"""Runs of the shipped runner on PoCL: records of a run, tensors of a dump, fault of a refusal."""

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kernels.build import HERE
from kernels.reference import Array, parse, read_dump
from tests.kernels.dumps import the_runner
from tests.kernels.plans import a_plan

Record = dict[str, Any]
SOURCES = HERE / "opencl"


def start_runner(
    words: list[object], environment: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    """Run the runner to its end."""
    return subprocess.run(
        list(map(str, [the_runner(), *words])),
        env=dict(environment),
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )


def run_records(
    plan: bytes, folder: Path, environment: Mapping[str, str], *words: object
) -> list[Record]:
    """Run a plan and return its records; the last one is "done" or a fault."""
    (folder / "plan").write_bytes(plan)
    start_runner(["run", folder / "plan", folder, "--kernels", SOURCES, *words], environment)
    return [json.loads(line) for line in (folder / "out.jsonl").read_text().splitlines()]


def refusal(
    plan: bytes, folder: Path, environment: Mapping[str, str], *words: object
) -> tuple[int, str, str]:
    """Run a plan that is refused; return exit status, code and text."""
    (folder / "plan").write_bytes(plan)
    ended = start_runner(["run", folder / "plan", folder, *words], environment)
    fault = json.loads(ended.stdout.splitlines()[-1])
    assert fault["line"] == "fault", fault
    return ended.returncode, fault["code"], fault["text"]


def dump_tensors(
    body: str, folder: Path, environment: Mapping[str, str], steps: int, *words: object
) -> list[list[Array]]:
    """Return every tensor before the first step and after each step."""
    (folder / "plan").write_bytes(a_plan(body))
    where = ["dump", folder / "plan", folder, "--steps", steps, "--kernels", SOURCES]
    ended = start_runner([*where, *words], environment)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return read_dump((folder / "dump.bin").read_bytes(), parse(body))
