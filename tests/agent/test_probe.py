"""The probe: what a phone is, and what can be controlled on it."""

import json
import re
from dataclasses import replace
from typing import Any

import pytest

from agent.collect.energy import CURRENT
from agent.collect.readings import parse_readings, readings_from_snapshots
from agent.lane import run_attempt
from agent.lane_context import LaneContext
from agent.phone.adb import AdbServer
from agent.phone.capabilities import Capabilities, summarize_control
from agent.phone.kernel_nodes import SUPPLY, gauge_supply, supply_node, with_usual_supply
from agent.phone.phone_driver import Phone
from agent.phone.phone_paths import HOME
from agent.phone.phone_snapshot import take_snapshot
from agent.phone.probe import parse_serial
from agent.phone.runner_install import RunnerInfo, install_working_runner, read_runner_info
from kernels.runner_builds import RunnerBuild, runner_for
from tests.agent.conftest import StartPhone
from tests.agent.jobs import a_job
from tests.agent.virtual_phones import VirtualPhone, open_phone
from workloads.protocol.faults import BadOutput, Blame, PhoneTrouble
from workloads.protocol.metrics import Source
from workloads.protocol.phone_facts import ControlLevel, ThermalZone, choose_cores
from workloads.protocol.stage import Stage
from workloads.protocol.verdict import Validity

CORE_FOLDER = "/sys/devices/system/cpu/cpu%d/cpufreq"
ZONES = (ThermalZone(path="/sys/z", type="cpu", scale=1.0),)


def test_facts_of_a_rooted_phone(phone: Phone, virtual_phone: VirtualPhone) -> None:
    facts = phone.facts
    assert facts.serial == virtual_phone.serial
    assert virtual_phone.address not in facts.model_dump_json()
    assert [cluster.cpus for cluster in facts.clusters] == [(0, 1, 2, 3), (4, 5, 6), (7,)]
    assert all("cpu" in zone.type for zone in facts.cpu_zones)
    assert facts.body_zone is not None
    assert facts.control is ControlLevel.CONTROLLED
    assert facts.provenance is not None
    assert facts.provenance.time is not None
    assert facts.provenance.time.source is Source.SIMULATED


def test_facts_of_a_phone_with_two_clusters(adb: AdbServer, start_phone: StartPhone) -> None:
    phone = open_phone(adb, start_phone("huawei-honor-8").address)
    facts = phone.facts
    assert [cluster.cpus for cluster in facts.clusters] == [(0, 1, 2, 3), (4, 5, 6, 7)]
    assert [zone.type for zone in facts.cpu_zones] == ["cluster0", "cluster1"]
    assert [cluster.folder for cluster in facts.clusters] == [CORE_FOLDER % 0, CORE_FOLDER % 4]
    assert all(cluster.ladder_khz for cluster in facts.clusters)
    assert choose_cores(facts, "big4").mask == 0xF0
    # Huawei writes the name of the battery with a capital letter.
    assert facts.gauge_supply == "Battery"
    assert facts.battery is not None
    assert any("fuel gauge" in text for text in facts.controlled)
    assert take_snapshot(phone, power_nodes=[supply_node(CURRENT, "Battery")]).battery_pct
    assert readings_from_snapshots(phone.idle_samples).series(CURRENT)


def test_the_gauge_is_found_where_the_vendor_has_put_it() -> None:
    def nodes(**supplies: str) -> dict[str, str]:
        return {f"{SUPPLY}/{name}/current_now": text for name, text in supplies.items()}

    assert gauge_supply(nodes(battery="-1200", bms="-1100")) == "battery"
    assert gauge_supply(nodes(battery="", bms="-1100")) == "bms"
    assert gauge_supply({f"{SUPPLY}/Battery/capacity": "80"}) == "Battery"
    assert gauge_supply({}) == "battery"
    tablet = nodes(MainBattery="-350", pen="-2") | {f"{SUPPLY}/MainBattery/type": "Battery"}
    tablet |= {f"{SUPPLY}/pen/type": "Battery", f"{SUPPLY}/pen/scope": "Device"}
    assert gauge_supply(tablet) == "MainBattery"
    assert gauge_supply(nodes(pen="-2") | tablet | nodes(MainBattery="")) == "battery"
    assert with_usual_supply(tablet)[CURRENT] == "-350"
    assert with_usual_supply(nodes(bms="-1100"))[CURRENT] == "-1100"
    lines: list[dict[str, object]] = [
        {"line": "nodes", "paths": [supply_node(CURRENT, "bms"), "/sys/class/power_supply"]}
    ]
    lines += [{"line": "reading", "t_ns": 1, "v": [-5, 1]}]
    found = parse_readings("\n".join(map(json.dumps, lines)).encode())
    assert found.series(CURRENT) == [(1, -5)]


def test_the_runner_is_pushed_once(
    adb: AdbServer, phone: Phone, virtual_phone: VirtualPhone
) -> None:
    from agent.phone.runner_install import install_runner

    build = runner_for(phone.facts.abi)
    path = install_runner(phone, build)
    phone.push(b"damaged", path, mode=0o755)
    assert install_runner(phone, build) == path
    assert phone.pull(path, 1_000_000) == build.content


def test_a_runner_that_does_not_start_is_replaced_by_its_fallback(phone: Phone) -> None:
    good = runner_for(phone.facts.abi)
    broken = RunnerBuild(good.abi, "f" * 64, b"\x7fELF of somebody else", fallback=good)
    build, info = install_working_runner(phone, broken)
    assert build == good
    assert isinstance(info, RunnerInfo)
    assert broken.with_digest(build.digest) == good
    with pytest.raises(BadOutput):
        install_working_runner(phone, replace(broken, fallback=None))


def test_a_runner_that_breaks_its_contract_is_named(phone: Phone) -> None:
    with pytest.raises(BadOutput):
        read_runner_info(phone, "/system/bin/ls")


def test_a_file_system_without_execution_is_named(phone: Phone) -> None:
    phone.push(runner_for(phone.facts.abi).content, "/sdcard/runner", mode=0o755)
    with pytest.raises(PhoneTrouble, match="noexec"):
        read_runner_info(phone, "/sdcard/runner")


def test_a_phone_without_a_runner_is_reported(phone: Phone) -> None:
    phone.push(b"#!/system/bin/sh\n" + PLACEHOLDER, "/data/local/tmp/farmhand/none", mode=0o755)
    error = read_runner_info(phone, "/data/local/tmp/farmhand/none")
    assert error == "There is no runner for x86 yet."


PLACEHOLDER = b"""
echo '{"line":"fault","code":"no_runner","text":"There is no runner for x86 yet."}'
exit 9
"""


CAPABILITIES = Capabilities(root=True, clocks_writable=True, cpu_zones=ZONES)
HIDDEN_ZONES = (ThermalZone(path="thermalservice:CPU0", type="CPU0", scale=0.001),)


@pytest.mark.parametrize(
    ("change", "level", "words"),
    [
        (
            {},
            ControlLevel.CONTROLLED,
            "no GPU clock was found",
        ),  # the facts that the level depends on
        (
            {"clocks_writable": False},
            ControlLevel.PARTIAL,
            "the CPU clocks cannot be set",
        ),  # the vendor blocks them
        ({"cpu_zones": ()}, ControlLevel.PARTIAL, "no CPU temperature"),
        ({"cpu_zones": HIDDEN_ZONES}, ControlLevel.PARTIAL, "thermal zones cannot be read"),
        ({"root": False, "clocks_writable": False}, ControlLevel.OBSERVED, "not root"),
        (
            {"root": False, "clocks_writable": False, "fixed_performance": True},
            ControlLevel.PARTIAL,
            "freq: fixed",
        ),
        (
            {"root": False, "cpus": (0, 1, 2), "shell_cpus": (0, 1)},
            ControlLevel.PARTIAL,
            "cpuset excludes cpu2",
        ),
    ],
)
def test_control_levels(change: dict[str, Any], level: ControlLevel, words: str) -> None:
    control = summarize_control(replace(CAPABILITIES, **change))
    assert control.level is level
    assert words in "; ".join(control.uncontrolled)
    assert not any(words in text for text in control.controlled)


def test_a_rooted_phone_lists_all_that_can_be_controlled(phone: Phone) -> None:
    facts = phone.facts
    assert facts.gpu is not None
    assert (facts.gpu.name, facts.gpu.writable) == ("Adreno640v1", True)
    assert facts.charging is not None
    assert facts.charging.path.endswith("input_suspend")
    assert facts.shell_cpus == tuple(range(8))
    assert {"skin-therm-adc", "battery"} <= {zone.type for zone in facts.zones}
    assert facts.uncontrolled == ()
    assert len(facts.controlled) == 7


def test_a_mali_phone_without_a_charging_switch_is_reported(
    adb: AdbServer, start_phone: StartPhone
) -> None:
    facts = open_phone(adb, start_phone("google-pixel-8").address).facts
    assert facts.gpu is not None
    assert (facts.gpu.name, facts.gpu.writable) == ("Mali-G715 MC7", True)
    assert facts.fixed_performance
    assert facts.charging is None
    assert [zone.type for zone in facts.cpu_zones] == ["BIG", "MID", "LITTLE"]
    assert facts.uncontrolled == ("charging cannot be stopped: this kernel has no switch for it",)


def test_an_unrooted_phone_is_measured_at_its_level(
    adb: AdbServer, start_phone: StartPhone, context: LaneContext
) -> None:
    """Its zones are not readable, so the framework gives the temperature."""
    phone = open_phone(adb, start_phone("xiaomi-mi-9:stock").address)
    facts = phone.facts
    assert facts.control is ControlLevel.OBSERVED
    assert all(zone.path.startswith("thermalservice:") for zone in facts.cpu_zones)
    assert facts.body_zone is not None
    assert facts.body_zone.path.endswith("/battery/temp")
    report = run_attempt(a_job(facts.serial), phone, context).report
    assert report.fault is None, report.fault
    assert report.verdict is not None
    assert report.verdict.validity is Validity.VALID, report.verdict.reasons
    metrics = {metric.name: metric.value for metric in report.metrics}
    assert 20 < metrics["start_temp_c"] <= 33
    listing = phone.shell_checked(["ls", "-l", HOME, f"{HOME}/lane"])
    assert "fence" in listing
    assert re.search(r"^[-d].{7}w", listing, re.MULTILINE) is None  # other users may not write
    refused = run_attempt(a_job(facts.serial, fence=2, freq="fixed"), phone, context).report.fault
    assert refused is not None
    assert (refused.blame, refused.stage) == (Blame.REQUEST, Stage.RESOLVE)


@pytest.mark.parametrize("serial", ["", "a b", "x" * 65, "\x1b[31m", ".", "..", "..."])
def test_a_phone_without_a_usable_serial_is_refused(serial: str) -> None:
    with pytest.raises(PhoneTrouble):
        parse_serial({"ro.serialno": serial, "ro.boot.serialno": ""}, "127.0.0.1:5001")
