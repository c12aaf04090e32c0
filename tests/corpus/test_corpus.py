"""Every phone of the corpus is understood, on both sides; what cannot be told is not guessed."""

import re
from functools import cache
from pathlib import Path

import pytest

from agent.phone.facts_file import FactsFile, format_facts, parse_facts, read_facts_file, reading_of
from agent.phone.kernel_nodes import hottest_c, parse_cpus
from agent.phone.probe import interpret_reading, soc_name
from agent.phone.thermalservice import parse_thermalservice
from tests.corpus import FILES
from tests.source_files import ROOT
from workloads.protocol.phone_facts import PhoneFacts, ThermalZone


@cache
def load(path: Path) -> tuple[FactsFile, PhoneFacts]:
    """Read a phone, and probe it."""
    file = read_facts_file(path)
    return file, interpret_reading(reading_of(file), "captured", "not started")


def temperature_c(file: FactsFile, *zones: ThermalZone) -> float | None:
    reading = reading_of(file)
    values = {**reading.nodes, **parse_thermalservice(reading.thermalservice)}
    hottest = hottest_c(zones, values)
    return None if hottest is None else round(hottest, 1)


def core_list(text: str) -> tuple[int, ...]:
    return parse_cpus(text)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_probe_makes_of_it_what_is_expected(path: Path) -> None:
    file, facts = load(path)
    expected = file.expected
    assert expected is not None
    by_strength = sorted(facts.clusters, key=lambda at: (at.capacity, at.policy))
    assert [at.cpus for at in by_strength] == [core_list(text) for text in expected.clusters]
    assert all(list(at.ladder_khz) == sorted({*at.ladder_khz}) for at in facts.clusters)
    offline = [cpu for at in facts.clusters if not at.ladder_khz for cpu in at.cpus]
    if expected.offline:
        assert tuple(offline) == core_list(expected.offline)
        assert any("offline during the probe" in text for text in facts.uncontrolled)
    assert [zone.type for zone in facts.cpu_zones] == list(expected.cpu_zones)
    assert (facts.body_zone.type if facts.body_zone else "") == expected.body_zone
    assert temperature_c(file, *facts.cpu_zones) == rounded(expected.cpu_c)
    if facts.body_zone is not None:
        assert temperature_c(file, facts.body_zone) == rounded(expected.body_c)
    assert facts.control is expected.control
    assert any("fuel gauge" in text for text in facts.controlled) == expected.gauge
    assert facts.gauge_supply == expected.supply
    assert (facts.charging.path if facts.charging else "") == expected.charging
    gpu = facts.gpu
    assert (gpu.name if gpu else "") == expected.gpu
    assert ((gpu.ladder_khz[0], gpu.ladder_khz[-1]) if gpu else ()) == expected.gpu_khz
    assert facts.perf_daemons == expected.daemons
    assert soc_name(file.properties) == facts.soc == expected.soc


def rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 1)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_phone_without_a_cpu_temperature_states_the_reason(path: Path) -> None:
    _, facts = load(path)
    refused = any("no CPU temperature can be read: " in text for text in facts.uncontrolled)
    assert refused is not bool(facts.cpu_zones)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_file_survives_writing_and_reading(path: Path) -> None:
    file, _ = load(path)
    assert parse_facts(format_facts(file), "copy") == file


def test_the_corpus_covers_makers_releases_and_layouts() -> None:
    phones = [load(path) for path in FILES]
    releases = {int(re.match(r"\d+", facts.android)[0]) for _, facts in phones}  # type: ignore[index]
    folders = {clock.folders[0].split("/")[0] for file, _ in phones for clock in file.clock}
    connections = {
        file.thermalservice.connection for file, _ in phones if file.thermalservice is not None
    }
    assert len(FILES) >= 60
    assert len({facts.soc.lower() for _, facts in phones}) >= 30
    assert releases == set(range(6, 17))
    assert {"cpufreq", "cpu0"} <= folders
    assert {"Sdhms", "ThermalHAL 1.0", "ThermalHAL 1.1", "ThermalHAL 2.0", ""} <= connections
    assert any(name.startswith("ThermalHAL AIDL") for name in connections)
    assert all(file.sources for file, _ in phones)
    typical = [file for file, _ in phones if file.values == "typical"]
    assert all("typical" in file.notes for file in typical)
    shown = [file for file, _ in phones if file.zone or file.thermalservice is not None]
    printed = [file for file in shown if file.values == "printed"]
    text = (ROOT / "docs/howto/capture-a-phone.md").read_text(encoding="utf-8")
    claim = f"{len(FILES)} phones, {len(shown)} with temperatures, {len(printed)} of them printed"
    assert claim in text, claim
