"""The twin predicts the runs of its phone, and calibration prints the errors of both."""

import json
from dataclasses import replace
from itertools import product
from statistics import fmean

import pytest
from click.testing import CliRunner

from agent.virtual.cli import virtual
from agent.virtual.engines import engine_for, load_engine
from agent.virtual.fleet_mix import make_fleet
from agent.virtual.physics.memory_pressure import assess_memory
from agent.virtual.profiles import load_profile, profile_ids
from agent.virtual.twin.cores_and_clocks import parse_clock, parse_cores
from agent.virtual.twin.fit_result import mean_error
from agent.virtual.twin.least_squares import Prior, solve_least_squares
from agent.virtual.twin.predict import PredictionQuery, predict
from agent.virtual.twin.simulated_provenance import RunCondition, provenance_by_family
from agent.virtual.virtual_phone import VirtualPhone
from benchmarks.phone_fits.fit_gemm import gemm_gflops
from benchmarks.phone_fits.fit_heat import simulate_trace, throttling_cycles
from benchmarks.phone_fits.fit_memory import peak_mb
from benchmarks.phone_fits.fit_phones import main as fit_phones
from benchmarks.phone_fits.fit_power import whole_phone_w
from benchmarks.phone_fits.fit_time import core_set_timings, step_timings
from benchmarks.phone_fits.measurements import load_measurements
from tests.virtual.adb_host import AdbPhone
from tests.virtual.conftest import StartPhone
from tests.virtual.test_runner import lines, make_ready, run
from workloads.catalogue import bind, lower
from workloads.protocol.phone_facts import choose_ladder_step

MEIZU = load_profile("meizu-16t")
MNN = load_engine("mnn")
MEASURED = load_measurements("meizu-16t")
KEYS = {"step_ms", "power_w", "energy_j_per_step", "peak_mb", "temp_c", "big_khz", "provenance"}


def predict_json(phone: str, *words: str) -> dict[str, object]:
    result = CliRunner().invoke(virtual, ["predict", phone, *words, "--json"])
    assert result.exit_code == 0, result.output
    return dict(json.loads(result.output))


def test_a_prediction_has_every_metric_with_its_provenance() -> None:
    words = "--workload emdl-googlenet --batch-size 8 --cores big4 --freq 1708800 --after 5m"
    prediction = predict_json("meizu-16t", *words.split())
    assert set(prediction) >= KEYS
    assert prediction["big_khz"] == 1708800
    assert dict(prediction["provenance"])["time"]["model"] == "fitted"  # type: ignore[call-overload]
    assert dict(prediction["provenance"])["heat"]["model"] == "extrapolated"  # type: ignore[call-overload]


@pytest.mark.parametrize("phone", profile_ids())
def test_every_phone_predicts_every_core_set(phone: str) -> None:
    little = predict(phone, PredictionQuery("emdl-lenet", 4, "little1", "low"))
    big = predict(phone, PredictionQuery("emdl-lenet", 4, "big2", "high"))
    assert big.step_ms < little.step_ms
    assert big.power_w > little.power_w


@pytest.mark.parametrize("phone", profile_ids())
def test_a_level_is_the_clock_that_a_lab_would_set(phone: str) -> None:
    profile = load_profile(phone)
    for part, level in product(profile.cluster, ("low", "mid", "high")):
        expected = choose_ladder_step(tuple(part.ladder_khz), level, part.role)
        published = profile.levels.get(level, {}).get(part.role)  # of a study, which the twin fits
        assert parse_clock(profile, part, level) == (published or expected)


def test_big4_is_the_mask_of_the_study_on_every_phone() -> None:
    for phone in ("meizu-16t", "redmi-note-9-pro", "oneplus-nord", "huawei-mate-30"):
        assert parse_cores(load_profile(phone), "big4") == (4, 5, 6, 7)
    assert parse_cores(load_profile("redmi-note-9-pro"), "big2") == (6, 7)


@pytest.mark.parametrize("words", ["--workload nope", "--workload sgemm --cores big9"])
def test_an_invalid_prediction_request_is_refused(words: str) -> None:
    result = CliRunner().invoke(virtual, ["predict", "meizu-16t", *words.split()])
    assert result.exit_code == 2
    assert "Traceback" not in result.output


@pytest.mark.parametrize(
    ("phone", "workload", "batch", "mask", "cores"),
    [
        ("meizu-16t", "emdl-lenet", 4, "f0", "big4"),
        ("meizu-16t", "emdl-alexnet", 2, "10", "big1"),
        ("samsung-s8-plus", "emdl-lenet", 16, "0f", "little4"),
    ],
)
def test_a_run_takes_the_predicted_time(
    start_phone: StartPhone, phone: str, workload: str, batch: int, mask: str, cores: str
) -> None:
    ready: AdbPhone = make_ready(
        start_phone(phone), lower(bind(workload, {"batch_size": batch}), threads=4)
    )
    assert run(ready, "--steps 30", mask) == 0
    done = lines(ready)[-1]
    expected = predict(phone, PredictionQuery(workload, batch, cores))
    assert done["ns"] / done["steps"] / 1e6 == pytest.approx(expected.step_ms, rel=0.02)
    assert done["peak_rss_kb"] / 1024 == pytest.approx(expected.peak_mb, rel=0.01)


def test_step_times_are_near_the_measured_ones() -> None:
    step_ms = [timing.seconds * 1e3 for timing in step_timings(MEIZU, MNN, MEASURED.step)]
    assert mean_error(step_ms, [row.step_ms for row in MEASURED.step]) < 0.08
    trusted = [row for row in MEASURED.core_set if row.weight == 1.0]
    core_set_s = [timing.seconds for timing in core_set_timings(MEIZU, MNN, trusted)]
    assert mean_error(core_set_s, [row.seconds for row in trusted]) < 0.10


def test_the_other_cores_idle_as_measured() -> None:
    """The optimizer and the launches run on one core; /proc/stat showed the others waiting."""
    for timing, row in zip(step_timings(MEIZU, MNN, MEASURED.step), MEASURED.step, strict=True):
        if row.others_busy is not None:
            assert 1 - timing.serial_share == pytest.approx(row.others_busy, abs=0.07)


def test_power_and_memory_are_near_the_measured_ones() -> None:
    watts = whole_phone_w(MEIZU, MNN, MEASURED.power)
    assert mean_error(watts, [row.power_w for row in MEASURED.power]) < 0.11
    peaks = [peak_mb(MNN, row) for row in MEASURED.memory]
    assert mean_error(peaks, [row.peak_mb for row in MEASURED.memory]) < 0.07


def test_the_s8_warms_like_its_trace() -> None:
    measurements = load_measurements("samsung-s8-plus")
    profile = load_profile("samsung-s8-plus")
    temps, _ = simulate_trace(profile, [moment for moment, _ in measurements.battery_c])
    for temp, (_, measured_c) in zip(temps, measurements.battery_c, strict=True):
        assert temp == pytest.approx(measured_c, abs=1.0)
    _, clocks = simulate_trace(profile, [10.0 * moment for moment in range(540)])
    assert clocks[0] == measurements.top_khz
    assert throttling_cycles(clocks[:200]) >= 3  # in 2000 s
    assert fmean(clocks[360:]) == pytest.approx(measurements.plateau_khz, rel=0.08)


def test_the_oneplus_6_multiplies_at_the_measured_speed() -> None:
    gflops = gemm_gflops(load_profile("oneplus-6"), 512)
    assert gflops == pytest.approx((15.0, 40.0, 10.0), rel=0.01)


def test_the_cost_of_a_gpu_step_grows_with_depth_not_width() -> None:
    """Cambridge (arXiv 2202.10100): backward time follows the number of layers; most of a step
    moves data.
    """
    deep, shallow, wide = (
        predict("oneplus-6", PredictionQuery(name, 32, backend="opencl", feed="copied"))
        for name in ("mlp-2", "mlp-1", "mlp-3")
    )
    assert deep.step_ms > 2 * shallow.step_ms
    assert wide.step_ms < 1.6 * shallow.step_ms
    assert (
        wide.power_w > predict("oneplus-6", PredictionQuery("mlp-3", 32, "little1", "low")).power_w
    )


def test_a_lower_clock_is_slower_and_needs_less_energy() -> None:
    fast, slow = (
        predict("meizu-16t", PredictionQuery("emdl-alexnet", 16, "big4", freq))
        for freq in ("high", "low")
    )
    assert slow.step_ms > 1.8 * fast.step_ms
    assert slow.power_w < 0.5 * fast.power_w


@pytest.mark.parametrize(
    ("needed_gb", "outcome"), [(1, "fits"), (3.6, "swaps"), (6.5, "killed"), (9, "never starts")]
)
def test_memory_outcomes_depend_on_the_needed_memory(needed_gb: float, outcome: str) -> None:
    memory = MEIZU.memory
    pressure = assess_memory(memory, memory.available_kb, int(needed_gb * 1024**2))
    assert pressure.outcome == outcome
    assert (pressure.extra_s > 0) == (outcome == "swaps")


def test_a_drawn_fleet_is_mostly_slow_phones_and_reproducible() -> None:
    fleet = make_fleet(300, seed=7)
    assert make_fleet(300, seed=7) == fleet
    assert make_fleet(300, seed=8) != fleet
    assert len({phone.serial for phone in fleet}) == 300
    tiers = [load_profile(phone.profile).tier for phone in fleet]
    assert tiers.count("low") > tiers.count("high") > 0
    assert "board" not in tiers


@pytest.mark.parametrize(
    ("phone", "folder"),
    [
        ("oneplus-8-pro", "/sys/class/kgsl/kgsl-3d0/devfreq"),
        ("huawei-mate-30", "/sys/class/devfreq/e82c0000.mali"),
    ],
)
def test_a_gpu_has_the_nodes_of_its_vendor(phone: str, folder: str) -> None:
    virtual_phone = VirtualPhone(load_profile(phone), speed=0.0)
    gpu = virtual_phone.soc.gpu
    assert gpu is not None
    node = virtual_phone.tree.open_for_writing(f"{folder}/max_freq", 0)
    virtual_phone.tree.append(node, f"{gpu.ladder[1] * 1000}\n".encode(), 0)
    assert virtual_phone.tree.read(f"{folder}/max_freq", 0) == f"{gpu.ladder[1] * 1000}\n".encode()
    gpu.busy = 1.0
    assert gpu.clock_khz == gpu.ladder[1]


def test_the_solver_recovers_the_parameters_despite_a_bad_row() -> None:
    import numpy as np

    xs = np.array([1.0, 2.0, 4.0, 8.0, 16.0, 32.0])
    measured = 3.0 + 0.5 * xs
    measured[3] *= 3
    values = solve_least_squares(
        lambda v: (v["a"] + v["b"] * xs - measured) / 0.1, {"a": Prior(1, 2), "b": Prior(1, 2)}
    )
    assert values["a"] == pytest.approx(3.0, abs=0.3)
    assert values["b"] == pytest.approx(0.5, abs=0.05)


@pytest.mark.slow
def test_a_fit_reproduces_the_profiles_and_prints_both_errors(
    capsys: pytest.CaptureFixture[str],
) -> None:
    fit_phones(["meizu-16t", "samsung-s8-plus"])
    output = capsys.readouterr().out
    rows = {line.strip().split("  ")[0]: line for line in output.splitlines()}
    assert "by model" in rows["step time"]
    assert "by batch" in rows["step time"]
    assert "K by" in rows["battery temperature"]
    assert "written" not in output


@pytest.mark.parametrize(
    ("words", "model"),
    [
        ("", "fitted"),
        ("--freq 1708800", "fitted"),
        ("--cores little2 --freq high", "fitted"),
        ("--freq 710400", "extrapolated"),  # below every clock that was measured
        ("--cores all8", "extrapolated"),  # different kinds of cores were never measured together
    ],
)
def test_the_stated_error_depends_on_the_condition(words: str, model: str) -> None:
    prediction = predict_json("meizu-16t", "--workload", "emdl-alexnet", *words.split())
    provenance = dict(prediction["provenance"])["time"]  # type: ignore[call-overload]
    assert provenance["model"] == model
    assert ("step_ms" in dict(prediction["interval_95"])) == (model == "fitted")  # type: ignore[call-overload]


def test_another_clock_has_a_larger_error_than_the_measured_condition() -> None:
    free, pinned = (
        predict("meizu-16t", PredictionQuery("emdl-alexnet", 4, "big4", freq))
        for freq in (None, "1708800")
    )
    assert pinned.provenance["time"]["error_rel"] > free.provenance["time"]["error_rel"]  # type: ignore[operator]
    low, high = free.interval_95["step_ms"]
    assert low < free.step_ms < high


def test_a_phone_whose_soc_was_never_measured_is_uncalibrated() -> None:
    for phone, model in (("huawei-mate-30", "uncalibrated"), ("google-pixel-6", "extrapolated")):
        prediction = predict(phone, PredictionQuery("emdl-lenet", 4))
        assert {entry["model"] for entry in prediction.provenance.values()} == {model}


def test_a_prediction_states_the_power_of_one_core_with_its_interval() -> None:
    """freqbench: one prime core of a Pixel 8 Pro at its highest clock draws 2135 mW."""
    core = predict("google-pixel-8-pro", PredictionQuery("sgemm", None, "prime")).one_core
    assert (core["role"], core["khz"], core["grade"]) == ("prime", 2914000, "points")
    assert core["low_mw"] < 2135 < core["high_mw"]  # type: ignore[operator]


def test_an_engine_that_was_not_fitted_has_no_stated_error() -> None:
    """A fit with MNN on the Meizu gives no error for another engine's times."""
    profile = load_profile("meizu-16t")
    condition = RunCondition(0xF0, {})
    fitted = provenance_by_family(profile, engine_for("emdl-lenet"), condition=condition)
    inference = replace(condition, training=False)
    for engine, other in (
        (engine_for("sgemm"), condition),
        (None, condition),
        (engine_for("emdl-lenet"), inference),
    ):
        invented = provenance_by_family(profile, engine, condition=other)
        for family in ("time", "energy"):
            assert fitted[family]["model"] == "fitted"
            assert invented[family]["model"] == "extrapolated"
