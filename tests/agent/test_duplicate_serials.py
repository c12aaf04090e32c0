"""Two phones that claim one serial: the first one stays, and only its journal is its own."""

from pathlib import Path

from agent.control.guard import Guard
from agent.control.journal import Journal, Page, journal_file
from agent.deadline import Deadline
from agent.phone.adb import AdbServer
from agent.roster import Roster
from agent.virtual.shelf import ShelfPlan, shelf_in_thread


def test_a_phone_that_claims_anothers_serial_is_ignored(adb: AdbServer, tmp_path: Path) -> None:
    """It gets no place, and what the real one left changed is not put back on it."""
    plan = ShelfPlan(("meizu-16t", "huawei-honor-8"), speed=100)
    with shelf_in_thread(plan) as (shelf, (first, second)):
        for address in (first.address, second.address):
            assert adb.connect(address, Deadline.after(5)) == "device"
        shelf.mischief.add("duplicate_serial", phone=second.serial, serial=first.serial)
        roster = Roster(adb, (), tmp_path, lambda _: None)
        roster._admit(first.address)
        (place,) = roster.places()
        page = Page(serial=first.serial, boot_id="1", fence=1)
        journal = Journal(place.phone, tmp_path, page, Guard(place.phone, "", fence=1))
        journal.open()
        journal.close()
        roster._admit(second.address)
        assert [place.facts.model for place in roster.places()] == [place.facts.model]
        assert place.phone.address == first.address
        assert journal_file(tmp_path, first.serial).exists()
        place.phone.close()
        for address in (first.address, second.address):
            adb.disconnect(address)
