"""Describes a workload: parameters, cost, memory and sources, as JSON or in 80 columns."""

import textwrap
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from kernels.plan_memory import PHONE_CORES, memory_of_plan
from workloads.catalogue import CATALOGUE, Case, cost_of, lower, step_of, thread_count
from workloads.graph import NOT_PUBLISHED, Model
from workloads.lowering import step_memory
from workloads.step_cost import Step
from workloads.training import InferenceStep, TrainingStep
from workloads.workload import BUILT_IN, Parameter, Workload

WIDTH = 80
KINDS = {
    "parameter": "parameters",
    "gradient": "gradients",
    "state": "optimizer state",
    "activation": "activations",
    "input": "input",
    "dataset": "data set",
    "workspace": "workspace",
}


def workload_json(case: Case) -> dict[str, Any]:
    """Describe a case for programs."""
    workload, step, cost = CATALOGUE[case.workload], step_of(case), cost_of(case)
    memory = _memory(case)
    models = _models(step)
    return {
        "workload": case.workload,
        "text": workload.text,
        "study": workload.study.name,
        "study_warmup_steps": workload.study.warmup,
        "threads": workload.threads,
        "parameters": case.parameters,
        "digest": case.digest,
        "training": cost.training,
        "model_parameters": cost.parameters,
        "trained_parameters": _trained_parameters(step),
        "macs_per_step": cost.macs,
        "flops_per_step": cost.flops,
        "operations": len(cost.ops),
        "memory_bytes": memory | {"planned": sum(memory.values())},
        "optimizers": _optimizers(step),
        "stated_size": workload.stated,
        "published_size": {model.name: asdict(model.published) for model in models},
        "notes": workload.notes,
    }


def workload_lines(case: Case) -> Iterator[str]:
    """Describe a case for people."""
    workload, step, cost = CATALOGUE[case.workload], step_of(case), cost_of(case)
    yield f"{case.workload}: {workload.text}"
    if workload.study != BUILT_IN:
        yield f"{workload.study.text}; {workload.study.warmup} warm-up steps"
    yield ""
    for parameter in workload.parameters:
        yield f"  {parameter.name:<15} {case.parameters[parameter.name]:>6}   {_range(parameter)}"
    if workload.parameters:
        yield ""
    if cost.parameters:
        trained = _trained_parameters(step)
        part = (
            f", {trained:,} of them trained" if cost.training and trained < cost.parameters else ""
        )
        yield _line("parameters", f"{cost.parameters:,}{part}")
    if cost.macs:
        macs = cost.macs // max(cost.samples_per_step, 1)
        yield _line("multiply-adds", f"{_engineering(macs)} per sample, forward")
    if cost.ops:
        count = f"{len(cost.ops):,} per step, {_engineering(cost.flops)} FLOP"
        yield _line("operations", count)
    yield from _memory_lines(_memory(case), thread_count(case, PHONE_CORES))
    for optimizer in _optimizers(step):
        yield from _wrapped(_line("optimizer", optimizer))
    yield _line("threads", str(workload.threads or "one per core"))
    yield from _size_lines(workload, step)
    if workload.notes:
        yield ""
        yield from textwrap.wrap(workload.notes, WIDTH)


def _size_lines(workload: Workload, step: Step) -> Iterator[str]:
    """Describe the sizes that its study and the literature give."""
    if workload.stated:
        yield from _wrapped(_line("study's size", workload.stated))
    for model in (each for each in _models(step) if each.published != NOT_PUBLISHED):
        published = model.published
        size = f"{published.parameters:,} parameters, {_engineering(published.macs)} multiply-adds"
        name = "size as coded" if published.as_coded else "published size"
        yield from _wrapped(_line(name, f"{size}: {published.source}"))


def _models(step: Step) -> list[Model]:
    """Return the models of a step, each once."""
    match step:
        case TrainingStep():
            return list({part.model.name: part.model for part in step.passes}.values())
        case InferenceStep():
            return [step.model]
        case _:
            return []


def _trained_parameters(step: Step) -> int:
    """Count the parameters that a step changes; those that passes share are counted once."""
    models = (one.trained_model for one in step.passes) if isinstance(step, TrainingStep) else ()
    pairs = ((model, node) for model in models for node in model.nodes)
    counts = {node.name: count for model, node in pairs if (count := model.trainable_count(node))}
    return sum(counts.values())


def _optimizers(step: Step) -> list[str]:
    if not isinstance(step, TrainingStep):
        return []
    return list({str(part.optimizer): None for part in step.passes if part.optimizer})


def _memory(case: Case) -> dict[str, int]:
    """Return the bytes by kind; without the workspace if the engine cannot be asked."""
    memory = memory_of_plan(lower(case, thread_count(case, PHONE_CORES)))
    return memory or asdict(step_memory(step_of(case)))


def _memory_lines(memory: dict[str, int], threads: int) -> Iterator[str]:
    if any(memory.values()):
        kinds = [kind for kind in KINDS if memory.get(kind)]
        parts = [f"{KINDS[kind]} {_bytes(memory[kind])}" for kind in kinds]
        text = f"{_bytes(sum(memory.values()))} with {threads} threads: {', '.join(parts)}"
        yield from _wrapped(_line("memory", text))


def _range(parameter: Parameter) -> str:
    if parameter.choices:
        return f"{', '.join(map(str, parameter.choices))}: {parameter.text}"
    return f"{parameter.min} to {parameter.max}: {parameter.text}"


def _line(name: str, text: str) -> str:
    return f"  {name:<15} {text}"


def _wrapped(line: str) -> list[str]:
    return textwrap.wrap(line, WIDTH, subsequent_indent=" " * 18)


def _bytes(count: int) -> str:
    return f"{count / 1e9:.2f} GB" if count >= 1e9 else f"{count / 1e6:.1f} MB"


def _engineering(count: int) -> str:
    for scale, letter in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if count >= scale:
            return f"{count / scale:.3g} {letter}"
    return str(count)
