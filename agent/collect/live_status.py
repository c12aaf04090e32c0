"""The pulse of a run: what its sampler saw last, for whoever watches. Never part of a figure.

The sampler runs beside the work anyway, so its last lines cost the phone one more `tail` a look.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field

from agent.control.clocks import policy_node
from agent.control.guard import lane_file
from agent.phone.nodes import believable
from agent.phone.phone import Command
from agent.run.energy import power_of
from agent.run.telemetry import Readings, parse_readings
from workloads.phone import PhoneFacts

ROWS = 4  # the last may be torn, and power wants two
PULSE = Command(["tail", "-n", str(ROWS), lane_file("readings.jsonl")])


@dataclass(frozen=True)
class Pulse:
    """Heat, clocks and power of a phone at work, as far as they were seen."""

    temp_c: float | None = None
    clocks_khz: dict[int, int] = field(default_factory=dict)
    power_w: float | None = None


def feel(tail: bytes, sampled: Sequence[str], facts: PhoneFacts) -> Pulse:
    """Read the last rows of the sampler; only what the phone offers as real is told."""
    paths = [node.split("\t")[0] for node in sampled]
    heading = json.dumps({"line": "nodes", "paths": paths}).encode()
    readings = parse_readings(heading + b"\n" + tail)
    offered = facts.provenance
    if not readings.t_ns or offered is None:
        return Pulse()
    power = power_of(readings, facts.gauge) if offered.energy is not None else None
    return Pulse(
        temp_c=_temp_c(readings, facts) if offered.heat is not None else None,
        clocks_khz=_clocks(readings, facts) if offered.clock is not None else {},
        power_w=round(power.points[-1][1], 2) if power is not None and power.points else None,
    )


def _temp_c(readings: Readings, facts: PhoneFacts) -> float | None:
    temps = [believable(_last(readings, zone.path), zone.scale) for zone in facts.cpu_zones]
    return max((temp for temp in temps if temp is not None), default=None)


def _clocks(readings: Readings, facts: PhoneFacts) -> dict[int, int]:
    found = {
        cluster.policy: _last(readings, policy_node(cluster.policy, "scaling_cur_freq"))
        for cluster in facts.clusters
    }
    return {policy: khz for policy, khz in found.items() if khz is not None}


def _last(readings: Readings, path: str) -> int | None:
    column = readings.numbers(path)
    return column[-1] if column else None
