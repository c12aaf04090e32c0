"""The probe: what a phone is, by its own word."""

from dataclasses import replace
from typing import Any

import pytest

from agent.desk import Desk
from agent.lane import attempt
from agent.phone.adb import AdbServer
from agent.phone.install import RunnerInfo, ask_runner, install_one_that_starts
from agent.phone.phone import Phone
from agent.phone.probe import serial_of
from agent.phone.reach import CLOCKS_FIXED, Reach, judge_control
from kernels.manifest import RunnerBuild, runner_for
from tests.agent.conftest import StartPhone
from tests.agent.jobs import a_job
from tests.agent.virtual_phones import VirtualPhone, open_phone
from workloads.fault import BadOutput, PhoneTrouble
from workloads.measure import Source, Standing
from workloads.phone import ControlLevel, ThermalZone, choose_cores

ZONES = (ThermalZone(path="/sys/z", type="cpu", scale=1.0),)


def test_facts_of_a_rooted_phone(phone: Phone, there: VirtualPhone) -> None:
    """Serial, clusters, zones, control and provenance; the address is not among them."""
    facts = phone.known
    assert facts.serial == there.serial
    assert there.address not in facts.model_dump_json()
    assert [cluster.cpus for cluster in facts.clusters] == [(0, 1, 2, 3), (4, 5, 6), (7,)]
    assert all("cpu" in zone.type for zone in facts.cpu_zones)
    assert facts.slow_zone is not None
    assert facts.control is ControlLevel.CONTROLLED
    assert facts.provenance is not None
    assert facts.provenance.time is not None
    assert facts.provenance.time.source is Source.SIMULATED
    assert phone.clock.value == pytest.approx(100, rel=0.3)


def test_facts_of_a_phone_with_two_clusters(adb: AdbServer, start_phone: StartPhone) -> None:
    """Another vendor's names for zones, another grouping of cores."""
    facts = open_phone(adb, start_phone("huawei-honor-8").address).known
    assert [cluster.cpus for cluster in facts.clusters] == [(0, 1, 2, 3), (4, 5, 6, 7)]
    assert [zone.type for zone in facts.cpu_zones] == ["soc_thermal", "cluster0", "cluster1"]
    assert choose_cores(facts, "big4").mask == 0xF0


def test_the_runner_is_pushed_once(adb: AdbServer, phone: Phone, there: VirtualPhone) -> None:
    """By digest: the second time it is there already; damage is noticed."""
    from agent.phone.install import install_runner

    build = runner_for(phone.known.abi)
    path = install_runner(phone, build)
    phone.push(b"damaged", path, mode=0o755)
    assert install_runner(phone, build) == path
    assert phone.pull(path, 1_000_000) == build.content


def test_a_runner_that_does_not_start_gives_way_to_its_spare(phone: Phone) -> None:
    """Which one it became is known by its digest."""
    good = runner_for(phone.known.abi)
    broken = RunnerBuild(good.abi, "f" * 64, b"\x7fELF of somebody else", spare=good)
    build, info = install_one_that_starts(phone, broken)
    assert build == good
    assert isinstance(info, RunnerInfo)
    assert broken.which(build.digest) == good
    with pytest.raises(BadOutput, match="breaks the contract"):
        install_one_that_starts(phone, replace(broken, spare=None))


def test_a_runner_that_breaks_its_contract_is_named(phone: Phone) -> None:
    """Whatever a binary prints instead of its info."""
    with pytest.raises(BadOutput, match="breaks the contract"):
        ask_runner(phone, "/system/bin/ls")


def test_a_phone_without_a_runner_says_so(phone: Phone) -> None:
    """The placeholder's own sentence."""
    phone.push(b"#!/system/bin/sh\n" + SENTENCE, "/data/local/tmp/farmhand/none", mode=0o755)
    said = ask_runner(phone, "/data/local/tmp/farmhand/none")
    assert said == "There is no runner for x86 yet."


SENTENCE = b"""
echo '{"line":"fault","code":"no_runner","text":"There is no runner for x86 yet."}'
exit 9
"""


REACH = Reach(root=True, clocks_writable=True, cpu_zones=ZONES)
CLOSED = (ThermalZone(path="thermalservice:CPU0", type="CPU0", scale=0.001),)


@pytest.mark.parametrize(
    ("change", "level", "words"),
    [
        ({}, ControlLevel.CONTROLLED, "no GPU clock was found"),  # everything that counts
        ({"clocks_writable": False}, ControlLevel.PARTIAL, CLOCKS_FIXED),  # the vendor blocks them
        ({"cpu_zones": ()}, ControlLevel.PARTIAL, "no CPU temperature"),
        ({"cpu_zones": CLOSED}, ControlLevel.PARTIAL, "the zones are closed"),
        ({"root": False, "clocks_writable": False}, ControlLevel.OBSERVED, "not root"),
        (
            {"root": False, "clocks_writable": False, "fixed_performance": True},
            ControlLevel.PARTIAL,
            "freq: fixed",
        ),
        (
            {"root": False, "cpus": (0, 1, 2), "shell_cpus": (0, 1)},
            ControlLevel.PARTIAL,
            "cpuset leaves out cpu2",
        ),
    ],
)
def test_control_levels(change: dict[str, Any], level: ControlLevel, words: str) -> None:
    """How much is held, and a sentence for each thing that is not."""
    control = judge_control(replace(REACH, **change))
    assert control.level is level
    assert words in "; ".join(control.missing)
    assert not any(words in held for held in control.held)


def test_a_rooted_phone_tells_all_that_can_be_held(phone: Phone) -> None:
    facts = phone.known
    assert facts.gpu is not None
    assert (facts.gpu.name, facts.gpu.writable) == ("Adreno640v1", True)
    assert facts.charging is not None
    assert facts.charging.path.endswith("input_suspend")
    assert facts.shell_cpus == tuple(range(8))
    assert {"skin-therm-adc", "battery"} <= {zone.type for zone in facts.zones}
    assert facts.uncontrolled == ()
    assert len(facts.controlled) == 7


def test_a_mali_phone_without_a_charging_switch_says_so(
    adb: AdbServer, start_phone: StartPhone
) -> None:
    facts = open_phone(adb, start_phone("google-pixel-8").address).known
    assert facts.gpu is not None
    assert (facts.gpu.name, facts.gpu.writable) == ("Mali-G715 MC7", True)
    assert facts.fixed_performance
    assert facts.charging is None
    assert facts.uncontrolled == ("charging cannot be cut: this kernel shows no switch for it",)


def test_a_phone_as_sold_is_measured_at_its_level(
    adb: AdbServer, start_phone: StartPhone, desk: Desk
) -> None:
    """Its zones are closed, so the framework says how warm it is; a valid run says so as well."""
    phone = open_phone(adb, start_phone("xiaomi-mi-9:stock").address)
    facts = phone.known
    assert facts.control is ControlLevel.OBSERVED
    assert all(zone.path.startswith("thermalservice:") for zone in facts.cpu_zones)
    assert facts.slow_zone is not None
    assert facts.slow_zone.path.endswith("/battery/temp")
    report = attempt(a_job(facts.serial), phone, desk).report
    assert report.fault is None, report.fault
    assert report.verdict is not None
    assert report.verdict.standing is Standing.VALID, report.verdict.reasons
    found = {metric.name: metric.value for metric in report.metrics}
    assert 20 < found["start_temp_c"] <= 33
    barred = attempt(a_job(facts.serial, fence=2, freq="fixed"), phone, desk).report.fault
    assert barred is not None
    assert "no fixed-performance mode" in barred.text


@pytest.mark.parametrize("serial", ["", "a b", "x" * 65, "\x1b[31m"])
def test_a_phone_without_a_usable_serial_is_turned_away(serial: str) -> None:
    """Its address is no substitute: it moves with the cable."""
    with pytest.raises(PhoneTrouble):
        serial_of({"ro.serialno": serial, "ro.boot.serialno": ""}, "127.0.0.1:5001")
