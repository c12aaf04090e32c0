"""The runner's output, parsed by its contract."""

import json
from collections.abc import Mapping

import pytest

from agent.collect.runner_output import RunnerOutput
from agent.launch.runner_process import raise_runner_fault
from workloads.protocol.faults import (
    BadOutput,
    FarmError,
    Interrupted,
    InvalidRequest,
    NeverStarts,
    PhoneTrouble,
    RunnerFailed,
)

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

MEMORY = {"line": "memory"} | dict.fromkeys(
    ("parameter", "gradient", "state", "activation", "input", "workspace", "dataset"), 64
)
TRACE = {"line": "trace", "step": 1, "t_ns": 9, "first": 0, "ends_ns": [3, -1, 7]}
EVALUATION = {"line": "evaluation", "step": 2, "t_ns": 40, "ns": 5, "accuracy": 0.5}
SAMPLER = {
    "line": "sampler",
    "readings": 3,
    "cpu_ns": 9,
    "late_p50_ns": 1,
    "late_p99_ns": 2,
    "late_max_ns": 3,
    "core": -1,
}


def text(*lines: Mapping[str, object]) -> bytes:
    return "".join(json.dumps(line) + "\n" for line in lines).encode()


def test_pieces_of_any_size_make_the_same_output() -> None:
    output = RunnerOutput(CASE)
    for byte in text(HELLO, WINDOW, DONE):
        output.feed(bytes([byte]))
    assert output.ended
    assert output.hello is not None
    assert output.hello.mask == "f0"
    assert [window.n for window in output.windows] == [2]
    assert output.bytes_read == len(text(HELLO, WINDOW, DONE))


def test_all_records_are_kept() -> None:
    output = RunnerOutput(CASE)
    window = WINDOW | {"phases_ns": [1, 8, 8, 3]}
    more = TRACE | {"first": 3, "ends_ns": [4]}
    done = DONE | {"parameters": 5, "macs": 6, "learned": 2, "moved": 2, "fallbacks": 0}
    output.feed(text(HELLO, MEMORY, window, TRACE, more, EVALUATION, SAMPLER, done))
    assert output.memory is not None
    assert output.memory.workspace == 64
    assert output.windows[0].phases_ns == (1, 8, 8, 3)
    assert [(trace.first, trace.ends_ns) for trace in output.traces] == [(0, (3, -1, 7)), (3, (4,))]
    assert [evaluation.accuracy for evaluation in output.evaluations] == [0.5]
    assert output.sampler is not None
    assert output.sampler.core == -1
    assert output.done is not None
    assert (output.done.macs, output.done.moved, output.done.answer_error) == (6, 2, None)


@pytest.mark.parametrize(
    "content",
    [
        b"Segmentation fault\n",  # not JSON
        b"[1]\n",  # JSON, but not an object
        text(WINDOW),  # a window before hello
        text(HELLO, HELLO),  # a second runner in the same file
        text(HELLO | {"contract": 2}),  # another contract
        text(HELLO | {"case": "cd" * 32}),  # another case
        text(HELLO | {"pid": "4711"}),  # a number as text
        text(HELLO, WINDOW | {"first": 1}),  # a missing step
        text(HELLO, WINDOW, WINDOW),  # a step counted twice
        text(HELLO, WINDOW | {"ns": 40}),  # more time than steps
        text(HELLO, WINDOW | {"ns": 1e9}),  # a float
        text(HELLO, DONE),  # steps without windows
        text(HELLO, WINDOW, DONE, WINDOW),  # a record after the final one
        b"x" * 70000,  # a line without end
        text(HELLO, MEMORY, MEMORY),  # memory is reported once
        text(HELLO, WINDOW, MEMORY),  # and before the first step
        text(HELLO, MEMORY | {"state": -1}),  # a negative value
        text(HELLO, WINDOW | {"phases_ns": [1, 8, 8]}),  # a missing phase
        text(HELLO, WINDOW | {"phases_ns": [9, 8, 8, 9]}),  # phases longer than their steps
        text(HELLO, TRACE | {"ends_ns": [7, 3]}),  # decreasing timestamps
        text(HELLO, TRACE | {"ends_ns": []}),  # an empty trace
        text(HELLO, TRACE, TRACE),  # a step traced twice
        text(HELLO, TRACE, TRACE | {"first": 4}),  # a missing operation
        text(HELLO, EVALUATION | {"accuracy": 1.5}),  # an accuracy above 1
        text(HELLO, SAMPLER, WINDOW),  # steps after the sampler was stopped
        text(HELLO, {"line": "song"}),  # not in the contract
    ],
)
def test_broken_output_is_an_error(content: bytes) -> None:
    with pytest.raises(BadOutput):
        RunnerOutput(CASE).feed(content)


@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("unsupported", InvalidRequest),
        ("no_runner", InvalidRequest),
        ("out_of_memory", NeverStarts),
        ("wrong_answer", RunnerFailed),
        ("bad_plan", RunnerFailed),
        ("usage", RunnerFailed),
        ("stopped", Interrupted),
        ("io", PhoneTrouble),
        ("device", NeverStarts),
        ("of a later contract", RunnerFailed),
    ],
)
def test_a_fault_record_becomes_an_error_by_its_code(code: str, error: type[FarmError]) -> None:
    output = RunnerOutput(CASE)
    output.feed(text({"line": "fault", "code": code, "text": "why\x1b[31m"}))
    assert output.fault is not None
    with pytest.raises(error, match=r"why\[31m") as raised:
        raise_runner_fault(output.fault)
    assert type(raised.value) is error
