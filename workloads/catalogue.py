"""The catalogue: every workload that can be asked for, what one step of it costs, and its plan.

The workloads themselves stand on the shelf (workloads/shelf.py); their costs follow from the
definitions of models in workloads/models, by the rules of workloads/work.py.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from difflib import get_close_matches
from functools import lru_cache
from typing import TYPE_CHECKING

from pydantic import Field

from workloads.condition import Launch
from workloads.external import Manifest, value_of
from workloads.fault import Refused
from workloads.noun import Noun, digest_of
from workloads.shelf import shelf
from workloads.work import Backend, Op, Step, Work
from workloads.workload import Parameter, Workload

if TYPE_CHECKING:
    from workloads.lowering import Body

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
    "launch_of",
    "lower",
    "near",
    "plan_bytes",
    "step_of",
    "threads_of",
    "work_of",
    "workload_of",
    "wrapped",
]

PLAN_MAGIC = "farmhand-plan 1"
STORY_MAX_S = 3600.0  # for a workload that has an end, if it never comes
EXTERNAL = "external"  # the workload of every case that brings a manifest


class Case(Noun):
    """A workload with every parameter bound."""

    workload: str
    parameters: dict[str, int]
    manifest: Manifest | None = None
    backend: Backend = Field(default="cpu", description="who computes")
    data: str | None = Field(
        default=None, pattern=r"^[0-9a-f]{64}$", description="digest of the file it learns from"
    )

    @property
    def digest(self) -> str:
        """The case's identity; it covers what a step does, so a changed workload is a new case."""
        if self.manifest is not None:
            return digest_of(self.model_dump(mode="json", exclude={"backend"}))
        return _digest(self.workload, tuple(self.parameters.items()), self.data, self.backend)

    @property
    def name(self) -> str:
        """What it is called: the workload, or the foreign program."""
        return self.workload if self.manifest is None else self.manifest.name

    @property
    def label(self) -> str:
        """Short name for tables."""
        values = " ".join(f"{key}={value}" for key, value in sorted(self.parameters.items()))
        data = f" data={self.data[:8]}" if self.data else ""
        backend = "" if self.backend == "cpu" else f" {self.backend}"
        return f"{self.name} {values}{data}{backend}".strip()


def bind(
    name: str,
    given: Mapping[str, int],
    data: str | None = None,
    backend: Backend = "cpu",
) -> Case:
    """Bind every parameter of a workload: the given values, defaults for the rest."""
    if name not in CATALOGUE:
        raise Refused(f"there is no workload '{name}'; {near(name)}")
    bound = _bound(CATALOGUE[name], given)
    case = Case(workload=name, parameters=bound, data=data, backend=backend)
    if data is not None:
        step_of(case)  # refuses what cannot learn from a file
    return case


def near(name: str) -> str:
    """What somebody who wrote a name that is not there may have meant."""
    meant = get_close_matches(name, CATALOGUE, n=3, cutoff=0.7)
    return f"did you mean {' or '.join(meant)}?" if meant else "'farm workload list' shows them all"


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
        if check.only and value not in check.only:
            raise Refused(f"{key} is {value}; it is one of {', '.join(map(str, check.only))}")
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
    return _work(case.workload, tuple(case.parameters.items()), case.data)


def threads_of(case: Case, cores: int) -> int:
    """With how many threads a case runs on so many cores."""
    return workload_of(case).threads or cores


def launch_of(case: Case, usual: Launch) -> Launch:
    """How long a case is measured: as usual, unless it is a story that has an end."""
    length = workload_of(case).length
    if length is None:
        return usual
    warmup, steps = length(case.parameters)
    whole = {"warmup": warmup, "steps": steps, "seconds": 0.0, "max_seconds": STORY_MAX_S}
    return usual.model_copy(update=whole)


def step_of(case: Case) -> Step:
    """The step that a case is."""
    step = workload_of(case).step(case.parameters)
    if case.data is None:
        return step
    from workloads.filed import from_file

    return from_file(case.workload, step)


@lru_cache(maxsize=4096)
def _work(workload: str, parameters: tuple[tuple[str, int], ...], data: str | None) -> Work:
    return step_of(Case(workload=workload, parameters=dict(parameters), data=data)).work


@lru_cache(maxsize=4096)
def _digest(
    workload: str, parameters: tuple[tuple[str, int], ...], data: str | None, backend: str
) -> str:
    step = step_of(Case(workload=workload, parameters=dict(parameters), data=data))
    case = {"workload": workload, "parameters": dict(parameters)} | ({"data": data} if data else {})
    case |= {} if backend == "cpu" else {"backend": backend}
    content = {"case": case, "ops": [op.model_dump() for op in step.work.ops]}
    return digest_of(content if step.meaning is None else content | {"meaning": step.meaning})


def lower(case: Case, threads: int) -> bytes:
    """Write the plan that the runner executes (format: kernels/runner/runner.h)."""
    from workloads.lowering import body_of

    step = step_of(case)
    named = {"case": case.digest, "workload": case.workload, "backend": case.backend}
    return plan_bytes(step.work, body_of(step, backend=case.backend), named, threads)


def plan_bytes(work: Work, body: "Body", named: Mapping[str, str], threads: int) -> bytes:
    """A header that says what a step costs, for whom and under which names; then the body."""
    from workloads.lowering import memory_of_body

    text = body.text(named["case"], threads)
    header = {
        **named,
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


CATALOGUE: dict[str, Workload] = {workload.name: workload for workload in shelf()}
