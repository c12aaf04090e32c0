"""Figures gathered by trial. What does not count is counted, with its reason."""

import math
from collections import Counter
from collections.abc import Iterable, Sequence

from orchestrator.analysis.provenance import weakest
from orchestrator.nouns import Figure, Making, MeasuredRun, MeasuredTrial, TrialFigures
from workloads.measure import Provenance, Standing


def figures_of(runs: Iterable[MeasuredRun], metric: str = "") -> list[TrialFigures]:
    """One metric (without a name, what the condition asks for) of every trial among some runs."""
    return gathered(_figure(run, metric or run.condition.headline) for run in runs)


def gathered(figures: Iterable[Figure]) -> list[TrialFigures]:
    """Every trial with its figures, in the order of its blocks."""
    by_trial: dict[tuple[str, str], list[Figure]] = {}
    for figure in figures:
        by_trial.setdefault((figure.of.trial, figure.of.phone), []).append(figure)
    return [_trial(own) for own in by_trial.values()]


def _trial(figures: Sequence[Figure]) -> TrialFigures:
    counting: list[tuple[Figure, float]] = []
    left_out: Counter[str] = Counter()
    for figure in sorted(figures, key=lambda figure: figure.block):
        reason = _why_not(figure)
        if reason or figure.value is None:
            left_out[reason] += 1
        else:
            counting.append((figure, figure.value))
    made = {figure.provenance for figure, _ in counting if figure.provenance is not None}
    return TrialFigures(
        **vars(figures[0].of),
        metric=figures[0].metric,
        values=tuple(value for _, value in counting),
        blocks=tuple(figure.block for figure, _ in counting),
        times=tuple(figure.at for figure, _ in counting),
        provenance=weakest(made) if made else None,
        makings=frozenset(map(_making, {(f.provenance, f.control, f.grade) for f, _ in counting})),
        left_out=left_out,
    )


def _making(told: tuple[Provenance | None, str, str]) -> Making:
    provenance, control, grade = told
    return Making(provenance.source.value if provenance else "unknown", control, grade)


def _why_not(figure: Figure) -> str:
    """Why a run has no part in a comparison; empty when it has."""
    if figure.standing is not Standing.VALID:
        return f"{figure.standing} runs"
    if figure.value is None:
        return f"runs without {figure.metric}"
    if not math.isfinite(figure.value) or figure.value <= 0:
        return f"runs whose {figure.metric} is not above zero"
    return ""


def _figure(run: MeasuredRun, metric: str) -> Figure:
    found = run.metrics.get(metric)
    facts = run.facts
    return Figure(
        of=MeasuredTrial(
            run.sweep, run.trial, run.phone, facts.model, facts.soc, run.case, run.condition
        ),
        metric=metric,
        block=run.block,
        at=run.started_at,
        standing=run.verdict.standing,
        control=str(run.control or "unknown"),
        grade=found.grade if found else "",
        value=found.value if found else None,
        provenance=found.provenance if found else None,
    )
