"""The catalogue: every workload that can be asked for, what one step of it costs, and its plan.

Costs follow from definitions: of models in workloads/models, by the rules of workloads/work.py.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import lru_cache

from workloads.external import Manifest, value_of
from workloads.fault import Refused
from workloads.noun import Noun, digest_of
from workloads.sgemm import Product
from workloads.work import Op, Step, Work

__all__ = [
    "CATALOGUE",
    "Case",
    "Op",
    "Parameter",
    "Work",
    "Workload",
    "bind",
    "bind_external",
    "is_known",
    "lower",
    "step_of",
    "threads_of",
    "work_of",
    "workload_of",
    "wrapped",
]

PLAN_MAGIC = "farmhand-plan 1"
EXTERNAL = "external"  # the workload of every case that brings a manifest


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
    step: Callable[[Mapping[str, int]], Step]
    on_phone: bool = True
    threads: int | None = None  # None: one a core


class Case(Noun):
    """A workload with every parameter bound."""

    workload: str
    parameters: dict[str, int]
    manifest: Manifest | None = None

    @property
    def digest(self) -> str:
        """The case's identity; it covers what a step does, so a changed workload is a new case."""
        if self.manifest is not None:
            return digest_of(self.model_dump(mode="json"))
        return _digest(self.workload, tuple(self.parameters.items()))

    @property
    def label(self) -> str:
        """Short name for tables."""
        values = " ".join(f"{key}={value}" for key, value in sorted(self.parameters.items()))
        return f"{self.manifest.name if self.manifest else self.workload} {values}".strip()


def bind(name: str, given: Mapping[str, int]) -> Case:
    """Bind every parameter of a workload: the given values, defaults for the rest."""
    if name not in CATALOGUE:
        raise Refused(f"there is no workload '{name}'; there are {', '.join(sorted(CATALOGUE))}")
    return Case(workload=name, parameters=_bound(CATALOGUE[name], given))


def bind_external(manifest: Manifest, given: Mapping[str, int]) -> Case:
    """Bind every parameter of a foreign program."""
    bound = _bound(wrapped(manifest), given)
    return Case(workload=EXTERNAL, parameters=bound, manifest=manifest)


def _bound(workload: Workload, given: Mapping[str, int]) -> dict[str, int]:
    known = {parameter.name: parameter for parameter in workload.parameters}
    for key, value in given.items():
        if key not in known:
            has = ", ".join(sorted(known)) or "no parameters"
            raise Refused(f"workload '{workload.name}' has no parameter '{key}'; it has {has}")
        check = known[key]
        if isinstance(value, bool) or not isinstance(value, int):
            raise Refused(f"{key} is a whole number, not {value!r}")
        if not check.least <= value <= check.most:
            raise Refused(f"{key} is {value}; it goes from {check.least} to {check.most}")
    return {key: given.get(key, parameter.default) for key, parameter in known.items()}


def is_known(case: Case) -> bool:
    """Whether this version of the farm can carry a case out."""
    return case.manifest is not None or case.workload in CATALOGUE


def workload_of(case: Case) -> Workload:
    """The workload that a case binds."""
    return CATALOGUE[case.workload] if case.manifest is None else wrapped(case.manifest)


def wrapped(manifest: Manifest) -> Workload:
    """A foreign program as a workload like any other."""
    return Workload(
        name=manifest.name,
        text=manifest.text,
        parameters=tuple(Parameter(**each.model_dump()) for each in manifest.parameters),
        step=lambda parameters: Foreign(
            manifest.training, value_of(manifest.samples_per_step, parameters)
        ),
        threads=manifest.threads,
    )


def work_of(case: Case) -> Work:
    """Say what one step of a case costs."""
    if case.manifest is not None:
        return step_of(case).work
    return _work(case.workload, tuple(case.parameters.items()))


def threads_of(case: Case, cores: int) -> int:
    """With how many threads a case runs on so many cores."""
    return workload_of(case).threads or cores


def step_of(case: Case) -> Step:
    """The step that a case is."""
    return workload_of(case).step(case.parameters)


@lru_cache(maxsize=4096)
def _work(workload: str, parameters: tuple[tuple[str, int], ...]) -> Work:
    return CATALOGUE[workload].step(dict(parameters)).work


@lru_cache(maxsize=4096)
def _digest(workload: str, parameters: tuple[tuple[str, int], ...]) -> str:
    step = CATALOGUE[workload].step(dict(parameters))
    case = {"workload": workload, "parameters": dict(parameters)}
    content = {"case": case, "ops": [op.model_dump() for op in step.work.ops]}
    return digest_of(content if step.meaning is None else content | {"meaning": step.meaning})


def lower(case: Case, threads: int) -> bytes:
    """Write the plan that the runner executes (format: kernels/runner/runner.h)."""
    from workloads.lowering import body_of, memory_of_body

    step = step_of(case)
    work = step.work
    body = body_of(step)
    text = body.text(case.digest, threads)
    header = {
        "case": case.digest,
        "workload": case.workload,
        "backend": "cpu",
        "threads": threads,
        "training": work.training,
        "samples_per_step": work.samples_per_step,
        "parameter_bytes": work.parameter_bytes,
        "activation_bytes": work.activation_bytes,
        "memory": asdict(memory_of_body(body)),
        "body_bytes": len(text.encode()),
        "ops": [op.model_dump() for op in work.ops],
    }
    head = json.dumps(header, sort_keys=True) + "\n"
    return f"{PLAN_MAGIC} {len(head.encode())}\n{head}{text}".encode()


def _sgemm(parameters: Mapping[str, int]) -> Step:
    return Product(parameters["m"], parameters["n"], parameters["k"])


@dataclass(frozen=True)
class Foreign(Step):
    """A step of a foreign program: what it does is not known, only for how many samples."""

    training: bool
    samples: int

    @property
    def work(self) -> Work:
        """No operation that we could name."""
        return Work((), self.training, self.samples, parameter_bytes=0, activation_bytes=0)

    @property
    def meaning(self) -> None:
        """The manifest says it all."""


@dataclass(frozen=True)
class Nothing(Step):
    """A step that does nothing."""

    @property
    def work(self) -> Work:
        """No operation at all."""
        return Work((), training=False, samples_per_step=0, parameter_bytes=0, activation_bytes=0)

    @property
    def meaning(self) -> None:
        """There is nothing to say."""


def _noop(_: Mapping[str, int]) -> Step:
    return Nothing()


# Models are imported when their work is first asked for: most processes never do.


def _perceptron(name: str, widths: str) -> Workload:
    """A model of the Cambridge study, which trained with batches of 32."""

    def one(parameters: Mapping[str, int]) -> Step:
        from workloads.models.perceptrons import step

        return step(name, parameters["batch_size"])

    text = f"one training step of a {widths} perceptron: forward, backward, SGD"
    return Workload(name, text, (Parameter("batch_size", 32, 1, 4096, "samples a step"),), one)


def _emdl(name: str, most: int) -> Workload:
    """A model of EMDL'21 as it was coded: batches of 1 to 32, four threads whatever the mask."""

    def one(parameters: Mapping[str, int]) -> Step:
        from workloads.models.emdl21 import step

        return step(name, parameters["batch_size"])

    text = f"one training step of EMDL'21's {name} as it was coded, four threads"
    batch = Parameter("batch_size", 16, 1, most, "samples a step")
    return Workload(f"emdl-{name}", text, (batch,), one, threads=4)


def _emdl_cpuconf(_: Mapping[str, int]) -> Step:
    from workloads.models.emdl21 import cpu_job

    return cpu_job()


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
        _perceptron("mlp-1", "16-16"),
        _perceptron("mlp-2", "16-16-16-16"),
        _perceptron("mlp-3", "256-256"),
        _perceptron("mlp-4", "784-256-128-16"),
        _emdl("lenet", 4096),
        _emdl("alexnet", 512),
        _emdl("squeezenet", 512),
        _emdl("googlenet", 512),
        _emdl("mobilenetv2", 512),
        Workload(
            "emdl-cpuconf",
            "the whole job of EMDL'21's table of core sets and clocks, four threads",
            (),
            _emdl_cpuconf,
            threads=4,
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
