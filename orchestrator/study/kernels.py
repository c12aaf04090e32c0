"""The studies of kernels, on an OpenCL device of this computer: the harness's rows as evidence.

A processor under OpenCL says nothing of a phone's GPU; whoever prints this says so.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from orchestrator.study.catalogue import Study
from orchestrator.study.evidence import Circumstances, Evidence, Observation, Outcome
from workloads.measure import Provenance, Source

if TYPE_CHECKING:
    from kernels.harness.bench import Row
    from kernels.harness.device import Device
    from kernels.harness.network_train import NetworkRow
    from kernels.harness.train import ModelRow

HERE = "this computer"
HOST = Provenance(source=Source.HOST)
SIZES = range(32, 513, 32)  # the study's
ROUNDS, LAUNCHES = 2, 10  # of the study's 500, what a busy processor does in minutes
SMALL = 7  # below what the study's kernels could do
PERCEPTRONS = ("mlp-1", "mlp-2", "mlp-3", "mlp-4")
NETWORKS = ("lenet",)
TURNS = 10

Step = Callable[[], None]


def steps_of(study: Study) -> int:
    """How often `step` will be called."""
    if study.kernels == "products":
        return len(SIZES)
    return TURNS * len(PERCEPTRONS + NETWORKS)


def observe(study: Study, device: "Device", step: Step) -> Evidence:
    """Run what a study asks of kernels."""
    if study.kernels == "products":
        from kernels.harness.bench import bench

        rows = bench(device, list(SIZES), ROUNDS, LAUNCHES, step=step)
        seen, outcomes = tuple(of_products(rows)), [_small_product(device)]
    else:
        from kernels.harness.network_train import train_network
        from kernels.harness.train import train_all

        trained = train_all(device, PERCEPTRONS, TURNS, (1,), step)
        nets = [train_network(device, name, TURNS, step) for name in NETWORKS]
        seen, outcomes = tuple(of_training(trained, nets)), []
    return Evidence({HERE: device.facts.label}, seen, tuple(outcomes), kernels=True)


def of_products(rows: "Sequence[Row]") -> Iterator[Observation]:
    """Every way's speed by the device's clock, and numpy's beside it."""
    for row in rows:
        for way in row.timed:
            yield _seen({"way": way, "n": row.shape.n}, "gflops", [row.executed_gflops(way)])
        yield _seen({"way": "numpy", "n": row.shape.n}, "gflops", [row.numpy_gflops])
        ours = max(row.executed_gflops(way) for way in row.timed)
        yield _seen({"way": "best of ours", "n": row.shape.n}, "gflops", [ours])


def of_training(rows: "Sequence[ModelRow]", nets: "Sequence[NetworkRow]") -> Iterator[Observation]:
    """Times of a step on the device and on the processor, and what of it moved data."""
    for row in rows:
        for way, trained in row.ways.items():
            if trained.right:
                at: Circumstances = {"workload": row.name, "backend": "opencl", "way": way}
                yield _seen(at, "step_ms", [1e3 * each for each in trained.turns_s])
                whole = trained.kernels_s + trained.copies_s
                yield _seen(at, "compute_share", [trained.kernels_s / whole])
                yield _seen(at, "copy_share", [trained.copies_s / whole])
                yield _seen(at, "kernels_of_step", [trained.kernels_s / trained.step_s])
        for turns in row.engine_s.values():
            cpu: Circumstances = {"workload": row.name, "backend": "cpu"}
            yield _seen(cpu, "step_ms", [1e3 * each for each in turns])
    for net in nets:
        if net.right:
            at = {"workload": net.name, "backend": "opencl", "way": "preloaded"}
            yield _seen(at, "step_ms", [1e3 * each for each in net.turns_s])
            cpu = {"workload": net.name, "backend": "cpu"}
            yield _seen(cpu, "step_ms", [1e3 * each for each in net.engine_s])


def _seen(at: Circumstances, metric: str, values: Sequence[float]) -> Observation:
    return Observation(HERE, at, metric, tuple(values), HOST)


def _small_product(device: "Device") -> Outcome:
    """Whether the kernels can do what is smaller than 16, and no multiple of anything."""
    from kernels.harness.check import check, ways_for
    from kernels.tuning import Shape

    shape = Shape(SMALL, SMALL, SMALL)
    wrong = [way.name for way in ways_for(device) if not check(device, way, shape, 0).right]
    word = "wrong" if wrong else "right"
    return Outcome(HERE, {"n": SMALL}, word, not wrong, ", ".join(wrong), HOST)
