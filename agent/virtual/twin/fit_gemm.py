"""Matrix products of the OnePlus 6: one figure each for CPU, tuned GPU and plain GPU.

The study does not say how many cores; one is what its figure fits. Three figures, three unknowns:
they are met exactly, and nothing is left to test them with.
"""

from agent.virtual.engines import load_engine
from agent.virtual.physics.roofline import Op, OpTable
from agent.virtual.physics.soc import Soc
from agent.virtual.profiles import Profile
from agent.virtual.timeline import Timeline
from agent.virtual.twin.bench import Bench, Job
from agent.virtual.twin.measured import Measured
from agent.virtual.twin.report import Fit, mean_error

_ROUNDS = 6


def square(n: int) -> Job:
    """A square product, the same buffers every time."""
    op = Op("sgemm", "matmul", 2.0 * n**3, 8.0 * n * n, 4.0 * n * n)
    return Job("sgemm", (op,), 4 * n * n, 8 * n * n, None)


def gemm_gflops(profile: Profile, n: int) -> tuple[float, float, float]:
    """GFLOP/s of one big core, of the GPU's tiled product, and of its plain one."""
    job = square(n)
    gflop = job.ops[0].flops / 1e9
    cpu = gflop / Bench(profile, job, "big1").cost.seconds
    gpu = Soc(profile, Timeline(speed=0.0)).gpu
    if gpu is None:
        raise ValueError(f"{profile.name} has no GPU in its profile")
    gpu.busy = 1.0
    table = OpTable(job.ops, load_engine("own"))
    tuned, plain = (gflop / gpu.step_cost(table, way).seconds for way in (True, False))
    return cpu, tuned, plain


def fit_gemm(profile: Profile, measured: Measured) -> list[Fit]:
    """Scale each of the three until its figure is met."""
    row = measured.gemm
    assert row is not None
    seen = (row.cpu_gflops, row.gpu_gflops, row.gpu_naive_gflops)
    paths = ("cluster.big.flops_per_cycle", "gpu.gemm_share", "gpu.naive_share")
    values: dict[str, float] = {}
    fitted = profile
    for _ in range(_ROUNDS):
        said = gemm_gflops(fitted, row.n)
        big = next(part for part in fitted.cluster if part.role == "big")
        assert fitted.gpu is not None
        now = (big.flops_per_cycle, fitted.gpu.gemm_share, fitted.gpu.naive_share)
        values = {
            path: figure * real / got
            for path, figure, real, got in zip(paths, now, seen, said, strict=True)
        }
        fitted = profile.with_values(values)
    error = mean_error(gemm_gflops(fitted, row.n), seen)
    return [Fit("matrix product", "time", len(seen), error, {}, values=values)]
