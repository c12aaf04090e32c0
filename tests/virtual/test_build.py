"""Phones built from a SoC table and public files, curves on the command line, and own sweeps."""

import csv
import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from agent.virtual.cli import virtual
from agent.virtual.profiles import load_profile
from agent.virtual.socs import soc_path
from agent.virtual.twin.fit_sweep import SweepCell, predict_cell, read_sweep
from agent.virtual.virtual_phone import VirtualPhone

POWER_PROFILE = """<!-- comment --><?xml version="1.0"?>
<device name="Android">
  <array name="cpu.clusters.cores"><value>4</value><value>3</value></array>
  <item name="cpu.cluster_power.cluster0">2</item>
  <array name="cpu.core_speeds.cluster0"><value>300000</value><value>1785600</value></array>
  <array name="cpu.core_power.cluster0"><value>10</value><value>40</value></array>
  <array name="cpu.core_speeds.cluster1"><value>710400</value><value>2419200</value></array>
  <array name="cpu.core_power.cluster1"><value>30</value><value>220</value></array>
</device>
"""
THERMAL = """// source: nowhere
{"Sensors": [
  {"Name": "battery"},
  {"Name": "SKIN", "HotThreshold": ["NAN", 37.0, 41.0, 46.5, 52.0, 140.0],
   "HotHysteresis": [0.0, 1.9, 1.9, 1.4, 1.9, 1.9], "PassiveDelay": 7000,
   "PIDInfo": {"K_Po": ["NAN", "NAN", 400, "NAN", "NAN", "NAN"]},
   "BindedCdevInfo": [{"CdevRequest": "thermal-cpufreq-1", "CdevCeiling": [11, 11, 11, 11, 13, 13],
                       "LimitInfo": [0, 0, 0, 11, 13, 13]}]}
]}
"""
FACTS = """schema = 1
name = "captured"
[properties]
"ro.product.model" = "SM-X"
"ro.product.manufacturer" = "Maker"
"ro.serialno" = "SECRET"
[[zone]]
number = 0
type = "cpu-0-0-usr"
[[zone]]
number = 1
type = "battery"
[[zone]]
number = 2
type = "quiet-therm"
"""


def run(*words: str | Path) -> str:
    result = CliRunner().invoke(virtual, [str(word) for word in words])
    assert result.exit_code == 0, result.output
    return result.output


def refusal(*words: str | Path) -> str:
    result = CliRunner().invoke(virtual, [str(word) for word in words])
    assert result.exit_code == 2, result.output
    assert "Traceback" not in result.output
    return result.output


def test_a_phone_is_built_and_says_what_is_guessed(tmp_path: Path) -> None:
    thermal, facts, out = (tmp_path / name for name in ("thermal.json", "facts.toml", "out.toml"))
    thermal.write_text(THERMAL, encoding="utf-8")
    facts.write_text(FACTS, encoding="utf-8")
    words = ("build", "sm8150", "--name", "Lab 855", "--body", "meizu-16t")
    shown = run(*words, "--thermal", thermal, "--facts", facts, "-o", out)
    grades = {line[:16].strip(): line[45:].split()[0] for line in shown.splitlines()[:-2]}
    assert grades["big power"] == "measured"
    assert grades["thermal policy"] == "derived"
    assert grades["heat, battery"] == "guessed"
    without = tmp_path / "without.toml"
    without.write_text(re.sub(r"(?m)^layout_file = .*$", "", out.read_text(encoding="utf-8")))
    assert "it lacks 'layout_file'" in refusal("predict", without, "--workload", "emdl-lenet")
    profile = load_profile(str(out))
    assert profile.fitted is None
    assert profile.calibration == "extrapolated"
    assert profile.build["ro.product.model"] == "SM-X"
    assert profile.build["ro.board.platform"] == "msmnile"  # of the body: the capture lacks it
    assert "ro.serialno" not in profile.build
    assert VirtualPhone(profile, speed=0.0).soc.cluster_by_role("big").ladder[-1] == 2419200
    policy = profile.throttle[0]
    assert [(rung.trip_c, rung.steps) for rung in policy.rungs] == [
        (41.0, 3),
        (46.5, 11),
        (52.0, 13),
    ]
    assert (policy.hysteresis_c, policy.poll_s, policy.clusters) == (1.9, 7.0, ("big",))
    answer = json.loads(run("predict", out, "--workload", "emdl-lenet", "--json"))
    assert answer["provenance"]["time"]["model"] == "extrapolated"


def test_a_soc_of_ones_own_is_predicted_from_its_family(tmp_path: Path) -> None:
    lines = soc_path("kirin990").read_text(encoding="utf-8").splitlines()
    own = tmp_path / "own.toml"
    text = "\n".join(line for line in lines if not line.startswith("power = "))
    own.write_text(text.replace('id = "kirin990"', 'id = "own"'), encoding="utf-8")
    steps = json.loads(run("curve", own, "--json"))["steps"]
    assert {step["grade"] for step in steps} == {"family"}
    assert all(step["low_mw"] < step["milliwatts"] < step["high_mw"] for step in steps)
    assert "uncalibrated" in run("build", own, "--name", "Own", "--body", "huawei-mate-30")


def test_a_power_profile_is_shown_with_its_error(tmp_path: Path) -> None:
    path = tmp_path / "power_profile.xml"
    path.write_text(POWER_PROFILE, encoding="utf-8")
    answer = json.loads(run("curve", "sm8150", "--power-profile", path, "--json"))
    assert set(answer["power_profile_error"]) == {"little", "big"}
    assert 0 < answer["power_profile_error"]["little"] < 1
    assert "off the measured rows" in run("curve", "meizu-16t", "--power-profile", path)


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("t.json", "{", ("build", "sm8150", "--name", "x", "--thermal")),
        ("t.json", '{"Sensors": []}', ("build", "sm8150", "--name", "x", "--thermal")),
        ("t.json", '{"Sensors": [3]}', ("build", "sm8150", "--name", "x", "--thermal")),
        ("f.toml", "schema = 1", ("build", "sm8150", "--name", "x", "--facts")),
        ("p.xml", "<device>", ("curve", "sm8150", "--power-profile")),
        ("p.xml", "<device/>", ("curve", "sm8150", "--power-profile")),
        ("s.toml", "id = 3", ("curve",)),
        ("p.toml", "id = 3", ("predict", "--workload", "sgemm")),
        ("s.csv", "a,b\n1,2\n", ("calibrate", "xiaomi-mi-9", "--sweep")),
        ("s.csv", "", ("calibrate", "xiaomi-mi-9", "--sweep")),
    ],
)
def test_unusable_files_are_refused_in_one_sentence(
    tmp_path: Path, name: str, text: str, words: tuple[str, ...]
) -> None:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    assert name in refusal(*words, path)


def write_sweep(path: Path, cells: list[SweepCell], suspect: Sequence[SweepCell] = ()) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        columns = ["model", "workload", "parameters", "backend", "cores", "freq", "verdict"]
        writer = csv.DictWriter(file, [*columns, "metric", "value"])
        writer.writeheader()
        for cell in (*cells, *suspect):
            writer.writerow(
                {
                    "model": "Mine",
                    "workload": cell.workload,
                    "parameters": json.dumps(dict(cell.parameters)),
                    "backend": "cpu",
                    "cores": cell.cores,
                    "freq": f"{cell.freq}kHz" if cell.freq else "free",
                    "verdict": "suspect" if cell in suspect else "valid",
                    "metric": cell.metric,
                    "value": cell.value,
                }
            )


def test_a_twin_learns_from_ones_own_sweep(tmp_path: Path) -> None:
    """A phone with other cores and another idle power is measured; its twin finds both."""
    twin = load_profile("xiaomi-mi-9")
    truth = twin.with_values(
        {
            "cluster.big.flops_per_cycle": 9.0,
            "cluster.little.flops_per_cycle": 1.9,
            "heat.idle_w": 1.1,
        }
    )
    cells = [
        SweepCell("emdl-alexnet", (("batch_size", batch),), cores, freq, metric, 0.0)
        for batch in (4, 16)
        for cores in ("big1", "big2", "little2")
        for freq in (None, "1209600")
        for metric in ("step_ms", "power_w")
    ]
    measured = [
        SweepCell(c.workload, c.parameters, c.cores, c.freq, c.metric, predict_cell(truth, c))
        for c in cells
    ]
    path, out = tmp_path / "mine.csv", tmp_path / "mine.toml"
    write_sweep(path, measured)
    shown = run("calibrate", "xiaomi-mi-9", "--sweep", path, "--model", "Mine", "-o", out)
    assert "step_ms: the twin was" in shown
    learned = load_profile(str(out))
    for cell in measured:
        before = abs(predict_cell(twin, cell) / cell.value - 1)
        after = abs(predict_cell(learned, cell) / cell.value - 1)
        assert after < max(0.05, 0.5 * before), cell
    assert "Missing argument 'PHONE'" in refusal("calibrate", "--sweep", path)


def test_a_twin_learns_nothing_from_runs_that_do_not_count(tmp_path: Path) -> None:
    cell = SweepCell("emdl-alexnet", (("batch_size", 4),), "big1", None, "step_ms", 10.0)
    disturbed = replace(cell, value=90.0)
    path = tmp_path / "mine.csv"
    write_sweep(path, [cell], suspect=[disturbed])
    assert [each.value for each in read_sweep(path)] == [10.0]
    write_sweep(path, [], suspect=[disturbed])
    assert "has no step_ms or power_w of a valid CPU run" in refusal(
        "calibrate", "xiaomi-mi-9", "--sweep", path
    )
