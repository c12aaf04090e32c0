"""Small fleets: runs as a sweep would have stored them, cold and after ten minutes."""

from dataclasses import replace
from typing import Any

import numpy as np

from orchestrator.nouns import MeasuredRun
from orchestrator.selection.census import take_census
from orchestrator.selection.client import Census
from orchestrator.selection.fleet import Fleet
from tests.analysis.builders import measured, phone

CURVE = ((0.0, 10.0), (100.0, 12.0), (200.0, 18.0), (400.0, 20.0))


def both_ways(
    serial: str, cold_ms: float, hot_ms: float, runs: int = 3, **changes: Any
) -> list[MeasuredRun]:
    """A phone's cold runs and its endurance runs, a little apart from each other."""
    more: dict[str, Any] = {"parameters": {"batch_size": 32}, **changes}
    cold = [
        measured(
            serial,
            cold_ms * (1 + 0.004 * at),
            repeat=at,
            energy_per_sample_mj=2.0,
            energy_per_step_mj=64.0,
            steps_per_charge=1000.0,
            peak_rss_mb=100.0,
            step_p90_ms=cold_ms * 1.1,
            **more,
        )
        for at in range(runs)
    ]
    hot = [
        measured(
            serial,
            hot_ms,
            condition={"protocol": "endurance"},
            last_minute_step_ms=hot_ms * (1 + 0.004 * at),
            repeat=at,
            **more,
        )
        for at in range(runs)
    ]
    return cold + [replace(run, curve=CURVE if hot_ms > cold_ms * 1.02 else ()) for run in hot]


def a_census(**changes: Any) -> Census:
    """Four phones: quick and hot, steady, slow, and one too small for the model."""
    runs = [
        *both_ways("sprinter", 10.0, 20.0, **changes),
        *both_ways("steady", 12.0, 12.0, **changes),
        *both_ways("slow", 40.0, 40.0, **changes),
        *both_ways("tiny", 11.0, 11.0, facts=phone("tiny", ram_mb=150), **changes),
    ]
    return take_census(runs)


def a_fleet(n: int, **changes: object) -> Fleet:
    """Phones of falling speed, alike in everything else."""
    columns: dict[str, object] = {
        "cold_s": np.linspace(0.01, 0.05, n),
        "slowdown": np.ones(n),
        "heating_s": np.full(n, 100.0),
        "doubt": np.zeros(n),
        "energy_j": np.ones(n),
        "battery_j": np.full(n, 1e9),
        "fits": np.ones(n, dtype=bool),
    }
    return Fleet(**(columns | changes))  # type: ignore[arg-type]
