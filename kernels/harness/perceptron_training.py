"""Trains the study's perceptrons on a device with every feed, next to the CPU.

Modes take turns, with many steps between two waits; the fastest wall time of each counts, and the
spread over turns gives the interval of a ratio. Times of kernels and copies by the clock of the
device are reported as well, since execution time hides the cost of launching and waiting.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

import numpy as np

from kernels.harness.batch_feeds import HARNESS_FEEDS, EnqueueStep, StepEvents
from kernels.harness.device_perceptron import DevicePerceptron, make_batches, reference_steps
from kernels.harness.engine_run import engine_step
from kernels.harness.launch_timing import load_average
from kernels.harness.opencl_device import Device, timing_of
from workloads.models.perceptrons import WIDTHS

BATCH, BATCHES = 32, 8
STEPS = 50  # between two waits
TOLERANCE = 1e-5
_CHECKED_STEPS = 3
_RESAMPLES = 2000


@dataclass
class FeedResult:
    """One feed: times of a step, and whether it trained correctly."""

    launches: int
    copies: int
    error: float  # of the parameters after a few steps, against numpy in double precision
    loss_first: float
    loss_last: float = float("nan")
    turns_s: list[float] = field(default_factory=list)
    kernels_s: float = float("nan")  # per step, by the clock of the device
    copies_s: float = float("nan")

    @property
    def step_s(self) -> float:
        """The fastest wall time of a step."""
        return min(self.turns_s)

    @property
    def passed(self) -> bool:
        """Whether the parameters equal the reference and the loss fell."""
        return self.error <= TOLERANCE and self.loss_last < self.loss_first


@dataclass
class PerceptronResult:
    """One perceptron with all feeds, and on the CPU."""

    name: str
    widths: tuple[int, ...]
    feeds: dict[str, FeedResult]
    engine_s: dict[int, list[float]]  # seconds per step in every turn, by number of threads
    load: float = float("nan")

    def speedup(self, feed: str) -> float:
        """How many times faster a feed is than copying per operation."""
        return self.feeds["copied"].step_s / self.feeds[feed].step_s

    def over_cpu(self, feed: str, threads: int) -> tuple[float, float, float]:
        """Time on the device over time on the CPU: median, with a 95 % interval."""
        return ratio_with_interval(self.feeds[feed].turns_s, self.engine_s[threads])


def ratio_with_interval(
    numerator: Sequence[float], denominator: Sequence[float]
) -> tuple[float, float, float]:
    """Return the ratio of medians and its 95 % bootstrap interval."""
    generator = np.random.default_rng(0)
    medians = [
        np.median(generator.choice(turns, (_RESAMPLES, len(turns))), 1)
        for turns in (numerator, denominator)
    ]
    low, high = np.percentile(medians[0] / medians[1], (2.5, 97.5))
    return float(np.median(numerator) / np.median(denominator)), float(low), float(high)


def train_perceptrons(
    device: Device,
    names: Sequence[str],
    rounds: int,
    threads: Sequence[int],
    on_round: Callable[[], None] = lambda: None,
) -> list[PerceptronResult]:
    """Train these perceptrons; `on_round` is called after each round of each."""
    return [_train(device, name, rounds, threads, on_round) for name in names]


def _train(
    device: Device, name: str, rounds: int, threads: Sequence[int], on_round: Callable[[], None]
) -> PerceptronResult:
    widths = WIDTHS[name]
    prepared = {feed: _prepare(device, widths, feed) for feed in HARNESS_FEEDS}
    results = {feed: result for feed, (_, _, result) in prepared.items()}
    row = PerceptronResult(name, widths, results, {})
    with ExitStack() as stack:
        engines = {count: stack.enter_context(engine_step(name, BATCH, count)) for count in threads}
        for _ in range(rounds):
            for step, _, result in prepared.values():
                _time_turn(device, step, result)
            for count, engine in engines.items():
                row.engine_s.setdefault(count, []).append(engine.seconds(40 * STEPS))
            on_round()
    for _, net, result in prepared.values():
        result.loss_last = net.loss()
    row.load = load_average()
    return row


def _prepare(
    device: Device, widths: tuple[int, ...], feed: str
) -> tuple[EnqueueStep, DevicePerceptron, FeedResult]:
    """Build a perceptron, and compare its first steps with the reference."""
    batches = make_batches(widths, BATCH, BATCHES)
    net = DevicePerceptron(device, widths, BATCH)
    step = HARNESS_FEEDS[feed](net, batches)
    events = StepEvents()
    step(0, events)
    device.finish()
    result = FeedResult(len(events.kernels), len(events.copies), 0.0, net.loss())
    for number in range(1, _CHECKED_STEPS):
        step(number, events)
    device.finish()
    expected = reference_steps(widths, batches, _CHECKED_STEPS)
    pairs = zip(net.parameters(), expected, strict=True)
    result.error = max(float(np.abs(actual - value).max()) for actual, value in pairs)
    net.reset()
    return step, net, result


def _time_turn(device: Device, step: EnqueueStep, result: FeedResult) -> None:
    """Add a turn; the times by the clock of the device are those of the fastest turn."""
    events = StepEvents()  # kept until the end: dropping the event of a copy waits for it
    start = time.perf_counter()
    for number in range(STEPS):
        step(number, events)
    device.finish()
    result.turns_s.append((time.perf_counter() - start) / STEPS)
    if result.turns_s[-1] == result.step_s:
        result.kernels_s = sum(timing_of(event).executed_s for event in events.kernels) / STEPS
        result.copies_s = sum(timing_of(event).executed_s for event in events.copies) / STEPS


def time_feed(device: Device, widths: tuple[int, ...], feed: str, rounds: int) -> FeedResult:
    """Time one perceptron with one feed."""
    step, _, result = _prepare(device, widths, feed)
    for _ in range(rounds):
        _time_turn(device, step, result)
    return result


@dataclass(frozen=True)
class TransferTime:
    """Seconds to get this many bytes to the device: by a copy, or by mapping the buffer."""

    size_bytes: int
    copied_s: float
    mapped_s: float


def time_transfers(device: Device, rounds: int = 20) -> list[TransferTime]:
    """Time copying and mapping from 1 KB to 16 MB; a mapping counts without writing to it."""
    times = []
    for power in range(10, 25, 2):
        content = np.zeros(2**power, np.uint8)
        buffer = device.host_visible(content.nbytes)
        copied_s = mapped_s = float("inf")
        for _ in range(rounds):
            start = time.perf_counter()
            device.write(buffer, content).wait()
            between = time.perf_counter()
            device.map_and_unmap(buffer, content.shape, content.dtype)
            mapped_s = min(mapped_s, time.perf_counter() - between)
            copied_s = min(copied_s, between - start)
        times.append(TransferTime(content.nbytes, copied_s, mapped_s))
    return times


def break_even(times: Sequence[TransferTime]) -> int | None:
    """Return the size from which on mapping is always faster than copying."""
    slower = [one.size_bytes for one in times if one.mapped_s >= one.copied_s]
    faster = [one.size_bytes for one in times if not slower or one.size_bytes > max(slower)]
    return min(faster, default=None)


def growth(rows: Mapping[str, PerceptronResult], feed: str) -> dict[str, float]:
    """Return the cost of depth and width: three layers over one, 16 times the width over one."""
    pairs = {"depth, 16 wide": ("mlp-2", "mlp-1"), "width, one layer": ("mlp-3", "mlp-1")}
    pairs["width, three layers"] = ("mlp-4", "mlp-2")
    return {
        what: rows[large].feeds[feed].step_s / rows[small].feeds[feed].step_s
        for what, (large, small) in pairs.items()
        if large in rows and small in rows
    }
