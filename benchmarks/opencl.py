"""Our OpenCL products beside naive ones, CLBlast and numpy, and training fed in every way.

    python -m benchmarks.opencl [--device NUMBER|TEXT] [--sizes 128,256,512] [--rounds 8]

Contenders take turns in one run, at least 50 launches between two waits; the least wall time of
each counts. CLBlast (PyPI's pyclblast over Debian's libclblast) takes part where it is installed.
"""

import argparse
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from benchmarks.opencl_clblast import clblast_product
from kernels.harness.device import Device, Launch, choose_device
from kernels.harness.products import WAYS, make_bench, operands
from kernels.harness.timing import Timed, load_average, roofs_of, take_turns
from kernels.harness.train import train_all
from kernels.harness.tune import tune_all
from kernels.tuning import Shape, Tuned
from workloads.models.perceptrons import WIDTHS

RAGGED = 1  # so much smaller than the size beside it


def main() -> None:
    """Print what was seen, against what was aimed at."""
    words = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    words.add_argument("--device", default="0")
    words.add_argument("--sizes", default="128,256,512")
    words.add_argument("--rounds", type=int, default=8)
    words.add_argument("--seconds", type=float, default=45.0, help="for tuning, beforehand")
    words.add_argument("--keep", type=Path, help="where tuned numbers are kept")
    given = words.parse_args()
    device = choose_device(given.device)
    sizes = [int(word) for word in given.sizes.split(",")]
    print(f"{device.facts.label}; nothing here says anything of a phone's GPU")
    with TemporaryDirectory() as folder:
        shapes = [Shape(n, n, n) for n in sizes]
        tuned = tune_all(device, shapes, given.seconds, given.keep or Path(folder))
    roof = roofs_of(device).gflops
    for best in tuned:
        _products(device, best, given.rounds, roof)
    for row in train_all(device, list(WIDTHS), given.rounds, (1, 2)):
        engine = {threads: f"{1e6 * min(turns):.1f}" for threads, turns in row.engine_s.items()}
        gains = ", ".join(
            f"{way} {1e6 * trained.step_s:.0f} us ({row.gain(way):.1f})"
            for way, trained in row.ways.items()
        )
        right = all(trained.right for trained in row.ways.values())
        print(f"{row.name}: {gains}; CPU {engine} us; right: {right}; load {row.load:.1f}")


def _products(device: Device, best: Tuned, rounds: int, roof: float) -> None:
    shape = best.shape
    n = shape.n - RAGGED
    a, b = operands(shape, seed=1)
    numbers = dict(best.candidate.numbers)
    way = replace(WAYS[best.candidate.way], defines=numbers)
    ragged = Shape(n, n, n)
    contenders: dict[str, Any] = {
        "naive": make_bench(device, shape, WAYS["naive"], a, b)[1],
        "tiled_vector": make_bench(device, shape, WAYS["tiled_vector"], a, b)[1],
        "packed": make_bench(device, shape, WAYS["packed"], a, b)[1],
        "best": make_bench(device, shape, way, a, b)[1],
        "ragged": make_bench(device, ragged, way, *operands(ragged, seed=1))[1],
    }
    clblast = clblast_product(device, a, b)
    others: dict[str, Callable[[], None]] = {"numpy": _numpy(a, b)}
    if clblast is not None:
        others["CLBlast, untuned"] = clblast
    timed = {name: float("inf") for name in others}
    for _ in range(rounds):  # all in turns
        for name, run in others.items():
            timed[name] = min(timed[name], _seconds(run, device))
        _keep_least(contenders, take_turns(device, contenders, 1), timed)
    _print(shape, timed, roof, best, ragged)


def _keep_least(
    contenders: Mapping[str, list[Launch]], seen: Mapping[str, Timed], timed: dict[str, float]
) -> None:
    for name in contenders:
        timed[name] = min(timed.get(name, float("inf")), seen[name].wall_s)
    alone = seen["packed"].last_s
    timed["packed, product alone"] = min(timed.get("packed, product alone", alone), alone)


def _print(
    shape: Shape, timed: Mapping[str, float], roof: float, best: Tuned, ragged: Shape
) -> None:
    flops = {name: ragged.flops if name == "ragged" else shape.flops for name in timed}
    speed = {name: flops[name] / seconds / 1e9 for name, seconds in timed.items()}
    spoken = ", ".join(f"{name} {value:.1f}" for name, value in speed.items())
    print(f"n = {shape.n}: GFLOPS by wall: {spoken}; load {load_average():.1f}")
    ours = speed["best"]
    ratios = [
        f"tiled_vector {speed['tiled_vector'] / speed['naive']:.1f} x naive",
        f"best ({best.candidate.label}) {ours / speed['naive']:.0f} x naive",
        f"{ours / speed['numpy']:.2f} x numpy",
        f"ragged {speed['ragged'] / ours:.2f} of it",
        f"packed alone {100 * speed['packed, product alone'] / roof:.0f} % of {roof:.0f}",
    ]
    if "CLBlast, untuned" in speed:
        ratios.append(f"{ours / speed['CLBlast, untuned']:.1f} x CLBlast, untuned")
    else:
        ratios.append("CLBlast is not here")
    print(f"    {'; '.join(ratios)}")


def _numpy(a: np.ndarray, b: np.ndarray) -> Callable[[], None]:
    out = np.empty((a.shape[0], b.shape[1]), np.float32)
    return lambda: (np.matmul(a, b, out=out), None)[1]


def _seconds(run: Callable[[], None], device: Device) -> float:
    run()
    device.finish()
    began = time.perf_counter()
    for _ in range(50):
        run()
    device.finish()
    return (time.perf_counter() - began) / 50


if __name__ == "__main__":
    main()
