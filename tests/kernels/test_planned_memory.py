"""Planned memory compared with the peak memory that the system counts, for decoders above 50 MB."""

import json
import platform
import subprocess
from pathlib import Path
from typing import Any

import pytest

from kernels.plan_memory import memory_of_plan
from tests.kernels.dumps import the_runner
from tests.kernels.plans import product
from workloads.catalogue import bind, lower

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(platform.machine() != "x86_64", reason="the native runner is for x86_64"),
]
CASES: list[tuple[str, dict[str, int]]] = [
    ("decoder-15m", {"batch_size": 1}),
    ("decoder-15m", {"batch_size": 4, "text_length": 256}),
    ("decoder-15m-lora", {"batch_size": 1}),
    ("decoder-15m-lora", {"batch_size": 4}),
    ("decoder-15m-lora", {"batch_size": 2, "micro_batches": 4, "lora_mlp": 1}),
    ("decoder-1m", {"batch_size": 16}),
]


def run(plan: bytes, folder: Path) -> tuple[dict[str, int], int]:
    """Return what two steps of a plan allocate before the first one, and their peak, in bytes."""
    (folder / "plan").write_bytes(plan)
    words = [the_runner(), "run", folder / "plan", folder, "--warmup", "1", "--steps", "1"]
    subprocess.run(words, check=True, timeout=300, stdout=subprocess.DEVNULL)
    records: list[dict[str, Any]] = [
        json.loads(line) for line in (folder / "out.jsonl").read_text().splitlines()
    ]
    memory = next(record for record in records if record["line"] == "memory")
    return {k: v for k, v in memory.items() if k != "line"}, records[-1]["peak_rss_kb"] * 1024


@pytest.mark.parametrize("threads", [1, 2, 4, 8])
@pytest.mark.parametrize(("workload", "parameters"), CASES)
def test_planned_memory_is_the_peak_less_that_of_an_empty_run(
    workload: str, parameters: dict[str, int], threads: int, tmp_path: Path
) -> None:
    _, empty = run(product(1, threads), tmp_path)
    plan = lower(bind(workload, parameters), threads)
    allocated, peak = run(plan, tmp_path)
    assert memory_of_plan(plan) == allocated, "known before the run"
    planned = sum(allocated.values())
    assert planned > 50_000_000
    assert planned == pytest.approx(peak - empty, rel=0.01)
