"""A foreign program's manifest, and the numbers in what it printed.

The texts in printed/ are written by hand after the formats that the programs document and that
their users show; no program was run for them.
"""

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from workloads.catalogue import Case, bind_external, is_known, threads_of, work_of
from workloads.external import (
    ForeignFile,
    ForeignParameter,
    Manifest,
    NumberRule,
    StepRule,
    check_regex,
    fill,
)
from workloads.fault import BadOutput, Refused
from workloads.noun import digest_of_bytes
from workloads.printed import Steps, read_numbers

PRINTED = Path(__file__).parent / "printed"
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
    whole: dict[str, Any] = {
        "name": "tool",
        "files": (ForeignFile(name="tool", sha256=digest_of_bytes(b"tool")),),
        "parameters": (ForeignParameter(name="loops", default=100, least=1, most=1000),),
        "command": ("{tool}", "{loops}", "{threads}"),
        "step": StepRule(json_path="samples_ns", unit="ns"),
    }
    return Manifest(**{**whole, **parts})


def printed(name: str) -> str:
    return (PRINTED / name).read_text()


# -- reading


def test_each_sample_of_llama_bench_is_a_step() -> None:
    numbers = read_numbers(a_manifest(), VALUES, printed("llama_bench.json"))
    times = (400_000_000, 402_000_000, 404_000_000)
    assert tuple(Steps(1, ns, ns, ns) for ns in times) == numbers.steps


def test_objects_on_lines_of_their_own_are_read_between_others() -> None:
    out = 'loading\n{"samples_ns": [5, 7]}\n{"other": 1}\ndone {"samples_ns": 9}\n'
    numbers = read_numbers(a_manifest(), VALUES, out)
    assert (5, 7) == tuple(steps.ns for steps in numbers.steps)


def test_the_second_line_of_tflite_counts_and_the_first_is_its_warm_up() -> None:
    peak = NumberRule(regex=r"Peak memory footprint.*overall=([0-9.]+)", unit="MB")
    manifest = a_manifest(step=TFLITE, peak_rss=peak)
    numbers = read_numbers(manifest, VALUES, "", printed("tflite_benchmark.txt"))
    (steps,) = numbers.steps
    assert Steps(210, 8_001_315_000, 37_850_000, 40_210_000) == steps
    assert 29952 == numbers.peak_rss_kb


def test_mnn_does_not_print_its_count_so_the_manifest_says_it() -> None:
    manifest = a_manifest(step=MNN)
    numbers = read_numbers(manifest, VALUES | {"loops": 100}, printed("mnn_benchmark.txt"))
    assert (Steps(100, 1_252_000_000, 12_034_000, 14_512_000),) == numbers.steps


def test_a_training_tells_its_loss_and_leaves_its_first_steps_out() -> None:
    manifest = a_manifest(
        training=True,
        step=StepRule(regex=r", ([0-9.]+) ms", unit="ms", skip=1),
        loss=NumberRule(regex=r"loss ([0-9.]+)"),
    )
    numbers = read_numbers(manifest, VALUES, printed("trainer.txt"))
    assert (120_400_000, 119_800_000, 121_000_000) == tuple(each.ns for each in numbers.steps)
    assert (2.312, 1.5333) == (numbers.losses[0], numbers.losses[-1])


def test_a_rate_is_the_reverse_of_a_time() -> None:
    rule = StepRule(regex=r"(?P<time>[0-9.]+) steps/s", unit="1/s", n=8)
    numbers = read_numbers(a_manifest(step=rule), VALUES, "4.0 steps/s\n")
    assert (Steps(8, 2_000_000_000, 250_000_000, 250_000_000),) == numbers.steps


@pytest.mark.parametrize(
    ("out", "sentence"),
    [
        ("", "No step was found in what tool printed."),
        ('{"samples_ns": []}', "No step was found"),
        ('{"samples_ns": [1, 0]}', "'0' is no time."),
        ('{"samples_ns": [NaN]}', "'nan' is no time."),
        ('{"samples_ns": [-5]}', "'-5' is no time."),
        ('{"samples_ns": "soon"}', "'soon' is no number."),
        ('{"samples_ns": [true]}', "'True' is no number."),
        ('{"samples_ns": [{"a": 1}]}', "is no number."),
        ('{"samples_ns": 1e30}', "A step cannot take 1e[+]30 ns; is the unit right?"),
    ],
)
def test_what_cannot_be_a_time_is_refused(out: str, sentence: str) -> None:
    with pytest.raises(BadOutput, match=sentence):
        read_numbers(a_manifest(), VALUES, out)


def test_a_mean_outside_its_extremes_is_refused() -> None:
    with pytest.raises(BadOutput, match="A mean lies outside its least and its most."):
        read_numbers(a_manifest(step=TFLITE), VALUES, "count=3 x min=5 max=6 avg=9")


def test_a_training_that_tells_one_loss_shows_no_fall() -> None:
    step = StepRule(regex=r"([0-9.]+) ms", unit="ms")
    manifest = a_manifest(training=True, step=step, loss=NumberRule(regex="loss ([0-9.]+)"))
    with pytest.raises(BadOutput, match="told 1 losses; a fall takes two"):
        read_numbers(manifest, VALUES, "3 ms loss 2.0")


# -- the manifest


def test_every_hole_of_a_word_is_filled_and_doubled_braces_are_braces() -> None:
    values = {"tool": "/lane/tool", "loops": "7"}
    assert "/lane/tool:7{x}" == fill("{tool}:{loops}{{x}}", values)


@pytest.mark.parametrize(
    ("parts", "sentence"),
    [
        ({"name": "a b"}, "'a b' is not a name"),
        ({"files": ()}, "at least 1 item"),
        ({"files": ({"name": "../x", "sha256": "0" * 64},)}, "'../x' is not a plain file name"),
        ({"files": ({"name": "x", "sha256": "abc"},)}, "'abc' is no SHA-256"),
        ({"files": ({"name": "loops", "sha256": "0" * 64},)}, "are called 'loops'"),
        ({"command": ("{tools}",)}, "nothing is called 'tools'; there are loops"),
        ({"command": ("{tool",)}, "a brace is left open"),
        ({"environment": {"path": "x"}}, "'path' is not the name of a variable"),
        ({"samples_per_step": "batch"}, "no parameter is called 'batch'"),
        ({"training": True}, "a training whose loss is not seen is not believed"),
    ],
)
def test_a_manifest_that_makes_no_sense_is_refused(parts: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValidationError, match=sentence):
        a_manifest(**parts)


@pytest.mark.parametrize(
    "regex",
    ["(a+)+b", "(a|b)*c", "(x{1,9}){2,}", "(", "a" * 500],
)
def test_a_regex_that_may_run_away_is_refused(regex: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        check_regex(regex)


@pytest.mark.parametrize("regex", [r"a\)+ (b)?", r"(?:ms|us) (\d+)", r"\\1 ([0-9.]+)"])
def test_a_plain_regex_is_accepted(regex: str) -> None:
    assert regex == check_regex(regex)


# -- the case


def test_the_manifest_is_part_of_the_case_and_of_its_digest() -> None:
    case = bind_external(a_manifest(), {"loops": 9})
    assert ("tool loops=9", {"loops": 9}) == (case.label, case.parameters)
    assert case == Case.model_validate_json(case.model_dump_json())
    other = bind_external(a_manifest(environment={"X": "1"}), {"loops": 9})
    assert case.digest != other.digest
    assert case.digest == bind_external(a_manifest(), {"loops": 9}).digest
    assert is_known(case)


def test_a_foreign_step_counts_samples_and_no_arithmetic() -> None:
    case = bind_external(a_manifest(samples_per_step="loops", threads=2), {})
    assert (100, 0) == (work_of(case).samples_per_step, work_of(case).flops)
    assert 2 == threads_of(case, cores=8)
    assert 8 == threads_of(bind_external(a_manifest(), {}), cores=8)


def test_a_foreign_parameter_is_checked_like_any_other() -> None:
    with pytest.raises(Refused, match="loops is 0; it goes from 1 to 1000"):
        bind_external(a_manifest(), {"loops": 0})
    with pytest.raises(Refused, match="'tool' has no parameter 'loop'; it has loops"):
        bind_external(a_manifest(), {"loop": 1})
