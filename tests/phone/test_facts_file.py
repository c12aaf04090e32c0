"""Facts files: what is left out, and that every text survives writing and reading."""

import random

import pytest

from agent.phone.capture import REMOVED, facts_of, remove_private
from agent.phone.facts_file import FactsFile, format_facts, parse_facts
from agent.phone.phone_reading import PhoneReading

READING = PhoneReading(
    properties={
        "ro.product.manufacturer": "maker",
        "ro.product.model": "one",
        "ro.serialno": "R58",
    },
    nodes={},
)
CPUINFO = "processor\t: 0\nCPU part\t: 0xd03\nSerial\t\t: 0123456789abcdef\nHardware\t: Qualcomm"


def test_serials_accounts_and_addresses_are_removed() -> None:
    nodes = {
        "/proc/cpuinfo": CPUINFO,
        "/proc/self/status": "Name:\tgrep\nUid:\t2000\nCpus_allowed_list:\t0-7",
        "/proc/uptime": "12.5 3.0",
        "/sys/class/thermal/thermal_zone0/type": "cpu-of-R58M123ABC",
        "/sys/class/thermal/thermal_zone0/temp": "31000",
        "/sys/class/power_supply/battery/status": "me@example.org 10.1.2.3 aa:bb:cc:dd:ee:ff",
        "/sys/class/power_supply/usb/type": "490154203237518",
    }
    facts = remove_private(facts_of(READING, nodes, "  level: 57\n"), ["R58M123ABC"])
    text = format_facts(facts)
    for private in ("R58M123ABC", "0123456789abcdef", "me@example.org", "10.1.2.3", "aa:bb:cc"):
        assert private not in text
    assert "490154203237518" not in text
    assert facts.nodes["/sys/class/power_supply/battery/status"] == " ".join([REMOVED] * 3)
    assert facts.nodes["/proc/cpuinfo"] == "processor\t: 0\nCPU part\t: 0xd03\nHardware\t: Qualcomm"
    assert facts.nodes["/proc/self/status"] == "Cpus_allowed_list:\t0-7"
    assert "/proc/uptime" not in facts.nodes
    assert (facts.zone[0].temp, facts.battery) == ("31000", {"level": "57"})


def test_links_to_a_policy_are_written_once() -> None:
    cpu = "/sys/devices/system/cpu"
    nodes = {f"{cpu}/cpufreq/policy0/related_cpus": "0 1"}
    nodes |= {f"{cpu}/cpu{number}/cpufreq/related_cpus": "0 1" for number in (0, 1)}
    assert [clock.folders for clock in facts_of(READING, nodes, "").clock] == [("cpufreq/policy0",)]
    del nodes[f"{cpu}/cpufreq/policy0/related_cpus"]
    nodes[f"{cpu}/cpu0/cpufreq/stats/time_in_state"] = "300000 1"
    nodes[f"{cpu}/cpu1/cpufreq/stats/time_in_state"] = "300000 2"
    assert [clock.folders for clock in facts_of(READING, nodes, "").clock] == [
        ("cpu0/cpufreq", "cpu1/cpufreq")
    ]


@pytest.mark.parametrize("seed", range(20))
def test_every_text_survives(seed: int) -> None:
    rng = random.Random(seed)
    letters = "aZ0 '\"\\\n\t\r\x00\x07\x1b\x7f\x85\u2028\u202e=[]{}#,.é漢😀"

    def text() -> str:
        return "".join(rng.choice(letters) for _ in range(rng.randrange(30)))

    facts = FactsFile.model_validate(
        {
            "schema": 1,
            "name": text(),
            "properties": {text(): text() for _ in range(5)},
            "clock": [{"folders": ["cpu0/cpufreq"], "nodes": {"related_cpus": text()}}],
            "nodes": {"/sys/a": text(), "/proc/b-c/d": text()},
            "zone": [{"number": number, "type": text(), "temp": text()} for number in range(3)],
            "thermalservice": {"current": [{"name": text(), "type": -1, "value": -99.9}]},
            "battery": {text(): text()},
        }
    )
    assert parse_facts(format_facts(facts), "copy") == facts
