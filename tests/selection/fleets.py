"""Small fleets for tests of selection: measured runs, client tables and round fleets."""

from dataclasses import replace
from typing import Any

import numpy as np

from orchestrator.analysis.measurements import MeasuredRun
from orchestrator.selection.client_table import build_client_table
from orchestrator.selection.client_types import ClientTable
from orchestrator.selection.round_fleet import RoundFleet
from tests.analysis.builders import measured, phone

CURVE = ((0.0, 10.0), (100.0, 12.0), (200.0, 18.0), (400.0, 20.0))


def phone_runs(
    serial: str, cold_ms: float, hot_ms: float, runs: int = 3, **changes: Any
) -> list[MeasuredRun]:
    """Build the cold and the endurance runs of a phone, with 0.4 % between repeats."""
    fields: dict[str, Any] = {"parameters": {"batch_size": 32}, **changes}
    cold = [
        measured(
            serial,
            cold_ms * (1 + 0.004 * repeat),
            repeat=repeat,
            energy_per_sample_mj=2.0,
            energy_per_step_mj=64.0,
            steps_per_charge=1000.0,
            peak_rss_mb=100.0,
            **fields,
        )
        for repeat in range(runs)
    ]
    hot = [
        measured(
            serial,
            hot_ms,
            condition={"protocol": "endurance"},
            last_minute_step_ms=hot_ms * (1 + 0.004 * repeat),
            repeat=repeat,
            **fields,
        )
        for repeat in range(runs)
    ]
    return cold + [
        replace(run, step_time_curve=CURVE if hot_ms > cold_ms * 1.02 else ()) for run in hot
    ]


def a_client_table(**changes: Any) -> ClientTable:
    """Build four phones: fast but throttling, steady, slow, and one with too little memory."""
    runs = [
        *phone_runs("sprinter", 10.0, 20.0, **changes),
        *phone_runs("steady", 12.0, 12.0, **changes),
        *phone_runs("slow", 40.0, 40.0, **changes),
        *phone_runs("tiny", 11.0, 11.0, facts=phone("tiny", ram_mb=150), **changes),
    ]
    return build_client_table(runs)


def a_fleet(n: int, **changes: object) -> RoundFleet:
    """Build phones that differ only in speed, the fastest first."""
    columns: dict[str, object] = {
        "cold_s": np.linspace(0.01, 0.05, n),
        "slowdown": np.ones(n),
        "heating_s": np.full(n, 100.0),
        "uncertainty": np.zeros(n),
        "energy_j": np.ones(n),
        "battery_j": np.full(n, 1e9),
        "fits": np.ones(n, dtype=bool),
    }
    return RoundFleet(**(columns | changes))  # type: ignore[arg-type]
