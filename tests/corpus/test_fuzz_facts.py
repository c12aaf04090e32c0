"""Mutated texts of phones: never a traceback, never an absurd value.

Each mutation damages the facts of a phone of the corpus as broken phones, cut outputs and hostile
ones do. The result must be what a probe may say about a phone, whatever the input.
"""

import random
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from agent.phone.capture import facts_of, remove_private, service_facts
from agent.phone.cpu_clusters import KHZ_MAX, KHZ_MIN
from agent.phone.facts_file import parse_facts, read_facts_file, reading_of
from agent.phone.kernel_nodes import dumpsys_battery_level_pct, hottest_c
from agent.phone.phone_reading import PhoneReading, parse_properties, plain_property
from agent.phone.probe import interpret_reading, parse_serial
from agent.phone.thermal_zones import examine_zones
from agent.phone.thermalservice import parse_thermalservice
from agent.virtual.facts_layout import read_layout
from tests.corpus import FILES
from workloads.protocol.faults import FarmError
from workloads.protocol.phone_facts import PhoneFacts, choose_cores

SEEDS = 12
TEXTS = (
    *("", "\n", " ", "-", "0", "-1", "1e30", "nan", "NaN", "inf", "0x7f", "<unsupported>", "\x00"),
    *("Permission denied", "99999999999999999999", "-40000", "-273150", "125000", "65535", "1 2 3"),
    *("0-99999", "5-1", "٣٤٠٠٠", "34000 C", "34.5", "\ud800", "\x1b[31m", "a" * 5000, "1\n2\n3"),
    *("4294967295", "2147483648", "-2147483648", "000000000034000", "+34000", "34_000"),
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
    text = reading.thermalservice
    for _ in range(rng.randrange(4)):
        at = rng.randrange(len(text) + 1)
        text = text[:at] + rng.choice((*TEXTS, "}", "{", "Temperature{mValue=")) + text[at:]
    text = text[: rng.randrange(len(text) + 1)] if rng.random() < 0.3 else text
    properties = {
        name: plain_property(rng.choice(TEXTS)) if rng.random() < 0.1 else value
        for name, value in reading.properties.items()
    }
    return replace(reading, properties=properties, nodes=nodes, thermalservice=text)


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


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_damaged_texts_are_refused_or_understood(path: Path) -> None:
    reading = reading_of(read_facts_file(path))
    for seed in range(SEEDS):
        damaged = mutated(reading, random.Random(f"{path.stem}:{seed}"))
        check_sane(interpret_reading(damaged, "captured", "none"), damaged)
        examine_zones(damaged.nodes)


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
