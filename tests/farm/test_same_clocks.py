"""Levels that are one clock on a phone are named, from the plan to the exports."""

import csv
import io
import json
from pathlib import Path

import pytest

from tests.farm.conftest import Farm

SWEEP = """\
farm: 1
name: levels
workload: mlp-4
phones: [{phone}*]
matrix:
  freq: [low, mid, high, free]
conditions:
  cores: {cores}
repeat: 2
"""
SAME = (
    "freq: low and mid are the same clock on HUAWEI Mate 30 (big2: 1.28 GHz), "
    "so their results differ only by chance"
)
SAME_JSON = {
    "setting": "freq",
    "levels": ["low", "mid"],
    "model": "HUAWEI Mate 30",
    "cores": "big2",
    "clocks_khz": [1_280_000],
}


def sweep_file(folder: Path, phone: str, cores: str) -> Path:
    """Write a sweep over all levels on one phone."""
    file = folder / "levels.yaml"
    file.write_text(SWEEP.format(phone=phone, cores=cores))
    return file


def without_phone(found: list[dict[str, object]]) -> list[dict[str, object]]:
    return [{name: value for name, value in one.items() if name != "phone"} for one in found]


def test_the_same_clock_is_named_from_the_plan_to_the_exports(farm: Farm, tmp_path: Path) -> None:
    file = sweep_file(tmp_path, "VMT30", "big2")
    assert f"warning: {SAME}; leave one of them out" in farm.command("sweep", "plan", file).stdout
    plan = json.loads(farm.command("sweep", "plan", file, "--json").stdout)
    assert without_phone(plan["same_clocks"]) == [SAME_JSON]

    submitted = farm.command("sweep", "submit", file)
    assert submitted.returncode == 0
    assert f"warning: {SAME}; leave one of them out" in submitted.stderr
    again = json.loads(farm.command("sweep", "submit", file, "--json").stdout)
    assert without_phone(again["same_clocks"]) == [SAME_JSON]
    assert farm.command("watch", "levels", "--exit-status").returncode == 0

    shown = farm.command("sweep", "show", "levels").stdout
    heading = "PHONE\tCORES\tCPUS\tlow, GHz\tmid, GHz\thigh, GHz\tSTART °C\n"
    assert f"{heading}HUAWEI Mate 30\tbig2\t4-5\t1.28\t1.28\t2.09\t" in shown
    planned = farm.command("sweep", "plan", file).stdout
    assert "HUAWEI Mate 30\tbig2\t4-5\t" in planned
    assert SAME in " ".join(shown.split())
    as_json = json.loads(farm.command("sweep", "show", "levels", "--json").stdout)
    assert without_phone(as_json["same_clocks"]) == [SAME_JSON]
    clocks = {(one["condition"], *one["clocks_khz"].values()) for one in as_json["figures"]}
    assert clocks == {
        ("cold big2 low", 1_280_000),
        ("cold big2 mid", 1_280_000),
        ("cold big2 high", 2_090_000),
        ("cold big2 free",),
    }

    for table in ("figures", "outcomes", "ranking", "samples"):
        export = farm.command("export", "levels", "--table", table, "--output", "-").stdout
        rows = list(csv.DictReader(io.StringIO(export)))
        assert {(row["freq"], row["clock_ghz"]) for row in rows} == {
            ("low", "1.28"),
            ("mid", "1.28"),
            ("high", "2.09"),
            ("free", ""),
        }, table
    page = tmp_path / "levels.html"
    assert farm.command("report", "levels", "--output", page).returncode == 0
    text = page.read_text()
    assert text.count(SAME) >= 2, "in the caption of the figure and beside the clocks"
    assert " = low</text>" in text, "the figure compares mid with low"


@pytest.mark.parametrize(("phone", "cores"), [("VMT30", "big4"), ("VM16T", "big2")])
def test_levels_that_differ_are_not_named(
    farm: Farm, tmp_path: Path, phone: str, cores: str
) -> None:
    plan = json.loads(
        farm.command("sweep", "plan", sweep_file(tmp_path, phone, cores), "--json").stdout
    )
    assert len(plan["phones"]) == 1
    assert plan["same_clocks"] == []
    assert not any("same clock" in warning for warning in plan["warnings"])
