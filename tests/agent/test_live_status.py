"""The pulse of a run: what the sampler saw last, and nothing that the phone does not offer."""

import json

import pytest

from agent.run.energy import POWER_NODES
from agent.run.pulse import Pulse, feel
from tests.builders import a_phone
from workloads.measure import Provenances
from workloads.phone import Gauge

CLOCK = "/sys/devices/system/cpu/cpufreq/policy4/scaling_cur_freq"
SAMPLED = ["/sys/z/temp", CLOCK, *POWER_NODES, "/proc/stat\tcores"]
GAUGE = Gauge(discharge_sign=-1, unit_a=1e-6, period_s=1.0)
FACTS = a_phone(gauge=GAUGE)


def row(t_ns: int, temp: int, khz: int, current: int) -> bytes:
    """A line of the sampler."""
    power = [current, 4_000_000, "Discharging", 0, None, None, None, None]
    values = [temp, khz, *power, "0:1/2"]
    return json.dumps({"line": "reading", "t_ns": t_ns, "v": values}).encode() + b"\n"


ROWS = row(1, 33_000, 2_419_200, -500_000) + row(2, 34_500, 2_323_200, -1_000_000)


def test_the_last_row_tells_heat_clocks_and_power() -> None:
    assert Pulse(34.5, {4: 2_323_200}, 4.0) == feel(ROWS, SAMPLED, FACTS)


def test_a_torn_last_row_leaves_the_one_before() -> None:
    torn = ROWS + row(3, 60_000, 1, -1)[:20]
    assert 34.5 == feel(torn, SAMPLED, FACTS).temp_c


@pytest.mark.parametrize("tail", [b"", b"\xff\x00", b"tail: no such file\n", b'{"line":"reading"}'])
def test_nonsense_has_no_pulse(tail: bytes) -> None:
    assert Pulse() == feel(tail, SAMPLED, FACTS)


def test_a_phone_that_offers_no_heat_clocks_or_energy_tells_none() -> None:
    host = FACTS.provenance.time if FACTS.provenance else None
    native = FACTS.model_copy(
        update={"provenance": Provenances(time=host, clock=None, heat=None, energy=None)}
    )
    assert Pulse() == feel(ROWS, SAMPLED, native)
