"""Faults of the GPU: what the runner prints, and its exit status."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from kernels.runner_builds import kernel_sources
from tests.virtual.adb_host import AdbHost
from tests.virtual.injection_bench import InjectionBench, start_bench
from tests.virtual.sample_plans import HOME, RUNNER
from workloads.catalogue import bind, lower


@pytest.fixture
def bench(host: AdbHost, tmp_path: Path) -> Iterator[InjectionBench]:
    """A phone with a runner, kernels, a plan for the GPU and one for the cores."""
    with start_bench(host, tmp_path) as bench:
        bench.adb_phone.put(f"{HOME}/runner", RUNNER, 0o755)
        for name in ("common.cl", "sgemm_common.cl", "sgemm_4_tiled_vector.cl"):
            bench.adb_phone.put(f"{HOME}/{name}", kernel_sources().files[name])
        for name, backend in (("plan", "opencl"), ("cores", "cpu")):
            plan = lower(bind("mlp-4", {}, backend=backend), 1)  # type: ignore[arg-type]
            bench.adb_phone.put(f"{HOME}/{name}", plan)
        bench.adb_phone.out(f"mkdir -p {HOME}/dir")
        yield bench


def run(bench: InjectionBench, plan: str = "plan") -> tuple[int, str]:
    """Return the exit status of a run, and the code of its fault."""
    status = bench.adb_phone.run(f"cd {HOME}; ./runner run {plan} dir").status
    last = json.loads(bench.adb_phone.out(f"tail -n 1 {HOME}/dir/out.jsonl"))
    return status, last.get("code", "")


@pytest.mark.parametrize(
    ("kind", "options", "expected"),
    [
        ("gpu_missing", {}, (4, "unsupported")),
        ("gpu_missing", {"what": "device"}, (4, "unsupported")),
        ("gpu_build_fails", {}, (11, "device")),
        ("gpu_memory", {"max_alloc_mb": 0}, (5, "out_of_memory")),
        ("gpu_wrong", {}, (6, "wrong_answer")),
    ],
)
def test_a_fault_of_the_gpu_ends_a_run_on_the_gpu_only(
    bench: InjectionBench, kind: str, options: dict[str, object], expected: tuple[int, str]
) -> None:
    number = bench.mischief.add(kind, **options)
    assert run(bench) == expected
    assert run(bench, "cores") == (0, "")
    bench.mischief.clear(number)
    assert run(bench) == (0, "")


def test_info_shows_what_is_left(bench: InjectionBench) -> None:
    number = bench.mischief.add("gpu_memory", max_alloc_mb=64)
    (device,) = json.loads(bench.adb_phone.out(f"{HOME}/runner info"))["opencl"]
    assert device["max_alloc_bytes"] == 64 << 20
    bench.mischief.clear(number)
    for what in ("library", "device"):
        number = bench.mischief.add("gpu_missing", what=what)
        info = json.loads(bench.adb_phone.out(f"{HOME}/runner info"))
        assert (info["backends"], info["opencl"]) == (["cpu"], [])
        bench.mischief.clear(number)


def test_a_lost_device_ends_a_run_in_the_middle(bench: InjectionBench) -> None:
    bench.mischief.add("gpu_lost", at="run@50%")
    command = f"cd {HOME}; ./runner run plan dir --seconds 20 --max-seconds 20"
    assert bench.adb_phone.run(command).status == 11
    records = [
        json.loads(line) for line in bench.adb_phone.out(f"cat {HOME}/dir/out.jsonl").splitlines()
    ]
    windows = [record for record in records if record["line"] == "window"]
    assert 4e9 < sum(window["ns"] for window in windows) < 16e9
    assert (records[-1]["line"], records[-1]["code"]) == ("fault", "device")
    bench.adb_phone.sleep_until(lambda: bool(bench.events("mischief_stop")), "it is over")
    bench.mischief.clear()
    assert run(bench) == (0, "")
