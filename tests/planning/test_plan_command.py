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
    """Run `farm sweep VERB` in this process, where no lab exists."""
    lab = ["--lab", str(tmp_path / "none")] if verb == "plan" else []
    return CliRunner().invoke(
        sweep, [verb, *map(str, words), *lab], standalone_mode=False, catch_exceptions=False
    )


def test_a_plan_counts_the_cells_of_every_rule(tmp_path: Path) -> None:
    result = farm_sweep(tmp_path, "plan", STUDY)
    assert "The plan does not cover any phone: the lab in" in result.stderr
    lines = result.stdout.splitlines()
    size = "413 cells x 6 to 20 repeats, one baseline run per 40 other runs."
    assert lines[0].endswith(size)
    assert lines[1:] == [
        "  matrix          420 cells",
        "  exclude #1   -    8: one step takes longer than the whole run may",
        "  exclude #2   -   38 where ram_mb < 6000: out of memory",
        "  include #1   +    1: whether it still scales",
    ]


def test_a_plan_is_available_as_json(tmp_path: Path) -> None:
    plan = json.loads(farm_sweep(tmp_path, "plan", STUDY, "--json").stdout)
    assert plan["cells"] == {"matrix": 420, "kept": 413}
    assert [rule["cells"] for rule in plan["rules"]] == [8, 38, 1]
    assert (plan["phones"], plan["repeats_at_most"]) == ([], 20)
    assert (plan["unavailable"], plan["warnings"]) == ({}, [])


@pytest.mark.parametrize("verb", ["plan", "validate"])
def test_the_mistakes_of_a_sweep_file_are_printed(tmp_path: Path, verb: str) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text("farm: 1\nname: x\nworkload: mlp-4\nphones: all\nrepeat: 0\n")
    result = farm_sweep(tmp_path, verb, file)
    assert result.return_value == 3
    assert "bad.yaml:5:9: repeat: 0 is out of range" in result.stderr


def test_validate_prints_the_size_of_a_sweep(tmp_path: Path) -> None:
    result = farm_sweep(tmp_path, "validate", EXAMPLES / "demo.yaml")
    assert result.stdout.endswith("3 cells x 3 repeats: 9 runs per phone.\n")
    result = farm_sweep(tmp_path, "validate", EXAMPLES / "demo.yaml", "--json")
    assert json.loads(result.stdout)["runs_per_phone"] == 9


def test_a_digest_with_a_prefix_equals_the_whole_digest() -> None:
    for last in ("serial", 'with "quotes" and ü', ""):
        assert digest_with_prefix(["a", "b"])(last) == digest_of(["a", "b", last])
