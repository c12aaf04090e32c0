"""The card of a workload: what it is, costs and needs, in lines that fit 80 columns."""

import textwrap
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from workloads.catalogue import CATALOGUE, Case, cost_of, step_of
from workloads.graph import Model
from workloads.lowering import MemoryBreakdown, step_memory
from workloads.step_cost import Step
from workloads.training import InferenceStep, TrainingStep
from workloads.workload import BUILT_IN, Parameter

WIDTH = 80
KINDS = {
    "parameter": "parameters",
    "gradient": "gradients",
    "state": "optimizer state",
    "activation": "activations",
    "input": "input",
    "dataset": "data set",
}


def card_of(case: Case) -> dict[str, Any]:
    """All that is known of a case, for programs."""
    workload, step, work = CATALOGUE[case.workload], step_of(case), cost_of(case)
    memory = step_memory(step)
    models = _models(step)
    return {
        "workload": case.workload,
        "text": workload.text,
        "study": workload.study.name,
        "study_warmup_steps": workload.study.warmup,
        "threads": workload.threads,
        "parameters": case.parameters,
        "digest": case.digest,
        "training": work.training,
        "model_parameters": work.parameters,
        "macs_per_step": work.macs,
        "flops_per_step": work.flops,
        "operations": len(work.ops),
        "memory_bytes": asdict(memory) | {"planned": memory.planned},
        "optimizers": _optimizers(step),
        "textbook": {model.name: asdict(model.published) for model in models},
        "notes": workload.notes,
    }


def shown(case: Case) -> Iterator[str]:
    """The same for people."""
    workload, step, work = CATALOGUE[case.workload], step_of(case), cost_of(case)
    yield f"{case.workload}: {workload.text}"
    if workload.study != BUILT_IN:
        yield f"{workload.study.text}; {workload.study.warmup} steps of warm-up"
    yield ""
    for parameter in workload.parameters:
        yield f"  {parameter.name:<15} {case.parameters[parameter.name]:>6}   {_range(parameter)}"
    if workload.parameters:
        yield ""
    if work.parameters:
        yield _line("parameters", f"{work.parameters:,}")
    if work.macs:
        each = work.macs // max(work.samples_per_step, 1)
        yield _line("multiply-adds", f"{_engineering(each)} a sample, forward")
    if work.ops:
        steps = f"{len(work.ops):,} a step, {_engineering(work.flops)} FLOP"
        yield _line("operations", steps)
    yield from _memory_lines(step_memory(step))
    for optimizer in _optimizers(step):
        yield from _wrapped(_line("optimizer", optimizer))
    yield _line("threads", str(workload.threads or "one a core"))
    for model in _models(step):
        said = f"{model.published.parameters:,} parameters, {_engineering(model.published.macs)}"
        yield from _wrapped(
            _line("in the textbook", f"{said} multiply-adds: {model.published.source}")
        )
    if workload.notes:
        yield ""
        yield from textwrap.wrap(workload.notes, WIDTH)


def _models(step: Step) -> list[Model]:
    """The models of a step, each once."""
    match step:
        case TrainingStep():
            return list({each.model.name: each.model for each in step.passes}.values())
        case InferenceStep():
            return [step.model]
        case _:
            return []


def _optimizers(step: Step) -> list[str]:
    if not isinstance(step, TrainingStep):
        return []
    return list({str(each.optimizer): None for each in step.passes if each.optimizer})


def _memory_lines(memory: MemoryBreakdown) -> Iterator[str]:
    if memory.planned:
        parts = [
            f"{name} {_bytes(size)}"
            for kind, name in KINDS.items()
            if (size := getattr(memory, kind))
        ]
        text = f"{_bytes(memory.planned)} planned, besides workspace: {', '.join(parts)}"
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
