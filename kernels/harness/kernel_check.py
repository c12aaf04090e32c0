"""Compares the kernels of a device with references in double precision.

Products are compared by the runner itself, in all transposes. Of training steps, every operation
gets the operands that the device had, so that the error is its own (kernels/reference).
"""

import itertools
import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod

from kernels.autotuner import MatmulShape
from kernels.harness.local_runner import LocalRunner, Record
from kernels.harness.matmul_bench import VARIANTS
from kernels.reference import Array, Machine, Plan, parse, read_dump, relative_error
from workloads.catalogue import CATALOGUE, bind, step_of
from workloads.data_columns import noise
from workloads.graph import TARGET, Model, Node, PublishedSize
from workloads.layers import (
    LSTM,
    BatchNorm,
    Conv2d,
    LastTimeStep,
    Layer,
    Linear,
    MeanSquaredError,
    ReLU6,
    RepeatVector,
    Shape,
)
from workloads.lowering import PlanBody, lower_step
from workloads.lowering.plan_body import PlanOp
from workloads.step_cost import Step
from workloads.training import SGD, training_step

TOLERANCE = 2e-5  # of the largest error, relative to the largest value
PRODUCT_TOLERANCE = 1e-5  # relative to the sum of the absolute terms
# The smallest, the study's multiples of 16, both sides of a tile's edge, and long thin ones.
_SIZES = ((1, 1, 1), (16, 16, 16), (33, 17, 5), (32, 256, 784), (65, 129, 31), (1, 300, 7))
_SMALL = {"batch_size": 2, "image_size": 32, "text_length": 8, "m": 64, "n": 64, "k": 64}
_OWN_MODELS: dict[str, tuple[Shape, Sequence[Layer]]] = {
    "time steps": ((6, 5), (LSTM(7), LastTimeStep(), RepeatVector(4), Linear(3))),
    "bottleneck": (
        (5, 6, 6),
        (Conv2d(7, 1, bias=False), BatchNorm(), ReLU6(), Conv2d(7, 3, padding=1, groups=7)),
    ),
}
_FLOATS_MAX = 100_000_000  # of all tensors of a step
_SMALL |= {"micro_batches": 2, "lora_rank": 4, "lora_mlp": 1}


@dataclass(frozen=True)
class CheckedLaunch:
    """One operation: its largest error."""

    name: str
    label: str
    error: float
    passed: bool


def check_products(
    runner: LocalRunner, shape: MatmulShape
) -> tuple[list[CheckedLaunch], list[Record]]:
    """Check all variants for a shape; also return the runner's records."""
    lines = [f"{shape.candidate_prefix} {name}" for name in VARIANTS]
    records = runner.products(lines, rounds=1, launches=1)
    checked = [
        _checked_product(name, record, shape)
        for name, record in zip(VARIANTS, records, strict=True)
    ]
    return checked, records


def _checked_product(name: str, record: Record, shape: MatmulShape) -> CheckedLaunch:
    error = float(record.get("error", "nan"))
    label = f"sgemm {name} {shape.label}{' ' + record['fault'] if 'fault' in record else ''}"
    return CheckedLaunch(f"sgemm {name}", label, error, error <= PRODUCT_TOLERANCE)


def check_shapes(seed: int, extra: int) -> Iterator[MatmulShape]:
    """Yield fixed and random sizes, each in all four transposes."""
    generator = random.Random(seed)
    drawn = [tuple(generator.randint(1, 150) for _ in range(3)) for _ in range(extra)]
    for m, n, k in (*_SIZES, *drawn):
        for transposed_a, transposed_b in itertools.product((False, True), repeat=2):
            yield MatmulShape(m, n, k, transposed_a, transposed_b)


def covering_workloads() -> dict[str, PlanBody]:
    """Return small steps of workloads that together have every operation of the catalogue.

    Large ones are left out, and those whose many norms make gradients cancel, so that only
    rounding errors are left; what only they have is in models of their own.
    """
    names = [name for name, it in CATALOGUE.items() if it.on_phone and "mobilenetv2" not in name]
    bodies = {name: _small_body(name) for name in names}
    bodies = {name: body for name, body in bodies.items() if _floats(body) < _FLOATS_MAX}
    for name, (shape, layers) in _OWN_MODELS.items():
        bodies[name] = lower_step(_step_of(name, shape, layers), reuse=False, backend="opencl")
    kinds = {name: {op.kind for op in _trained_ops(body)} for name, body in bodies.items()}
    missing = set().union(*kinds.values())
    chosen = {}
    while missing:
        gains = {
            name: len(own & missing) / (1e6 + _floats(bodies[name])) for name, own in kinds.items()
        }
        best = max(gains, key=gains.__getitem__)
        chosen[best] = bodies[best]
        missing -= kinds[best]
    return chosen


def _small_body(name: str) -> PlanBody:
    given = {
        parameter.name: max(parameter.min, _SMALL[parameter.name])
        for parameter in CATALOGUE[name].parameters
    }
    return lower_step(step_of(bind(name, given)), reuse=False, backend="opencl")


def _step_of(name: str, shape: Shape, layers: Sequence[Layer]) -> Step:
    nodes = [Node(f"layer{number}", layer) for number, layer in enumerate(layers)]
    nodes.append(Node("loss", MeanSquaredError()))
    size, data = PublishedSize(0, 0, "none"), {"x": noise(), TARGET: noise()}
    return training_step(Model(name, {"x": shape}, tuple(nodes), size, data=data), 3, SGD(0.1))


def _floats(body: PlanBody) -> int:
    return sum(prod(tensor.shape) for tensor in body.tensors)


def _trained_ops(body: PlanBody) -> list[PlanOp]:
    return [op for op in body.ops if op.phase != "evaluate"]


def check_training(
    runner: LocalRunner, name: str, body: PlanBody
) -> tuple[list[CheckedLaunch], Sequence[Record]]:
    """Compare the results of every operation of a step; also return the programs it needed."""
    text = body.text("checked", 1)
    content = hand_made_plan(text)
    plan = parse(text)
    before, after = read_dump(runner.dump(content), plan)
    checked = list(_compare_step(name, body, plan, before, after))
    return checked, runner.run(content, 1, "--warmup", "0").programs


def _compare_step(
    name: str, body: PlanBody, plan: Plan, before: Sequence[Array], after: Sequence[Array]
) -> Iterator[CheckedLaunch]:
    machine = Machine(plan, before)
    ops = [op for op in plan.ops if op.phase != "evaluate"]
    places = [[plan.place(number) for number in op.outs] for op in ops]
    last_writer = {place: index for index, written in enumerate(places) for place in written}
    for index, op in enumerate(ops):
        first = op.ins[0] if op.ins else None
        operand = None if first is None else float(abs(machine[first]).max())
        machine.run(op, after)
        for number, place in zip(op.outs, places[index], strict=True):
            if number is None or last_writer[place] != index:
                continue  # a later operation writes there, in place
            tensor = body.tensors[number].name
            # A mean may be close to zero: its error is relative to the values that it is of.
            scale = operand if tensor.endswith(".mean") else None
            error = relative_error(after[number], machine[number], scale)
            label = f"{op.kind} of {name}, {tensor}"
            yield CheckedLaunch(op.kind, label, error, error <= TOLERANCE)
            machine[number] = after[number]


def hand_made_plan(body: str) -> bytes:
    """Return a plan with a header that says nothing: the runner reads only the body."""
    head = json.dumps({"body_bytes": len(body.encode())}).encode() + b"\n"
    return b"farmhand-plan 1 %d\n" % len(head) + head + body.encode()
