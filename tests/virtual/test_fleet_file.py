"""A lab from a file: which phones, how many, how fast, rooted or as sold."""

import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from agent.virtual.cli import virtual
from agent.virtual.shelf import Shelf, ShelfPlan
from agent.virtual.specs import PhoneSpec, mixed, read_fleet, read_words
from tests.virtual.host import AdbHost, PhoneAt

MANNERS = ("stock", "userdebug", "native")


def test_a_fleet_file_lists_phones_and_counts_units_through(tmp_path: Path) -> None:
    file = tmp_path / "fleet.toml"
    file.write_text(
        '[[phone]]\nprofile = "huawei-honor-8"\ncount = 2\nspeed = 50.0\n'
        '[[phone]]\nprofile = "huawei-honor-8"\nstock = true\n'
        '[[phone]]\nprofile = "meizu-16t"\nserial = "LAB01"\n'
    )
    specs = read_fleet(file)
    assert [
        PhoneSpec("huawei-honor-8", unit=1, speed=50.0),
        PhoneSpec("huawei-honor-8", unit=2, speed=50.0),
        PhoneSpec("huawei-honor-8", unit=3, stock=True),
        PhoneSpec("meizu-16t", "LAB01"),
    ] == list(specs)
    phones = [server.phone for server in Shelf(ShelfPlan(phones=specs, speed=3.0)).servers]
    assert ["VHON80001", "VHON80002", "VHON80003", "LAB01"] == [phone.serial for phone in phones]
    assert [50.0, 50.0, 3.0, 3.0] == [phone.timeline.speed for phone in phones]
    assert [True, True, False, True] == [phone.profile.rooted for phone in phones]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "phone: Field required"),
        ("[[phone", "end of an array"),
        ('[[phone]]\nprofile = "nokia_3310"', "no profile 'nokia_3310'"),
        ('[[phone]]\nprofile = "huawei-honor-8"\ncolour = "red"', "phone.0.colour"),
        ('[[phone]]\nprofile = "huawei-honor-8"\nserial = "X"\ncount = 2', "cannot name 2 phones"),
        ('[[phone]]\nprofile = "huawei-honor-8"\ncount = 0', "phone.0.count"),
    ],
)
def test_a_wrong_fleet_file_is_refused_with_its_place(tmp_path: Path, text: str, why: str) -> None:
    file = tmp_path / "fleet.toml"
    file.write_text(text)
    said = CliRunner().invoke(virtual, ["up", "--fleet", str(file)])
    assert said.exit_code == 2
    assert why in said.output


def test_the_example_is_a_lab() -> None:
    specs = read_fleet(Path(__file__).parents[2] / "examples" / "virtual_lab.toml")
    assert [3, 1, 1, 1] == [
        sum(spec.profile == name for spec in specs)
        for name in ("meizu-16t", "xiaomi-mi-9", "oneplus-6", "samsung-s8-plus")
    ]
    assert [1, 1, 1] == [sum(getattr(spec, key) for spec in specs) for key in MANNERS]


def test_words_say_profile_manner_and_serial() -> None:
    stock = PhoneSpec("huawei-honor-8", "A1", stock=True)
    assert (stock,) == read_words(("huawei-honor-8:stock=A1",))
    assert (PhoneSpec("huawei-honor-8", native=True),) == read_words(("huawei-honor-8:native",))


def test_so_many_phones_are_of_mixed_models_with_serials_of_their_own() -> None:
    specs = mixed(60, seed=1)
    assert len({spec.serial for spec in specs}) == len(specs) == 60
    assert len({spec.profile for spec in specs}) > 5
    assert specs == mixed(60, seed=1) != mixed(60, seed=2)


def test_a_lab_says_how_to_reach_it(tmp_path: Path, host: AdbHost) -> None:
    command = [sys.executable, "-m", "agent.virtual", "up", "huawei-honor-8:stock", "--speed", "50"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        serial, profile, address = process.stdout.readline().split()
        assert ("VHON80001", "huawei-honor-8") == (serial, profile)
        assert f"connect with: adb connect {address}\n" == process.stderr.readline()
        assert "connected" in host.adb("connect", address).out
        assert PhoneAt(host, address).run("su -c id").status == 127
        host.adb("disconnect", address)
        process.terminate()
