"""`farm phone try`: from the connection to a number with its verdict."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from agent.lane_context import LaneContext
from agent.phone.adb import AdbServer
from agent.phone.facts_file import read_facts_file
from agent.phone.phone_memory import load_phone_memory
from agent.try_cli import NOT_VALID
from agent.try_cli import phone as commands
from orchestrator.sweepfile.sweep_file import read_sweep
from tests.agent.lane_harness import open_lane_harness
from tests.agent.test_capture import probed, served


def try_phone(adb: AdbServer, address: str, *more: str) -> Result:
    words = ["try", address, "--adb-port", str(adb.port), "--patience", "20", "--lab", "lab"]
    return CliRunner().invoke(commands, [*words, *more], standalone_mode=False)


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    "profile",
    [
        "xiaomi-mi-9:stock",
        pytest.param("meizu-16t", marks=pytest.mark.slow),
        pytest.param("google-pixel-8:stock", marks=pytest.mark.slow),
    ],
)
def test_a_phone_out_of_the_pocket_gives_a_valid_number(
    adb: AdbServer, context: LaneContext, tmp_path: Path, profile: str
) -> None:
    with open_lane_harness(adb, context, tmp_path, profile) as harness:
        serial, address = harness.phone.facts.serial, harness.phone.address
        result = try_phone(adb, address, "--report")
        settings = harness.phone.shell(["settings", "list", "global"]).text
    assert result.return_value == 0, result.output
    assert "noise       ok" in result.output
    assert " ms per step of 32 samples on " in result.output
    assert not {serial, address} & set(result.output.replace("'", " ").split())
    assert "stay_on_while_plugged_in=0" in settings
    (sweep,) = tmp_path.glob("try-*.yaml")
    assert read_sweep(sweep.read_text()).name == sweep.stem
    assert read_facts_file(sweep.with_suffix(".toml")).name
    (state,) = tmp_path.glob("lab/agents/*")
    commission = load_phone_memory(state, serial).commission
    assert commission is not None
    assert commission.quick


def test_obstacles_are_named_with_the_place_to_tap(
    adb: AdbServer, context: LaneContext, tmp_path: Path
) -> None:
    """Even this phone gives a number; with a low battery its noise is not learned."""
    with open_lane_harness(adb, context, tmp_path, "xiaomi-mi-9:stock") as harness:
        harness.inject("refuse_settings")
        harness.inject("battery_drains", percent=12, per_min=0)
        result = try_phone(adb, harness.phone.address, "--json")
        harness.inject("false_times")
        fails = try_phone(adb, harness.phone.address)
    found = json.loads(result.stdout)
    bad = {check["name"]: check["remedy"] for check in found["checks"] if not check["good"]}
    assert bad.keys() == {"root", "settings", "screen", "battery"}, found
    assert "USB debugging (Security settings)" in bad["settings"]
    assert "charge it to 20 %" in bad["battery"]
    assert "ms per step" in found["number"]
    assert found["answer"].startswith("Xiaomi MI 9: mlp-4 takes")
    assert fails.return_value == NOT_VALID
    assert "ms per step of 32 samples on big4: void" in fails.output
    assert "Check the external program" in fails.output  # the advice of its reason


def test_a_refused_root_and_a_32_bit_system_are_named(adb: AdbServer) -> None:
    with served(adb, "meizu-16t") as (fleet, (address,)):
        phone = fleet.servers[0].phone
        phone.refuses_root = True
        phone.properties["ro.product.cpu.abi"] = "armeabi-v7a"
        result = try_phone(adb, address)
        reached, facts = probed(adb, address)
        reached.close()
    assert result.return_value == NOT_VALID
    narrow = "Meizu 16T runs a 32-bit Android (armeabi-v7a); training needs a 64-bit one"
    assert facts.runner_error == narrow
    assert f"program     no  {narrow}" in result.output
    assert "no number: " in result.output
    assert (facts.rooted, facts.root_manager) == (False, "Magisk")
    assert facts.uncontrolled[0] == "the shell is not root: Magisk is on the phone and refused it"


def test_without_a_phone_the_first_steps_are_named(tmp_path: Path) -> None:
    with AdbServer(tmp_path) as alone:
        result = CliRunner().invoke(commands, ["try", "--adb-port", str(alone.port)])
    assert "USB debugging" in str(result.exception)
