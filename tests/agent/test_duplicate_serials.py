"""Two phones that claim one serial: the first one stays, and only its journal belongs to it."""

from pathlib import Path

from agent.deadline import Deadline
from agent.phone.adb import AdbServer
from agent.phone_registry import PhoneRegistry
from agent.restore.restore_journal import JournalRecord, RestoreJournal, journal_file
from agent.restore.watchdog import Watchdog
from agent.virtual.fleet_server import FleetConfig
from tests.virtual.running_fleet import serve_fleet_in_thread


def test_a_phone_with_the_serial_of_another_phone_is_ignored(
    adb: AdbServer, tmp_path: Path
) -> None:
    plan = FleetConfig(("meizu-16t", "huawei-honor-8"), speed=100)
    with serve_fleet_in_thread(plan) as (server, (first, second)):
        for address in (first.address, second.address):
            assert adb.connect(address, Deadline.after(120)) == "device"
        server.mischief.add("duplicate_serial", phone=second.serial, serial=first.serial)
        registry = PhoneRegistry(adb, (), tmp_path, lambda _: None)
        registry.admit(first.address)
        (slot,) = registry.slots()
        record = JournalRecord(serial=first.serial, boot_id="1", fence=1)
        watchdog = Watchdog(slot.phone, "", fence=1)
        journal = RestoreJournal(slot.phone, tmp_path, record, watchdog)
        journal.open()
        journal.close()
        registry.admit(second.address)
        assert registry.slots() == [slot]
        assert slot.phone.address == first.address
        assert journal_file(tmp_path, first.serial).exists()  # not applied to the second phone
        slot.phone.close()
        for address in (first.address, second.address):
            adb.disconnect(address)
