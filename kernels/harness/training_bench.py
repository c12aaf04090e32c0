"""Trains models on a device with every feed, next to the CPU.

Feeds take turns, with many steps in each, and the fastest turn counts. All train the same batches
from the same values, so that times count only if the losses agree.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field

from kernels.harness.local_runner import LocalRunner, StepTimes
from workloads.catalogue import bind, lower
from workloads.models.perceptrons import WIDTHS
from workloads.run_options import FEEDS

_PERCEPTRON = (32, 50)
# Batch and steps per turn; on the CPU, a turn of a perceptron has more steps.
MODELS = {**dict.fromkeys(WIDTHS, _PERCEPTRON), "lenet": (32, 10), "squeezenet": (4, 1)}
NETWORK_FEED = "preloaded"  # of the larger models: the data set is on the device from the start
_CPU_STEPS = 40
_LOSS_ERROR = 0.01  # rounding alone makes a larger difference only after many more steps


@dataclass
class TrainedModel:
    """One model with the turns of its feeds, and those on one thread of the CPU."""

    name: str
    batch: int
    turns: dict[str, list[StepTimes]]
    cpu_turns_s: list[float] = field(default_factory=list)
    passed: bool = True

    def fastest(self, feed: str) -> StepTimes:
        """Return the turn with the shortest steps."""
        return min(self.turns[feed], key=lambda turn: turn.step_s)

    def as_json(self) -> dict[str, object]:
        """Return everything that was timed and checked."""
        return {
            "name": self.name,
            "batch": self.batch,
            "passed": self.passed,
            "cpu_turns_s": self.cpu_turns_s,
            "feeds": {
                feed: asdict(self.fastest(feed)) | {"turns_s": [turn.step_s for turn in turns]}
                for feed, turns in self.turns.items()
            },
        }

    def table_lines(self) -> Iterator[str]:
        """Yield a line per feed, compared with the CPU."""
        for feed in self.turns:
            step, cpu_s = self.fastest(feed), min(self.cpu_turns_s)
            yield (
                f"{self.name:<11}{feed:<11}{1e6 * step.step_s:>9.1f}"
                f"{1e6 * step.device_s['compute']:>9.1f}{1e6 * step.device_s['copy']:>8.1f}"
                f"{step.step_s / cpu_s:>10.2f}"
            )


TABLE_HEAD = f"{'model':<11}{'feed':<11}{'us/step':>9}{'kernels':>9}{'copies':>8}{'x CPU':>10}"


def train_model(
    runner: LocalRunner, name: str, rounds: int, on_round: Callable[[], None] = lambda: None
) -> TrainedModel:
    """Train one model; `on_round` is called after each round."""
    batch, steps = MODELS[name]
    feeds = FEEDS if name in WIDTHS else (NETWORK_FEED,)
    model = TrainedModel(name, batch, {feed: [] for feed in feeds})
    plans = {
        backend: lower(bind(name, {"batch_size": batch}, backend=backend), 1)
        for backend in ("cpu", "opencl")
    }
    for _ in range(rounds):
        reference = runner.run(plans["cpu"], steps)
        for feed, turns in model.turns.items():
            turns.append(runner.run(plans["opencl"], steps, "--feed", feed))
            model.passed &= math.isclose(turns[-1].loss, reference.loss, rel_tol=_LOSS_ERROR)
        cpu = runner.run(plans["cpu"], _CPU_STEPS * steps) if name in WIDTHS else reference
        model.cpu_turns_s.append(cpu.step_s)
        on_round()
    return model
