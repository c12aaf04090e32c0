"""`farm phone`: shows, checks, restores, quarantines and releases a phone over the job queue."""

import pytest

from orchestrator.app.control_phones import (
    connect_phone,
    disconnect_phone,
    list_unusable_phones,
    pair_phone,
)
from orchestrator.app.control_sweeps import list_audit
from orchestrator.tui.phone_detail import commission_text
from tests.farm.conftest import Farm, wait_for
from workloads.protocol.faults import InvalidRequest
from workloads.protocol.unusable_phone import PhoneProblem


def test_a_phone_is_controlled_over_the_queue(farm: Farm) -> None:
    serial = next(phone for phone in farm.idle_phones() if phone.startswith("VM16T"))
    shown = farm.command("phone", "show", serial)
    assert (shown.returncode, "input_suspend" in shown.stdout) == (0, True)
    checked = farm.command("phone", "check", serial)
    assert (checked.returncode, serial in checked.stdout) == (0, True)
    restored = farm.command("phone", "restore", serial)
    assert (restored.returncode, "had nothing to restore" in restored.stdout) == (0, True)
    quarantined = farm.command("phone", "quarantine", serial, "--why", "broken screen")
    assert quarantined.returncode == 0, quarantined.stderr
    assert "quarantined: broken screen" in farm.command("phone", "show", serial).stdout
    assert farm.command("phone", "release", serial).returncode == 0
    wait_for(lambda: farm.phone(serial).health == "good", "the phone is released")
    assert farm.command("phone", "check", "UNKNOWN").returncode == 2


def test_a_phone_is_commissioned_over_the_queue(farm: Farm) -> None:
    serial = next(phone for phone in farm.idle_phones() if phone.startswith("VM16T"))
    assert "references are measured on first use" in commission_text(farm.phone(serial).facts)
    done = farm.command("phone", "commission", serial, "--quick")
    assert (done.returncode, "detect changes from" in done.stdout) == (0, True), done.stderr
    assert f"{serial}: run" in done.stderr or f"{serial}: canary_before" in done.stderr
    wait_for(lambda: farm.phone(serial).facts.commission is not None, "the host announces it")
    shown = commission_text(farm.phone(serial).facts)
    assert "(quick); canaries detect changes: arithmetic from" in shown
    assert "commission" in {entry.action for entry in list_audit(farm.connection, serial)}


def test_phones_are_connected_over_the_network(farm: Farm) -> None:
    """A second address of a phone is the same phone; one that cannot be used is listed."""
    phone = farm.phone(next(serial for serial in farm.idle_phones()))
    lab, host = farm.connection, phone.host
    second = phone.status.address.replace("127.0.0.1", "localhost")
    connected = farm.command("phone", "connect", second, "--host", host)
    assert (connected.returncode, phone.serial in connected.stdout) == (0, True), connected.stderr
    failed = farm.command("phone", "connect", "127.0.0.1:9", "--host", host)
    assert (failed.returncode, "nothing answers at this address" in failed.stderr) == (5, True)
    wait_for(lambda: list_unusable_phones(lab), "the host reports it with its next heartbeat")
    listed = farm.command("phone", "list").stdout
    assert f"127.0.0.1:9 on {host} cannot be used: nothing answers" in listed
    (unusable,) = list_unusable_phones(lab)
    assert unusable.problem is PhoneProblem.UNREACHABLE
    for address in (second, "127.0.0.1:9"):
        assert disconnect_phone(lab, address, host).succeeded
    wait_for(lambda: not list_unusable_phones(lab), "it is forgotten")
    paired = farm.command("phone", "connect", "127.0.0.1:9", "--pair", "123456", "--host", host)
    assert (paired.returncode, "pairing with 127.0.0.1:9" in paired.stderr) == (5, True), paired
    assert len(farm.phones()) == len({phone.serial for phone in farm.phones()})


def test_addresses_are_checked_before_a_host_is_asked(farm: Farm) -> None:
    lab = farm.connection
    with pytest.raises(InvalidRequest, match="name one of the hosts host-a, host-b with --host"):
        connect_phone(lab, "192.168.1.5")
    with pytest.raises(InvalidRequest, match="'a b' is not an address of a phone"):
        connect_phone(lab, "a b", "host-a")
    with pytest.raises(InvalidRequest, match="the code has six digits"):
        pair_phone(lab, "h:1", "12", "host-a")
    with pytest.raises(InvalidRequest, match="pairing has its own port"):
        pair_phone(lab, "h", "123456", "host-a")


def test_a_virtual_phone_cannot_be_tuned(farm: Farm) -> None:
    serial = farm.idle_phones()[0]
    tuned = farm.command("kernels", "tune", "--sizes", "64", "--phone", serial)
    assert (tuned.returncode, tuned.stdout) == (5, "")
    assert f"{serial}: " in tuned.stderr
    assert farm.phone(serial).health == "good"
    many = farm.command("kernels", "tune", "--sizes", "8:4104:8", "--phone", serial)
    assert (many.returncode, "at most 16 sizes from 1 to 4096" in many.stderr) == (2, True)
