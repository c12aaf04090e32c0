"""The catalogue: every workload that can be asked for, what one step of it costs, and its plan.

FLOPs count a multiply-add as two. Bytes are what has to move if every operand is read once and
every result is written once: the least that the memory can be asked for.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise

from workloads.fault import Refused
from workloads.noun import Noun, digest_of

FLOAT_BYTES = 4
PLAN_MAGIC = "farmhand-plan 1"


class Op(Noun):
    """One operation of one step, in the order of execution."""

    name: str
    kind: str
    flops: int
    read_bytes: int
    write_bytes: int


@dataclass(frozen=True)
class Work:
    """What one step of a case asks of a phone."""

    ops: tuple[Op, ...]
    training: bool
    samples_per_step: int
    parameter_bytes: int
    activation_bytes: int

    @property
    def flops(self) -> int:
        """Arithmetic of one step."""
        return sum(op.flops for op in self.ops)

    @property
    def bytes(self) -> int:
        """Least memory traffic of one step."""
        return sum(op.read_bytes + op.write_bytes for op in self.ops)


@dataclass(frozen=True)
class Parameter:
    """A whole number that a sweep may choose."""

    name: str
    default: int
    least: int
    most: int
    text: str


@dataclass(frozen=True)
class Workload:
    """A named, parameterised measurement."""

    name: str
    text: str
    parameters: tuple[Parameter, ...]
    work: Callable[[Mapping[str, int]], Work]
    on_phone: bool = True


class Case(Noun):
    """A workload with every parameter bound."""

    workload: str
    parameters: dict[str, int]

    @property
    def digest(self) -> str:
        """The case's identity; it covers what a step does, so a changed workload is a new case."""
        work = work_of(self)
        ops = [op.model_dump() for op in work.ops]
        return digest_of({"case": self.model_dump(mode="json"), "ops": ops})

    @property
    def label(self) -> str:
        """Short name for tables."""
        values = " ".join(f"{key}={value}" for key, value in sorted(self.parameters.items()))
        return f"{self.workload} {values}".strip()


def bind(name: str, given: Mapping[str, int]) -> Case:
    """Bind every parameter of a workload: the given values, defaults for the rest."""
    if name not in CATALOGUE:
        raise Refused(f"there is no workload '{name}'; there are {', '.join(sorted(CATALOGUE))}")
    known = {parameter.name: parameter for parameter in CATALOGUE[name].parameters}
    for key, value in given.items():
        if key not in known:
            has = ", ".join(sorted(known)) or "no parameters"
            raise Refused(f"workload '{name}' has no parameter '{key}'; it has {has}")
        check = known[key]
        if isinstance(value, bool) or not isinstance(value, int):
            raise Refused(f"{key} is a whole number, not {value!r}")
        if not check.least <= value <= check.most:
            raise Refused(f"{key} is {value}; it goes from {check.least} to {check.most}")
    bound = {key: given.get(key, parameter.default) for key, parameter in known.items()}
    return Case(workload=name, parameters=bound)


def work_of(case: Case) -> Work:
    """Say what one step of a case costs."""
    return CATALOGUE[case.workload].work(case.parameters)


def lower(case: Case, threads: int) -> bytes:
    """Write the plan that the runner executes (format: kernels/runner/runner.h)."""
    work = work_of(case)
    header = {
        "case": case.digest,
        "workload": case.workload,
        "backend": "cpu",
        "threads": threads,
        "training": work.training,
        "samples_per_step": work.samples_per_step,
        "parameter_bytes": work.parameter_bytes,
        "activation_bytes": work.activation_bytes,
        "body_bytes": 0,
        "ops": [op.model_dump() for op in work.ops],
    }
    text = json.dumps(header, sort_keys=True) + "\n"
    return f"{PLAN_MAGIC} {len(text.encode())}\n{text}".encode()


def _matmul(name: str, rows: int, columns: int, depth: int) -> Op:
    return Op(
        name=name,
        kind="matmul",
        flops=2 * rows * columns * depth,
        read_bytes=FLOAT_BYTES * (rows * depth + depth * columns),
        write_bytes=FLOAT_BYTES * rows * columns,
    )


def _elementwise(name: str, kind: str, elements: int, flops: int, reads: int = 1) -> Op:
    return Op(
        name=name,
        kind=kind,
        flops=flops * elements,
        read_bytes=FLOAT_BYTES * reads * elements,
        write_bytes=FLOAT_BYTES * elements,
    )


def _sgemm(parameters: Mapping[str, int]) -> Work:
    m, n, k = parameters["m"], parameters["n"], parameters["k"]
    return Work(
        ops=(_matmul("sgemm", m, n, k),),
        training=False,
        samples_per_step=1,
        parameter_bytes=FLOAT_BYTES * k * n,
        activation_bytes=FLOAT_BYTES * (m * k + m * n),
    )


MLP_4_LAYERS = (784, 256, 128, 16)


def _mlp_4(parameters: Mapping[str, int]) -> Work:
    """Forward, backward and SGD of the Cambridge study's Model4, fully connected with ReLU."""
    batch = parameters["batch_size"]
    layers = list(enumerate(pairwise(MLP_4_LAYERS), start=1))
    ops: list[Op] = []
    for index, (fan_in, fan_out) in layers:
        ops.append(_matmul(f"fc{index}.forward", batch, fan_out, fan_in))
        kind = "softmax_cross_entropy" if index == len(layers) else "bias_relu"
        ops.append(_elementwise(f"fc{index}.{kind}", kind, batch * fan_out, 2))
    for index, (fan_in, fan_out) in reversed(layers):
        ops.append(_matmul(f"fc{index}.weight_gradient", fan_in, fan_out, batch))
        ops.append(_elementwise(f"fc{index}.bias_gradient", "reduce", batch * fan_out, 1))
        if index > 1:
            ops.append(_matmul(f"fc{index}.input_gradient", batch, fan_in, fan_out))
            ops.append(_elementwise(f"fc{index}.relu_gradient", "relu", batch * fan_in, 1, reads=2))
    weights = sum(fan_in * fan_out + fan_out for _, (fan_in, fan_out) in layers)
    ops.append(_elementwise("sgd", "sgd", weights, 2, reads=2))
    return Work(
        ops=tuple(ops),
        training=True,
        samples_per_step=batch,
        parameter_bytes=FLOAT_BYTES * 2 * weights,
        activation_bytes=FLOAT_BYTES * 2 * batch * sum(MLP_4_LAYERS),
    )


def _noop(_: Mapping[str, int]) -> Work:
    return Work((), training=False, samples_per_step=0, parameter_bytes=0, activation_bytes=0)


CATALOGUE: dict[str, Workload] = {
    workload.name: workload
    for workload in (
        Workload(
            "sgemm",
            "one single-precision matrix product a step, C = A B",
            (
                Parameter("m", 512, 1, 8192, "rows of C"),
                Parameter("n", 512, 1, 8192, "columns of C"),
                Parameter("k", 512, 1, 8192, "depth of the product"),
            ),
            _sgemm,
        ),
        Workload(
            "mlp-4",
            "one training step of a 784-256-128-16 perceptron: forward, backward, SGD",
            (Parameter("batch_size", 32, 1, 4096, "samples a step"),),
            _mlp_4,
        ),
        Workload(
            "noop",
            "nothing at all, and no call to the phone: what the farm itself costs",
            (),
            _noop,
            on_phone=False,
        ),
    )
}
