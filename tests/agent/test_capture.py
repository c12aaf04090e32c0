"""Capturing phones: through adb into a file, and from the file into a virtual phone."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import pytest
from click.testing import CliRunner

from agent.deadline import Deadline
from agent.phone.adb import AdbServer
from agent.phone.capture import capture_phone
from agent.phone.capture_cli import phone as commands
from agent.phone.facts_file import format_facts, parse_facts, read_facts_file, reading_of
from agent.phone.phone_driver import Phone
from agent.phone.phone_snapshot import take_snapshot, with_battery_level
from agent.phone.probe import interpret_reading, probe
from agent.virtual.fleet_server import FleetConfig, FleetServer
from kernels.runner_builds import runner_for
from tests.agent.virtual_phones import VirtualPhone
from tests.corpus import BY_NAME, FILES
from tests.virtual.adb_host import wait_until
from tests.virtual.running_fleet import serve_fleet_in_thread
from workloads.protocol.faults import FarmError, PhoneTrouble
from workloads.protocol.phone_facts import ControlLevel, PhoneFacts
from workloads.protocol.unusable_phone import READY

RUNNABLE = [path for path in FILES if read_facts_file(path).clock]
# A folder per core, cores that are offline, hidden zones with Sdhms, dead sensors, four clusters.
CHOSEN = (
    *("huawei-mate-8", "xiaomi-mi-4c", "motorola-moto-g-5g-low-battery", "google-pixel-8-pro"),
    *("samsung-galaxy-s24-plus-throttled", "samsung-galaxy-s9-exynos"),
)


@contextmanager
def served(
    adb: AdbServer, *words: str, speed: float = 50.0
) -> Iterator[tuple[FleetServer, list[str]]]:
    """Run virtual phones in this process, connected to adb."""
    with serve_fleet_in_thread(FleetConfig(words, speed=speed)) as (fleet, addresses):
        for address in addresses:
            adb.connect(address.address, Deadline.after(120))
            is_here = partial(lambda name: adb.list().get(name) == READY, address.address)
            wait_until(is_here, "the phone is here")
        yield fleet, [address.address for address in addresses]
        for address in addresses:
            adb.disconnect(address.address)


def probed(adb: AdbServer, address: str) -> tuple[Phone, PhoneFacts]:
    phone = Phone(adb.open(address))
    return phone, probe(phone, runner_for)


def layout(facts: PhoneFacts) -> tuple[object, ...]:
    """Return what a capture must preserve."""
    clusters = [(at.policy, at.cpus, at.ladder_khz, at.folder) for at in facts.clusters]
    body = facts.body_zone.type if facts.body_zone else None
    zones = [zone.type for zone in facts.cpu_zones]
    names = (facts.model, facts.soc, facts.android, facts.perf_daemons, facts.power_stats)
    gpu = facts.gpu and (facts.gpu.folder, facts.gpu.ladder_khz)
    return clusters, zones, body, gpu, *names


@pytest.mark.parametrize("profile", ["meizu-16t", "huawei-honor-8", "google-pixel-8:stock"])
def test_a_captured_phone_runs_as_a_virtual_one(
    adb: AdbServer, tmp_path: Path, profile: str
) -> None:
    with served(adb, profile) as (fleet, (address,)):
        phone, facts = probed(adb, address)
        captured = capture_phone(phone, Deadline.after(120))
        serial = fleet.servers[0].phone.serial
        phone.close()
    text = format_facts(captured)
    assert serial not in text
    assert "127.0.0.1" not in text
    again = interpret_reading(reading_of(parse_facts(text, "copy")), "captured", "none")
    assert layout(again) == layout(facts)
    assert again.control is facts.control
    file = tmp_path / "captured.toml"
    file.write_text(text)
    with served(adb, str(file)) as (_, (address,)):
        phone, twin = probed(adb, address)
        assert layout(twin) == layout(facts)
        assert twin.control is facts.control
        phone.close()


def check_virtual_phones(adb: AdbServer, paths: list[Path]) -> None:
    """Run files as virtual phones, and compare what the agent sees with what is expected."""
    words = [f"{path}=CAP{number:03d}" for number, path in enumerate(paths)]
    with served(adb, *words) as (_, addresses):
        for path, address in zip(paths, addresses, strict=True):
            expected = read_facts_file(path).expected
            assert expected is not None
            phone = Phone(adb.open(address))
            captured = capture_phone(phone, Deadline.after(120))
            facts = interpret_reading(reading_of(captured), "captured", "none")
            phone.close()
            zones = [zone.type for zone in facts.cpu_zones]
            body = facts.body_zone.type if facts.body_zone else ""
            offline = [cpu for at in facts.clusters if not at.ladder_khz for cpu in at.cpus]
            assert zones == list(expected.cpu_zones), path.stem
            assert body == expected.body_zone, path.stem
            assert len(facts.clusters) == len(expected.clusters), path.stem
            assert bool(offline) == bool(expected.offline), path.stem


def test_phones_of_the_corpus_run_as_virtual_ones(adb: AdbServer) -> None:
    check_virtual_phones(adb, [BY_NAME[name] for name in CHOSEN])


@pytest.mark.slow
def test_every_phone_of_the_corpus_with_clocks_runs_as_a_virtual_one(adb: AdbServer) -> None:
    assert len(RUNNABLE) >= 30
    check_virtual_phones(adb, RUNNABLE)


def test_clocks_of_offline_cores_are_learned_by_root_and_missed_by_the_shell(
    adb: AdbServer, tmp_path: Path
) -> None:
    text = BY_NAME["xiaomi-mi-4c"].read_text()
    rooted = tmp_path / "rooted.toml"
    rooted.write_text(text.replace("schema = 1", 'schema = 1\nroot = "su"'))
    with served(adb, str(BY_NAME["xiaomi-mi-4c"]), f"{rooted}=ROOTED") as (fleet, addresses):
        found = [probed(adb, address) for address in addresses]
        assert [[bool(at.ladder_khz) for at in facts.clusters] for _, facts in found] == [
            [True, False],
            [True, True],
        ]
        assert fleet.servers[1].phone.soc.online_cpus() == [0, 1, 2, 3]
        for phone, _ in found:
            phone.close()


def test_the_battery_level_of_a_phone_that_hides_its_nodes(adb: AdbServer, tmp_path: Path) -> None:
    """Its file has no node of the battery, so the virtual phone hides them all."""
    file = BY_NAME["google-pixel-8-pro"]
    with served(adb, str(file)) as (fleet, (address,)):
        phone, _ = probed(adb, address)
        snapshot = take_snapshot(phone)
        assert snapshot.battery_pct is None
        shown = with_battery_level(phone, snapshot).battery_pct
        assert shown == int(fleet.servers[0].phone.soc.battery.percent + 0.05)
        phone.close()


def test_the_command_writes_a_new_file(
    adb: AdbServer, virtual_phone: VirtualPhone, tmp_path: Path
) -> None:
    file = tmp_path / "phone.toml"
    by_address = ["capture", virtual_phone.address, "--adb-port", str(adb.port), "-o", str(file)]
    result = CliRunner().invoke(commands, by_address)
    assert result.exit_code == 0, result.output
    assert "Meizu" in result.output
    again = CliRunner().invoke(commands, by_address)
    assert isinstance(again.exception, FarmError)
    assert "exists; name another file" in str(again.exception)
    other = tmp_path / "other.toml"
    by_serial = ["capture", virtual_phone.serial, "--adb-port", str(adb.port), "-o", str(other)]
    assert CliRunner().invoke(commands, by_serial).exit_code == 0
    shown = CliRunner().invoke(commands, ["capture", "--from", str(file)])
    assert "control    controlled" in shown.output
    assert "not a temperature" not in shown.output
    absent = CliRunner().invoke(commands, ["capture", "NOBODY", "--adb-port", str(adb.port)])
    assert "adb does not list NOBODY" in str(absent.exception)


def connected(adb: AdbServer, address: str) -> str:
    """Connect a phone, which may just have been lost, and return its state."""
    with suppress(FarmError):
        adb.connect(address, Deadline.after(120))
    return adb.list().get(address, "")


def test_phones_that_cannot_be_captured_are_one_sentence(adb: AdbServer, tmp_path: Path) -> None:
    file = tmp_path / "phone.toml"
    with served(adb, "meizu-16t") as (fleet, (address,)):
        capture = ["capture", address, "--adb-port", str(adb.port), "-o", str(file)]
        fleet.mischief.add("unplug", at="command:dumpsys*")
        lost = CliRunner().invoke(commands, capture)
        assert isinstance(lost.exception, PhoneTrouble)
        assert "lost the link" in str(lost.exception)
        assert not file.exists()
        fleet.mischief.clear()
        fleet.mischief.add("unauthorized")
        adb.disconnect(address)
        wait_until(lambda: connected(adb, address) == "unauthorized", "it is unauthorized")
        refused = CliRunner().invoke(commands, capture)
        assert isinstance(refused.exception, PhoneTrouble)
        assert "tap Allow on its screen" in str(refused.exception)
        assert not file.exists()


def test_a_probe_of_a_file_explains_unused_zones() -> None:
    file = BY_NAME["motorola-moto-g-5g-low-battery"]
    shown = CliRunner().invoke(commands, ["capture", "--from", str(file)])
    assert "CPU        cpu-0-0-usr, " in shown.output
    assert "; hottest: 42.6 °C" in shown.output
    assert "body       back_temp; 32.5 °C" in shown.output
    assert "unused     socd: not a temperature" in shown.output
    assert "unused     conn-therm-usr: its name is not in the table" in shown.output
    missing = CliRunner().invoke(commands, ["capture", "--from", "nowhere.toml"])
    assert "nowhere.toml cannot be read" in str(missing.exception)
    as_json = CliRunner().invoke(commands, ["capture", "--from", str(file), "--json"])
    assert PhoneFacts.model_validate_json(as_json.output).control is ControlLevel.OBSERVED
