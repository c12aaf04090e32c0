"""Self-test, restore on request, temperature limits, and how often a phone was lost."""

import time

import pytest

from agent.heartbeat import plausible_status
from agent.lane_context import LaneContext
from agent.phone.phone_driver import Phone
from agent.phone.phone_paths import lane_file
from agent.phone.runner_install import install_runner
from agent.phone.shell_command import write_node_command
from agent.phone_slot import FLAP_WINDOW_S, PhoneSlot, read_identity
from agent.prepare.selftest import restore_on_request, run_selftest
from agent.restore.fence import take_fence
from agent.restore.restore_journal import JournalRecord, RestoreJournal
from agent.restore.reversible_change import ChangeKind, ReversibleChange
from agent.restore.watchdog import Watchdog, temp_limit_lines
from kernels.runner_builds import runner_for
from tests.agent.lane_harness import LaneHarness, assert_fault
from tests.agent.virtual_phones import VirtualPhone
from workloads.protocol.faults import Blame, FaultKind, LeaseLost
from workloads.protocol.messages import FENCE_MAX, PhoneStatus

NODE = "/sys/devices/system/cpu/cpufreq/policy4/scaling_max_freq"


def test_a_healthy_phone_passes_and_is_restored(
    phone: Phone, virtual_phone: VirtualPhone, context: LaneContext
) -> None:
    passed, text = run_selftest(phone, context.state_dir, runner_for)
    assert passed, text
    assert not virtual_phone.events("setting_write", "sysfs_write", "run_start")
    assert phone.shell(["test", "-e", lane_file("restore")]).status != 0


def test_each_defect_is_found(lane_harness: LaneHarness) -> None:
    for kind, words in (
        ("sensor", {"value": "missing"}),
        ("disk_full", {}),
        ("low_memory", {"command": "*runner* watchdog *", "at": "command:setsid *"}),
    ):
        lane_harness.inject(kind, **words)
        passed, text = run_selftest(lane_harness.phone, lane_harness.context.state_dir, runner_for)
        lane_harness.clear_faults()
        if kind == "sensor":  # then the probe finds no zones at all
            assert not passed or lane_harness.phone.facts.cpu_zones == ()
            continue
        assert not passed, (kind, text)
    assert run_selftest(lane_harness.phone, lane_harness.context.state_dir, runner_for)[0]


def test_leftover_changes_are_restored_on_request(
    phone: Phone, virtual_phone: VirtualPhone, context: LaneContext
) -> None:
    before = phone.read_nodes([NODE])
    record = JournalRecord(serial=virtual_phone.serial, boot_id=phone.boot_id(), fence=1)
    watchdog = Watchdog(phone, install_runner(phone, runner_for(phone.facts.abi)), record.fence)
    journal = RestoreJournal(phone, context.state_dir, record, watchdog)
    journal.open()
    watchdog.start()
    journal.record_changes([ReversibleChange(kind=ChangeKind.NODE, key=NODE, old=before[NODE])])
    phone.shell_batch([write_node_command(NODE, "1804800")])
    journal.close()
    assert restore_on_request(phone, context.state_dir) == (
        True,
        f"{virtual_phone.serial} was restored",
    )
    assert phone.read_nodes([NODE]) == before
    assert restore_on_request(phone, context.state_dir) == (
        True,
        f"{virtual_phone.serial} had nothing to restore",
    )


def test_a_forged_fence_is_removed_on_request(phone: Phone, context: LaneContext) -> None:
    take_fence(phone, FENCE_MAX, "forged")
    with pytest.raises(LeaseLost, match="farm phone restore"):
        take_fence(phone, 7, "host-a")
    assert restore_on_request(phone, context.state_dir)[0]
    take_fence(phone, 7, "host-a")


def test_a_phone_above_its_temperature_limit_stops_its_run(lane_harness: LaneHarness) -> None:
    lane_harness.inject("never_cools", ambient_c=70, at="run@20%")
    report = lane_harness.run_attempt(cores="little2", freq="low", time_min_s=300)
    assert_fault(report, Blame.CONDITION, FaultKind.TOO_HOT)
    assert lane_harness.events("watchdog_restore")
    lane_harness.verify_recovery()


def test_a_temperature_limit_is_in_the_unit_of_its_node(phone: Phone) -> None:
    lines = dict(line.split("\t") for line in temp_limit_lines(phone.facts))
    zones = {zone.path: zone for zone in phone.facts.zones}
    limits = {zones[path].type: int(limit) * zones[path].scale for path, limit in lines.items()}
    assert limits["cpu-1-0-usr"] == 102
    assert limits["skin-therm-adc"] == 58
    assert limits["battery"] == 52
    assert "pm8150_tz" not in limits


def test_values_that_no_phone_can_have_do_not_stop_the_heartbeat(phone: Phone) -> None:
    slot = PhoneSlot(phone, phone.facts, read_identity(phone))
    assert plausible_status(slot) == slot.phone_status()
    slot.status.temp_c = 1e6
    assert plausible_status(slot) == PhoneStatus(
        serial=phone.facts.serial, state="idle", facts_digest=slot.facts_digest
    )
    slot.facts = phone.facts.model_copy(update={"serial": "a\x1b[2J"})
    assert plausible_status(slot) is None


def test_a_slot_counts_how_often_its_phone_was_lost(phone: Phone) -> None:
    identity = read_identity(phone)
    slot = PhoneSlot(phone, phone.facts, identity)
    slot.mark_away("unplugged", now=time.monotonic() - 2 * FLAP_WINDOW_S)
    slot.mark_away("unplugged")
    slot.mark_away("unplugged")
    successor = PhoneSlot(phone, phone.facts, identity)
    successor.inherit_losses(slot)
    assert successor.phone_status().flaps == 2
    successor.clear_losses()
    assert successor.phone_status().flaps == 0
