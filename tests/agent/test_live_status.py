"""The live sample of a run: the sampler's latest values, of the families a phone offers."""

import json

import pytest

from agent.collect.energy import POWER_NODES
from agent.collect.live_status import LiveSample, parse_live_sample
from tests.builders import a_phone
from workloads.protocol.metrics import Provenances
from workloads.protocol.phone_facts import FuelGauge

CLOCK = "/sys/devices/system/cpu/cpufreq/policy4/scaling_cur_freq"
SAMPLED = ["/sys/z/temp", CLOCK, *POWER_NODES, "/proc/stat\tcores"]
GAUGE = FuelGauge(discharge_sign=-1, unit_a=1e-6, period_s=1.0)
FACTS = a_phone(gauge=GAUGE)


def row(t_ns: int, temp: int, khz: int, current: int) -> bytes:
    """Build one line of the sampler."""
    power = [current, 4_000_000, "Discharging", 0, None, None, None, None]
    values = [temp, khz, *power, "0:1/2"]
    return json.dumps({"line": "reading", "t_ns": t_ns, "v": values}).encode() + b"\n"


ROWS = row(1, 33_000, 2_419_200, -500_000) + row(2, 34_500, 2_323_200, -1_000_000)


def test_the_last_row_gives_temperature_clocks_and_power() -> None:
    assert parse_live_sample(ROWS, SAMPLED, FACTS) == LiveSample(34.5, {4: 2_323_200}, 4.0)


def test_an_incomplete_last_row_is_ignored() -> None:
    torn = ROWS + row(3, 60_000, 1, -1)[:20]
    assert parse_live_sample(torn, SAMPLED, FACTS).temp_c == 34.5


@pytest.mark.parametrize("tail", [b"", b"\xff\x00", b"tail: no such file\n", b'{"line":"reading"}'])
def test_unparsable_rows_give_an_empty_sample(tail: bytes) -> None:
    assert parse_live_sample(tail, SAMPLED, FACTS) == LiveSample()


def test_families_that_a_phone_does_not_offer_stay_empty() -> None:
    host = FACTS.provenance.time if FACTS.provenance else None
    native = FACTS.model_copy(
        update={"provenance": Provenances(time=host, clock=None, heat=None, energy=None)}
    )
    assert parse_live_sample(ROWS, SAMPLED, native) == LiveSample()
