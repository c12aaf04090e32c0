"""The text of `farm phone show`."""

from dataclasses import replace
from datetime import date

import pytest

from orchestrator.app.checks.lab_checks import judge_batteries
from orchestrator.app.control_phones import match_serial
from orchestrator.planning.states import Health
from orchestrator.store.phone_queries import KnownPhone
from orchestrator.tui.phone_detail import describe_phone
from tests.builders import a_phone
from workloads.protocol.faults import InvalidRequest
from workloads.protocol.messages import PhoneState, PhoneStatus
from workloads.protocol.phone_facts import BatteryCondition, FuelGauge, Gpu, OpenCLFacts


def a_known_phone(serial: str = "PH1", **facts: object) -> KnownPhone:
    """Build an idle phone of host-a."""
    status = PhoneStatus(serial=serial, state=PhoneState.IDLE)
    return KnownPhone(serial=serial, host="host-a", facts=a_phone(serial, **facts), status=status)


def test_controls_are_listed_and_missing_ones_have_a_reason() -> None:
    phone = a_known_phone(controlled=("pin clocks",), uncontrolled=("cut USB: no switch",))
    lines = describe_phone(phone)
    assert "yes  pin clocks" in lines
    assert "no   cut USB: no switch" in lines


@pytest.mark.parametrize(
    ("address", "text"),
    [
        ("R58M12", "connected by USB"),
        ("192.168.0.7:5555", "connected by Wi-Fi, 192.168.0.7:5555"),
        ("127.0.0.1:5600", "connected by TCP, 127.0.0.1:5600"),
    ],
)
def test_the_connection_is_described(address: str, text: str) -> None:
    phone = a_known_phone()
    status = phone.status.model_copy(update={"address": address})
    assert text in describe_phone(replace(phone, status=status))


def test_clocks_gpu_and_gauge_are_described() -> None:
    gpu = Gpu(name="Adreno 640", folder="/sys/x", ladder_khz=(257000, 585000))
    gauge = FuelGauge(discharge_sign=-1, unit_a=1e-6, period_s=0.5)
    lines = describe_phone(a_known_phone(gpu=gpu, gauge=gauge))
    assert "policy7: cpu 7; 3 clocks, 825 to 2841 MHz; capacity 1024" in lines
    assert "GPU: Adreno 640; 2 clocks, 257 to 585 MHz" in lines
    assert "fuel gauge: current in µA, negative while discharging, every 0.5 s" in lines


def test_the_opencl_device_is_described_or_missing() -> None:
    device = OpenCLFacts(
        name="Adreno", version="OpenCL 2.0", driver="1", units=2, memory_mb=2757, max_alloc_mb=1024
    )
    able = describe_phone(a_known_phone(backends=("cpu", "opencl"), opencl=device))
    assert "OpenCL: Adreno, OpenCL 2.0; 2757 MB, 1024 MB per buffer" in able
    assert "OpenCL: no device was found" in describe_phone(a_known_phone(backends=("cpu",)))


def test_a_phone_is_found_by_a_unique_prefix_of_its_serial() -> None:
    phones = [a_known_phone("ABC1"), a_known_phone("ABC2"), a_known_phone("AB")]
    assert match_serial(phones, "ABC2").serial == "ABC2"
    assert match_serial(phones, "AB").serial == "AB"
    for wrong in ("ABC", "X"):
        with pytest.raises(InvalidRequest):
            match_serial(phones, wrong)


def test_the_battery_is_described_as_far_as_it_is_known() -> None:
    worn = BatteryCondition(
        cycles=612,
        capacity_share=0.78,
        health="good",
        first_used=date(2021, 5, 9),
        watched_since=date(2026, 1, 2),
        hours=300,
        hours_above_90=280,
    )
    text = (
        "battery: in use since 2021-05, 612 cycles, 78% of its capacity, health good, "
        "280 of 300 h above 90 % since 2026-01-02"
    )
    assert text in describe_phone(a_known_phone(battery=worn))
    assert "battery: health cold" in describe_phone(
        a_known_phone(battery=BatteryCondition(health="cold"))
    )


@pytest.mark.parametrize(
    ("battery", "text", "remedy"),
    [
        (BatteryCondition(cycles=900, capacity_share=0.7), "70% of its capacity", "retire PH1"),
        (BatteryCondition(health="over voltage"), "health is 'over voltage'", "retire PH1"),
        (BatteryCondition(hours=200, hours_above_90=150), "150 of 200 h", "limit charging"),
        (BatteryCondition(hours=50, hours_above_90=50), "", ""),  # not watched for long enough
        (BatteryCondition(cycles=900, capacity_share=0.9, health="good"), "", ""),
        (None, "", ""),
    ],
)
def test_the_doctor_warns_of_batteries(
    battery: BatteryCondition | None, text: str, remedy: str
) -> None:
    phone = a_known_phone(battery=battery)
    findings = [*judge_batteries([phone])]
    assert len(findings) == bool(text)
    assert all(text in finding.text and remedy in finding.fix for finding in findings)
    assert not [*judge_batteries([replace(phone, health=Health.RETIRED)])]
