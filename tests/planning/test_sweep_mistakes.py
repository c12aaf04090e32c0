"""Mistakes in a sweep file: all are reported, each with its location."""

import textwrap

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.sweepfile.sweep_errors import BadSweep
from orchestrator.sweepfile.sweep_file import read_sweep
from workloads.protocol.stage import Stage

GOOD = """\
farm: 1
name: demo
workload: mlp-4
phones: all
"""


def problems_of(text: str) -> list[tuple[int, int, str]]:
    """Return line, column and text of every problem of a sweep file."""
    with pytest.raises(BadSweep) as caught:
        read_sweep(text)
    return [(each.line, each.column, each.text) for each in caught.value.problems]


def test_all_mistakes_are_rendered_with_their_lines_and_carets() -> None:
    text = textwrap.dedent("""\
        farm: 1
        name: demo
        workload: mlp-4
        phones: all
        repeat: 2
        matrix:
          batch_size: [4, eight, 16]
          freq: [off]
        workloads: all
        repeat: 3
        """)
    with pytest.raises(BadSweep) as caught:
        read_sweep(text)
    expected = """\
bad.yaml:7:19: matrix.batch_size[1]: 'eight' is not an integer
     7 |   batch_size: [4, eight, 16]
       |                   ^^^^^
bad.yaml:8:10: matrix.freq[0]: off is read as the boolean false; write 'off' in quotes
     8 |   freq: [off]
       |          ^^^
bad.yaml:9:1: unknown key 'workloads'; did you mean 'workload'?
     9 | workloads: all
       | ^^^^^^^^^
bad.yaml:10:1: duplicate key 'repeat' (first at line 5); YAML would silently keep the last
    10 | repeat: 3
       | ^^^^^^"""
    assert caught.value.render("bad.yaml") == expected


@pytest.mark.parametrize(
    ("line", "column", "expected"),
    [
        # a boolean where a clock is meant
        ("conditions: {freq: no}", 20, "conditions.freq: no is read as the boolean false"),
        # a boolean only in YAML 1.1
        ("conditions: {cores: y}", 21, "conditions.cores: y is read as the boolean true"),
        # YAML 1.1 reads a time of day as 750
        ("seed: 12:30", 7, "seed: 12:30 is read as a number in base 60"),
        # the same where a duration is meant
        ("conditions: {cool_wait_max: 20:00}", 29, "conditions.cool_wait_max: 20:00 is read as"),
        # octal or decimal
        ("seed: 010", 7, "seed: 010 may be read as octal"),
        # a number in quotes is text
        ("repeat: '3'", 9, "repeat: '3' is text; write it without quotes"),
        ("repeat: 101", 9, "repeat: 101 is out of range; use 1 to 100"),
        ("repeat: [1]", 9, "repeat: this is a list; write an integer"),
        ("repeat:", 8, "repeat: the value is missing"),
        # a typo in a key
        ("repaet: 3", 1, "unknown key 'repaet'; did you mean 'repeat'?"),
        (
            "matrix: {batchsize: [3]}",
            10,
            "matrix: unknown axis 'batchsize'; did you mean 'batch_si",
        ),
        # a parameter that another workload has
        ("matrix: {m: [3]}", 10, "matrix: unknown axis 'm'"),
        (
            "matrix: {token_budget: [9]}",
            10,
            "matrix: 'token_budget' has one value per sweep; set it",
        ),
        ("matrix: {batch_size: [4097]}", 23, "matrix.batch_size[0]: 4097 is out of range"),
        ("matrix: {batch_size: 4}", 22, "matrix.batch_size: this is not a list"),
        ("matrix: {batch_size: []}", 22, "matrix.batch_size: the list is empty"),
        ("matrix: {batch_size: [4, 8, 4]}", 29, "matrix.batch_size[2]: '4' is listed twice"),
        # the same clock in two spellings
        ("matrix: {freq: [0.8, 0.80]}", 22, "matrix.freq[1]: '0.8' is listed twice"),
        (
            "matrix: {protocol: [colt]}",
            21,
            "matrix.protocol[0]: unknown protocol 'colt'; did you",
        ),
        ("matrix: {cores: [big]}", 18, "matrix.cores[0]: 'big' is not a core set; use big4"),
        ("matrix: {workload: [sgemm]}", 10, "matrix: workload is already set at line 3; remove"),
        ("matrix: [1]", 9, "matrix: this is not a mapping"),
        # a number without a unit
        ("conditions: {cool_wait_max: 1200}", 29, "conditions.cool_wait_max: '1200' is not a dura"),
        (
            "conditions: {cool_wait_max: 25h}",
            29,
            "conditions.cool_wait_max: 25h is out of range; use 0s",
        ),
        ("conditions: {cool_wait_max_s: 3}", 14, "conditions: unknown condition 'cool_wait_max_s'"),
        ("conditions: {start_temp_max_c: 61}", 32, "conditions.start_temp_max_c: 61 is out of r"),
        ("conditions: {time_min: 2}", 24, "conditions.time_min: '2' is not a duration"),
        ("conditions: {steps_min: 0}", 25, "conditions.steps_min: 0 is out of range"),
        ("conditions: {too_large: yes}", 25, "conditions.too_large: yes is read as the boolean"),
        (
            "conditions: {too_large: dare}",
            25,
            "conditions.too_large: unknown value 'dare'; use refuse or try",
        ),
        ("conditions: {start_temp_max_c: hot}", 32, "conditions.start_temp_max_c: 'hot' is not a"),
        # zero itself is excluded
        (
            "conditions: {start_slope_max_c_per_min: 0}",
            41,
            "conditions.start_slope_max_c_per_min: ",
        ),
        ("conditions: {battery_min_pct: 1.5}", 31, "conditions.battery_min_pct: '1.5' is not an i"),
        # keys that are not text
        ("on: 3", 1, "key 'on' is read as the boolean true; keys are names"),
        ("12: 3", 1, "key '12' is read as a number; keys are names"),
        ("~: 3", 1, "a key is missing before ':'"),
        ("[a]: 3", 1, "a key must be a name, not a list or a mapping"),
        ("<<: {repeat: 3}", 1, "merge keys (<<) are not supported"),
        # features that a hostile file could use
        ("seed: &a 3", 7, "this is an anchor (&)"),
        ("seed: !!python/name:os.system 3", 7, "this is a tag (!)"),
        ("matrix: {batch_size: [*x]}", 23, "'*x' is an alias"),
        ("seed: [[[[[[[[1]]]]]]]]", 14, "lists and mappings are nested deeper than 8"),
        # syntax errors of YAML
        ("matrix: {batch_size: [4}", 24, "the list is not closed; a ',' or ']' is missing"),
        ("seed: 'x", 7, "a quote is opened but never closed"),
        ("\tseed: 3", 1, "this is a tab; indent with spaces"),
        ("seed: 3: 4", 8, "unexpected ':'"),
        ("seed: @3", 7, "a value cannot begin with this character; write it in quotes"),
        ("seed: [*]", 8, "a value that begins with * is an alias; write it in quotes"),
        ("  seed: 3", 7, "unexpected ':'"),
        ("seed: \x07", 7, "this is a control character"),
        ("---\nfarm: 1", 1, "a second document begins"),
    ],
)
def test_a_mistake_is_reported_with_its_location(line: str, column: int, expected: str) -> None:
    problems = problems_of(GOOD + line)
    assert [problem[:2] for problem in problems] == [(5, column)]
    assert problems[0][2].startswith(expected)


@pytest.mark.parametrize(
    ("before", "after", "line", "column", "expected"),
    [
        ("farm: 1", "farm: 2", 1, 7, "farm: unknown version 2; write 'farm: 1'"),
        ("farm: 1\n", "", 1, 1, "the key 'farm' is missing; write 'farm: 1'"),
        ("name: demo\n", "", 1, 1, "the key 'name' is missing"),
        ("phones: all\n", "", 1, 1, "the key 'phones' is missing; write 'phones: all'"),
        ("workload: mlp-4\n", "", 1, 1, "the key 'workload' is missing; 'farm workload list'"),
        ("demo", "Demo", 2, 7, "name: 'Demo' is not a name"),
        ("demo", "-demo", 2, 7, "name: '-demo' is not a name"),
        ("demo", "d" * 64, 2, 7, "name: 'd"),
        ("mlp-4", "mlp4", 3, 11, "workload: unknown workload 'mlp4'; did you mean 'mlp-4'?"),
        ("mlp-4", "{with: {}}", 3, 11, "workload: the key 'use' is missing"),
        (
            "mlp-4",
            "{use: mlp-4, wiht: {}}",
            3,
            24,
            "workload: unknown key 'wiht'; did you mean 'wi",
        ),
        ("mlp-4", "{use: mlp-4, with: {m: 1}}", 3, 31, "workload.with: unknown parameter 'm'"),
        ("mlp-4", "{use: mlp-4, with: {batch_size: 0}}", 3, 43, "workload.with.batch_size: 0 is "),
        ("all", "pixel*", 4, 9, "phones: 'pixel*' is not 'all'; write a list: [pixel*]"),
        ("all", "[]", 4, 9, "phones: the list is empty"),
        ("all", "['']", 4, 10, "phones[0]: the pattern must have 1 to 100 characters"),
        ("all", "[no]", 4, 10, "phones[0]: no is read as the boolean false; write 'no' in quotes"),
    ],
)
def test_a_mistake_in_a_required_key_is_reported_with_its_location(
    before: str, after: str, line: int, column: int, expected: str
) -> None:
    problems = problems_of(GOOD.replace(before, after))
    assert [problem[:2] for problem in problems] == [(line, column)]
    assert problems[0][2].startswith(expected)


def test_an_unknown_workload_causes_no_errors_about_its_parameters() -> None:
    text = GOOD.replace("workload: mlp-4\n", "") + "matrix: {workload: [mlp-4, sgem], m: [3]}"
    assert [each[2] for each in problems_of(text)] == [
        "matrix.workload[1]: unknown workload 'sgem'; did you mean 'sgemm'?"
    ]


def test_a_parameter_that_is_set_twice_is_refused() -> None:
    text = GOOD.replace("mlp-4", "{use: mlp-4, with: {batch_size: 4}}")
    problems = problems_of(text + "matrix: {batch_size: [8]}")
    expected = "matrix: batch_size is already set under workload.with; remove one of them"
    assert problems == [(5, 10, expected)]


def test_a_condition_that_is_set_twice_is_refused() -> None:
    problems = problems_of(GOOD + "matrix: {freq: [high]}\nconditions: {freq: low}")
    expected = "conditions: freq is already an axis of the matrix (line 5); remove one of them"
    assert problems == [(6, 14, expected)]


def test_too_many_runs_are_refused_before_any_cell_is_built(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def built(*_: object) -> None:
        raise AssertionError("a cell was built")

    monkeypatch.setattr("orchestrator.sweepfile.workload_reader.bind", built)
    numbers = ", ".join(map(str, range(1, 1001)))
    text = GOOD.replace("mlp-4", "sgemm") + f"matrix: {{m: [{numbers}], n: [{numbers}]}}"
    expected = "5,000,000 runs per phone; a sweep may have at most 20,000"
    assert problems_of(text) == [(5, 1, expected)]


def test_twenty_thousand_runs_are_allowed_and_one_more_is_not() -> None:
    numbers = ", ".join(map(str, range(1, 201)))
    text = GOOD.replace("mlp-4", "sgemm") + f"matrix: {{m: [{numbers}]}}\nrepeat: "
    assert read_sweep(text + "100").runs_per_phone == 20_000
    more = text.replace("[1,", "[1, 201,") + "100"
    assert problems_of(more) == [(5, 1, "20,100 runs per phone; a sweep may have at most 20,000")]


def test_a_file_larger_than_a_mebibyte_is_not_parsed() -> None:
    text = GOOD + "#" * 1024 * 1024
    assert problems_of(text) == [(1, 1, "the file is larger than 1024 KiB")]


def test_a_file_with_too_many_values_is_refused() -> None:
    text = GOOD + f"seed: [{'1,' * 25_000}]"
    assert [each[2] for each in problems_of(text)] == ["the file has more than 25,000 values"]


def test_the_error_of_an_empty_file_names_the_first_key() -> None:
    assert problems_of("# nothing\n") == [(1, 1, "the file is empty; begin with 'farm: 1'")]


def test_the_caret_is_aligned_after_wide_and_hidden_characters() -> None:
    text = GOOD + 'conditions: {"電池": 1, "\u202eabc": 2, freq: fast}'
    with pytest.raises(BadSweep) as caught:
        read_sweep(text)
    shown = caught.value.render("x").splitlines()
    assert "\u202e" not in "".join(shown)
    # two wide characters take two more cells than they are long
    assert shown[-1].index("^") == shown[-2].index("fast") + 2


def test_a_long_line_is_truncated_around_the_mistake() -> None:
    line = "matrix: {batch_size: [" + ", ".join(map(str, range(1, 200))) + ", eight]}"
    with pytest.raises(BadSweep) as caught:
        read_sweep(GOOD + line)
    _, source, caret = caught.value.render("x").splitlines()
    assert len(source) < 130
    assert source[caret.index("^") : caret.rindex("^") + 1] == "eight"


def test_the_text_of_the_error_has_every_line() -> None:
    with pytest.raises(BadSweep) as caught:
        read_sweep(GOOD + "seed: x")
    assert caught.value.fault(Stage.START).text == "line 5: seed: 'x' is not an integer"


SNIPPETS = ["farm", "matrix", "phones", "workload", "use", "with", "batch_size", "all", "mlp-4"]
SNIPPETS += [*":-[]{},#&*!|>'\"%@`?~\n\t .", ": ", "- ", "\n  ", "\r", "\ufeff", "\u2028", "\x85"]
SNIPPETS += ["1", "010", "1e9", "12:30", "no", "---", "...", "!!str", "&a", "*a", "<<", "\x00"]


@settings(deadline=None, max_examples=300)
@given(st.lists(st.sampled_from(SNIPPETS), max_size=25), st.booleans())
def test_any_text_is_a_sweep_or_a_list_of_mistakes(
    snippets: list[str], after_a_good_start: bool
) -> None:
    text = (GOOD if after_a_good_start else "") + "".join(snippets)
    bad: BadSweep | None = None
    try:
        read_sweep(text)
    except BadSweep as caught:
        bad = caught
    if bad is not None:
        assert bad.render("x").startswith("x:")
        lines = len(text.splitlines()) + 1
        assert all(1 <= each.line <= lines and each.column >= 1 for each in bad.problems)


def test_an_unknown_backend_is_reported_with_its_location() -> None:
    text = GOOD.replace("mlp-4", "{use: mlp-4, backend: cuda}")
    expected = "workload.backend: unknown backend 'cuda'; use cpu or opencl"
    assert problems_of(text) == [(3, 33, expected)]


def test_a_backend_that_is_set_twice_is_refused() -> None:
    text = GOOD.replace("mlp-4", "{use: mlp-4, backend: cpu}") + "matrix: {backend: [opencl]}\n"
    (problems,) = problems_of(text)
    assert problems[2] == "matrix: backend is already set under workload; remove one of them"
