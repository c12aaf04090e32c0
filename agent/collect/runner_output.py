"""Strict parser for the runner's records; kernels/runner/runner.h is their contract. Pure."""

import json
from collections.abc import Sequence
from typing import Annotated, Any, Self, TypeVar

from pydantic import ConfigDict, Field, Strict, ValidationError, model_validator

from workloads.protocol.base import WireModel
from workloads.protocol.faults import BadOutput
from workloads.protocol.metrics import PROGRAMS_MAX, Provenances
from workloads.text import safe_text

LINE_BYTES_MAX = 65536
WINDOWS_MAX = 4096
TRACE_STAMPS_MAX = 500_000  # of all traced steps together
CHECKPOINTS_MAX = 100_000  # one per second for a day
EVALUATIONS_MAX = 4096
INT_MAX = 2**63 - 1

Count = Annotated[int, Field(ge=0, le=INT_MAX)]
# JSON has lists only; their elements are validated as strictly as everything else.
Phases = Annotated[tuple[Count, Count, Count, Count], Strict(False)]
DeviceTimes = Annotated[tuple[Count, Count, Count], Strict(False)]
Stamps = Annotated[tuple[Annotated[int, Field(ge=-1, le=INT_MAX)], ...], Strict(False)]


class RunnerRecord(WireModel):
    """One JSON line of the runner; unknown members are ignored."""

    model_config = ConfigDict(extra="ignore", strict=True)


class HelloRecord(RunnerRecord):
    """The first record: the runner's pid, case and cores."""

    contract: int = Field(ge=1, le=1)
    pid: int = Field(ge=2, le=2**22)
    case: str
    mask: str = Field(pattern=r"^[0-9a-f]{1,16}$")
    threads: int = Field(ge=1, le=1024)
    t_ns: Count
    provenance: Provenances | None = None


class MemoryRecord(RunnerRecord):
    """Bytes that the runner allocated before its first step, by purpose."""

    parameter: Count
    gradient: Count
    state: Count
    activation: Count
    input: Count
    workspace: Count
    dataset: Count


class InputRecord(RunnerRecord):
    """Where the batches of a run come from, if not from memory."""

    source: str = Field(max_length=64)
    direct: bool = Field(description="whether reads bypass the page cache")
    batch_bytes: Count


class OpenCLRecord(RunnerRecord):
    """The OpenCL device that computes, and the cost of preparing it."""

    platform: str = Field(max_length=256)
    device: str = Field(max_length=256)
    version: str = Field(max_length=256)
    driver: str = Field(max_length=256)
    build_ns: Count
    copy_ns: Count
    programs: Count
    tuned: Count
    recorded: Count = 0


class ProgramRecord(RunnerRecord):
    """Kernels that were built for the device."""

    files: str = Field(max_length=64)
    options: str = Field(max_length=256)
    digest: str = Field(pattern=r"^[0-9a-f]{1,16}$")


class StepWindow(RunnerRecord):
    """Consecutive steps that were timed together."""

    first: Count
    n: int = Field(ge=1, le=INT_MAX)
    t_ns: Count
    ns: int = Field(ge=1, le=INT_MAX)
    ns_min: Count
    ns_max: Count
    phases_ns: Phases | None = None
    device_ns: DeviceTimes | None = None  # copy, queue, compute; OpenCL only
    loss: float | None = Field(default=None, allow_inf_nan=False, description="mean of its steps")

    @property
    def step_ms(self) -> float:
        """Mean step time of this window."""
        return self.ns / self.n / 1e6

    @model_validator(mode="after")
    def _check_times(self) -> Self:
        plausible = self.ns_min * self.n <= self.ns <= self.ns_max * self.n
        parts_ns = max(sum(self.phases_ns or ()), sum(self.device_ns or ()))
        if not plausible or parts_ns > self.ns:
            raise ValueError(f"the times at step {self.first} contradict each other")
        return self


class TraceRecord(RunnerRecord):
    """The ends of consecutive operations of one step, relative to the start of the first."""

    step: Count
    t_ns: Count
    first: Count
    ends_ns: Stamps = Field(min_length=1)

    @model_validator(mode="after")
    def _check_order(self) -> Self:
        ends = [end for end in self.ends_ns if end >= 0]
        if ends != sorted(ends):
            raise ValueError(f"the time stamps of step {self.step} are not ascending")
        return self


class EvaluationRecord(RunnerRecord):
    """The accuracy of the model after a step."""

    step: Count
    t_ns: Count
    ns: Count
    accuracy: float = Field(ge=0, le=1)


class SamplerRecord(RunnerRecord):
    """The cost of sampling: processor time, and how late readings were."""

    readings: Count
    cpu_ns: Count
    late_p50_ns: Count
    late_p99_ns: Count
    late_max_ns: Count
    core: int = Field(ge=-1, le=1024)


class DoneRecord(RunnerRecord):
    """The final record of a successful run; None for what the runner does not know."""

    steps: Count
    ns: Count
    t_ns: Count
    peak_rss_kb: Count | None = None
    loss_first: float | None = None
    loss_last: float | None = None
    parameters_changed: bool = False
    parameters: Count | None = None
    macs: Count | None = None
    learned: Count | None = None
    moved: Count | None = None
    fallbacks: Count | None = None
    answer_error: float | None = None
    first_step_ns: Count | None = None
    waited_ns: Count | None = Field(
        default=None, description="the first thread slept until the others had finished their part"
    )
    note: str = Field(default="", max_length=256)


class ResumeRecord(RunnerRecord):
    """The run continues from a checkpoint, with this step; what was done since it is lost."""

    step: Count
    t_ns: Count
    same_cores: bool
    lost_ns: Count | None = Field(description="None: the phone's clock was set back")


class CheckpointRecord(RunnerRecord):
    """A checkpoint was written between two windows."""

    step: Count
    t_ns: Count
    ns: Count


class FaultRecord(RunnerRecord):
    """The final record of a failed run."""

    code: str = Field(max_length=64)
    text: str


_BEFORE_WINDOWS: dict[str, type[RunnerRecord]] = {
    "memory": MemoryRecord,
    "input": InputRecord,
    "device": OpenCLRecord,
    "resume": ResumeRecord,
}

R = TypeVar("R", bound=RunnerRecord)


class RunnerOutput:
    """DIR/out.jsonl as it grows: fed in pieces, checked record by record."""

    def __init__(self, case: str) -> None:
        self.case = case
        self.hello: HelloRecord | None = None
        self.memory: MemoryRecord | None = None
        self.input: InputRecord | None = None
        self.device: OpenCLRecord | None = None
        self.programs: list[ProgramRecord] = []
        self.windows: list[StepWindow] = []
        self.traces: list[TraceRecord] = []
        self.evaluations: list[EvaluationRecord] = []
        self.checkpoints: list[CheckpointRecord] = []
        self.sampler: SamplerRecord | None = None
        self.done: DoneRecord | None = None
        self.resume: ResumeRecord | None = None
        self.fault: FaultRecord | None = None
        self.bytes_read = 0
        self._tail = b""
        self._trace_stamps = 0

    @property
    def writer_pid(self) -> int | None:
        """The process that writes the final record: the runner, once its first record is here."""
        return self.hello.pid if self.hello else None

    @property
    def ended(self) -> bool:
        """Whether the final record is here."""
        return self.done is not None or self.fault is not None

    @property
    def steps(self) -> int:
        """Steps measured so far."""
        return sum(window.n for window in self.windows)

    @property
    def trace_tuples(self) -> list[tuple[int, int, int, tuple[int, ...]]]:
        """The traces as tuples, as op_telemetry joins them with readings."""
        return [(trace.step, trace.t_ns, trace.first, trace.ends_ns) for trace in self.traces]

    def feed(self, piece: bytes) -> None:
        """Take the next bytes of the file; an incomplete line waits for its rest."""
        self.bytes_read += len(piece)
        *lines, self._tail = (self._tail + piece).split(b"\n")
        if len(self._tail) > LINE_BYTES_MAX:
            raise BadOutput(f"the runner wrote a line of more than {LINE_BYTES_MAX} bytes")
        for line in lines:
            self._take(line)

    def _take(self, line: bytes) -> None:
        if self.ended:
            raise BadOutput("the runner continued to write after its final record")
        members = _parse_object(line)
        match members.get("line"):
            case "hello" if self.hello is None:
                self.hello = parse_record(HelloRecord, members)
                if self.hello.case != self.case:
                    raise BadOutput("the runner reports another case than it was given")
            case "fault":
                self.fault = parse_record(FaultRecord, members)
            case kind if self.hello is not None:
                self._take_after_hello(kind, members)
            case kind:
                raise unexpected_record(kind)

    def _take_after_hello(self, kind: object, members: dict[str, Any]) -> None:
        match kind:
            case "memory" | "input" | "device" | "resume" if not self.windows:
                self._take_before_windows(kind, members)
            case "program" if not self.windows and len(self.programs) < PROGRAMS_MAX:
                self.programs.append(parse_record(ProgramRecord, members))
            case "checkpoint" if len(self.checkpoints) < CHECKPOINTS_MAX:
                self.checkpoints.append(parse_record(CheckpointRecord, members))
            case "window" if self.sampler is None:
                self._take_window(parse_record(StepWindow, members))
            case "trace":
                self._take_trace(parse_record(TraceRecord, members))
            case "evaluation" if len(self.evaluations) < EVALUATIONS_MAX:
                self.evaluations.append(parse_record(EvaluationRecord, members))
            case "sampler" if self.sampler is None:
                self.sampler = parse_record(SamplerRecord, members)
            case "done":
                self.done = parse_record(DoneRecord, members)
                if self.done.steps != self.steps_end:
                    text = f"the last record counts {self.done.steps} steps"
                    raise BadOutput(f"{text}, the windows {self.steps_end}")
            case _:
                raise unexpected_record(kind)

    def _take_before_windows(self, kind: str, members: dict[str, Any]) -> None:
        if getattr(self, kind) is not None:
            raise unexpected_record(kind)
        setattr(self, kind, parse_record(_BEFORE_WINDOWS[kind], members))

    def _take_window(self, window: StepWindow) -> None:
        if window.first != self.steps_end or len(self.windows) >= WINDOWS_MAX:
            raise BadOutput(f"the window at step {window.first} does not follow the last one")
        self.windows.append(window)

    def _take_trace(self, trace: TraceRecord) -> None:
        self._trace_stamps += len(trace.ends_ns)
        last = self.traces[-1] if self.traces else None
        continues = last is not None and (last.step, last.first + len(last.ends_ns)) == (
            trace.step,
            trace.first,
        )
        starts = trace.first == 0 and (last is None or trace.step > last.step)
        if not (continues or starts) or self._trace_stamps > TRACE_STAMPS_MAX:
            raise BadOutput(f"the trace of step {trace.step} does not follow the last one")
        self.traces.append(trace)

    @property
    def steps_end(self) -> int:
        """The step that the next window has to begin with."""
        if self.windows:
            return self.windows[-1].first + self.windows[-1].n
        return self.resume.step if self.resume else 0


def unexpected_record(kind: object) -> BadOutput:
    """The error for a record that must not come at this point."""
    return BadOutput(f"the runner wrote a '{safe_text(kind, 40)}' record where none is allowed")


def _parse_object(line: bytes) -> dict[str, Any]:
    try:
        members = json.loads(line[: LINE_BYTES_MAX + 1])
    except (ValueError, RecursionError):
        members = None
    if not isinstance(members, dict):
        text = safe_text(line.decode(errors="replace"), 80)
        raise BadOutput(f"the runner wrote a line that is not a JSON object: '{text}'")
    return members


def parse_record(kind: type[R], members: dict[str, Any]) -> R:
    """Validate one record; BadOutput names the member that breaks the contract."""
    try:
        return kind.model_validate(members)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        name = safe_text(members.get("line"), 40)
        raise BadOutput(f"the runner's '{name}' record: {where}: {first['msg']}") from error


def span_ns(windows: Sequence[StepWindow]) -> tuple[int, int]:
    """The first and last moment of some windows."""
    return windows[0].t_ns, windows[-1].t_ns + windows[-1].ns


def median_step_ms(windows: Sequence[StepWindow]) -> float:
    """The median step time, where each step takes the mean of its window."""
    ordered = sorted((window.step_ms, window.n) for window in windows)
    half = sum(n for _, n in ordered) / 2
    counted = 0
    for index, (step_ms, n) in enumerate(ordered):
        counted += n
        if counted == half:
            return (step_ms + ordered[index + 1][0]) / 2
        if counted > half:
            return step_ms
    raise ValueError("no windows")
