"""Latest sampler values of a running job, for the live display only; no metric uses them.

The sampler runs in every job, so reading its last lines costs one more `tail` per poll.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field

from agent.collect.energy import power_from_readings
from agent.collect.readings import Readings, parse_readings
from agent.phone.kernel_nodes import clock_node, plausible_temp_c
from agent.phone.phone_paths import READINGS, lane_file
from agent.phone.shell_command import ShellCommand
from workloads.protocol.phone_facts import PhoneFacts

ROWS = 4  # the last row may be torn, and power needs two
LIVE_SAMPLE_COMMAND = ShellCommand(["tail", "-n", str(ROWS), lane_file(READINGS)])


@dataclass(frozen=True)
class LiveSample:
    """Temperature, clocks and power of a phone at work, as far as they were read."""

    temp_c: float | None = None
    clocks_khz: dict[int, int] = field(default_factory=dict)
    power_w: float | None = None


def parse_live_sample(tail: bytes, sampled_nodes: Sequence[str], facts: PhoneFacts) -> LiveSample:
    """Parse the last rows of the sampler; families that the phone does not offer stay empty."""
    paths = [node.split("\t")[0] for node in sampled_nodes]
    heading = json.dumps({"line": "nodes", "paths": paths}).encode()
    readings = parse_readings(heading + b"\n" + tail)
    offered = facts.provenance
    if not readings.t_ns or offered is None:
        return LiveSample()
    power = power_from_readings(readings, facts.gauge) if offered.energy is not None else None
    return LiveSample(
        temp_c=_temp_c(readings, facts) if offered.heat is not None else None,
        clocks_khz=_clocks_khz(readings, facts) if offered.clock is not None else {},
        power_w=round(power.points[-1][1], 2) if power is not None and power.points else None,
    )


def _temp_c(readings: Readings, facts: PhoneFacts) -> float | None:
    temps = [plausible_temp_c(_last(readings, zone.path), zone.scale) for zone in facts.cpu_zones]
    return max((temp_c for temp_c in temps if temp_c is not None), default=None)


def _clocks_khz(readings: Readings, facts: PhoneFacts) -> dict[int, int]:
    clocks = {
        cluster.policy: _last(readings, clock_node(cluster, "scaling_cur_freq"))
        for cluster in facts.clusters
    }
    return {policy: khz for policy, khz in clocks.items() if khz is not None}


def _last(readings: Readings, path: str) -> int | None:
    numbers = readings.numbers(path)
    return numbers[-1] if numbers else None
