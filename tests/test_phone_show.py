"""The text of `farm phone show`."""

import pytest

from orchestrator.app.control_phones import match_serial
from orchestrator.store.phone_queries import KnownPhone
from orchestrator.tui.phone_detail import describe_phone
from tests.builders import a_phone
from workloads.protocol.faults import InvalidRequest
from workloads.protocol.messages import PhoneState, PhoneStatus
from workloads.protocol.phone_facts import FuelGauge, Gpu, OpenCLFacts


def a_known_phone(serial: str = "PH1", **facts: object) -> KnownPhone:
    """Build an idle phone of host-a."""
    status = PhoneStatus(serial=serial, state=PhoneState.IDLE)
    return KnownPhone(serial=serial, host="host-a", facts=a_phone(serial, **facts), status=status)


def test_controls_are_listed_and_missing_ones_have_a_reason() -> None:
    phone = a_known_phone(controlled=("pin clocks",), uncontrolled=("cut USB: no switch",))
    lines = describe_phone(phone)
    assert "yes  pin clocks" in lines
    assert "no   cut USB: no switch" in lines


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
