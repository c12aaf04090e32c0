"""The variance of runs is divided into the parts that were put in."""

from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from orchestrator.analysis.trial_series import trial_series
from orchestrator.analysis.variance_levels import variance_levels
from tests.analysis.builders import a_trial_of, measured, phone

START = datetime(2026, 3, 1, tzinfo=UTC)


def test_every_level_gets_its_part() -> None:
    rng = np.random.default_rng(2)
    runs = []
    for serial in ("p1", "p2", "p3", "p4", "p5", "p6", "p7", "p8"):
        facts = phone(serial, model="one")
        unit = rng.normal(0, 0.04)
        for day in range(6):
            occasion = rng.normal(0, 0.03)
            for number in range(4):
                block = rng.normal(0, 0.02)
                for size in (8, 16, 32):
                    noise = unit + occasion + block + rng.normal(0, 0.01)
                    run = measured(
                        *(serial, 10.0 * size * np.exp(noise)),
                        facts=facts,
                        parameters={"batch_size": size},
                        repeat=4 * day + number,
                    )
                    at = START + timedelta(days=day, minutes=number)
                    runs.append(type(run)(**(vars(run) | {"started_at": at})))
    found = variance_levels(trial_series(runs))
    assert found.run == pytest.approx(0.01, rel=0.25)
    assert found.block == pytest.approx(0.02, rel=0.25)
    assert found.occasion == pytest.approx(0.03, rel=0.35)
    assert found.phone == pytest.approx(0.04, rel=0.6)


def test_what_the_runs_cannot_show_is_unknown() -> None:
    found = variance_levels(trial_series(a_trial_of(10.0, 6, scatter=0.01)))
    assert found.run == pytest.approx(0.01, rel=0.6)
    assert (found.block, found.occasion, found.phone) == (None, None, None)
    assert variance_levels([]).run is None
    assert variance_levels(trial_series([measured()])).run is None
