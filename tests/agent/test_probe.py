"""The probe: what a phone is, by its own word."""

import pytest

from agent.phone.adb import AdbServer
from agent.phone.install import ask_runner
from agent.phone.phone import Phone
from agent.phone.probe import judge_control, serial_of
from kernels.manifest import runner_for
from tests.agent.conftest import StartPhone
from tests.agent.virtual_phones import VirtualPhone, open_phone
from workloads.fault import BadOutput, PhoneTrouble
from workloads.measure import Source
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
    assert phone.pull(path, 100_000) == build.content


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


@pytest.mark.parametrize(
    ("root", "writable", "zones", "level", "reasons"),
    [
        (True, True, ZONES, ControlLevel.CONTROLLED, 0),  # everything can be held
        (True, False, ZONES, ControlLevel.PARTIAL, 1),  # the vendor blocks the clocks
        (True, True, (), ControlLevel.PARTIAL, 1),  # no thermometer
        (False, False, ZONES, ControlLevel.OBSERVED, 2),  # a stock phone
    ],
)
def test_control_levels(
    root: bool,
    writable: bool,
    zones: tuple[ThermalZone, ...],
    level: ControlLevel,
    reasons: int,
) -> None:
    """How much is held, and one reason for each thing that is not."""
    found, why = judge_control(root, writable, zones)
    assert (found, len(why)) == (level, reasons)


@pytest.mark.parametrize("serial", ["", "a b", "x" * 65, "\x1b[31m"])
def test_a_phone_without_a_usable_serial_is_turned_away(serial: str) -> None:
    """Its address is no substitute: it moves with the cable."""
    with pytest.raises(PhoneTrouble):
        serial_of({"ro.serialno": serial, "ro.boot.serialno": ""}, "127.0.0.1:5001")
