"""`farm phone show`: a phone in words."""

import pytest

from orchestrator.app.control_phones import match_serial
from orchestrator.store.phone_queries import KnownPhone
from orchestrator.tui.phone_detail import describe_phone
from tests.builders import a_phone
from workloads.protocol.faults import InvalidRequest
from workloads.protocol.messages import PhoneState, PhoneStatus
from workloads.protocol.phone_facts import FuelGauge, Gpu


def known(serial: str = "PH1", **facts: object) -> KnownPhone:
    status = PhoneStatus(serial=serial, state=PhoneState.IDLE)
    return KnownPhone(serial=serial, host="host-a", facts=a_phone(serial, **facts), status=status)


def test_what_cannot_be_controlled_is_said_with_its_reason() -> None:
    words = "\n".join(
        describe_phone(known(controlled=("A is held",), uncontrolled=("B cannot be cut",)))
    )
    assert "holds  A is held" in words
    assert "lacks  B cannot be cut" in words


def test_clocks_gpu_and_gauge_are_told() -> None:
    gpu = Gpu(name="Adreno 640", folder="/sys/x", ladder_khz=(257000, 585000))
    gauge = FuelGauge(discharge_sign=-1, unit_a=1e-6, period_s=0.5)
    words = "\n".join(describe_phone(known(gpu=gpu, gauge=gauge)))
    assert "policy7: cpu 7; 3 clocks, 825 to 2841 MHz; capacity 1024" in words
    assert "GPU: Adreno 640; 2 clocks, 257 to 585 MHz" in words
    assert "gauge: negative while discharging, in µA, each 0.5 s" in words


def test_a_phone_is_found_by_the_beginning_of_its_serial() -> None:
    phones = [known("ABC1"), known("ABC2"), known("AB")]
    assert match_serial(phones, "ABC2").serial == "ABC2"
    assert match_serial(phones, "AB").serial == "AB"
    for wrong in ("ABC", "X"):
        with pytest.raises(InvalidRequest):
            match_serial(phones, wrong)
