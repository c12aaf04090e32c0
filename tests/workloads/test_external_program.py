"""The manifest of an external program, and how its output is parsed.

The texts in program_output/ are written by hand after the documented formats of the programs; no
program was run for them.
"""

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from workloads.catalogue import Case, bind_external, cost_of, is_known, thread_count
from workloads.external_program import (
    LossRule,
    Manifest,
    ProgramFile,
    ProgramParameter,
    SizeRule,
    StepRule,
    check_regex,
    fill_placeholders,
)
from workloads.program_output import StepGroup, parse_program_output
from workloads.protocol.base import digest_of_bytes
from workloads.protocol.faults import BadOutput, InvalidRequest

OUTPUTS = Path(__file__).parent / "program_output"
VALUES = {"threads": 4, "warmup": 5, "steps": 20, "seconds": 8, "max_seconds": 30}
TFLITE = StepRule(
    regex=r"count=(?P<n>\d+) .*min=(?P<min>\d+) max=(?P<max>\d+) avg=(?P<time>[0-9.]+)",
    unit="us",
    take="last",
)
MNN = StepRule(
    regex=r"max = +(?P<max>[0-9.]+) ms +min = +(?P<min>[0-9.]+) ms +avg = +(?P<time>[0-9.]+) ms",
    unit="ms",
    n="loops",
)


def a_manifest(**parts: Any) -> Manifest:
    parts_by_name: dict[str, Any] = {
        "name": "tool",
        "files": (ProgramFile(name="tool", sha256=digest_of_bytes(b"tool")),),
        "parameters": (ProgramParameter(name="loops", default=100, min=1, max=1000),),
        "command": ("{tool}", "{loops}", "{threads}"),
        "step": StepRule(json_path="samples_ns", unit="ns"),
    }
    return Manifest(**{**parts_by_name, **parts})


def recorded_output(name: str) -> str:
    return (OUTPUTS / name).read_text()


# -- reading


def test_each_sample_of_llama_bench_is_a_step() -> None:
    figures = parse_program_output(a_manifest(), VALUES, recorded_output("llama_bench.json"))
    times = (400_000_000, 402_000_000, 404_000_000)
    assert figures.steps == tuple(StepGroup(1, ns, ns, ns) for ns in times)


def test_json_objects_are_found_between_other_lines() -> None:
    out = 'loading\n{"samples_ns": [5, 7]}\n{"other": 1}\ndone {"samples_ns": 9}\n'
    figures = parse_program_output(a_manifest(), VALUES, out)
    assert tuple(steps.ns for steps in figures.steps) == (5, 7)


def test_the_second_line_of_tflite_counts_and_the_first_is_its_warm_up() -> None:
    peak = SizeRule(regex=r"Peak memory footprint.*overall=([0-9.]+)", unit="MB")
    manifest = a_manifest(step=TFLITE, peak_rss=peak)
    figures = parse_program_output(manifest, VALUES, "", recorded_output("tflite_benchmark.txt"))
    (steps,) = figures.steps
    assert steps == StepGroup(210, 8_001_315_000, 37_850_000, 40_210_000)
    assert figures.peak_rss_kb == 29952


def test_the_manifest_states_the_count_that_mnn_does_not_print() -> None:
    manifest = a_manifest(step=MNN)
    figures = parse_program_output(
        manifest, VALUES | {"loops": 100}, recorded_output("mnn_benchmark.txt")
    )
    assert figures.steps == (StepGroup(100, 1_252_000_000, 12_034_000, 14_512_000),)


def test_losses_are_read_and_warm_up_steps_are_left_out() -> None:
    manifest = a_manifest(
        training=True,
        step=StepRule(regex=r", ([0-9.]+) ms", unit="ms", skip=1),
        loss=LossRule(regex=r"loss ([0-9.]+)"),
    )
    figures = parse_program_output(manifest, VALUES, recorded_output("trainer.txt"))
    assert tuple(each.ns for each in figures.steps) == (120_400_000, 119_800_000, 121_000_000)
    assert (figures.losses[0], figures.losses[-1]) == (2.312, 1.5333)


def test_a_rate_is_the_inverse_of_a_time() -> None:
    rule = StepRule(regex=r"(?P<time>[0-9.]+) steps/s", unit="1/s", n=8)
    figures = parse_program_output(a_manifest(step=rule), VALUES, "4.0 steps/s\n")
    assert figures.steps == (StepGroup(8, 2_000_000_000, 250_000_000, 250_000_000),)


@pytest.mark.parametrize(
    ("out", "expected"),
    [
        ("", "no step time found in the output of tool"),
        ('{"samples_ns": []}', "no step time found"),
        ('{"samples_ns": [1, 0]}', "'0' is not a time"),
        ('{"samples_ns": [NaN]}', "'nan' is not a time"),
        ('{"samples_ns": [-5]}', "'-5' is not a time"),
        ('{"samples_ns": "soon"}', "'soon' is not a number"),
        ('{"samples_ns": [true]}', "'True' is not a number"),
        ('{"samples_ns": [{"a": 1}]}', "is not a number"),
        ('{"samples_ns": 1e30}', "a step time of 1e[+]30 ns is not plausible"),
    ],
)
def test_an_impossible_time_is_rejected(out: str, expected: str) -> None:
    with pytest.raises(BadOutput, match=expected):
        parse_program_output(a_manifest(), VALUES, out)


def test_a_mean_outside_its_extremes_is_rejected() -> None:
    with pytest.raises(BadOutput, match="a mean step time is not between its minimum and maximum"):
        parse_program_output(a_manifest(step=TFLITE), VALUES, "count=3 x min=5 max=6 avg=9")


def test_one_loss_value_is_not_enough() -> None:
    step = StepRule(regex=r"([0-9.]+) ms", unit="ms")
    manifest = a_manifest(training=True, step=step, loss=LossRule(regex="loss ([0-9.]+)"))
    with pytest.raises(BadOutput, match="only 1 loss values found in the output of tool; at least"):
        parse_program_output(manifest, VALUES, "3 ms loss 2.0")


@pytest.mark.parametrize("loss", ["nan", "inf", "1e999"])
def test_a_loss_that_is_not_finite_is_one_sentence(loss: str) -> None:
    step = StepRule(regex=r"([0-9.]+) ms", unit="ms")
    manifest = a_manifest(training=True, step=step, loss=LossRule(regex=r"loss (\S+)"))
    with pytest.raises(BadOutput, match="a loss of tool is not finite; lower its learning rate"):
        parse_program_output(manifest, VALUES, f"3 ms loss 2.0\n3 ms loss {loss}\n3 ms loss 1.0")


# -- the manifest


def test_placeholders_are_replaced_and_doubled_braces_are_braces() -> None:
    values = {"tool": "/lane/tool", "loops": "7"}
    assert fill_placeholders("{tool}:{loops}{{x}}", values) == "/lane/tool:7{x}"


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ({"name": "a b"}, "'a b' is not a valid name"),
        ({"files": ()}, "at least 1 item"),
        ({"files": ({"name": "../x", "sha256": "0" * 64},)}, "'../x' is not a plain file name"),
        ({"files": ({"name": "x", "sha256": "abc"},)}, "'abc' is not a SHA-256"),
        (
            {"files": ({"name": "loops", "sha256": "0" * 64},)},
            "'loops' is already the name",
        ),
        ({"command": ("{tools}",)}, "unknown placeholder 'tools'; use loops"),
        ({"command": ("{tool",)}, "unmatched brace"),
        ({"environment": {"path": "x"}}, "'path' is not a valid variable"),
        ({"samples_per_step": "batch"}, "unknown parameter 'batch'"),
        ({"training": True}, "a training needs a rule for its loss"),
    ],
)
def test_an_inconsistent_manifest_is_rejected(parts: dict[str, Any], expected: str) -> None:
    with pytest.raises(ValidationError, match=expected):
        a_manifest(**parts)


@pytest.mark.parametrize(
    "regex",
    ["(a+)+b", "(a|b)*c", "(x{1,9}){2,}", "(", "a" * 500],
)
def test_a_regex_of_exponential_time_is_rejected(regex: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        check_regex(regex)


@pytest.mark.parametrize("regex", [r"a\)+ (b)?", r"(?:ms|us) (\d+)", r"\\1 ([0-9.]+)"])
def test_a_plain_regex_is_accepted(regex: str) -> None:
    assert check_regex(regex) == regex


# -- the case


def test_the_manifest_is_part_of_the_case_and_of_its_digest() -> None:
    case = bind_external(a_manifest(), {"loops": 9})
    assert (case.label, case.parameters) == ("tool loops=9", {"loops": 9})
    assert Case.model_validate_json(case.model_dump_json()) == case
    other = bind_external(a_manifest(environment={"X": "1"}), {"loops": 9})
    assert case.digest != other.digest
    assert case.digest == bind_external(a_manifest(), {"loops": 9}).digest
    assert is_known(case)


def test_a_step_of_an_external_program_counts_samples_and_no_flops() -> None:
    case = bind_external(a_manifest(samples_per_step="loops", threads=2), {})
    assert (cost_of(case).samples_per_step, cost_of(case).flops) == (100, 0)
    assert thread_count(case, cores=8) == 2
    assert thread_count(bind_external(a_manifest(), {}), cores=8) == 8


def test_a_parameter_of_an_external_program_is_checked_like_any_other() -> None:
    with pytest.raises(InvalidRequest, match="loops must be 1 to 1000, got 0"):
        bind_external(a_manifest(), {"loops": 0})
    with pytest.raises(InvalidRequest, match="'tool' has no parameter 'loop'; it has loops"):
        bind_external(a_manifest(), {"loop": 1})
