"""Validity gates: whether a run did the work that its workload is named after. Pure.

A phone that simulates computes nothing: what it cannot know is no failure. Whatever really ran,
on a phone or on a host, has to show its loss, its counts and its answer.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import isfinite

from agent.run.lines import Done
from workloads.data import BATCHES
from workloads.measure import Source, Standing
from workloads.work import Work

ANSWER_ERROR_MAX = 1e-5  # of the size of the terms: some dozens of roundings in single precision

Doubt = tuple[Standing, str]


@dataclass(frozen=True)
class Effort:
    """What a run was to do, and what it says that it did."""

    work: Work
    done: Done
    warmup: int
    source: Source | None  # of the times

    @property
    def seen(self) -> int:
        """Batches that were trained on, warm-up included."""
        return self.warmup + self.done.steps

    @property
    def real(self) -> bool:
        """Whether anything was computed by operations that we know; a foreign program's are not."""
        return self.source is not Source.SIMULATED and bool(self.work.ops)


def failed_gates(effort: Effort) -> Iterator[Doubt]:
    """Every gate that a run does not pass, in words."""
    if effort.work.training:
        yield from _loss(effort)
        yield from _movement(effort)
    yield from _counts(effort)
    yield from _answer(effort)
    if effort.done.fallbacks:
        yield Standing.VOID, f"another backend did {effort.done.fallbacks} of its operations"


def _loss(effort: Effort) -> Iterator[Doubt]:
    first, last = effort.done.loss_first, effort.done.loss_last
    if first is None or last is None:
        if effort.real:
            yield Standing.VOID, "it trained without telling its loss"
    elif not (isfinite(first) and isfinite(last)):
        yield Standing.VOID, f"the loss is not finite: {first:g} at first, {last:g} at last"
    elif effort.seen < 2 * BATCHES:
        yield Standing.SUSPECT, "too few steps to see whether the loss falls"
    elif effort.seen < 2 * effort.work.batches:
        return  # no sample was seen twice, so no two losses compare like with like
    elif last >= first:
        yield Standing.VOID, f"the loss did not fall: {first:g} at first, {last:g} at last"


def _movement(effort: Effort) -> Iterator[Doubt]:
    learned, moved = effort.done.learned, effort.done.moved
    if effort.work.ops and not effort.done.parameters_changed:
        yield Standing.VOID, "it trained without changing a parameter"
    if learned is None or moved is None:
        if effort.real:
            yield Standing.VOID, "it does not tell which of its tensors moved"
    elif learned == 0 or moved < learned:
        yield Standing.VOID, f"{learned - moved} of its {learned} learned tensors did not move"


def _counts(effort: Effort) -> Iterator[Doubt]:
    work, done = effort.work, effort.done
    for what, stated, counted in (
        ("parameters", work.parameters, done.parameters),
        ("multiply-adds", work.macs, done.macs),
    ):
        if stated is None:
            continue
        if counted is None:
            if effort.real:
                yield Standing.VOID, f"it does not tell its {what}; the catalogue states {stated}"
        elif counted != stated:
            yield Standing.VOID, f"it has {counted} {what}, the catalogue states {stated}"


def _answer(effort: Effort) -> Iterator[Doubt]:
    error = effort.done.answer_error
    bare_product = effort.work.macs is not None and effort.work.parameters is None
    if error is None:
        if bare_product and effort.real:
            yield Standing.VOID, "it does not tell how wrong its answer is"
    elif not error <= ANSWER_ERROR_MAX:  # nan is not below anything
        yield Standing.VOID, f"its answer is wrong by {error:.1g} of its terms"
