"""The manifest of an external program: the cases it gives, and mistakes with their location."""

from collections.abc import Callable
from pathlib import Path

import pytest

from orchestrator.sweepfile.sweep_errors import BadSweep
from orchestrator.sweepfile.sweep_file import read_sweep
from workloads.external_program import Manifest
from workloads.protocol.base import digest_of_bytes

ZEROS = "0" * 64
GOOD = f"""\
external: 1
name: tool
files:
  tool: {ZEROS}
parameters:
  tokens: {{default: 32, min: 1, max: 64}}
command: ["{{tool}}", -n, "{{tokens}}", -v, on]
samples_per_step: tokens
read:
  steps: {{json: samples_ns, unit: ns}}
"""
SWEEP = "farm: 1\nname: demo\nphones: all\nworkload: external:tool.yaml\n"
EXAMPLES = Path(__file__).parents[2] / "examples"


def beside(**files: str) -> Callable[[str], str]:
    def fetch(name: str) -> str:
        if name not in files:
            raise FileNotFoundError(2, "No such file or directory", name)
        return files[name]

    return fetch


def manifest_in(text: str) -> Manifest:
    (case,) = read_sweep(SWEEP, beside(**{"tool.yaml": text})).cases
    assert case.manifest is not None
    return case.manifest


def problems_of(manifest: str, sweep: str = SWEEP) -> list[tuple[int, int, str]]:
    with pytest.raises(BadSweep) as caught:
        read_sweep(sweep, beside(**{"tool.yaml": manifest}))
    return [(each.line, each.column, each.text) for each in caught.value.problems]


def test_a_sweep_names_a_manifest_and_chooses_its_parameters() -> None:
    sweep = "farm: 1\nname: demo\nphones: all\nmatrix: {tokens: [8, 16]}\n"
    sweep += "workload: external:tool.yaml\n"
    cases = read_sweep(sweep, beside(**{"tool.yaml": GOOD})).cases
    assert [case.label for case in cases] == ["tool tokens=8", "tool tokens=16"]
    manifest = cases[0].manifest
    assert manifest is not None
    assert manifest.command == ("{tool}", "-n", "{tokens}", "-v", "on")
    assert manifest.files[0].sha256 == ZEROS


def test_an_external_program_gets_only_its_own_parameters() -> None:
    sweep = "farm: 1\nname: demo\nphones: all\nmatrix:\n"
    sweep += "  workload: [sgemm, external:tool.yaml]\n  tokens: [8, 16]\n"
    cases = read_sweep(sweep, beside(**{"tool.yaml": GOOD})).cases
    assert sorted(case.workload for case in cases) == ["external", "external", "sgemm"]


def test_a_changed_manifest_is_another_sweep() -> None:
    ids = [
        read_sweep(SWEEP, beside(**{"tool.yaml": text})).id
        for text in (GOOD, GOOD + "# a remark\n", GOOD.replace("-v", "-q"))
    ]
    assert ids[0] == ids[1] != ids[2]


def test_a_missing_manifest_is_reported_with_its_location() -> None:
    with pytest.raises(BadSweep) as caught:
        read_sweep(SWEEP)
    (problem,) = caught.value.problems
    assert (problem.line, problem.column) == (4, 11)
    assert problem.text == "workload: tool.yaml cannot be read: No such file or directory"


def test_a_program_is_listed_once() -> None:
    sweep = "farm: 1\nname: demo\nphones: all\nmatrix: {workload: [external:a, external:b]}\n"
    with pytest.raises(BadSweep, match="'tool' is listed twice"):
        read_sweep(sweep, beside(a=GOOD, b=GOOD))


@pytest.mark.parametrize(
    ("written", "instead", "expected"),
    [
        ("external: 1", "external: 2", "tool.yaml:1:11: external: unknown version 2"),
        ("external: 1\n", "", "tool.yaml:1:1: the key 'external' is missing"),
        ("name: tool", "name: My Tool", "tool.yaml:2:7: name: 'My Tool' is not a valid name"),
        ("name: tool\n", "", "tool.yaml:1:1: the key 'name' is missing"),
        (ZEROS, "12ab", "tool.yaml:4:9: files.tool: '12ab' is not a SHA-256"),
        ("  tool:", "  a/tool:", "tool.yaml:4:3: files: 'a/tool' is not a plain file name"),
        ("default: 32", "default: 99", "tool.yaml:6:21: parameters.tokens.default: 99 is out of"),
        ("min: 1, ", "", "tool.yaml:6:11: parameters.tokens: the key 'min' is missing"),
        ("  tokens:", "  steps:", "tool.yaml:6:3: parameters: 'steps' is reserved"),
        ('"{tokens}"', '"{token}"', "tool.yaml:7:25: command[2]: unknown placeholder 'token'"),
        ('"{tokens}"', "{tokens: }", "tool.yaml:7:25: command[2]: this is a mapping; write a word"),
        ("step: tokens", "step: batch", "tool.yaml:8:19: samples_per_step: unknown parameter 'ba"),
        ("unit: ns", "unit: hours", "tool.yaml:10:35: read.steps.unit: unknown unit 'hours'"),
        (", unit: ns", "", "tool.yaml:10:10: read.steps: the key 'unit' is missing"),
        ("json: samples_ns", "json: a b", "tool.yaml:10:17: read.steps.json: 'a b' is not a path"),
        ("json: samples_ns", "regex: '('", "tool.yaml:10:18: read.steps.regex: invalid regex"),
        ("json: samples_ns", "regex: ms", "tool.yaml:10:18: read.steps.regex: the regex needs one"),
        ("json: samples_ns, ", "", "tool.yaml:10:10: read.steps: write either json or regex"),
        ("  steps:", "  step:", "tool.yaml:10:3: read: unknown key 'step'; did you mean 'steps'?"),
        ("external: 1", "external: 1\ntraining: true", "2:11: training: a training needs a rule"),
        ("external: 1", "external: 1\nthreads: 0", "2:10: threads: 0 is out of range"),
        ("external: 1", "external: 1\nseconds_max: 5", "tool.yaml:2:14: seconds_max:"),
        (
            "external: 1",
            "external: 1\nenvironment: {a: b}",
            "2:15: environment: 'a' is not a valid",
        ),
        ("external: 1", "external: 1\ncomand: x", "2:1: unknown key 'comand'; did you mean"),
    ],
)
def test_every_mistake_in_a_manifest_has_its_location(
    written: str, instead: str, expected: str
) -> None:
    assert written in GOOD
    problems = problems_of(GOOD.replace(written, instead, 1))
    assert {(line, column) for line, column, _ in problems} == {(4, 11)}
    assert any(expected in text for _, _, text in problems), problems


def test_all_mistakes_in_a_manifest_are_reported_at_once() -> None:
    text = GOOD.replace(ZEROS, "12ab").replace('"{tokens}"', '"{token}"')
    text = text.replace("default: 32", "default: 99").replace("unit: ns", "unit: hours")
    places = [
        problem.split(": ")[1].rpartition("tool.yaml:")[2] for _, _, problem in problems_of(text)
    ]
    assert places == ["10:35", "4:9", "6:21", "7:25"]


def test_a_mistake_causes_no_mistakes_about_what_depends_on_it() -> None:
    texts = [problem for _, _, problem in problems_of(GOOD.replace(f"\n  tool: {ZEROS}", " x"))]
    assert len(texts) == 1
    assert "tool.yaml:3:8: files: this is not a mapping; write it like {llama-bench" in texts[0]


def test_a_manifest_can_have_optional_keys() -> None:
    more = GOOD.replace("json: samples_ns, unit: ns", "regex: 'took ([0-9.]+)', unit: ms, skip: 2")
    more += "  loss: {regex: 'loss ([0-9.]+)'}\n  peak_rss: {json: rss, unit: MB}\n"
    more += "training: true\nthreads: 4\nseconds_max: 20m\nenvironment: {LD_LIBRARY_PATH: .}\n"
    manifest = manifest_in(more)
    assert (manifest.training, manifest.threads, manifest.seconds_max) == (True, 4, 1200.0)
    assert manifest.environment == {"LD_LIBRARY_PATH": "."}
    assert manifest.step.skip == 2
    assert manifest.loss is not None
    assert manifest.peak_rss is not None


def test_the_example_is_valid_and_has_the_digests_of_its_files() -> None:
    folder = EXAMPLES / "external"
    text = (folder / "compare.yaml").read_text()
    sweep = read_sweep(text, lambda name: (folder / name).read_text())
    (manifest,) = [case.manifest for case in sweep.cases if case.manifest is not None]
    for file in manifest.files:
        assert file.sha256 == digest_of_bytes((folder / file.name).read_bytes())
