"""What the framework tells of heat: read where the zones are closed, and only what is fresh."""

from agent.phone.framework import STATUS, framework_zones, parse_thermalservice
from agent.phone.phone import reading, split_nodes

SAID = """IsStatusOverride: false
Thermal Status: 1
Cached temperatures:
\tTemperature{mValue=20.0, mType=0, mName=CPU0, mStatus=0}
HAL Ready: true
Current temperatures from HAL:
\tTemperature{mValue=38.4, mType=0, mName=CPU0, mStatus=0}
\tTemperature{mValue=31.25, mType=3, mName=VIRTUAL-SKIN, mStatus=1}
\tTemperature{mValue=29.0, mType=2, mName=battery, mStatus=0}
Current cooling devices from HAL:
\tCoolingDevice{mValue=0, mType=2, mName=thermal-cpufreq-0}
"""


def test_what_is_cached_does_not_count() -> None:
    assert parse_thermalservice(SAID) == {
        STATUS: "1",
        "thermalservice:CPU0": "38400",
        "thermalservice:VIRTUAL-SKIN": "31250",
        "thermalservice:battery": "29000",
    }


def test_zones_are_known_by_their_kind() -> None:
    cpu, slow = framework_zones(SAID)
    assert [zone.path for zone in cpu] == ["thermalservice:CPU0"]
    assert slow is not None
    assert slow.type == "VIRTUAL-SKIN"


def test_a_framework_that_says_nothing_is_no_thermometer() -> None:
    assert framework_zones("Can't find service: thermalservice\n") == ((), None)
    assert parse_thermalservice("Temperature{mValue=1e9, mType=0, mName=x, mStatus=0}") == {}


def test_both_kinds_of_nodes_come_in_one_answer() -> None:
    command = reading(["/proc/uptime", "thermalservice:CPU0"])
    assert command.words[:2] == ["sh", "-c"]
    assert "dumpsys thermalservice" in command.words[2]
    assert reading(["/proc/uptime"]).words[0] == "grep"
    nodes = split_nodes("/proc/uptime:12.5 3.0\n" + SAID)
    assert (nodes["/proc/uptime"], nodes["thermalservice:CPU0"]) == ("12.5 3.0", "38400")
