"""What a run does before its first step: it opens the device, and writes its data set to storage.

Everything that can be refused is refused here; the time that it takes passes afterwards.
"""

from collections.abc import Callable
from dataclasses import dataclass

from agent.virtual.files.file_tree import error_text
from agent.virtual.phone_clock import PhoneClock, ScheduledAction
from agent.virtual.physics.gpu_model import GpuSettings
from agent.virtual.physics.step_model import CpuStepModel, GpuStepModel, StepModel
from agent.virtual.physics.step_timing import OpTable
from agent.virtual.process_table import Process
from agent.virtual.runner.gpu_session import OpenCLOptions, SessionOpener
from agent.virtual.runner.plan_header import PlanHeader
from agent.virtual.runner.run_records import input_record
from agent.virtual.runner.runner_contract import RunnerExit, RunnerFailure, RunnerRecord
from agent.virtual.virtual_phone import VirtualPhone

_READ_LATENCY_S = 150e-6  # invented: of one read past the page cache
_BLOCK_BYTES = 4096  # in memory, before and after a batch
_WRITE_SHARE = 0.5  # invented: speed of writing relative to reading


@dataclass(frozen=True, slots=True)
class PreparedRun:
    """A run that can start: what computes its steps, and what comes before the first."""

    model: StepModel
    uses_gpu: bool
    read_s: float  # per step, from storage
    seconds: float  # until the first step
    records: tuple[RunnerRecord, ...]  # before the first window


@dataclass(frozen=True, slots=True)
class RunPreparation:
    """The request of a run."""

    phone: VirtualPhone
    process: Process
    plan: PlanHeader
    plan_folder: str
    folder: str
    options: OpenCLOptions
    reads_storage: bool
    has_data_file: bool

    @property
    def gpu_settings(self) -> GpuSettings:
        """Return how a run would use the GPU."""
        return self.options.settings(self.plan)

    def prepare(self) -> PreparedRun:
        """Check everything, or fail as the runner would."""
        plan, phone = self.plan, self.phone
        table = OpTable(plan.ops, plan.engine)
        records: list[RunnerRecord] = [self._memory_record()]
        read_s = seconds = 0.0
        if self.reads_storage:
            storage_bps = phone.profile.storage_mbs * 1e6
            batch_bytes = plan.stored_batch_bytes
            read_s = batch_bytes / storage_bps + _READ_LATENCY_S if batch_bytes else 0.0
            seconds += self._write_dataset() / (storage_bps * _WRITE_SHARE)
            records.append(input_record(plan))
        if plan.backend == "cpu":
            return PreparedRun(CpuStepModel(table), False, read_s, seconds, tuple(records))
        opener = SessionOpener(phone.opencl, phone.profile.gpu, phone.tree)
        session = opener.open(plan, self.options, self.process.uid, self.plan_folder)
        records += session.records()
        assert phone.soc.gpu is not None
        model = GpuStepModel(table, phone.soc.gpu, session.settings)
        seconds += session.build_s + session.copy_s
        return PreparedRun(model, True, read_s, seconds, tuple(records))

    def _memory_record(self) -> RunnerRecord:
        memory = dict(self.plan.memory)
        if self.reads_storage:
            memory["dataset"] = self.plan.stored_batch_bytes + 2 * _BLOCK_BYTES
        return {"line": "memory", **memory}

    def _write_dataset(self) -> int:
        """Write the generated data set to DIR/dataset and unlink it; return its size."""
        size = 0 if self.has_data_file else self.plan.memory["dataset"]
        path = f"{self.folder}/dataset"
        try:
            if size:
                self.phone.tree.write(path, bytes(size), self.process.uid)
                self.phone.tree.remove(path, self.process.uid)
        except OSError as error:
            raise RunnerFailure(
                RunnerExit.IO, f"cannot write {path}: {error_text(error)}"
            ) from None
        return size


class PausableDelay:
    """An action after some phone seconds, which a pause does not count."""

    def __init__(self, clock: PhoneClock, seconds: float, action: Callable[[], None]) -> None:
        self._clock = clock
        self._remaining_s = seconds
        self._action = action
        self._event: ScheduledAction | None = None

    def start(self) -> None:
        when = self._clock.now + self._remaining_s
        self._event = self._clock.schedule(when, self._action)

    def stop(self) -> None:
        """Stop; a later start continues with the remaining time."""
        if self._event is not None:
            self._event.cancel()
            self._remaining_s = max(self._event.when - self._clock.now, 0.0)
            self._event = None
