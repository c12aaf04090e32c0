"""APPFL: a profile per client for its virtual-time simulation.

APPFL multiplies the step time of the simulating computer by a factor. The times of phones are known
instead, so the export includes a profile class that uses them, with both directions of the link and
the windows of availability.
"""

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from orchestrator.export.federated.consumer_files import (
    MODEL_KBIT,
    Consumer,
    ConsumerRounds,
    FleetExport,
)

PROFILES, PROGRAM = "profiles.json", "measured_profiles.py"


def render_files(export: FleetExport) -> Mapping[str, bytes]:
    """Return the profiles as columns, and the class that reads them."""
    down, up = export.links
    columns = {
        "batch": export.batch,
        "samples": export.samples,
        "period_s": export.population.availability.period_s,
        "client": export.names,
        "step_s": (export.sample_ms * export.batch / 1000).tolist(),
        "down_mbps": (down / 1000).tolist(),
        "up_mbps": (up / 1000).tolist(),
        "windows": export.windows,
    }
    return {
        PROFILES: (json.dumps(columns) + "\n").encode(),
        PROGRAM: Path(__file__).with_name(PROGRAM).read_bytes(),
    }


def read_rounds(contents: Mapping[str, bytes], samples: float, batch: int) -> ConsumerRounds:
    """Apply the formulas of the profile class."""
    columns = json.loads(contents[PROFILES])
    megabit = MODEL_KBIT / 1000
    link_s = megabit / np.array(columns["down_mbps"]) + megabit / np.array(columns["up_mbps"])
    return ConsumerRounds(np.array(columns["step_s"]) * samples / batch, link_s)


APPFL = Consumer(
    name="appfl",
    title="APPFL",
    conventions=(
        "measured_profiles.py: read_profiles() returns what APPFL's drivers take as profiles",
        "step_s: seconds of one step of the stated batch size; it replaces the measured step "
        "time of the simulating computer",
        "down_mbps, up_mbps: megabits per second; APPFL's own profile has one value for both",
    ),
    needs_link=True,
    render_files=render_files,
    read_rounds=read_rounds,
)
