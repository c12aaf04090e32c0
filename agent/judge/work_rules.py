"""Checks that a run computed its workload: loss, parameter updates, counts, numerical result.

Values that a simulated phone does not report are not errors. Everything that really ran, on a phone
or on a host, has to report them.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import isfinite

from agent.collect.runner_output import DoneRecord
from workloads.data_columns import BATCHES
from workloads.protocol.metrics import Source
from workloads.protocol.verdict import Reason, ReasonCode
from workloads.step_cost import StepCost
from workloads.text import safe_text

ANSWER_ERROR_MAX = 1e-5  # relative to the terms: some dozens of roundings in single precision


@dataclass(frozen=True)
class ClaimedWork:
    """What a run had to do, and what it claims to have done."""

    cost: StepCost
    done: DoneRecord
    warmup: int
    source: Source | None  # of the times

    @property
    def trained_batches(self) -> int:
        """Batches that were trained on, including the warm-up."""
        return self.warmup + self.done.steps

    @property
    def is_real(self) -> bool:
        """Whether known operations were really computed; those of external programs are unknown."""
        return self.source is not Source.SIMULATED and bool(self.cost.ops)


def work_objections(claimed: ClaimedWork) -> Iterator[Reason]:
    """Yield a reason for every check that a run fails."""
    if claimed.cost.training:
        yield from _check_loss(claimed)
        yield from _check_trained_tensors(claimed)
    yield from _check_counts(claimed)
    yield from _check_answer(claimed)
    if claimed.done.fallbacks:
        yield Reason.void(ReasonCode.BACKEND_FALLBACK, count=claimed.done.fallbacks)
    if claimed.done.note:
        yield Reason.remark(
            ReasonCode.COMMAND_BUFFERS_UNUSED, why=safe_text(claimed.done.note, 120)
        )


def _check_loss(claimed: ClaimedWork) -> Iterator[Reason]:
    first, last = claimed.done.loss_first, claimed.done.loss_last
    if first is None or last is None:
        if claimed.is_real:
            yield Reason.void(ReasonCode.LOSS_MISSING)
    elif not (isfinite(first) and isfinite(last)):
        yield Reason.void(ReasonCode.LOSS_NOT_FINITE, first=f"{first:g}", last=f"{last:g}")
    elif claimed.trained_batches < 2 * BATCHES:
        yield Reason.suspect(ReasonCode.LOSS_TOO_FEW_STEPS)
    elif claimed.trained_batches < 2 * claimed.cost.batches:
        return  # no sample was used twice, so no two losses are of the same samples
    elif last >= first:
        yield Reason.void(ReasonCode.LOSS_DID_NOT_FALL, first=f"{first:g}", last=f"{last:g}")


def _check_trained_tensors(claimed: ClaimedWork) -> Iterator[Reason]:
    trained, changed = claimed.done.learned, claimed.done.moved
    if claimed.cost.ops and not claimed.done.parameters_changed:
        yield Reason.void(ReasonCode.NO_PARAMETER_CHANGED)
    if trained is None or changed is None:
        if claimed.is_real:
            yield Reason.void(ReasonCode.TENSOR_CHANGES_MISSING)
    elif trained == 0 or changed < trained:
        unchanged = trained - changed
        yield Reason.void(ReasonCode.TENSORS_UNCHANGED, unchanged=unchanged, trained=trained)


def _check_counts(claimed: ClaimedWork) -> Iterator[Reason]:
    cost, done = claimed.cost, claimed.done
    for what, stated, counted in (
        ("parameters", cost.parameters, done.parameters),
        ("multiply-adds", cost.macs, done.macs),
    ):
        if stated is None:
            continue
        if counted is None:
            if claimed.is_real:
                yield Reason.void(ReasonCode.COUNT_MISSING, quantity=what, expected=stated)
        elif counted != stated:
            yield Reason.void(
                ReasonCode.COUNT_MISMATCH, quantity=what, counted=counted, expected=stated
            )


def _check_answer(claimed: ClaimedWork) -> Iterator[Reason]:
    error = claimed.done.answer_error
    bare_product = claimed.cost.macs is not None and claimed.cost.parameters is None
    if error is None:
        if bare_product and claimed.is_real:
            yield Reason.void(ReasonCode.ANSWER_ERROR_MISSING)
    elif not error <= ANSWER_ERROR_MAX:  # nan is not below anything
        value = error if isfinite(error) else str(error)
        yield Reason.void(ReasonCode.ANSWER_WRONG, error=value, limit=ANSWER_ERROR_MAX)
