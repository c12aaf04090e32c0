"""Training on a device: the study's perceptrons, fed in every way, beside the CPU.

Ways take turns, many steps between two waits; the least wall time of each counts, and the spread
over the turns gives the ratio's interval. What the device's clock says of kernels and copies stands
beside it: execution alone hides what launching and waiting cost.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

import numpy as np

from kernels.harness.device import Device, timing_of
from kernels.harness.engine import engine_step
from kernels.harness.feeding import WAYS, Events, Step
from kernels.harness.perceptron import Perceptron, a_lesson, reference_steps
from kernels.harness.timing import load_average
from workloads.models.perceptrons import WIDTHS

BATCH, BATCHES = 32, 8
STEPS = 50  # between two waits
TOLERANCE = 1e-5
_CHECKED = 3  # steps
_DRAWS = 2000


@dataclass
class Trained:
    """One way of feeding: times of a step, and whether it trained."""

    launches: int
    copies: int
    error: float  # of the parameters after a few steps, against numpy in double precision
    loss_first: float
    loss_last: float = float("nan")
    turns_s: list[float] = field(default_factory=list)
    kernels_s: float = float("nan")  # by the device's clock, a step
    copies_s: float = float("nan")

    @property
    def step_s(self) -> float:
        """The least wall time of a step."""
        return min(self.turns_s)

    @property
    def right(self) -> bool:
        """The parameters are those of the reference, and the loss fell."""
        return self.error <= TOLERANCE and self.loss_last < self.loss_first


@dataclass
class ModelRow:
    """One perceptron, every way, and the CPU."""

    name: str
    widths: tuple[int, ...]
    ways: dict[str, Trained]
    engine_s: dict[int, list[float]]  # turns, by threads
    load: float = float("nan")

    def gain(self, way: str) -> float:
        """How many times faster than copying around every operation."""
        return self.ways["copied"].step_s / self.ways[way].step_s

    def over_cpu(self, way: str, threads: int) -> tuple[float, float, float]:
        """Time on the device by time on the CPU: median of turns, with a 95 % interval."""
        return ratio_with_interval(self.ways[way].turns_s, self.engine_s[threads])


def ratio_with_interval(
    above: Sequence[float], below: Sequence[float]
) -> tuple[float, float, float]:
    """The ratio of medians, and between what 95 of 100 redrawn ones lie."""
    dice = np.random.default_rng(0)
    drawn = [np.median(dice.choice(each, (_DRAWS, len(each))), 1) for each in (above, below)]
    low, high = np.percentile(drawn[0] / drawn[1], (2.5, 97.5))
    return float(np.median(above) / np.median(below)), float(low), float(high)


def train_all(
    device: Device,
    names: Sequence[str],
    rounds: int,
    threads: Sequence[int],
    step: Callable[[], None] = lambda: None,
) -> list[ModelRow]:
    """Train these perceptrons; `step` is called after each round of each."""
    return [_train(device, name, rounds, threads, step) for name in names]


def _train(
    device: Device, name: str, rounds: int, threads: Sequence[int], step: Callable[[], None]
) -> ModelRow:
    widths = WIDTHS[name]
    ready = {way: _ready(device, widths, way) for way in WAYS}
    row = ModelRow(name, widths, {way: trained for way, (_, _, trained) in ready.items()}, {})
    with ExitStack() as stack:
        engines = {each: stack.enter_context(engine_step(name, BATCH, each)) for each in threads}
        for _ in range(rounds):
            for take, _, trained in ready.values():
                trained.turns_s.append(_turn(device, take))
            for each, engine in engines.items():
                row.engine_s.setdefault(each, []).append(engine.seconds(40 * STEPS))
            step()
    for take, net, trained in ready.values():
        _trace(device, take, trained)
        trained.loss_last = net.loss()
    row.load = load_average()
    return row


def _ready(device: Device, widths: tuple[int, ...], way: str) -> tuple[Step, Perceptron, Trained]:
    """Build it, and hold its first steps against the reference."""
    lesson = a_lesson(widths, BATCH, BATCHES)
    net = Perceptron(device, widths, BATCH)
    take = WAYS[way](net, lesson)
    events = Events()
    take(0, events)
    device.finish()
    trained = Trained(len(events.kernels), len(events.copies), 0.0, net.loss())
    for number in range(1, _CHECKED):
        take(number, events)
    device.finish()
    right = reference_steps(widths, lesson, _CHECKED)
    pairs = zip(net.parameters(), right, strict=True)
    trained.error = max(float(np.abs(seen - value).max()) for seen, value in pairs)
    net.reset()
    return take, net, trained


def _turn(device: Device, take: Step) -> float:
    events = Events()  # kept until all has ended: dropping a copy's event waits for it
    began = time.perf_counter()
    for number in range(STEPS):
        take(number, events)
    device.finish()
    return (time.perf_counter() - began) / STEPS


def _trace(device: Device, take: Step, trained: Trained) -> None:
    """Once more, for what the device's clock says."""
    events = Events()
    for number in range(STEPS):
        take(number, events)
    device.finish()
    trained.kernels_s = sum(timing_of(event).executed_s for event in events.kernels) / STEPS
    trained.copies_s = sum(timing_of(event).executed_s for event in events.copies) / STEPS


@dataclass(frozen=True)
class Crossing:
    """Getting so many bytes to the device: copied, or mapped and written in place."""

    size_bytes: int
    copied_s: float
    mapped_s: float


def crossings(device: Device, rounds: int = 20) -> list[Crossing]:
    """Time both ways over from 1 KB to 16 MB; whoever maps is taken to write there at once."""
    found = []
    for power in range(10, 25, 2):
        content = np.zeros(2**power, np.uint8)
        buffer = device.shared(content.nbytes)
        best = [float("inf")] * 2
        for _ in range(rounds):
            began = time.perf_counter()
            device.write(buffer, content).wait()
            between = time.perf_counter()
            device.touch(buffer, content.shape, content.dtype)
            best[1] = min(best[1], time.perf_counter() - between)
            best[0] = min(best[0], between - began)
        found.append(Crossing(content.nbytes, *best))
    return found


def break_even(found: Sequence[Crossing]) -> int | None:
    """From how many bytes on mapping is the cheaper one, for good."""
    dear = [each.size_bytes for each in found if each.mapped_s >= each.copied_s]
    behind = [each.size_bytes for each in found if not dear or each.size_bytes > max(dear)]
    return min(behind, default=None)


def growth(rows: Mapping[str, ModelRow], way: str) -> dict[str, float]:
    """What depth and width cost: three layers by one, 16 times the width by one."""
    pairs = {"depth, 16 wide": ("mlp-2", "mlp-1"), "width, one layer": ("mlp-3", "mlp-1")}
    pairs["width, three layers"] = ("mlp-4", "mlp-2")
    return {
        what: rows[large].ways[way].step_s / rows[small].ways[way].step_s
        for what, (large, small) in pairs.items()
        if large in rows and small in rows
    }
