"""The runner's output, read by its contract."""

import json

import pytest

from agent.run.lines import Output, hello_pid
from agent.run.runner import blame
from workloads.fault import BadOutput, FarmError, Interrupted, PhoneTrouble, Refused, RunnerFailed

CASE = "ab" * 32
HELLO = {
    "line": "hello",
    "contract": 1,
    "pid": 4711,
    "case": CASE,
    "mask": "f0",
    "threads": 4,
    "t_ns": 5,
    "new": "ignored",
}
WINDOW = {"line": "window", "first": 0, "n": 2, "t_ns": 9, "ns": 20, "ns_min": 9, "ns_max": 11}
DONE = {
    "line": "done",
    "steps": 2,
    "ns": 20,
    "t_ns": 30,
    "peak_rss_kb": 100,
    "loss_first": 2.3,
    "loss_last": None,
    "parameters_changed": True,
}


def text(*lines: dict[str, object]) -> bytes:
    return "".join(json.dumps(line) + "\n" for line in lines).encode()


def test_pieces_of_any_size_make_the_same_output() -> None:
    """The file grows while it is read; lines are taken when they are whole."""
    output = Output(CASE)
    for byte in text(HELLO, WINDOW, DONE):
        output.feed(bytes([byte]))
    assert output.ended
    assert output.hello is not None
    assert output.hello.mask == "f0"
    assert [window.n for window in output.windows] == [2]
    assert output.bytes_read == len(text(HELLO, WINDOW, DONE))


@pytest.mark.parametrize(
    "content",
    [
        b"Segmentation fault\n",  # not JSON
        b"[1]\n",  # JSON, but no object
        text(WINDOW),  # a window before hello
        text(HELLO, HELLO),  # a second runner in the same file
        text(HELLO | {"contract": 2}),  # another contract
        text(HELLO | {"case": "cd" * 32}),  # another case
        text(HELLO | {"pid": "4711"}),  # a number as text
        text(HELLO, WINDOW | {"first": 1}),  # a step left out
        text(HELLO, WINDOW, WINDOW),  # a step counted twice
        text(HELLO, WINDOW | {"ns": 40}),  # more time than steps
        text(HELLO, WINDOW | {"ns": 1e9}),  # a float
        text(HELLO, DONE),  # steps without windows
        text(HELLO, WINDOW, DONE, WINDOW),  # words after the last word
        b"x" * 70000,  # a line without end
    ],
)
def test_broken_output_is_named(content: bytes) -> None:
    """Whatever breaks the contract is the runner's fault, never a number."""
    with pytest.raises(BadOutput):
        Output(CASE).feed(content)


@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("unsupported", Refused),
        ("no_runner", Refused),
        ("out_of_memory", RunnerFailed),
        ("wrong_answer", RunnerFailed),
        ("bad_plan", RunnerFailed),
        ("usage", RunnerFailed),
        ("stopped", Interrupted),
        ("io", PhoneTrouble),
        ("of a later contract", RunnerFailed),
    ],
)
def test_a_fault_line_is_sorted_by_blame(code: str, error: type[FarmError]) -> None:
    """The runner says what happened; who has to do better follows from that."""
    output = Output(CASE)
    output.feed(text({"line": "fault", "code": code, "text": "why\x1b[31m"}))
    assert output.fault is not None
    with pytest.raises(error, match=r"why\[31m") as raised:
        blame(output.fault)
    assert type(raised.value) is error


def test_the_pid_of_a_dead_lane_is_in_its_first_line() -> None:
    """Only a hello names a pid; anything else names nobody."""
    assert hello_pid(json.dumps(HELLO)) == 4711
    assert hello_pid("") is None
    assert hello_pid(json.dumps(HELLO | {"pid": 1})) is None
