"""Runs the kernel studies on an OpenCL device of this computer, and collects their evidence.

Results of a CPU under OpenCL do not apply to a phone's GPU; the table of claims states this.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from orchestrator.study.evidence import Observation, ObservedOutcome, RunSettings, StudyEvidence
from orchestrator.study.study_catalogue import Study
from workloads.protocol.metrics import Provenance, Source

if TYPE_CHECKING:
    from kernels.harness.matmul_bench import MatmulRow
    from kernels.harness.network_training import NetworkResult
    from kernels.harness.opencl_device import Device
    from kernels.harness.perceptron_training import PerceptronResult

THIS_COMPUTER = "this computer"
HOST = Provenance(source=Source.HOST)
SIZES = range(32, 513, 32)  # as in the study
# The study used 500 launches; this many take minutes on a busy CPU.
ROUNDS, LAUNCHES = 2, 10
SMALL_SIZE = 7  # smaller than the study's kernels supported
PERCEPTRONS = ("mlp-1", "mlp-2", "mlp-3", "mlp-4")
NETWORKS = ("lenet",)
TURNS = 10

OnStep = Callable[[], None]


def count_steps(study: Study) -> int:
    """Return how often `on_step` will be called."""
    if study.harness == "products":
        return len(SIZES)
    return TURNS * len(PERCEPTRONS + NETWORKS)


def collect_kernel_evidence(study: Study, device: "Device", on_step: OnStep) -> StudyEvidence:
    """Run the part of the harness that a study needs."""
    if study.harness == "products":
        from kernels.harness.matmul_bench import bench_matmul

        rows = bench_matmul(device, list(SIZES), ROUNDS, LAUNCHES, on_size=on_step)
        observations, outcomes = tuple(product_observations(rows)), [_small_product(device)]
    else:
        from kernels.harness.network_training import train_network
        from kernels.harness.perceptron_training import train_perceptrons

        perceptrons = train_perceptrons(device, PERCEPTRONS, TURNS, (1,), on_step)
        networks = [train_network(device, name, TURNS, on_step) for name in NETWORKS]
        observations, outcomes = tuple(training_observations(perceptrons, networks)), []
    phones = {THIS_COMPUTER: device.facts.label}
    return StudyEvidence(phones, observations, tuple(outcomes), kernels=True)


def product_observations(rows: "Sequence[MatmulRow]") -> Iterator[Observation]:
    """Yield the speed of every kernel by the device's clock, and that of numpy."""
    for row in rows:
        n = row.shape.n
        speeds = {variant: row.executed_gflops(variant) for variant in row.times}
        speeds["tuned"] = max(speeds.values())
        for kernel, gflops in speeds.items():
            settings: RunSettings = {"backend": "opencl", "kernel": kernel, "n": n}
            yield _observation(settings, "kernel_gflops", [gflops])
        yield _observation({"backend": "cpu", "n": n}, "gflops", [row.numpy_gflops])


def training_observations(
    perceptrons: "Sequence[PerceptronResult]", networks: "Sequence[NetworkResult]"
) -> Iterator[Observation]:
    """Yield step times on the device and on the CPU, and the share of time that moves data."""
    for model in perceptrons:
        for feed, result in model.feeds.items():
            if result.passed:
                gpu: RunSettings = {"workload": model.name, "backend": "opencl", "feed": feed}
                yield _observation(gpu, "step_ms", [1e3 * turn_s for turn_s in result.turns_s])
                busy_s = result.kernels_s + result.copies_s
                yield _observation(gpu, "device_compute_share", [result.kernels_s / busy_s])
                yield _observation(gpu, "device_copy_share", [result.copies_s / busy_s])
                yield _observation(gpu, "compute_share", [result.kernels_s / result.step_s])
        for turns_s in model.engine_s.values():
            cpu: RunSettings = {"workload": model.name, "backend": "cpu"}
            yield _observation(cpu, "step_ms", [1e3 * turn_s for turn_s in turns_s])
    for network in networks:
        if network.passed:
            gpu = {"workload": network.name, "backend": "opencl", "feed": "preloaded"}
            yield _observation(gpu, "step_ms", [1e3 * turn_s for turn_s in network.turns_s])
            cpu = {"workload": network.name, "backend": "cpu"}
            yield _observation(cpu, "step_ms", [1e3 * turn_s for turn_s in network.engine_s])


def _observation(settings: RunSettings, metric: str, values: Sequence[float]) -> Observation:
    return Observation(THIS_COMPUTER, settings, metric, tuple(values), HOST)


def _small_product(device: "Device") -> ObservedOutcome:
    """Check the kernels with a size below 16 that is not a multiple of any tile."""
    from kernels.autotuner import MatmulShape
    from kernels.harness.matmul_check import check_matmul, variants_for

    shape = MatmulShape(SMALL_SIZE, SMALL_SIZE, SMALL_SIZE)
    checks = [check_matmul(device, variant, shape, 0) for variant in variants_for(device)]
    failed = [check.variant for check in checks if not check.passed]
    label = "wrong" if failed else "right"
    settings: RunSettings = {"n": SMALL_SIZE}
    reason = ", ".join(failed)
    return ObservedOutcome(
        THIS_COMPUTER, settings, label, not failed, reason, HOST, is_conclusive=True
    )
