"""Benchmarks our OpenCL kernels: products next to CLBlast and numpy, training, submission.

    python -m benchmarks.opencl [--device NUMBER|TEXT] [--part products] [--sizes 128,256]

Contenders take turns in one run, with at least 50 launches between two waits; the least wall time
of each counts. CLBlast (PyPI's pyclblast over Debian's libclblast) takes part where it is
installed: with its default parameters, then in a second comparison with parameters that
benchmarks.opencl_clblast found.
"""

import argparse
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from benchmarks.opencl_clblast import clblast_product, tuned_product
from benchmarks.opencl_submission import compare_submissions
from kernels.autotuner import MatmulShape, TunedMatmul
from kernels.harness.device_tuning import tune_all
from kernels.harness.launch_timing import load_average, measure_peaks, time_in_turns
from kernels.harness.matmul_variants import (
    VARIANTS,
    Launches,
    MatmulVariant,
    operands,
    prepare_matmul,
)
from kernels.harness.network_training import train_network
from kernels.harness.opencl_device import Device, choose_device
from kernels.harness.perceptron_training import train_perceptrons
from workloads.models.perceptrons import WIDTHS

RAGGED = 1  # the ragged product is this much smaller
NAIVE_UP_TO = 512  # larger naive products take minutes
PARTS = ("products", "perceptrons", "submission", "networks")
KERNEL_ONLY = "packed, without packing"
Others = Mapping[str, Callable[[], None]]


def main() -> None:
    """Print the measured speeds and their ratios."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="0")
    parser.add_argument("--part", choices=PARTS, action="append")
    parser.add_argument("--sizes", default="128,256,512,1024")
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=60.0, help="Tune for this long first.")
    parser.add_argument("--clblast", type=Path, help="Read what benchmarks.opencl_clblast found.")
    parser.add_argument("--cache", type=Path, help="Keep tuned parameters in this folder.")
    options = parser.parse_args()
    device = choose_device(options.device)
    parts = options.part or PARTS
    print(f"{device.facts.label}; this tells nothing about a phone's GPU")
    if "products" in parts:
        shapes = [MatmulShape(n, n, n) for n in map(int, options.sizes.split(","))]
        with TemporaryDirectory() as folder:
            tuned = tune_all(device, shapes, options.seconds, options.cache or Path(folder))
        for best in tuned:
            _compare_products(device, best, options.rounds)
        if options.clblast is not None:  # last: it changes the parameters of CLBlast
            for best in tuned:
                _compare_with_tuned_clblast(device, best, options.rounds, options.clblast)
    if "perceptrons" in parts:
        _train_perceptrons(device, options.rounds)
    if "submission" in parts:
        for line in compare_submissions(device, options.rounds):
            print(line, flush=True)
    if "networks" in parts:
        _train_networks(device, options.rounds)


def _tuned_variant(best: TunedMatmul) -> MatmulVariant:
    return replace(VARIANTS[best.candidate.variant], params=dict(best.candidate.params))


def _compare_products(device: Device, best: TunedMatmul, rounds: int) -> None:
    shape, n = best.shape, best.shape.n - RAGGED
    a, b = operands(shape, seed=1)
    variant = _tuned_variant(best)
    ragged = MatmulShape(n, n, n)
    slow = ("naive", "tiled_vector") if shape.n <= NAIVE_UP_TO else ()
    contenders = {
        name: prepare_matmul(device, shape, VARIANTS[name], a, b)[1] for name in (*slow, "packed")
    }
    contenders["best"] = prepare_matmul(device, shape, variant, a, b)[1]
    contenders["ragged"] = prepare_matmul(device, ragged, variant, *operands(ragged, seed=1))[1]
    others: dict[str, Callable[[], None]] = {"numpy": _numpy(a, b)}
    clblast = clblast_product(device, a, b)
    if clblast is not None:
        others["CLBlast"] = clblast
    peak = measure_peaks(device).gflops
    times = _time_all(device, contenders, others, rounds)
    flops = {name: ragged.flops if name == "ragged" else shape.flops for name in times}
    speed = {name: flops[name] / seconds / 1e9 for name, seconds in times.items()}
    listed = ", ".join(f"{name} {value:.1f}" for name, value in speed.items())
    print(f"n = {shape.n}: GFLOPS by wall time: {listed}; load {load_average():.1f}")
    if slow:
        print(
            f"    tiled_vector {speed['tiled_vector'] / speed['naive']:.1f} x naive; "
            f"best {speed['best'] / speed['naive']:.0f} x naive"
        )
    print(
        f"    best ({best.candidate.label}) {speed['best'] / speed['numpy']:.2f} x numpy; "
        f"ragged {speed['ragged'] / speed['best']:.2f} of it; "
        f"packed kernel only {100 * speed[KERNEL_ONLY] / peak:.0f} % of {peak:.0f}"
    )
    if clblast is not None:
        print(f"    {speed['best'] / speed['CLBlast']:.1f} x CLBlast with default parameters")


def _compare_with_tuned_clblast(
    device: Device, best: TunedMatmul, rounds: int, found: Path
) -> None:
    shape = best.shape
    a, b = operands(shape, seed=1)
    run, which = tuned_product(device, a, b, found)
    ours = {"best": prepare_matmul(device, shape, _tuned_variant(best), a, b)[1]}
    times = _time_all(device, ours, {"tuned": run}, rounds)
    print(
        f"n = {shape.n}: {times['tuned'] / times['best']:.1f} x CLBlast tuned ({which}, "
        f"{shape.flops / times['tuned'] / 1e9:.1f} GFLOPS); load {load_average():.1f}"
    )


def _time_all(
    device: Device, contenders: Mapping[str, Launches], others: Others, rounds: int
) -> dict[str, float]:
    """Return the least seconds of each, in turns; of the packed product also without packing."""
    best = dict.fromkeys((*others, *contenders), float("inf"))
    for _ in range(rounds):
        for name, run in others.items():
            best[name] = min(best[name], _seconds(run, device))
        turn = time_in_turns(device, contenders, 1)
        for name in contenders:
            best[name] = min(best[name], turn[name].wall_s)
        if "packed" in turn:
            best[KERNEL_ONLY] = min(best.get(KERNEL_ONLY, float("inf")), turn["packed"].last_s)
    return best


def _train_perceptrons(device: Device, rounds: int) -> None:
    for row in train_perceptrons(device, list(WIDTHS), rounds, (1, 2)):
        engine = {threads: f"{1e6 * min(turns):.1f}" for threads, turns in row.engine_s.items()}
        feeds = ", ".join(
            f"{feed} {1e6 * result.step_s:.0f} us ({row.speedup(feed):.1f})"
            for feed, result in row.feeds.items()
        )
        passed = all(result.passed for result in row.feeds.values())
        print(f"{row.name}: {feeds}; CPU {engine} us; correct: {passed}; load {row.load:.1f}")


def _train_networks(device: Device, rounds: int) -> None:
    for name in ("lenet", "squeezenet"):
        row = train_network(device, name, rounds)
        phases = ", ".join(f"{phase} {1e3 * s:.1f}" for phase, s in row.phases_s.items())
        print(
            f"{name}, batch {row.batch}: {1e3 * min(row.turns_s):.1f} ms per step ({phases}); "
            f"C engine on one thread {1e3 * min(row.engine_s):.1f} ms; correct: {row.passed}; "
            f"load {row.load:.1f}"
        )


def _numpy(a: np.ndarray, b: np.ndarray) -> Callable[[], None]:
    out = np.empty((a.shape[0], b.shape[1]), np.float32)
    return lambda: (np.matmul(a, b, out=out), None)[1]


def _seconds(run: Callable[[], None], device: Device) -> float:
    run()
    device.finish()
    start = time.perf_counter()
    for _ in range(50):
        run()
    device.finish()
    return (time.perf_counter() - start) / 50


if __name__ == "__main__":
    main()
