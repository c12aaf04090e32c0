"""Check that our engine and PyTorch train the same network: from equal values to equal losses.

.venv/bin/python -m benchmarks.peers.compare_losses [--peers PYTHON] [--models lenet resnet20]

`runner dump` writes the parameters before the first step, the batches that it loaded and the
losses. PyTorch starts from the same parameters and trains on the same batches. Dropout is off in
both, and images are small where that changes nothing but the size.
"""

import argparse
import subprocess
import sys
import tempfile
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.peers.engine_comparison import (
    PeerProcess,
    find_peers_python,
    find_runner,
    make_plan,
)
from benchmarks.peers.network_description import describe_step
from workloads.catalogue import CATALOGUE, bind, step_of
from workloads.layers import Dropout
from workloads.lowering import PlanBody, lower_step
from workloads.training import TrainingStep

MODELS = ("lenet", "resnet20", "squeezenet", "mobilenetv2", "alexnet", "googlenet")
BATCH, STEPS, IMAGE_SIZE = 4, 3, 96
TOLERANCE = 2e-3  # relative error of the loss: rounding errors grow from step to step


def make_step(name: str) -> TrainingStep:
    """Return a small training step of a workload, without dropout."""
    params = {"batch_size": BATCH}
    if "image_size" in {parameter.name for parameter in CATALOGUE[name].parameters}:
        params["image_size"] = IMAGE_SIZE
    step = step_of(bind(name, params))
    assert isinstance(step, TrainingStep)
    (only_pass,) = step.passes
    nodes = tuple(
        replace(node, layer=Dropout(0.0)) if isinstance(node.layer, Dropout) else node
        for node in only_pass.model.nodes
    )
    model = replace(only_pass.model, nodes=nodes)
    return replace(step, passes=(replace(only_pass, model=model),))


def dump_tensors(
    runner: Path, step: TrainingStep, folder: Path
) -> tuple[PlanBody, list[list[Any]]]:
    """Return every tensor of our engine, before the first step and after each step."""
    body = lower_step(step, reuse=False)
    (folder / "plan").write_bytes(make_plan(step, threads=1, reuse=False))
    command = [str(runner), "dump", str(folder / "plan"), str(folder), "--steps", str(STEPS)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    content = np.memmap(folder / "dump.bin", np.uint8, "r")
    states, offset = [], 0
    types = {"float": np.float32, "index": np.int32, "byte": np.uint8}
    for _ in range(STEPS + 1):
        offset += 8
        tensors = []
        for tensor in body.tensors:
            count, kind = prod(tensor.shape), types[tensor.type]
            size = count * np.dtype(kind).itemsize
            tensors.append(content[offset : offset + size].view(kind).reshape(tensor.shape))
            offset += size
        states.append(tensors)
    return body, states


def compare(name: str, runner: Path, python: Path) -> tuple[list[float], list[float]]:
    """Return our losses and PyTorch's losses of the first steps."""
    step = make_step(name)
    description = describe_step(step)
    with tempfile.TemporaryDirectory(prefix="farm-losses-") as scratch:
        folder = Path(scratch)
        body, states = dump_tensors(runner, step, folder)
        (inputs,) = body.inputs
        values = {f"image{n}": states[n + 1][inputs["image"].number] for n in range(STEPS)}
        values |= {f"label{n}": states[n + 1][inputs["target"].number] for n in range(STEPS)}
        for tensor in body.tensors:
            if tensor.arena == "parameter":
                values[tensor.name] = states[0][tensor.number]
        np.savez(folder / "values.npz", **values)
        assert body.loss is not None
        ours = [float(state[body.loss.number][0]) for state in states[1:]]
        description |= {"values_file": str(folder / "values.npz"), "batches": STEPS}
        peer = PeerProcess("torch", python, description, threads=1, exact=True)
        try:
            theirs: list[float] = peer.request({"seconds": 0})["losses"][:STEPS]
        finally:
            peer.close()
    return ours, theirs


def main() -> int:
    """Print the losses of both engines, and fail if they differ."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=MODELS)
    parser.add_argument("--peers", type=Path, help="a Python with torch")
    parser.add_argument("--runner", type=Path, help="another build of the runner")
    options = parser.parse_args()
    python, runner = find_peers_python(options.peers, install=False), find_runner(options.runner)
    differences = 0
    for name in options.models:
        ours, theirs = compare(name, runner, python)
        worst = max(abs(a - b) / max(abs(a), 1e-3) for a, b in zip(ours, theirs, strict=True))
        differences += worst > TOLERANCE
        losses = "  ".join(f"{a:.5f} {b:.5f}" for a, b in zip(ours, theirs, strict=True))
        print(f"{name:<12} {losses}  worst {worst:.1e}{' DIFFER' if worst > TOLERANCE else ''}")
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main())
