"""A plan names the runs that cannot give a valid result: too large, or too slow."""

import pytest

from orchestrator.planning.expand import expand_sweep
from orchestrator.planning.run_limits import limit_warnings, step_s_from_run
from orchestrator.sweepfile.sweep_file import read_sweep
from tests.analysis.builders import phone
from workloads.protocol.condition import LAUNCHES, Protocol

HEAD = "farm: 1\nname: x\nworkload: resnet50\nphones: all\n"
PHONE = phone("a", model="Pixel 6")  # of 8 GB


def warnings(text: str, ram_mb: int = 4000, step_s: float | None = None) -> list[str]:
    facts = PHONE.model_copy(update={"ram_mb": ram_mb})
    trials = expand_sweep(read_sweep(HEAD + text), [facts]).trials
    return list(limit_warnings(trials, [facts], lambda trial: step_s))


def test_a_model_that_does_not_fit_is_named_once_per_phone() -> None:
    (warning,) = warnings("matrix: {batch_size: [1, 64, 512]}", ram_mb=4000)
    assert warning.startswith("memory: 2 cells cannot fit: resnet50 batch_size=512 image_size=224")
    assert warning.endswith(": a (4,000 MB)")
    assert warnings("matrix: {batch_size: [1]}") == []


def test_what_is_usually_not_free_is_only_likely() -> None:
    (warning,) = warnings("matrix: {batch_size: [1]}", ram_mb=600)
    assert "will hardly fit" in warning
    assert warnings("matrix: {batch_size: [1]}\nconditions: {too_large: try}", ram_mb=600) == []


def test_too_few_steps_are_predicted_with_the_remedy() -> None:
    (warning,) = warnings("matrix: {batch_size: [1]}", 8000, step_s=4.0)
    assert "does not reach 20 steps in 30 s; write steps_min: 20" in warning
    assert warning.endswith(": a (about 7)")
    assert warnings("conditions: {steps_min: 20}\nmatrix: {batch_size: [1]}", 8000, 4.0) == []
    assert warnings("matrix: {batch_size: [1]}", 8000, step_s=1.4) == []


@pytest.mark.parametrize("protocol", Protocol)
def test_the_step_time_follows_from_a_run_that_was_cut_short(protocol: Protocol) -> None:
    launch = LAUNCHES[protocol]
    slow_s = launch.max_seconds / 10
    measured_s = launch.warmup * slow_s + launch.max_seconds
    assert step_s_from_run(launch, measured_s) == pytest.approx(slow_s)
    assert step_s_from_run(launch, launch.seconds + launch.warmup * 0.1) is None
