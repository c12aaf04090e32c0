"""Mutated texts of phones: never a traceback, never an absurd value.

Each mutation damages the facts of a phone of the corpus as broken phones, cut outputs and hostile
ones do. The result must be what a probe may say about a phone, whatever the input.
"""

import random
import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from agent.phone.battery_wear import parse_battery_condition
from agent.phone.capture import facts_of, remove_private, service_facts
from agent.phone.cpu_clusters import KHZ_MAX, KHZ_MIN
from agent.phone.facts_file import format_facts, parse_facts, read_facts_file, reading_of
from agent.phone.fuel_gauge import LOAD_MAX_A, calibrate_gauge
from agent.phone.kernel_nodes import dumpsys_battery_level_pct, hottest_c
from agent.phone.phone_reading import (
    PhoneReading,
    parse_properties,
    plain_property,
    private_values,
)
from agent.phone.power_stats import parse_power_stats
from agent.phone.probe import interpret_reading, parse_serial
from agent.phone.shell_command import parse_nodes
from agent.phone.thermal_zones import examine_zones
from agent.phone.thermalservice import parse_thermalservice
from agent.virtual.facts_layout import read_layout
from tests.corpus import FILES
from workloads.protocol.faults import FarmError
from workloads.protocol.phone_facts import PhoneFacts, choose_cores

SEEDS, LONG_SEEDS = 8, 300
TEXTS = (
    *("", "\n", " ", "-", "0", "-1", "1e30", "nan", "NaN", "inf", "0x7f", "<unsupported>", "\x00"),
    *("Permission denied", "99999999999999999999", "-40000", "-273150", "125000", "65535", "1 2 3"),
    *("0-99999", "5-1", "٣٤٠٠٠", "34000 C", "34.5", "\ud800", "\x1b[31m", "a" * 5000, "1\n2\n3"),
    *("4294967295", "2147483648", "-2147483648", "000000000034000", "+34000", "34_000"),
    *("-0", "-0.0", "34,5", "34.000,5", "0x8655", "8655h", "3.45e4", "34\t000", "\r\n", "34000\r"),
    *("34500\n34500", "1,8,7", "∞", "34 500", "N/A", "error", "null", "12345678901234567890"),
)
ERRORS = (
    *("grep: /sys/class/thermal/thermal_zone0/temp: Permission denied", "sh: dumpsys: not found"),
    *("Can't find service: thermalservice", "/system/bin/sh: getprop: inaccessible or not found"),
    *("cat: read error: Try again", "error: closed", "Killed", "* daemon started successfully"),
    *("Error dumping service info: (FAILED_TRANSACTION)", "Exception occurred while dumping:"),
)
NAMES = (
    *("soc", "socd", "cpu", "cpu-skin", "CPU", "skin", "", "\n", "x" * 500, "cpu\x00", "BIG\u202e"),
    *(
        "mtktscpu",
        "vbat",
        "tsens_tz_sensor999999999999",
        "-" * 64,
        "cpu-0-0-usr",
        "battery",
        "$(x)",
    ),
)


def damaged(text: str, rng: random.Random) -> str:
    """Damage an output as shells, links and locales do."""
    lines = text.split("\n")
    at = rng.randrange(len(lines))
    choice = rng.randrange(9)
    if choice == 0:
        lines.insert(at, rng.choice(ERRORS))
    elif choice == 1:
        lines[at] = lines[at][: rng.randrange(len(lines[at]) + 1)]
    elif choice == 2:
        lines[at:at] = lines[at : at + rng.randrange(1, 9)]  # a part comes twice
    elif choice == 3:
        return text.replace("\n", "\r\n")
    elif choice == 4:
        return re.sub(r"(\d)\.(\d)", r"\1,\2", text)
    elif choice == 5:
        return text + text
    elif choice == 6:
        return text.replace("    ", "\t").replace(" ", rng.choice(("\t", "  ", "\u00a0")))
    elif choice == 7:
        return re.sub(r"\d+", lambda at: rng.choice((at[0], *TEXTS)), text)
    else:
        lines[at] += rng.choice(ERRORS)  # stderr in the middle of a line
    return "\n".join(lines)


def mutated(reading: PhoneReading, rng: random.Random) -> PhoneReading:
    """Damage some texts of a phone."""
    nodes = dict(reading.nodes)
    for path in list(nodes):
        choice = rng.random()
        if choice < 0.06:
            nodes[path] = rng.choice(NAMES if path.endswith("/type") else TEXTS)
        elif choice < 0.08:
            nodes[path] = nodes[path][: rng.randrange(len(nodes[path]) + 1)]
        elif choice < 0.10:
            del nodes[path]
        elif choice < 0.11:
            nodes[path.replace("0", str(rng.randrange(10**6)))] = nodes[path]
        elif choice < 0.12:
            nodes[path] = nodes[rng.choice(list(nodes))]
        elif choice < 0.14:
            nodes[path] = damaged(nodes[path], rng)
    text = reading.thermalservice
    for _ in range(rng.randrange(4)):
        at = rng.randrange(len(text) + 1)
        text = text[:at] + rng.choice((*TEXTS, "}", "{", "Temperature{mValue=")) + text[at:]
    text = text[: rng.randrange(len(text) + 1)] if rng.random() < 0.3 else text
    for _ in range(rng.randrange(3)):
        text = damaged(text, rng)
    properties = {
        name: plain_property(rng.choice(TEXTS)) if rng.random() < 0.1 else value
        for name, value in reading.properties.items()
    }
    battery = damaged(reading.battery or "  level: 57\n  scale: 100\n  health: 2\n", rng)
    return replace(
        reading, properties=properties, nodes=nodes, thermalservice=text, battery=battery
    )


def check_sane(facts: PhoneFacts, reading: PhoneReading) -> None:
    """A phone may be unknown; it may not be impossible."""
    cpus = [cpu for cluster in facts.clusters for cpu in cluster.cpus]
    assert len(cpus) == len({*cpus})
    for cluster in facts.clusters:
        assert all(KHZ_MIN <= khz <= KHZ_MAX for khz in cluster.ladder_khz)
        assert list(cluster.ladder_khz) == sorted({*cluster.ladder_khz})
        assert cluster.capacity > 0
    assert 0 <= facts.ram_mb < 2**31
    values = {**reading.nodes, **parse_thermalservice(reading.thermalservice)}
    for zone in facts.cpu_zones:
        temp_c = hottest_c((zone,), values)
        assert temp_c is not None
        assert 4.0 <= temp_c <= 110.0
        assert "soc" != zone.type.lower() != "socd"
    if facts.body_zone is not None:
        temp_c = hottest_c((facts.body_zone,), values)
        assert temp_c is not None
        assert -20.0 <= temp_c <= 65.0
    if facts.clusters:
        assert {*choose_cores(facts, "all1").cpus} <= {*cpus}
    PhoneFacts.model_validate_json(facts.model_dump_json().encode("utf-8", "replace"))


def check_damaged(path: Path, seeds: Iterable[int]) -> None:
    """Probe and capture a phone whose texts are damaged in several ways."""
    reading = reading_of(read_facts_file(path))
    for seed in seeds:
        broken = mutated(reading, random.Random(f"{path.stem}:{seed}"))
        check_sane(interpret_reading(broken, "captured", "none"), broken)
        for at in examine_zones(broken.nodes):
            assert at.temp_c is None or -20.0 <= at.temp_c <= 115.0
        level = dumpsys_battery_level_pct(broken.battery)
        assert level is None or 0 <= level <= 100
        condition = parse_battery_condition(broken.nodes, broken.battery)
        assert condition is None or condition.capacity_share is None or condition.capacity_share < 2
        if seed % 4 == 0:
            known = {at: text for at, text in broken.nodes.items() if at in reading.nodes}
            facts = remove_private(facts_of(broken, known, broken.battery), ["R58M1XYZ"])
            assert parse_facts(format_facts(facts), "copy") == facts


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_damaged_texts_are_refused_or_understood(path: Path) -> None:
    check_damaged(path, range(SEEDS))


@pytest.mark.slow
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_many_damaged_texts_are_refused_or_understood(path: Path) -> None:
    check_damaged(path, range(1000, 1000 + LONG_SEEDS))


@pytest.mark.parametrize("path", FILES[::3], ids=lambda path: path.stem)
def test_a_damaged_file_is_one_sentence_for_both_readers(path: Path, tmp_path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    rng = random.Random(path.stem)
    copy = tmp_path / "damaged.toml"
    for _ in range(6):
        at, length = rng.randrange(len(text)), rng.randrange(1, 60)
        damaged = text[:at] + rng.choice((*TEXTS[:-6], "[[", "= 1", '"')) + text[at + length :]
        copy.write_bytes(damaged.encode("utf-8", "surrogatepass"))
        for read in (read_facts_file, read_layout):
            assert "\n" not in complaint(read, copy)


def complaint(read: Callable[[Any], object], argument: object) -> str:
    """Return what a reader says about its input; empty if it has no complaint."""
    try:
        read(argument)
    except (FarmError, ValueError) as error:
        return str(error)
    return ""


def test_error_lines_between_nodes_are_ignored() -> None:
    rng = random.Random("errors")
    path = "/sys/class/thermal/thermal_zone0"
    listing = f"{path}/type:cpu-0-0-usr\n{path}/temp:34500\n/proc/uptime:12.50 3.00\n"
    for _ in range(400):
        text = listing
        for _ in range(rng.randrange(1, 4)):
            text = damaged(text, rng)
        zones = examine_zones(parse_nodes(text))
        assert all(at.temp_c is None or 2.0 <= at.temp_c <= 110.0 for at in zones)
    for error in ERRORS:
        nodes = parse_nodes(listing.replace("\n", f"\n{error}\n"))
        assert nodes[f"{path}/temp"] == "34500"


def test_damaged_rails_and_currents() -> None:
    rng = random.Random("meters")
    row = "   [S2M_VDD_CPUCL2]:CPU(MID)      1234567.89 mWs (   10.00)\n"
    table = "====== PowerStats HAL 2.0 energy meter ======\n" + row * 3
    table += "====== End of PowerStats HAL 2.0 energy meter ======\n"
    for _ in range(400):
        rails = parse_power_stats(damaged(table, rng))
        assert all(0 <= joules < 1e13 for joules in rails.values())
        idle = [rng.randrange(-(10 ** rng.randrange(1, 9)), 10 ** rng.randrange(1, 9))]
        load = [
            (at / 5, rng.randrange(-(10**7), 10**7) // 10 ** rng.randrange(6)) for at in range(9)
        ]
        status = rng.choice(("Full", "Not charging", "Discharging", "", 3, None))
        gauge = calibrate_gauge(idle, load, [status])
        if gauge is not None and gauge.unit_a == 1e-3:
            assert max(abs(raw) for _, raw in load) <= LOAD_MAX_A * 1000
            assert status not in {"Full", "Not charging"}


@pytest.mark.parametrize(
    "secret",
    [
        *("a4:50:46:12:ab:cd", "A4-50-46-12-AB-CD", "a4504612abcd", "352099001761481"),
        *("35-209900-176148-1", "3520990017614823", "89490200000012345678", "310260123456789"),
        *("+49 151 23456789", "+4915123456789", "192.168.0.17", "2001:db8::8a2e:370:7334"),
        *("fe80::a650:46ff:fe12:abcd", "2001:db8:0:1:2:3:4:5", "anna.b@example.org"),
        *("9774d56d682e549c", "550e8400-e29b-41d4-a716-446655440000", "A100004E9F1B2C"),
        *("R58M1XYZ99", "Annas-Phone", "HomeNet5G"),
    ],
)
def test_no_identifier_remains_in_a_capture(secret: str) -> None:
    """Wherever a phone prints it: in values, names of sensors and services, rows, and paths."""
    reading = reading_of(read_facts_file(FILES[0]))
    listing = (
        "[ro.serialno]: [R58M1XYZ99]\n[net.hostname]: [Annas-Phone]\n[wifi.ssid]: [HomeNet5G]\n"
        "[ro.product.model]: [Pixel 8]\n[persist.sys.device_name]: [Pixel 8]\n"
    )
    identifiers = private_values(listing)
    assert "Pixel 8" not in identifiers
    power = f"/sys/class/power_supply/hid-{secret.replace(' ', '')}-battery/type"
    nodes = {
        "/proc/meminfo": f"MemTotal: 1000 kB\nOwner: {secret}",
        "/proc/cpuinfo": f"processor\t: 0\nHardware\t: {secret}\nSerial\t\t: {secret}",
        "/sys/class/kgsl/kgsl-3d0/gpu_model": secret,
        "/sys/devices/system/cpu/cpufreq/policy0/scaling_driver": f"x {secret}",
        "/sys/class/thermal/thermal_zone0/type": f"cpu {secret}",
        "/sys/class/thermal/thermal_zone0/temp": "34000",
        **({power: "Battery"} if re.fullmatch(r"[\w:./-]+", power) else {}),
    }
    service = f"Thermal Status: 0\n\tHAL {secret} connected: yes\nCurrent temperatures from HAL:\n"
    service += f"\tTemperature{{mValue=34.6, mType=0, mName={secret}, mStatus=0}}\n"
    broken = replace(
        reading,
        properties={**reading.properties, "ro.product.marketname": f"Phone of {secret}"},
        services=(f"vendor-{secret}",),
        rails=(secret,),
        thermalservice=service,
    )
    battery = f"  level: 57\n  technology: {secret}\n  owner: {secret}\n  {secret}: 3\n"
    unreadable = (power,) if power in nodes else ()
    facts = remove_private(facts_of(broken, nodes, battery, unreadable), identifiers)
    text = format_facts(facts)
    assert secret.lower() not in text.lower()
    assert "34000" in text
    assert parse_facts(text, "copy") == facts


def test_damaged_outputs_of_commands() -> None:
    rng = random.Random("outputs")
    dump = "Current Battery Service state:\n  AC powered: false\n  level: 57\n  scale: 100\n"
    listing = (
        "[ro.serialno]: [R58M1]\n[ro.product.model]: [SM-G950F]\n[init.svc.perfd]: [running]\n"
    )
    service = (
        "Thermal Status: 0\nHAL connection:\n\tThermalHAL 2.0 connected: yes\n"
        "Current temperatures from HAL:\n"
        "\tTemperature{mValue=34.6, mType=0, mName=AP, mStatus=0}\n"
    )
    for _ in range(300):
        texts = []
        for text in (dump, listing, service):
            at = rng.randrange(len(text))
            texts.append(text[:at] + rng.choice(TEXTS) + text[at + rng.randrange(8) :])
        level = dumpsys_battery_level_pct(texts[0])
        assert level is None or 0 <= level <= 100
        properties = parse_properties(texts[1])
        assert "\n" not in complaint(partial(parse_serial, properties), "x")
        facts = service_facts(texts[2])
        assert facts is None or all(abs(row.value) < 1000 for row in facts.current)
        reading = PhoneReading(properties, {}, thermalservice=texts[2])
        parse_facts_copy = remove_private(facts_of(reading, {}, texts[0]), ["R58M1"])
        assert "R58M1" not in parse_facts_copy.model_dump_json()


def test_a_file_of_a_newer_schema_is_refused_by_both_readers(tmp_path: Path) -> None:
    file = tmp_path / "new.toml"
    file.write_text(FILES[0].read_text().replace("schema = 1", "schema = 2"))
    with pytest.raises(FarmError, match="has schema 2, and this version reads 1; update"):
        read_facts_file(file)
    with pytest.raises(ValueError, match="has schema 2, this version reads 1; update"):
        read_layout(file)
    for text in ("", "schema = true", "schema = 'x'", "schema = 0", "x" * 9, "schema = 1\nx = 2"):
        with pytest.raises(FarmError):
            parse_facts(text, "file")
