"""What a sweep's start temperatures mean for phones as they are now."""

import pytest

from orchestrator.planning.start_outlook import never_cool, start_waits
from workloads.protocol.condition import Condition
from workloads.protocol.messages import CoolingEstimate, PhoneState, PhoneStatus


def a_phone(serial: str, temp_c: float, rest_c: float | None) -> PhoneStatus:
    cooling = CoolingEstimate(rest_c=rest_c, time_constant_s=500.0) if rest_c else None
    return PhoneStatus(
        serial=serial, state=PhoneState.IDLE, temp_c=temp_c, rest_c=rest_c, cooling=cooling
    )


PHONES = [a_phone("COOL", 30.5, 30.0), a_phone("WARM", 46.0, 40.0), a_phone("NEW", 35.0, None)]


@pytest.mark.parametrize(
    ("condition", "warnings", "waits"),
    [
        (Condition(), [], ["WARM is at 46.0 °C and may start at 43.0 °C: in about 5 m 47 s"]),
        (
            Condition(start_temp_max_c=32.0),
            [
                "start_temp_max_c: 32 is below the temperature at rest of WARM (40.0 °C): "
                "they never start; 41 or 'rest' would pass"
            ],
            ["NEW is at 35.0 °C and may start at 32.0 °C; how long that takes is not known yet"],
        ),
        (Condition(start_temp_max_c=None), [], []),
    ],
)
def test_a_plan_says_which_phones_are_too_warm_and_for_how_long(
    condition: Condition, warnings: list[str], waits: list[str]
) -> None:
    assert list(never_cool([condition], PHONES)) == warnings
    assert list(start_waits([condition], PHONES)) == waits
