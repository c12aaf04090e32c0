"""Fits the matrix products of the OnePlus 6: one figure each for CPU, tuned GPU and naive GPU.

The study does not say how many cores it used; its figure matches one. Three figures and three
unknowns: the fit is exact, and no data are left to test it.
"""

from agent.virtual.physics.gpu_model import GpuSettings
from agent.virtual.physics.step_timing import SimulatedOp
from agent.virtual.profiles import PhoneProfile
from agent.virtual.twin.fit_result import FitResult, mean_error
from agent.virtual.twin.offline_model import OfflineModel, WorkloadStep
from benchmarks.phone_fits.measurements import PhoneMeasurements

_ROUNDS = 6


def square_product(n: int) -> WorkloadStep:
    """Return a square matrix product that reuses its buffers."""
    op = SimulatedOp("sgemm", "matmul", 2.0 * n**3, 8.0 * n * n, 4.0 * n * n)
    return WorkloadStep("sgemm", (op,), 4 * n * n, 8 * n * n, None)


def gemm_gflops(profile: PhoneProfile, n: int) -> tuple[float, float, float]:
    """Return GFLOP/s of one big core, of the GPU's tiled product and of its naive product.

    The study timed the GPU by the events of the kernel, so that launches and copies do not count.
    """
    step = square_product(n)
    gflop = step.ops[0].flops / 1e9
    cpu = gflop / OfflineModel(profile, step, "big1").timing.seconds
    kernel_s = []
    for kernel in ("tiled_vector", "naive"):
        model = OfflineModel(profile, step, "big1", gpu=GpuSettings(kernel))
        assert model.timing.gpu is not None
        kernel_s.append(model.timing.gpu.compute_s)
    return cpu, gflop / kernel_s[0], gflop / kernel_s[1]


def fit_gemm(profile: PhoneProfile, measured: PhoneMeasurements) -> list[FitResult]:
    """Scale each of the three figures until it matches the measurement."""
    row = measured.gemm
    assert row is not None
    measured_gflops = (row.cpu_gflops, row.gpu_gflops, row.gpu_naive_gflops)
    paths = ("cluster.big.flops_per_cycle", "gpu.gemm_share", "gpu.naive_share")
    values: dict[str, float] = {}
    fitted = profile
    for _ in range(_ROUNDS):
        predicted = gemm_gflops(fitted, row.n)
        big = next(part for part in fitted.cluster if part.role == "big")
        assert fitted.gpu is not None
        current = (big.flops_per_cycle, fitted.gpu.gemm_share, fitted.gpu.naive_share)
        values = {
            path: figure * measured_value / predicted_value
            for path, figure, measured_value, predicted_value in zip(
                paths, current, measured_gflops, predicted, strict=True
            )
        }
        fitted = profile.with_values(values)
    error = mean_error(gemm_gflops(fitted, row.n), measured_gflops)
    return [FitResult("matrix product", "time", len(measured_gflops), error, {}, values=values)]
