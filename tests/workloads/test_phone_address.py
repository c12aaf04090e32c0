"""Addresses of phones: what adb lists for what a user writes, and which transport an address is."""

from pathlib import Path

import pytest

from agent.prepare.quiesce import quiet_settings
from workloads.lab.connection_url import BadSettings
from workloads.lab.settings import Lab
from workloads.protocol.phone_address import is_over_network, is_wireless, parse_phone_address

SERVICE = "adb-R5CT10XYZ1A-a1B2c3._adb-tls-connect._tcp"


@pytest.mark.parametrize(
    ("written", "listed"),
    [
        ("127.0.0.2", "127.0.0.2:5555"),
        ("192.168.0.7:37123", "192.168.0.7:37123"),
        ("phone-7.lab", "phone-7.lab:5555"),
        ("::1", "[::1]:5555"),
        ("[fe80:0::1]", "[fe80::1]:5555"),
        ("[::1]:7000", "[::1]:7000"),
        (SERVICE, SERVICE),
    ],
)
def test_an_address_becomes_what_adb_lists(written: str, listed: str) -> None:
    assert parse_phone_address(written) == listed
    assert parse_phone_address(listed) == listed


@pytest.mark.parametrize(
    "written",
    [
        *("", ":5555", "host:", "host:0", "host:70000", "host:x", "host:५", "a:b:c", "a b"),
        *("1.2.3", "1.2.3.4.5", "[::1", "[zz]:1", "-x", "host;reboot", "host\n", "a" * 300),
    ],
)
def test_other_text_is_refused_with_a_reason(written: str) -> None:
    with pytest.raises(ValueError, match="; use HOST or HOST:PORT"):
        parse_phone_address(written)


@pytest.mark.parametrize(
    ("address", "over_network"),
    [
        ("R5CT10XYZ1A", False),
        ("emulator-5554", False),
        ("192.168.0.7:5555", True),
        ("[fe80::1]:5555", True),
        (SERVICE, True),
        (f"{SERVICE}.", True),
        ("adb-R5CT10XYZ1A-a1B2c3 (2)._adb-tls-connect._tcp", True),
        ("adb-R5CT10XYZ1A._adb._tcp", True),
    ],
)
def test_airplane_mode_never_cuts_the_own_connection(address: str, over_network: bool) -> None:
    assert is_over_network(address) is over_network
    names = {setting.name for setting in quiet_settings(address)}
    assert ("airplane_mode_on" in names) is not over_network


def test_only_a_radio_is_a_condition_of_a_run() -> None:
    """Virtual phones and Linux boards are reached over TCP on this computer."""
    assert is_wireless(SERVICE)
    assert is_wireless("192.168.0.7:5555")
    addresses = ("127.0.0.1:5555", "localhost:5555", "[::1]:5555", "R5CT10XYZ1A")
    assert not any(is_wireless(address) for address in addresses)


def test_the_setting_is_normalised_and_checked(tmp_path: Path) -> None:
    file = tmp_path / "lab.toml"
    file.write_text('[agent]\nconnect = ["127.0.0.2", "127.0.0.3:7000"]\n')
    assert Lab.read(tmp_path, {}).settings.agent.connect == ("127.0.0.2:5555", "127.0.0.3:7000")
    file.write_text('[agent]\nconnect = ["127.0.0.2", "127.0.0.3:port"]\n')
    with pytest.raises(BadSettings, match=r"agent\.connect\.1: '127\.0\.0\.3:port' has no valid"):
        Lab.read(tmp_path, {})
