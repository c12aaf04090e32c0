"""The runner's lines, read strictly by its contract (kernels/runner/runner.h). Pure."""

import json
from typing import Annotated, Any, Self, TypeVar

from pydantic import ConfigDict, Field, Strict, ValidationError, model_validator

from workloads.fault import BadOutput
from workloads.measure import Provenances
from workloads.noun import Noun
from workloads.text import safe_text

LINE_BYTES_MAX = 65536
WINDOWS_MAX = 4096
TRACED_MAX = 500_000  # stamps of all traced steps together
EVALUATIONS_MAX = 4096
INT_MAX = 2**63 - 1

Count = Annotated[int, Field(ge=0, le=INT_MAX)]
# JSON knows lists only; what is in them is read as strictly as everything else.
Phases = Annotated[tuple[Count, Count, Count, Count], Strict(False)]
DeviceTimes = Annotated[tuple[Count, Count, Count], Strict(False)]
Stamps = Annotated[tuple[Annotated[int, Field(ge=-1, le=INT_MAX)], ...], Strict(False)]


class Line(Noun):
    """Readers ignore members they do not know."""

    model_config = ConfigDict(extra="ignore", strict=True)


class Hello(Line):
    """The runner's first word: who it is and on which cores it finds itself."""

    contract: int = Field(ge=1, le=1)
    pid: int = Field(ge=2, le=2**22)
    case: str
    mask: str = Field(pattern=r"^[0-9a-f]{1,16}$")
    threads: int = Field(ge=1, le=1024)
    t_ns: Count
    provenance: Provenances | None = None


class Memory(Line):
    """Bytes that the runner took before its first step, by what they are for."""

    parameter: Count
    gradient: Count
    state: Count
    activation: Count
    input: Count
    workspace: Count
    dataset: Count


class OpenCLLine(Line):
    """The OpenCL device that computes, and what it took to make it ready."""

    platform: str = Field(max_length=256)
    device: str = Field(max_length=256)
    version: str = Field(max_length=256)
    driver: str = Field(max_length=256)
    build_ns: Count
    copy_ns: Count
    programs: Count
    tuned: Count


class Window(Line):
    """Some consecutive steps, timed together."""

    first: Count
    n: int = Field(ge=1, le=INT_MAX)
    t_ns: Count
    ns: int = Field(ge=1, le=INT_MAX)
    ns_min: Count
    ns_max: Count
    phases_ns: Phases | None = None
    device_ns: DeviceTimes | None = None  # copy, queue, compute; of an OpenCL device only

    @property
    def step_ms(self) -> float:
        """Mean time of a step in this window."""
        return self.ns / self.n / 1e6

    @model_validator(mode="after")
    def _times_agree(self) -> Self:
        inside = self.ns_min * self.n <= self.ns <= self.ns_max * self.n
        told = max(sum(self.phases_ns or ()), sum(self.device_ns or ()))
        if not inside or told > self.ns:
            raise ValueError(f"the times at step {self.first} contradict themselves")
        return self


class Trace(Line):
    """When some consecutive operations of one step ended, counted from when the first began."""

    step: Count
    t_ns: Count
    first: Count
    ends_ns: Stamps = Field(min_length=1)

    @model_validator(mode="after")
    def _time_goes_on(self) -> Self:
        seen = [end for end in self.ends_ns if end >= 0]
        if seen != sorted(seen):
            raise ValueError(f"the stamps of step {self.step} go back in time")
        return self


class Evaluation(Line):
    """How well the model did after so many steps."""

    step: Count
    t_ns: Count
    ns: Count
    accuracy: float = Field(ge=0, le=1)


class SamplerCost(Line):
    """What sampling cost: processor time, and how late readings were."""

    readings: Count
    cpu_ns: Count
    late_p50_ns: Count
    late_p99_ns: Count
    late_max_ns: Count
    core: int = Field(ge=-1, le=1024)


class Done(Line):
    """The runner's last word when all went well; None for what it does not know."""

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


class RunnerFault(Line):
    """The runner's last word when something went wrong."""

    code: str = Field(max_length=64)
    text: str


L = TypeVar("L", bound=Line)


class Output:
    """DIR/out.jsonl as it grows: fed in pieces, kept in order, checked line by line."""

    def __init__(self, case: str) -> None:
        self.case = case
        self.hello: Hello | None = None
        self.memory: Memory | None = None
        self.device: OpenCLLine | None = None
        self.windows: list[Window] = []
        self.traces: list[Trace] = []
        self.evaluations: list[Evaluation] = []
        self.sampler: SamplerCost | None = None
        self.done: Done | None = None
        self.fault: RunnerFault | None = None
        self.bytes_read = 0
        self._tail = b""
        self._traced = 0

    @property
    def speaker(self) -> int | None:
        """Whose death without a last word is one: the runner's pid, once it said hello."""
        return self.hello.pid if self.hello else None

    @property
    def ended(self) -> bool:
        """Whether the last word was said."""
        return self.done is not None or self.fault is not None

    @property
    def steps(self) -> int:
        """Steps measured so far."""
        return sum(window.n for window in self.windows)

    @property
    def trace_tuples(self) -> list[tuple[int, int, int, tuple[int, ...]]]:
        """The traces as whoever joins them with readings wants them."""
        return [(trace.step, trace.t_ns, trace.first, trace.ends_ns) for trace in self.traces]

    def feed(self, piece: bytes) -> None:
        """Take the next bytes of the file; a line that is not whole yet waits for the rest."""
        self.bytes_read += len(piece)
        *lines, self._tail = (self._tail + piece).split(b"\n")
        if len(self._tail) > LINE_BYTES_MAX:
            raise BadOutput("The runner wrote a line that does not end.")
        for line in lines:
            self._take(line)

    def _take(self, line: bytes) -> None:
        if self.ended:
            raise BadOutput("The runner wrote on after its last word.")
        said = _object(line)
        match said.get("line"):
            case "hello" if self.hello is None:
                self.hello = read_line(Hello, said)
                if self.hello.case != self.case:
                    raise BadOutput("The runner says that it runs another case.")
            case "fault":
                self.fault = read_line(RunnerFault, said)
            case kind if self.hello is not None:
                self._take_after_hello(kind, said)
            case kind:
                raise out_of_turn(kind)

    def _take_after_hello(self, kind: object, said: dict[str, Any]) -> None:
        match kind:
            case "memory" if self.memory is None and not self.windows:
                self.memory = read_line(Memory, said)
            case "device" if self.device is None and not self.windows:
                self.device = read_line(OpenCLLine, said)
            case "window" if self.sampler is None:
                self._take_window(read_line(Window, said))
            case "trace":
                self._take_trace(read_line(Trace, said))
            case "evaluation" if len(self.evaluations) < EVALUATIONS_MAX:
                self.evaluations.append(read_line(Evaluation, said))
            case "sampler" if self.sampler is None:
                self.sampler = read_line(SamplerCost, said)
            case "done":
                self.done = read_line(Done, said)
                if self.done.steps != self.steps:
                    raise BadOutput(f"{self.done.steps} steps done, {self.steps} in windows.")
            case _:
                raise out_of_turn(kind)

    def _take_window(self, window: Window) -> None:
        if window.first != self.steps_end or len(self.windows) >= WINDOWS_MAX:
            raise BadOutput(f"The window at step {window.first} does not follow the last one.")
        self.windows.append(window)

    def _take_trace(self, trace: Trace) -> None:
        self._traced += len(trace.ends_ns)
        last = self.traces[-1] if self.traces else None
        goes_on = last is not None and (last.step, last.first + len(last.ends_ns)) == (
            trace.step,
            trace.first,
        )
        begins = trace.first == 0 and (last is None or trace.step > last.step)
        if not (goes_on or begins) or self._traced > TRACED_MAX:
            raise BadOutput(f"The trace of step {trace.step} does not follow the last one.")
        self.traces.append(trace)

    @property
    def steps_end(self) -> int:
        """The number that the next window has to begin with."""
        return self.windows[-1].first + self.windows[-1].n if self.windows else 0


def out_of_turn(kind: object) -> BadOutput:
    """The error of a line that does not belong where it stands."""
    return BadOutput(f"The runner wrote '{safe_text(kind, 40)}' out of turn.")


def hello_pid(line: str) -> int | None:
    """The pid of a runner, from the first line it left; None when it left none."""
    try:
        return read_line(Hello, _object(line.strip().encode())).pid
    except BadOutput:
        return None


def _object(line: bytes) -> dict[str, Any]:
    try:
        said = json.loads(line[: LINE_BYTES_MAX + 1])
    except (ValueError, RecursionError):
        said = None
    if not isinstance(said, dict):
        raise BadOutput(
            f"The runner wrote no JSON: '{safe_text(line.decode(errors='replace'), 80)}'."
        )
    return said


def read_line(kind: type[L], said: dict[str, Any]) -> L:
    """Read one line of a kind; BadOutput names the member that breaks the contract."""
    try:
        return kind.model_validate(said)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise BadOutput(f"The line '{kind.__name__.lower()}': {where}: {first['msg']}.") from error
