"""The model of GPUs: launches, copies and kernels against published figures and limits."""

from dataclasses import replace

import pytest

from agent.virtual.engines import engine_for
from agent.virtual.physics.gpu_model import FEEDS, KERNELS, GpuSettings
from agent.virtual.profiles import PhoneProfile, load_profile, profile_ids
from agent.virtual.twin.durations import RunSpec, estimate_duration
from agent.virtual.twin.fit_result import ERROR_QUANTILE, stated_error
from agent.virtual.twin.gpu_error import left_out_errors
from agent.virtual.twin.offline_model import OfflineModel, bind_workload
from agent.virtual.twin.predict import PredictionQuery, predict
from agent.virtual.twin.simulated_provenance import RunCondition, provenance_by_family
from benchmarks.virtual_accuracy import binomial_p

TX2 = load_profile("nvidia-tx2")
MEIZU = load_profile("meizu-16t")


def model(
    profile: PhoneProfile,
    workload: str,
    batch: int | None = None,
    settings: GpuSettings = GpuSettings(),  # noqa: B008 (frozen)
    cores: str = "all4",
) -> OfflineModel:
    return OfflineModel(profile, bind_workload(workload, batch), cores, gpu=settings)


def gpu_pct(profile: PhoneProfile, workload: str, batch: int | None = None) -> float:
    return 100 * model(profile, workload, batch).timing.gpu_busy


def test_the_tx2_is_about_as_busy_as_published() -> None:
    """UC Merced (arXiv 1906.04278): DenseNet40 81.6 % with batch 4, 96.4 % with 64; LSTM 25 %."""
    assert gpu_pct(TX2, "densenet40", 4) == pytest.approx(81.6, abs=10)
    assert gpu_pct(TX2, "densenet40", 64) == pytest.approx(96.4, abs=5)
    assert gpu_pct(TX2, "char-lstm") == pytest.approx(25, abs=5)


def test_an_lstm_leaves_the_gpu_idle_because_its_kernels_are_queued_one_by_one() -> None:
    cheap = TX2.with_values({"gpu.enqueue_us": 1.0, "gpu.launch_us": 10.0})
    assert gpu_pct(TX2, "char-lstm") < 30
    assert gpu_pct(cheap, "char-lstm") > 90
    one_step = bind_workload("char-lstm")
    joined = [op for op in one_step.ops if op.time_steps > 1]
    assert {op.time_steps for op in joined} == {50}
    assert len(joined) == 8  # two layers: products and gates, forward and backward


def test_copies_around_every_operation_leave_little_time_for_kernels() -> None:
    """Cambridge (arXiv 2202.10100): kernels are 9 % of a step on a OnePlus 6."""
    timing = model(load_profile("oneplus-6"), "mlp-4", 32, GpuSettings(feed="copied")).timing
    assert timing.gpu is not None
    assert timing.gpu.compute_s / timing.seconds == pytest.approx(0.09, abs=0.01)


@pytest.mark.parametrize("profile_id", profile_ids())
@pytest.mark.parametrize("workload", ["mlp-1", "mlp-4", "lenet", "char-lstm", "sgemm-square"])
def test_the_parts_of_a_step_fit_into_it(profile_id: str, workload: str) -> None:
    profile = load_profile(profile_id)
    seconds: dict[tuple[str, str], float] = {}
    for feed in FEEDS:
        for kernel in KERNELS:
            settings = GpuSettings(kernel, feed, batch_bytes=100_000)
            timing = model(profile, workload, settings=settings).timing
            assert timing.gpu is not None
            assert all(part >= 0 for part in timing.gpu)
            assert sum(timing.gpu) <= timing.seconds
            assert 0 <= timing.load_s < timing.seconds
            assert 0 < timing.gpu_busy < 1
            assert 0 < timing.busy_share <= 1
            seconds[feed, kernel] = round(timing.seconds, 12)
    for kernel in KERNELS:
        assert (
            seconds["copied", kernel] > seconds["resident", kernel] > seconds["preloaded", kernel]
        )
    for feed in FEEDS:
        assert seconds[feed, "naive"] >= seconds[feed, "vector"] >= seconds[feed, "tiled_vector"]
        assert seconds[feed, "naive"] >= seconds[feed, "tiled"] >= seconds[feed, "tiled_vector"]
        assert seconds[feed, "tuned"] == seconds[feed, "tiled_vector"] <= seconds[feed, "packed"]


def test_tiles_gain_less_on_a_mali_which_has_no_local_memory() -> None:
    def gain(profile_id: str) -> float:
        naive, tiled = (
            model(load_profile(profile_id), "sgemm-square", settings=GpuSettings(name)).timing
            for name in ("naive", "tiled")
        )
        assert naive.gpu is not None
        assert tiled.gpu is not None
        return naive.gpu.compute_s / tiled.gpu.compute_s

    assert 1 < gain("huawei-mate-30") < gain("meizu-16t")


def test_a_little_core_queues_kernels_slowly() -> None:
    big, little = (model(MEIZU, "mlp-4", cores=cores).timing for cores in ("big1", "little1"))
    assert little.seconds > 1.5 * big.seconds
    assert little.gpu is not None
    assert big.gpu is not None
    assert little.gpu.compute_s == big.gpu.compute_s


def test_a_capped_gpu_is_slower_and_cooler() -> None:
    work = model(MEIZU, "densenet40", 16)
    fast, watts = work.timing.seconds, work.soc.gpu_w
    work.soc.forced_throttle_steps["gpu"] = 3
    work.soc.change(work.soc.apply_caps)
    assert work.timing.seconds > 1.3 * fast
    assert 0 < work.soc.gpu_w < 0.7 * watts
    work.end_work()
    assert work.soc.gpu_w == 0


def test_a_run_on_the_gpu_takes_the_time_that_is_predicted() -> None:
    run = RunSpec("densenet40", {"batch_size": 4}, "all4", "free", 3, 100, 0, 600, None, 0)
    cores = estimate_duration("nvidia-tx2", run)
    gpu = estimate_duration("nvidia-tx2", replace(run, backend="opencl"))
    assert cores is not None
    assert gpu is not None
    query = PredictionQuery("densenet40", 4, "all4", backend="opencl")
    step_s = predict("nvidia-tx2", query).step_ms / 1e3
    assert gpu.measured_s == pytest.approx(103 * step_s, rel=0.01)
    assert gpu.measured_s < cores.measured_s
    unknown = replace(run, backend="opencl", kernel="fastest")
    assert estimate_duration("nvidia-tx2", unknown) is None


def test_a_phone_that_was_fitted_on_its_cores_is_extrapolated_on_its_gpu() -> None:
    engine = engine_for("emdl-lenet")
    on_f0 = RunCondition(0xF0, {})
    cores, gpu = (provenance_by_family(MEIZU, engine, name, on_f0) for name in ("cpu", "opencl"))
    assert cores["time"]["model"] == "fitted"
    assert {family["model"] for family in gpu.values()} == {"extrapolated"}
    trace = load_profile("samsung-s8-plus")
    assert provenance_by_family(trace, engine, "cpu", on_f0)["heat"]["model"] == "fitted"
    assert provenance_by_family(trace, engine, "opencl", on_f0)["heat"]["model"] == "extrapolated"


def test_a_step_on_a_gpu_states_the_error_of_what_it_spends_its_time_on() -> None:
    def provenance(phone: str, workload: str, **settings: str) -> dict[str, object]:
        query = PredictionQuery(workload, 32, backend="opencl", **settings)  # type: ignore[arg-type]
        return predict(phone, query).provenance["time"]

    small, large = (provenance("oneplus-6", name) for name in ("mlp-1", "sgemm-square"))
    assert small["error_rel"] > 1.5 * large["error_rel"]  # type: ignore[operator]  # starts, products
    assert provenance("oneplus-6", "densenet40")["model"] == "extrapolated"  # convolutions
    assert provenance("vivo-x100", "mlp-1")["model"] == "uncalibrated"
    assert provenance("nvidia-tx2", "mlp-1")["model"] == "uncalibrated"
    errors = left_out_errors()
    for logs in (errors.kernels, errors.starts, errors.copies):
        inside = [abs(log) <= ERROR_QUANTILE * stated_error(logs) for log in logs]
        assert binomial_p(sum(inside), len(inside)) > 0.01
