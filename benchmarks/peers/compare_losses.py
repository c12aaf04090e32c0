"""Whether ours and PyTorch's are the same network: same first values, same batches, same losses.

.venv/bin/python -m benchmarks.peers.agree [--peers PYTHON] [--models lenet resnet20]

Our runner's `dump` tells its parameters before the first step, the batches that it loaded and the
losses; PyTorch starts from the same and trains the same. Dropout is off in both, and images are
small where that changes nothing but the size.
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

from benchmarks.peers.contest import PeerProcess, our_runner, peers_python, plan_of
from benchmarks.peers.describe import described
from workloads.catalogue import CATALOGUE, bind, step_of
from workloads.layers import Dropout
from workloads.lowering import Body, body_of
from workloads.training import Training

MODELS = ("lenet", "resnet20", "squeezenet", "mobilenetv2", "alexnet", "googlenet")
BATCH, STEPS, SIDE = 4, 3, 96
CLOSE = 2e-3  # of the loss: rounding grows from step to step


def step_for(name: str) -> Training:
    """A small step of a workload, without dropout."""
    given = {"batch_size": BATCH}
    if "image_size" in {parameter.name for parameter in CATALOGUE[name].parameters}:
        given["image_size"] = SIDE
    step = step_of(bind(name, given))
    assert isinstance(step, Training)
    (only,) = step.passes
    nodes = tuple(
        replace(node, layer=Dropout(0.0)) if isinstance(node.layer, Dropout) else node
        for node in only.model.nodes
    )
    return replace(step, passes=(replace(only, model=replace(only.model, nodes=nodes)),))


def dumped(runner: Path, step: Training, folder: Path) -> tuple[Body, list[list[Any]]]:
    """Every tensor of ours, before the first step and after each."""
    body = body_of(step, reuse=False)
    (folder / "plan").write_bytes(plan_of(step, threads=1, reuse=False))
    words = [str(runner), "dump", str(folder / "plan"), str(folder), "--steps", str(STEPS)]
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
    content = np.memmap(folder / "dump.bin", np.uint8, "r")
    moments, at = [], 0
    types = {"float": np.float32, "index": np.int32, "byte": np.uint8}
    for _ in range(STEPS + 1):
        at += 8
        tensors = []
        for tensor in body.tensors:
            count, kind = prod(tensor.shape), types[tensor.type]
            size = count * np.dtype(kind).itemsize
            tensors.append(content[at : at + size].view(kind).reshape(tensor.shape))
            at += size
        moments.append(tensors)
    return body, moments


def compare(name: str, runner: Path, python: Path) -> tuple[list[float], list[float]]:
    """The losses of the first steps: ours, and PyTorch's."""
    step = step_for(name)
    description = described(step)
    with tempfile.TemporaryDirectory(prefix="farm-agree-") as scratch:
        folder = Path(scratch)
        body, moments = dumped(runner, step, folder)
        (inputs,) = body.inputs
        given = {f"image{at}": moments[at + 1][inputs["image"].number] for at in range(STEPS)}
        given |= {f"label{at}": moments[at + 1][inputs["target"].number] for at in range(STEPS)}
        for tensor in body.tensors:
            if tensor.arena == "parameter":
                given[tensor.name] = moments[0][tensor.number]
        np.savez(folder / "given.npz", **given)
        assert body.loss is not None
        ours = [float(moments[at + 1][body.loss.number][0]) for at in range(STEPS)]
        description |= {"given": str(folder / "given.npz"), "batches": STEPS}
        peer = PeerProcess("torch", python, description, threads=1, exact=True)
        try:
            theirs: list[float] = peer.ask({"seconds": 0})["losses"][:STEPS]
        finally:
            peer.close()
    return ours, theirs


def main() -> int:
    """Print both, and fail where they differ."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=MODELS)
    parser.add_argument("--peers", type=Path, help="a Python that has torch")
    parser.add_argument("--runner", type=Path, help="another build of the runner")
    asked = parser.parse_args()
    python, runner = peers_python(asked.peers, install=False), our_runner(asked.runner)
    differ = 0
    for name in asked.models:
        ours, theirs = compare(name, runner, python)
        worst = max(abs(a - b) / max(abs(a), 1e-3) for a, b in zip(ours, theirs, strict=True))
        differ += worst > CLOSE
        shown = "  ".join(f"{a:.5f} {b:.5f}" for a, b in zip(ours, theirs, strict=True))
        print(f"{name:<12} {shown}  worst {worst:.1e}{' DIFFER' if worst > CLOSE else ''}")
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main())
