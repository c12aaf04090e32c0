"""`farm sweep plan` and `validate` without a lab: only the file is checked."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from orchestrator.commands.sweep import sweep
from workloads.protocol.base import digest_of, digest_with_prefix

EXAMPLES = Path(__file__).parents[2] / "examples"
STUDY = EXAMPLES / "emdl21-cpu.yaml"


def farm_sweep(tmp_path: Path, verb: str, *words: str | Path) -> Result:
    lab = ["--lab", str(tmp_path / "none")] if verb == "plan" else []
    return CliRunner().invoke(
        sweep, [verb, *map(str, words), *lab], standalone_mode=False, catch_exceptions=False
    )


def test_a_plan_counts_what_every_rule_does(tmp_path: Path) -> None:
    made = farm_sweep(tmp_path, "plan", STUDY)
    assert "The phones are not known here: the lab in" in made.stderr
    lines = made.stdout.splitlines()
    words = "413 cells x 6 to 20 repeats, the baseline once among 40."
    assert lines[0].endswith(words)
    assert lines[1:] == [
        "  matrix          420 cells",
        "  exclude #1   -    8: one step takes longer than the whole run may",
        "  exclude #2   -   38 where ram_mb < 6000: out of memory",
        "  include #1   +    1: whether it still scales",
    ]


def test_a_plan_for_programs_says_the_same(tmp_path: Path) -> None:
    made = json.loads(farm_sweep(tmp_path, "plan", STUDY, "--json").stdout)
    assert made["cells"] == {"matrix": 420, "kept": 413}
    assert [rule["cells"] for rule in made["rules"]] == [8, 38, 1]
    assert (made["phones"], made["repeats_at_most"]) == ([], 20)


@pytest.mark.parametrize("verb", ["plan", "validate"])
def test_a_wrong_file_is_shown_with_its_mistakes(tmp_path: Path, verb: str) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text("farm: 1\nname: x\nworkload: mlp-4\nphones: all\nrepeat: 0\n")
    made = farm_sweep(tmp_path, verb, file)
    assert made.return_value == 3
    assert "bad.yaml:5:9: repeat: 0 is out of range" in made.stderr


def test_validate_says_how_large_it_is(tmp_path: Path) -> None:
    made = farm_sweep(tmp_path, "validate", EXAMPLES / "demo.yaml")
    assert made.stdout.endswith("2 cases x 2 conditions x 2 repeats: 8 runs a phone.\n")


def test_a_digest_with_a_prefix_equals_the_whole_digest() -> None:
    for last in ("serial", 'with "quotes" and ü', ""):
        assert digest_with_prefix(["a", "b"])(last) == digest_of(["a", "b", last])
