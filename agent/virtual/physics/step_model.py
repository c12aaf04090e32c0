"""What computes the steps of a run: the cores, or the GPU that one core feeds.

Runs and predictions use the same models.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping

import numpy as np

from agent.virtual.physics.gpu_model import GpuModel, GpuSettings
from agent.virtual.physics.op_power import FIRST_CORE, MEMORY, OTHER_CORES
from agent.virtual.physics.step_timing import (
    Array,
    ComputeSpeed,
    OpTable,
    StepTiming,
    as_shares,
    drawn_by_ops,
    op_time_shares,
    time_step,
)


class StepModel(ABC):
    """Times the steps of one run."""

    @abstractmethod
    def time(self, speed: ComputeSpeed) -> StepTiming:
        """Time one step at a speed of the cores."""

    @abstractmethod
    def op_shares(self, speed: ComputeSpeed) -> Array:
        """Return the share of each operation in the time that is not `load_s`."""

    @abstractmethod
    def drawn(self, speed: ComputeSpeed) -> Mapping[str, Array]:
        """Return what each part of the chip draws while loading and in each operation."""


class CpuStepModel(StepModel):
    """The cores compute."""

    def __init__(self, table: OpTable) -> None:
        self._table = table

    def time(self, speed: ComputeSpeed) -> StepTiming:
        return time_step(self._table, speed)

    def op_shares(self, speed: ComputeSpeed) -> Array:
        return op_time_shares(self._table, speed)

    def drawn(self, speed: ComputeSpeed) -> Mapping[str, Array]:
        first, others, memory = (
            np.concatenate([[0.0], parts]) for parts in drawn_by_ops(self._table, speed)
        )
        return {FIRST_CORE: first, OTHER_CORES: others, MEMORY: memory}


class GpuStepModel(StepModel):
    """The GPU computes; the first core queues kernels and waits."""

    def __init__(self, table: OpTable, gpu: GpuModel, settings: GpuSettings) -> None:
        self._table = table
        self._gpu = gpu
        self._settings = settings

    def time(self, speed: ComputeSpeed) -> StepTiming:
        return self._gpu.time_step(self._table, self._settings, speed)[0]

    def op_shares(self, speed: ComputeSpeed) -> Array:
        return as_shares(self._gpu.time_step(self._table, self._settings, speed)[1])

    def drawn(self, speed: ComputeSpeed) -> Mapping[str, Array]:
        return self._gpu.drawn(self._table, self._settings, speed)
