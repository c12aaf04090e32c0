"""Our OpenCL products beside naive ones, CLBlast and numpy, and training fed in every way.

    python -m benchmarks.opencl [--device NUMBER|TEXT] [--part products] [--sizes 128,256]

Contenders take turns in one run, at least 50 launches between two waits; the least wall time of
each counts. CLBlast (PyPI's pyclblast over Debian's libclblast) takes part where it is installed:
as it ships, then in a second contest with parameters that benchmarks.opencl_clblast has found.
"""

import argparse
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from benchmarks.opencl_clblast import clblast_product, tuned_product
from kernels.harness.device import Device, choose_device
from kernels.harness.network_train import train_network
from kernels.harness.products import WAYS, Launches, make_bench, operands
from kernels.harness.timing import load_average, roofs_of, take_turns
from kernels.harness.train import train_all
from kernels.harness.tune import tune_all
from kernels.tuning import Shape, Tuned
from workloads.models.perceptrons import WIDTHS

RAGGED = 1  # so much smaller than the size beside it
SLOW_UP_TO = 512  # larger naive products take minutes
PARTS = ("products", "perceptrons", "networks")
ALONE = "packed, product alone"
Others = Mapping[str, Callable[[], None]]


def main() -> None:
    """Print what was seen, against what was aimed at."""
    words = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    words.add_argument("--device", default="0")
    words.add_argument("--part", choices=PARTS, action="append")
    words.add_argument("--sizes", default="128,256,512,1024")
    words.add_argument("--rounds", type=int, default=8)
    words.add_argument("--seconds", type=float, default=60.0, help="for tuning, beforehand")
    words.add_argument("--clblast", type=Path, help="what benchmarks.opencl_clblast has kept")
    words.add_argument("--keep", type=Path, help="where tuned numbers are kept")
    given = words.parse_args()
    device = choose_device(given.device)
    parts = given.part or PARTS
    print(f"{device.facts.label}; nothing here says anything of a phone's GPU")
    if "products" in parts:
        shapes = [Shape(n, n, n) for n in map(int, given.sizes.split(","))]
        with TemporaryDirectory() as folder:
            tuned = tune_all(device, shapes, given.seconds, given.keep or Path(folder))
        for best in tuned:
            _products(device, best, given.rounds)
        if given.clblast is not None:  # last: from here on CLBlast is no longer as it ships
            for best in tuned:
                _against_tuned(device, best, given.rounds, given.clblast)
    if "perceptrons" in parts:
        _perceptrons(device, given.rounds)
    if "networks" in parts:
        _networks(device, given.rounds)


def _products(device: Device, best: Tuned, rounds: int) -> None:
    shape, n = best.shape, best.shape.n - RAGGED
    a, b = operands(shape, seed=1)
    way = replace(WAYS[best.candidate.way], defines=dict(best.candidate.numbers))
    ragged = Shape(n, n, n)
    ours = {"best": make_bench(device, shape, way, a, b)[1]}
    slow = ("naive", "tiled_vector") if shape.n <= SLOW_UP_TO else ()
    contenders = {
        name: make_bench(device, shape, WAYS[name], a, b)[1] for name in (*slow, "packed")
    }
    contenders["ragged"] = make_bench(device, ragged, way, *operands(ragged, seed=1))[1]
    others: dict[str, Callable[[], None]] = {"numpy": _numpy(a, b)}
    untuned = clblast_product(device, a, b)
    if untuned is not None:
        others["CLBlast"] = untuned
    roof = roofs_of(device).gflops
    timed = _contest(device, contenders | ours, others, rounds)
    flops = {name: ragged.flops if name == "ragged" else shape.flops for name in timed}
    speed = {name: flops[name] / seconds / 1e9 for name, seconds in timed.items()}
    spoken = ", ".join(f"{name} {value:.1f}" for name, value in speed.items())
    print(f"n = {shape.n}: GFLOPS by wall: {spoken}; load {load_average():.1f}")
    if slow:
        print(
            f"    tiled_vector {speed['tiled_vector'] / speed['naive']:.1f} x naive; "
            f"best {speed['best'] / speed['naive']:.0f} x naive"
        )
    print(
        f"    best ({best.candidate.label}) {speed['best'] / speed['numpy']:.2f} x numpy; "
        f"ragged {speed['ragged'] / speed['best']:.2f} of it; "
        f"packed alone {100 * speed[ALONE] / roof:.0f} % of {roof:.0f}"
    )
    if untuned is not None:
        print(f"    {speed['best'] / speed['CLBlast']:.1f} x CLBlast as it ships")


def _against_tuned(device: Device, best: Tuned, rounds: int, kept: Path) -> None:
    shape = best.shape
    a, b = operands(shape, seed=1)
    way = replace(WAYS[best.candidate.way], defines=dict(best.candidate.numbers))
    run, which = tuned_product(device, a, b, kept)
    ours = {"best": make_bench(device, shape, way, a, b)[1]}
    seen = _contest(device, ours, {"tuned": run}, rounds)
    print(
        f"n = {shape.n}: {seen['tuned'] / seen['best']:.1f} x CLBlast tuned ({which}, "
        f"{shape.flops / seen['tuned'] / 1e9:.1f} GFLOPS); load {load_average():.1f}"
    )


def _contest(
    device: Device, contenders: Mapping[str, Launches], others: Others, rounds: int
) -> dict[str, float]:
    """The least seconds of each, all in turns; of the packed product also without its packing."""
    timed = dict.fromkeys((*others, *contenders), float("inf"))
    for _ in range(rounds):
        for name, run in others.items():
            timed[name] = min(timed[name], _seconds(run, device))
        seen = take_turns(device, contenders, 1)
        for name in contenders:
            timed[name] = min(timed[name], seen[name].wall_s)
        if "packed" in seen:
            timed[ALONE] = min(timed.get(ALONE, float("inf")), seen["packed"].last_s)
    return timed


def _perceptrons(device: Device, rounds: int) -> None:
    for row in train_all(device, list(WIDTHS), rounds, (1, 2)):
        engine = {threads: f"{1e6 * min(turns):.1f}" for threads, turns in row.engine_s.items()}
        gains = ", ".join(
            f"{way} {1e6 * trained.step_s:.0f} us ({row.gain(way):.1f})"
            for way, trained in row.ways.items()
        )
        right = all(trained.right for trained in row.ways.values())
        print(f"{row.name}: {gains}; CPU {engine} us; right: {right}; load {row.load:.1f}")


def _networks(device: Device, rounds: int) -> None:
    for name in ("lenet", "squeezenet"):
        row = train_network(device, name, rounds)
        phases = ", ".join(f"{phase} {1e3 * s:.1f}" for phase, s in row.phases_s.items())
        print(
            f"{name}, batch {row.batch}: {1e3 * min(row.turns_s):.1f} ms a step ({phases}); "
            f"our CPU engine on one thread {1e3 * min(row.engine_s):.1f} ms; right: {row.right}; "
            f"load {row.load:.1f}"
        )


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
