"""The catalogue of workloads: binding parameters, the cost of a case, and its plan.

The workloads are in workloads/workload_table.py. Their costs follow from the model definitions in
workloads/models.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict
from difflib import get_close_matches
from functools import lru_cache
from typing import TYPE_CHECKING

from pydantic import Field

from workloads.basic_steps import OpaqueStep
from workloads.external_program import Manifest, resolve_count
from workloads.protocol.base import WireModel, digest_of
from workloads.protocol.condition import Launch
from workloads.protocol.faults import InvalidRequest
from workloads.step_cost import Backend, Step, StepCost
from workloads.workload import Parameter, Workload
from workloads.workload_table import all_workloads

if TYPE_CHECKING:
    from workloads.lowering import PlanBody, PlannedOp

PLAN_MAGIC = "farmhand-plan 1"
FIXED_LENGTH_MAX_S = 3600.0  # of a workload that ends by itself
EXTERNAL = "external"  # the workload of every case with a manifest


class Case(WireModel):
    """A workload with every parameter bound."""

    workload: str
    parameters: dict[str, int]
    manifest: Manifest | None = None
    backend: Backend = Field(default="cpu", description="which processor of the phone computes")
    data: str | None = Field(
        default=None, pattern=r"^[0-9a-f]{64}$", description="digest of its data file"
    )
    options: dict[str, str] = Field(
        default_factory=dict, description="named choices (run_options.py) other than the default"
    )

    @property
    def digest(self) -> str:
        """The case's id; it covers what a step does, so a changed workload is a new case."""
        if self.manifest is not None:
            return digest_of(self.model_dump(mode="json", exclude={"backend"}))
        options = tuple(sorted(self.options.items()))
        return _digest(
            self.workload, tuple(self.parameters.items()), self.data, self.backend, options
        )

    @property
    def name(self) -> str:
        """The name of the workload or of the external program."""
        return self.workload if self.manifest is None else self.manifest.name

    @property
    def label(self) -> str:
        """A short name for tables."""
        settings = {**self.parameters, **self.options}
        values = " ".join(f"{key}={value}" for key, value in sorted(settings.items()))
        data = f" data={self.data[:8]}" if self.data else ""
        backend = "" if self.backend == "cpu" else f" {self.backend}"
        return f"{self.name} {values}{data}{backend}".strip()

    @property
    def settings(self) -> dict[str, int | str]:
        """Every parameter and every option of the workload, defaults included."""
        offered = CATALOGUE[self.workload].options if self.workload in CATALOGUE else ()
        defaults = {
            option.name: option.default
            for option in offered
            if option.backend in (None, self.backend)
        }
        return {**self.parameters, **defaults, **self.options}


def bind(
    name: str, given: Mapping[str, int | str], data: str | None = None, backend: Backend = "cpu"
) -> Case:
    """Bind every parameter of a workload to the given value or its default."""
    if name not in CATALOGUE:
        raise InvalidRequest(f"there is no workload '{name}'; {did_you_mean(name)}")
    workload = CATALOGUE[name]
    offered = {option.name for option in workload.options}
    parameters = _bind(workload, {key: v for key, v in given.items() if key not in offered})
    options = _bind_options(workload, given, backend)
    case = Case(workload=name, parameters=parameters, data=data, backend=backend, options=options)
    if data is not None:
        step_of(case)  # raises InvalidRequest if the step cannot read a file
    return case


def did_you_mean(name: str) -> str:
    """Suggest workloads with a similar name."""
    similar = get_close_matches(name, CATALOGUE, n=3, cutoff=0.7)
    if similar:
        return f"did you mean {' or '.join(similar)}?"
    return "see 'farm workload list'"


def bind_external(manifest: Manifest, given: Mapping[str, int]) -> Case:
    """Bind every parameter of an external program to the given value or its default."""
    parameters = _bind(workload_from_manifest(manifest), given)
    return Case(workload=EXTERNAL, parameters=parameters, manifest=manifest)


def _bind(workload: Workload, given: Mapping[str, int | str]) -> dict[str, int]:
    known = {parameter.name: parameter for parameter in workload.parameters}
    bound = {name: parameter.default for name, parameter in known.items()}
    for name, value in given.items():
        if name not in known:
            offered = [*known, *(option.name for option in workload.options)]
            has = ", ".join(sorted(offered)) or "no parameters"
            raise InvalidRequest(
                f"workload '{workload.name}' has no parameter '{name}'; it has {has}"
            )
        bound[name] = _check_value(known[name], value)
    return bound


def _bind_options(
    workload: Workload, given: Mapping[str, int | str], backend: Backend
) -> dict[str, str]:
    """Return the named choices that differ from the default."""
    options = {}
    for option in workload.options:
        value = given.get(option.name, option.default)
        if value not in option.choices:
            choices = ", ".join(option.choices)
            raise InvalidRequest(f"{option.name} must be one of {choices}, got {value!r}")
        if option.backend not in (None, backend) and option.name in given:
            raise InvalidRequest(f"{option.name} needs backend: {option.backend}")
        if value != option.default:
            options[option.name] = str(value)
    if options.get("input") == "storage" and options.get("feed") == "preloaded":
        raise InvalidRequest(
            "feed: preloaded copies the whole data set to the GPU before the first step; "
            "it cannot be combined with input: storage"
        )
    return options


def _check_value(parameter: Parameter, value: object) -> int:
    name = parameter.name
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidRequest(f"{name} must be a whole number, got {value!r}")
    if not parameter.min <= value <= parameter.max:
        raise InvalidRequest(f"{name} must be {parameter.min} to {parameter.max}, got {value}")
    if parameter.choices and value not in parameter.choices:
        choices = ", ".join(map(str, parameter.choices))
        raise InvalidRequest(f"{name} must be one of {choices}, got {value}")
    return value


def is_known(case: Case) -> bool:
    """Whether this version of Farmhand has the case's workload with these parameters.

    A case may come from another version, or from any client that can write to the broker.
    """
    if case.manifest is None and case.workload not in CATALOGUE:
        return False
    workload = workload_of(case)
    try:
        _bind_options(workload, case.options, case.backend)
        return _bind(workload, case.parameters).keys() == case.parameters.keys()
    except InvalidRequest:
        return False


def workload_of(case: Case) -> Workload:
    if case.manifest is not None:
        return workload_from_manifest(case.manifest)
    return CATALOGUE[case.workload]


def workload_from_manifest(manifest: Manifest) -> Workload:
    """Return an external program as a workload."""
    return Workload(
        name=manifest.name,
        text=manifest.text,
        parameters=tuple(Parameter(**parameter.model_dump()) for parameter in manifest.parameters),
        step=lambda parameters: OpaqueStep(
            manifest.training, resolve_count(manifest.samples_per_step, parameters)
        ),
        threads=manifest.threads,
    )


def cost_of(case: Case) -> StepCost:
    """Return the cost of one step of a case."""
    if case.manifest is not None:
        return step_of(case).cost
    return _cost(case.workload, tuple(case.parameters.items()), case.data)


def thread_count(case: Case, cores: int) -> int:
    """Return the number of threads of a case on the given number of cores."""
    return workload_of(case).threads or cores


def launch_for(case: Case, default: Launch) -> Launch:
    """Return how long a case is measured: the default, unless the workload ends by itself."""
    length = workload_of(case).length
    if length is None:
        return default
    warmup, steps = length(case.parameters)
    limits = {"warmup": warmup, "steps": steps, "seconds": 0.0, "max_seconds": FIXED_LENGTH_MAX_S}
    return default.model_copy(update=limits)


def step_of(case: Case) -> Step:
    """Return the step that a case repeats."""
    step = workload_of(case).step(case.parameters)
    if case.data is None:
        return step
    from workloads.training import read_from_file

    return read_from_file(case.workload, step)


@lru_cache(maxsize=4096)
def _cost(workload: str, parameters: tuple[tuple[str, int], ...], data: str | None) -> StepCost:
    return step_of(Case(workload=workload, parameters=dict(parameters), data=data)).cost


@lru_cache(maxsize=4096)
def _digest(
    workload: str,
    parameters: tuple[tuple[str, int], ...],
    data: str | None,
    backend: str,
    options: tuple[tuple[str, str], ...],
) -> str:
    step = step_of(Case(workload=workload, parameters=dict(parameters), data=data))
    case = {"workload": workload, "parameters": dict(parameters)} | ({"data": data} if data else {})
    case |= {} if backend == "cpu" else {"backend": backend}
    case |= {"options": dict(options)} if options else {}
    # How an operation is divided in time does not change what it computes.
    ops = [op.model_dump(exclude={"time_steps"}) for op in step.cost.ops]
    content = {"case": case, "ops": ops}
    return digest_of(content if step.identity is None else content | {"identity": step.identity})


def lower(case: Case, threads: int) -> bytes:
    """Return the plan that the runner executes (format: kernels/runner/runner.h)."""
    from workloads.lowering import lower_step

    step = step_of(case)
    names = {"case": case.digest, "workload": case.workload, "backend": case.backend}
    return plan_bytes(step.cost, lower_step(step, backend=case.backend), names, threads)


@lru_cache(maxsize=64)
def planned_ops(
    workload: str, parameters: tuple[tuple[str, int], ...], backend: Backend = "cpu"
) -> "dict[str, PlannedOp]":
    """Return what the plan of a workload knows of each operation, by name."""
    from workloads import lowering

    step = step_of(Case(workload=workload, parameters=dict(parameters)))
    names = [op.name for op in step.cost.ops]
    body = lowering.lower_step(step, backend=backend)
    return dict(zip(names, lowering.planned_ops(body, len(names)), strict=True))


def plan_bytes(cost: StepCost, body: "PlanBody", names: Mapping[str, str], threads: int) -> bytes:
    """Return a plan: a JSON header with names and cost, then the body."""
    from workloads.lowering import body_memory

    text = body.text(names["case"], threads)
    header = {
        **names,
        "threads": threads,
        "training": cost.training,
        "samples_per_step": cost.samples_per_step,
        "parameter_bytes": cost.parameter_bytes,
        "activation_bytes": cost.activation_bytes,
        "memory": asdict(body_memory(body)),
        "body_bytes": len(text.encode()),
        "ops": [op.model_dump(exclude_defaults=True) for op in cost.ops],
    }
    head = json.dumps(header, sort_keys=True) + "\n"
    return f"{PLAN_MAGIC} {len(head.encode())}\n{head}{text}".encode()


CATALOGUE: dict[str, Workload] = {workload.name: workload for workload in all_workloads()}
