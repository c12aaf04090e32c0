"""What the programs of all engines share: arguments, data, the network's blocks, timed steps.

It is pushed to the phone beside an engine's program and imports nothing of the farm. It prints one
line per step, which the rules under `read` of the manifests match.
"""

import argparse
import importlib
import resource
import sys
import time
from collections.abc import Callable, Iterator
from itertools import count
from types import ModuleType
from typing import Any, NamedTuple

BATCHES = 4  # they recur, so that a loss can fall
CLASSES = 10  # as in Farmhand's workload mobilenetv2
IMAGES = ("batch-size", "image-size")
# Expansion, channels, repeats, stride of the first block: table 2 of Sandler et al. 2018.
STAGES = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)


class Conv(NamedTuple):
    """A convolution without bias, its batch norm, and whether a ReLU6 follows."""

    channels_in: int
    channels: int
    kernel: int
    stride: int = 1
    groups: int = 1
    relu6: bool = True


class Block(NamedTuple):
    """Convolutions in a row, and whether the block's input is added to their output."""

    convolutions: tuple[Conv, ...]
    residual: bool = False


def mobilenetv2_blocks() -> Iterator[Block]:
    """Yield MobileNetV2 of width 1.0 up to its global average pool; dropout is left out."""
    yield Block((Conv(3, 32, 3, stride=2),))
    n_in = 32
    for expansion, channels, repeats, first_stride in STAGES:
        for repeat in range(repeats):
            stride, wide = first_stride if repeat == 0 else 1, n_in * expansion
            expand = (Conv(n_in, wide, 1),) if expansion != 1 else ()
            depthwise = Conv(wide, wide, 3, stride, groups=wide)
            project = Conv(wide, channels, 1, relu6=False)
            yield Block((*expand, depthwise, project), stride == 1 and n_in == channels)
            n_in = channels
    yield Block((Conv(n_in, 1280, 1),))


def import_engine(name: str, package: str) -> ModuleType:
    """Import a module of the engine; if it is missing, exit with a sentence that says so."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        missing = error.name or name
        sys.exit(
            f"{missing} cannot be imported by {sys.executable} ({error}); "
            f"install it there: pip install {package}"
        )


def read_options(*names: str) -> argparse.Namespace:
    """Read what the manifest's command passes: these numbers, and those of the protocol."""
    parser = argparse.ArgumentParser()
    for name in (*names, "threads", "warmup", "steps", "seconds", "max-seconds"):
        parser.add_argument(f"--{name}", type=int, required=True)
    return parser.parse_args()


def make_batches(batch: int, side: int) -> list[tuple[Any, Any]]:
    """Return images with channels first, and their labels."""
    import numpy as np

    rng = np.random.default_rng(7)
    shape = (batch, 3, side, side)
    return [
        (rng.normal(0, 0.5, shape).astype(np.float32), rng.integers(0, CLASSES, batch))
        for _ in range(BATCHES)
    ]


def run_steps(options: argparse.Namespace, step: Callable[[int], float | None]) -> None:
    """Run and print steps until enough of them took long enough; step(n) may return a loss.

    A printed loss is the mean over the last pass through the batches, so that the first and the
    last one are of the same samples.
    """
    passes = (options.warmup + options.steps) // BATCHES
    losses: list[float] = []
    started = time.perf_counter()
    for number in count():
        if number == options.warmup:
            started = time.perf_counter()
        before = time.perf_counter_ns()
        loss = step(number % BATCHES)
        ms = (time.perf_counter_ns() - before) / 1e6
        losses = [*losses, loss][-BATCHES:] if loss is not None else []
        is_comparable = len(losses) == BATCHES or (losses and passes < 2)
        text = f" loss {sum(losses) / len(losses):.6f}" if is_comparable else ""
        kind = "warm-up" if number < options.warmup else "step"
        sys.stdout.write(f"{kind} ms {ms:.4f}{text}\n")
        sys.stdout.flush()
        timed, elapsed = number + 1 - options.warmup, time.perf_counter() - started
        if timed >= 1 and elapsed >= options.max_seconds:
            break
        if timed >= options.steps and elapsed >= options.seconds:
            break
    sys.stdout.write(f"peak kB {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss}\n")
