"""Temperatures of the framework: used where the zones are hidden, and only the current ones."""

from agent.phone.shell_command import parse_nodes, read_nodes_command
from agent.phone.thermalservice import STATUS, parse_thermalservice, thermalservice_zones

DUMP = """IsStatusOverride: false
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


def test_cached_values_do_not_count() -> None:
    assert parse_thermalservice(DUMP) == {
        STATUS: "1",
        "thermalservice:CPU0": "38400",
        "thermalservice:VIRTUAL-SKIN": "31250",
        "thermalservice:battery": "29000",
    }


def test_zones_are_recognised_by_their_type() -> None:
    cpu, body = thermalservice_zones(DUMP)
    assert [zone.path for zone in cpu] == ["thermalservice:CPU0"]
    assert body is not None
    assert body.type == "VIRTUAL-SKIN"


def test_a_framework_without_temperatures_gives_no_zones() -> None:
    assert thermalservice_zones("Can't find service: thermalservice\n") == ((), None)
    assert parse_thermalservice("Temperature{mValue=1e9, mType=0, mName=x, mStatus=0}") == {}


def test_both_kinds_of_nodes_come_in_one_result() -> None:
    command = read_nodes_command(["/proc/uptime", "thermalservice:CPU0"])
    assert command.words[:2] == ["sh", "-c"]
    assert "dumpsys thermalservice" in command.words[2]
    assert read_nodes_command(["/proc/uptime"]).words[0] == "grep"
    nodes = parse_nodes("/proc/uptime:12.5 3.0\n" + DUMP)
    assert (nodes["/proc/uptime"], nodes["thermalservice:CPU0"]) == ("12.5 3.0", "38400")


def test_samsungs_own_service_is_read_by_names() -> None:
    head = "HAL connection:\n\tSdhms connected: yes\nCurrent temperatures from HAL:\n"
    rows = {"TYPE_CPU": (1, 24.0), "TYPE_BATTERY": (3, 24.4), "TYPE_SKIN": (4, 25.3)}
    for names in (rows, {name.removeprefix("TYPE_"): row for name, row in rows.items()}):
        text = head + "".join(
            f"\tTemperature{{mValue={value}, mType={kind}, mName={name}, mStatus=0}}\n"
            for name, (kind, value) in names.items()
        )
        cpu, body = thermalservice_zones(text)
        assert [zone.type.removeprefix("TYPE_") for zone in cpu] == ["CPU"]
        assert body is not None
        assert body.type.removeprefix("TYPE_") == "SKIN"


def test_sensors_without_a_value_and_mocks_are_left_out() -> None:
    rows = {"SUBBAT": (2, 0.0), "PA": (5, -99.9), "SKIN": (3, 200.0), "test sensor": (3, 30.8)}
    text = "Current temperatures from HAL:\n" + "".join(
        f"\tTemperature{{mValue={value}, mType={kind}, mName={name}, mStatus=0}}\n"
        for name, (kind, value) in rows.items()
    )
    assert thermalservice_zones(text) == ((), None)
