"""Fleet files: which phones, how many, how fast, rooted or as sold."""

import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from agent.virtual.cli import virtual
from agent.virtual.fleet_server import FleetConfig, FleetServer
from agent.virtual.phone_specs import (
    PhoneSpec,
    draw_mixed_phones,
    parse_phone_words,
    read_fleet_file,
)
from tests.virtual.adb_host import AdbHost, AdbPhone

VARIANTS = ("stock", "userdebug", "native")


def test_a_fleet_file_lists_phones_and_numbers_their_units(tmp_path: Path) -> None:
    file = tmp_path / "fleet.toml"
    file.write_text(
        '[[phone]]\nprofile = "huawei-honor-8"\ncount = 2\nspeed = 50.0\n'
        '[[phone]]\nprofile = "huawei-honor-8"\nstock = true\n'
        '[[phone]]\nprofile = "meizu-16t"\nserial = "LAB01"\n'
    )
    specs = read_fleet_file(file)
    assert list(specs) == [
        PhoneSpec("huawei-honor-8", unit=1, speed=50.0),
        PhoneSpec("huawei-honor-8", unit=2, speed=50.0),
        PhoneSpec("huawei-honor-8", unit=3, stock=True),
        PhoneSpec("meizu-16t", "LAB01"),
    ]
    phones = [server.phone for server in FleetServer(FleetConfig(phones=specs, speed=3.0)).servers]
    assert [phone.serial for phone in phones] == ["VHON80001", "VHON80002", "VHON80003", "LAB01"]
    assert [phone.clock.speed for phone in phones] == [50.0, 50.0, 3.0, 3.0]
    assert [phone.profile.rooted for phone in phones] == [True, True, False, True]


@pytest.mark.parametrize(
    ("text", "offending"),
    [
        ("", "phone: Field required"),
        ("[[phone", "end of an array"),
        ('[[phone]]\nprofile = "nokia_3310"', "nokia_3310"),
        ('[[phone]]\nprofile = "huawei-honor-8"\ncolour = "red"', "phone.0.colour"),
        ('[[phone]]\nprofile = "huawei-honor-8"\nserial = "X"\ncount = 2', "phone.0: "),
        ('[[phone]]\nprofile = "huawei-honor-8"\ncount = 0', "phone.0.count"),
    ],
)
def test_a_wrong_fleet_file_is_refused_with_the_wrong_key(
    tmp_path: Path, text: str, offending: str
) -> None:
    file = tmp_path / "fleet.toml"
    file.write_text(text)
    result = CliRunner().invoke(virtual, ["up", "--fleet", str(file)])
    assert result.exit_code == 2
    assert offending in result.output


def test_the_example_is_valid() -> None:
    specs = read_fleet_file(Path(__file__).parents[2] / "examples" / "virtual_lab.toml")
    assert [
        sum(spec.profile == name for spec in specs)
        for name in ("meizu-16t", "xiaomi-mi-9", "oneplus-6", "samsung-s8-plus")
    ] == [3, 1, 1, 1]
    assert [sum(getattr(spec, key) for spec in specs) for key in VARIANTS] == [1, 1, 1]


def test_a_phone_argument_has_profile_variant_and_serial() -> None:
    stock = PhoneSpec("huawei-honor-8", "A1", stock=True)
    assert parse_phone_words(("huawei-honor-8:stock=A1",)) == (stock,)
    assert parse_phone_words(("huawei-honor-8:native",)) == (
        PhoneSpec("huawei-honor-8", native=True),
    )


def test_mixed_phones_have_unique_serials() -> None:
    specs = draw_mixed_phones(60, seed=1)
    assert len({spec.serial for spec in specs}) == len(specs) == 60
    assert len({spec.profile for spec in specs}) > 5
    assert specs == draw_mixed_phones(60, seed=1) != draw_mixed_phones(60, seed=2)


def test_the_ready_file_has_the_addresses(tmp_path: Path, host: AdbHost) -> None:
    command = [sys.executable, "-m", "agent.virtual", "up", "huawei-honor-8:stock", "--speed", "50"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        serial, profile, address = process.stdout.readline().split()
        assert (serial, profile) == ("VHON80001", "huawei-honor-8")
        assert process.stderr.readline() == f"connect with: adb connect {address}\n"
        assert "connected" in host.adb("connect", address).out
        assert AdbPhone(host, address).run("su -c id").status == 127
        host.adb("disconnect", address)
        process.terminate()
