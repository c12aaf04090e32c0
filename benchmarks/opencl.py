"""Benchmarks our OpenCL kernels: products next to CLBlast and numpy, training, submission.

    python -m benchmarks.opencl [--device NUMBER|TEXT] [--part products] [--sizes 128,256]

The runner times our products, in turns; the least wall time of each counts. CLBlast (PyPI's
pyclblast over Debian's libclblast) takes part where it is installed: with its default parameters,
then with parameters that benchmarks.opencl_clblast found.
"""

import argparse
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from benchmarks.opencl_clblast import clblast_product, operands, tuned_product
from benchmarks.opencl_submission import compare_submissions
from benchmarks.peers.engine_comparison import load_average
from kernels.autotuner import MatmulShape, OpenCLLimits, TunedMatmul
from kernels.harness.local_runner import LocalRunner, open_runner
from kernels.harness.matmul_bench import time_products
from kernels.harness.opencl_device import Device, choose_device
from kernels.harness.training_bench import MODELS, train_model
from kernels.tuning_run import SearchTime, tune_missing

RAGGED = 1  # the ragged product is this much smaller
NAIVE_UP_TO = 512  # larger naive products take minutes
PARTS = ("products", "training", "submission")
LAUNCHES = 50


def main() -> None:
    """Print the measured speeds and their ratios."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="0")
    parser.add_argument("--part", choices=PARTS, action="append")
    parser.add_argument("--sizes", default="128,256,512,1024")
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=60.0, help="Tune for this long first.")
    parser.add_argument("--clblast", type=Path, help="Read what benchmarks.opencl_clblast found.")
    options = parser.parse_args()
    device = choose_device(options.device)
    parts = options.part or PARTS
    print(f"{device.facts.label}; this tells nothing about a phone's GPU")
    with open_runner(device.facts.identity) as runner:
        if "products" in parts:
            shapes = [MatmulShape(n, n, n) for n in map(int, options.sizes.split(","))]
            limits = OpenCLLimits(device.facts.local_bytes, device.facts.max_group)
            for best in tune_missing(shapes, {}, limits, runner.tune, SearchTime(options.seconds)):
                _compare_products(device, runner, best, options.rounds, options.clblast)
        for name in MODELS if "training" in parts else ():
            _train(runner, name, options.rounds)
    if "submission" in parts:
        for line in compare_submissions(options.rounds):
            print(line, flush=True)


def _compare_products(
    device: Device, runner: LocalRunner, best: TunedMatmul, rounds: int, clblast: Path | None
) -> None:
    shape, n = best.shape, best.shape.n - RAGGED
    names = ["naive", "tiled_vector"] if shape.n <= NAIVE_UP_TO else []
    contenders = {name: name for name in [*names, "packed"]} | {"best": best.candidate.label}
    times = time_products(runner, shape, contenders, rounds, LAUNCHES)
    speed = {name: one.gflops(shape) for name, one in times.items()}
    ragged = MatmulShape(n, n, n)
    one = time_products(runner, ragged, {"": best.candidate.label}, rounds, LAUNCHES)[""]
    speed["ragged"] = one.gflops(ragged)
    a, b = operands(shape)
    others = {"numpy": _numpy(a, b), "CLBlast": clblast_product(device, a, b)}
    if clblast is not None:
        others["CLBlast tuned"], which = tuned_product(device, a, b, clblast)
        print(f"CLBlast tuned: {which}")
    for name, run in others.items():
        if run is not None:
            speed[name] = shape.flops / min(_seconds(run) for _ in range(rounds)) / 1e9
    listed = ", ".join(f"{name} {value:.1f}" for name, value in speed.items())
    ratios = ", ".join(
        f"{speed['best'] / speed[name]:.2f} x {name}" for name in speed if name != "best"
    )
    print(f"n = {shape.n}: GFLOPS by wall time: {listed}; load {load_average()}")
    print(f"    best ({best.candidate.label}): {ratios}", flush=True)


def _train(runner: LocalRunner, name: str, rounds: int) -> None:
    model = train_model(runner, name, rounds)
    feeds = ", ".join(f"{feed} {1e6 * model.fastest(feed).step_s:.0f} us" for feed in model.turns)
    cpu = f"{1e6 * min(model.cpu_turns_s):.1f}"
    print(f"{name}: {feeds}; CPU {cpu} us; correct: {model.passed}; load {load_average()}")


def _numpy(a: np.ndarray, b: np.ndarray) -> Callable[[], None]:
    out = np.empty((a.shape[0], b.shape[1]), np.float32)
    return lambda: (np.matmul(a, b, out=out), None)[1]


def _seconds(run: Callable[[], None]) -> float:
    """Time a product; one by CLBlast waits for its result."""
    run()
    start = time.perf_counter()
    for _ in range(LAUNCHES):
        run()
    return (time.perf_counter() - start) / LAUNCHES


if __name__ == "__main__":
    main()
