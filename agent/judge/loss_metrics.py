"""The loss over tokens, time and energy: its value at a token budget, and the cost of reaching one.

Tokens, time and energy count from the first timed step. The loss of a single step depends on its
batch, so the loss at a moment is the mean over the last steps. Pure.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from agent.collect.runner_output import StepWindow
from agent.judge.run_observation import RunObservation

LOSS_STEPS = 16


class LossPoint(NamedTuple):
    """The loss at the end of a window."""

    steps: int  # since the first timed step, of all attempts
    t_ns: int
    loss: float


def loss_curve(windows: Sequence[StepWindow]) -> list[LossPoint]:
    """The mean loss over the last LOSS_STEPS steps or more, at the end of every window."""
    points: list[LossPoint] = []
    total, steps, oldest = 0.0, 0, 0
    for window in windows:
        if window.loss is None:
            return []
        total, steps = total + window.loss * window.n, steps + window.n
        while steps - windows[oldest].n >= LOSS_STEPS:
            total -= (windows[oldest].loss or 0.0) * windows[oldest].n
            steps -= windows[oldest].n
            oldest += 1
        if steps >= LOSS_STEPS:
            end = window.first + window.n
            points.append(LossPoint(end, window.t_ns + window.ns, total / steps))
    return points


def _loss_at(
    steps: float, windows: Sequence[StepWindow], curve: Sequence[LossPoint]
) -> float | None:
    """The loss after a number of steps; None: not reached, or before or right after a resume."""
    reached = next((point for point in curve if point.steps >= steps), None)
    window = next((each for each in windows if each.first < steps <= each.first + each.n), None)
    if reached is None or window is None:
        return None
    is_resumed, end = windows[0].first > 0, window.first + window.n
    return None if is_resumed and reached.steps != end else reached.loss


def loss_values(run: RunObservation) -> Iterator[tuple[str, float | None]]:
    """Yield the loss at the token budget, and what the target loss took; nothing if not reached."""
    tokens, windows = run.claimed.cost.tokens_per_step, run.output.windows
    if not tokens or not windows:
        return
    yield "tokens_trained", float(tokens * (windows[-1].first + windows[-1].n))
    condition, curve = run.condition, loss_curve(windows)
    budget = condition.token_budget
    if budget is not None:
        yield "loss_at_budget", _loss_at(budget / tokens, windows, curve)
    # What happened before a resume is not in this report.
    if condition.target_loss is None or run.output.resume is not None:
        return
    reached = (point.t_ns for point in curve if point.loss <= condition.target_loss)
    if (end_ns := next(reached, None)) is not None:
        span = (windows[0].t_ns, end_ns)
        yield "time_to_loss_s", (span[1] - span[0]) / 1e9
        yield "energy_to_loss_j", run.power.energy_j(span)
