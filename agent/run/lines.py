"""The runner's lines, read strictly by its contract (kernels/runner/runner.h). Pure."""

import json
from typing import Any, TypeVar

from pydantic import ConfigDict, Field, ValidationError

from workloads.fault import BadOutput
from workloads.measure import Provenances
from workloads.noun import Noun
from workloads.text import safe_text

LINE_BYTES_MAX = 65536
WINDOWS_MAX = 4096
INT_MAX = 2**63 - 1


class _Line(Noun):
    """Readers ignore members they do not know."""

    model_config = ConfigDict(extra="ignore", strict=True)


class Hello(_Line):
    """The runner's first word: who it is and on which cores it finds itself."""

    contract: int = Field(ge=1, le=1)
    pid: int = Field(ge=2, le=2**22)
    case: str
    mask: str = Field(pattern=r"^[0-9a-f]{1,16}$")
    threads: int = Field(ge=1, le=1024)
    t_ns: int = Field(ge=0, le=INT_MAX)
    provenance: Provenances | None = None


class Window(_Line):
    """Some consecutive steps, timed together."""

    first: int = Field(ge=0, le=INT_MAX)
    n: int = Field(ge=1, le=INT_MAX)
    t_ns: int = Field(ge=0, le=INT_MAX)
    ns: int = Field(ge=1, le=INT_MAX)
    ns_min: int = Field(ge=0, le=INT_MAX)
    ns_max: int = Field(ge=0, le=INT_MAX)

    @property
    def step_ms(self) -> float:
        """Mean time of a step in this window."""
        return self.ns / self.n / 1e6


class Done(_Line):
    """The runner's last word when all went well."""

    steps: int = Field(ge=0, le=INT_MAX)
    ns: int = Field(ge=0, le=INT_MAX)
    t_ns: int = Field(ge=0, le=INT_MAX)
    peak_rss_kb: int | None = None
    loss_first: float | None = None
    loss_last: float | None = None
    parameters_changed: bool = False


class RunnerFault(_Line):
    """The runner's last word when something went wrong."""

    code: str = Field(max_length=64)
    text: str


L = TypeVar("L", bound=_Line)


class Output:
    """DIR/out.jsonl as it grows: fed in pieces, kept in order, checked line by line."""

    def __init__(self, case: str) -> None:
        self.case = case
        self.hello: Hello | None = None
        self.windows: list[Window] = []
        self.done: Done | None = None
        self.fault: RunnerFault | None = None
        self.bytes_read = 0
        self._tail = b""

    @property
    def ended(self) -> bool:
        """Whether the last word was said."""
        return self.done is not None or self.fault is not None

    @property
    def steps(self) -> int:
        """Steps measured so far."""
        return sum(window.n for window in self.windows)

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
                self.hello = _read(Hello, said)
                if self.hello.case != self.case:
                    raise BadOutput("The runner says that it runs another case.")
            case "window" if self.hello is not None:
                self._take_window(_read(Window, said))
            case "done" if self.hello is not None:
                self.done = _read(Done, said)
                if self.done.steps != self.steps:
                    raise BadOutput(f"{self.done.steps} steps done, {self.steps} in windows.")
            case "fault":
                self.fault = _read(RunnerFault, said)
            case other:
                raise BadOutput(f"The runner wrote '{safe_text(other, 40)}' out of turn.")

    def _take_window(self, window: Window) -> None:
        if window.first != self.steps_end or len(self.windows) >= WINDOWS_MAX:
            raise BadOutput(f"The window at step {window.first} does not follow the last one.")
        if not window.ns_min * window.n <= window.ns <= window.ns_max * window.n:
            raise BadOutput(
                f"The times of the window at step {window.first} contradict themselves."
            )
        self.windows.append(window)

    @property
    def steps_end(self) -> int:
        """The number that the next window has to begin with."""
        return self.windows[-1].first + self.windows[-1].n if self.windows else 0


def hello_pid(line: str) -> int | None:
    """The pid of a runner, from the first line it left; None when it left none."""
    try:
        return _read(Hello, _object(line.strip().encode())).pid
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


def _read(kind: type[L], said: dict[str, Any]) -> L:
    try:
        return kind.model_validate(said)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise BadOutput(f"The line '{kind.__name__.lower()}': {where}: {first['msg']}.") from error
