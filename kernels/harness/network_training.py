"""Trains LeNet and SqueezeNet with the engine on a device, and times them next to the CPU.

Both train the same batches from the same values; measured times count only if the losses agree.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field

from kernels.harness.device_tuning import owner_of
from kernels.harness.engine_run import engine_step
from kernels.harness.launch_timing import load_average
from kernels.harness.opencl_device import Device

NETWORKS = {"lenet": (32, 10), "squeezenet": (4, 1)}  # batch, steps per turn
_LOSS_ERROR = 0.01  # rounding alone makes a larger difference only after many more steps


@dataclass
class NetworkResult:
    """One network: times of a step, and whether the device trained it like the CPU."""

    name: str
    batch: int
    turns_s: list[float] = field(default_factory=list)
    engine_s: list[float] = field(default_factory=list)  # on one thread of the CPU
    phases_s: dict[str, float] = field(default_factory=dict)  # of the fastest turn
    passed: bool = True  # tests compare all values
    load: float = float("nan")


def train_network(
    device: Device, name: str, rounds: int, on_round: Callable[[], None] = lambda: None
) -> NetworkResult:
    """Train one network; `on_round` is called after each round."""
    batch, steps = NETWORKS[name]
    row = NetworkResult(name, batch)
    with (
        engine_step(name, batch, 1, owner_of(device)) as on_device,
        engine_step(name, batch, 1) as on_cpu,
    ):
        for _ in range(rounds):
            turn, reference = on_device.run(steps), on_cpu.run(steps)
            row.turns_s.append(turn.step_s)
            row.engine_s.append(reference.step_s)
            row.passed &= math.isclose(turn.loss, reference.loss, rel_tol=_LOSS_ERROR)
            if turn.step_s == min(row.turns_s):
                row.phases_s = turn.phases_s
            on_round()
    row.load = load_average()
    return row
