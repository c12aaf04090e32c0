"""Finds planned runs that cannot give a valid result: too large, or too slow for their time. Pure.

What is certain comes first: a plan larger than all memory of a phone. That a plan is larger than
what Android usually leaves free is only likely, because the agent knows the free memory at the
start of the run. A run that ends before its number of steps is suspect.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from orchestrator.planning.trials import Trial
from workloads.catalogue import launch_for, workload_of
from workloads.memory_budget import needed_bytes
from workloads.protocol.condition import STEPS_MAX_S, Launch
from workloads.protocol.phone_facts import PhoneFacts
from workloads.units import count_text

USABLE_SHARE = 0.9  # of the memory; no phone gives a program more
FREE_SHARE = 0.5  # of the memory; Android and its services usually use the other half

StepTime = Callable[[Trial], float | None]  # seconds per step, where something is known of it


@dataclass(frozen=True)
class _Shortage:
    """Cells that a phone cannot do as asked, by what they lack, and the worst of them."""

    cells: int
    worst: Trial
    figure: float  # MB needed, or steps done


def step_s_from_run(launch: Launch, measuring_s: float) -> float | None:
    """Return the step time of a run that its time limit ended; None if no limit ended it.

    A run measures the warm-up and then at most `max_seconds`, so what is longer is warm-up.
    """
    if not launch.warmup or not launch.steps:
        return None
    step_s = (measuring_s - launch.max_seconds) / launch.warmup
    return step_s if step_s * launch.steps > launch.max_seconds else None


def limit_warnings(
    trials: Sequence[Trial], phones: Sequence[PhoneFacts], step_time: StepTime
) -> Iterator[str]:
    """Yield a warning for every phone and every limit that some of its trials exceed."""
    facts_of = {facts.serial: facts for facts in phones}
    on_phone = [trial for trial in trials if workload_of(trial.case).on_phone]
    for phone, shortage in _by_phone(on_phone, lambda trial: _excess_mb(trial, facts_of)).items():
        ram_mb = facts_of[phone].ram_mb
        is_sure = shortage.figure > USABLE_SHARE * ram_mb
        cells = count_text(shortage.cells, "cell")
        yield (
            f"memory: {cells} on {phone} {'cannot' if is_sure else 'will hardly'} fit into "
            f"{ram_mb:,} MB of RAM, of which about half is free; {shortage.worst.case.label} needs "
            f"{shortage.figure:,.0f} MB; use a smaller batch_size"
        )
    for phone, shortage in _by_phone(
        on_phone, lambda trial: _missing_steps(trial, step_time)
    ).items():
        launch = launch_for(shortage.worst.case, shortage.worst.condition.launch)
        what = f"{shortage.worst.case.label} on {shortage.worst.condition.cores}"
        steps = f"about {launch.steps - shortage.figure:.0f} of {launch.steps} steps"
        yield (
            f"steps: {count_text(shortage.cells, 'cell')} on {phone} will be suspect: {what} does "
            f"{steps} in {launch.max_seconds:.0f} s; write steps_min: {launch.steps}, which allows "
            f"{STEPS_MAX_S:.0f} s, or use a smaller batch_size"
        )


def _by_phone(
    trials: Sequence[Trial], figure: Callable[[Trial], float | None]
) -> Mapping[str, _Shortage]:
    """Return the phones with trials that have a figure, how many, and the largest figure."""
    found: dict[str, _Shortage] = {}
    for trial in trials:
        value = figure(trial)
        if value is None:
            continue
        before = found.get(trial.phone, _Shortage(0, trial, value))
        worst, largest = max(
            (before.worst, before.figure), (trial, value), key=lambda pair: pair[1]
        )
        found[trial.phone] = _Shortage(before.cells + 1, worst, largest)
    return found


def _excess_mb(trial: Trial, facts_of: Mapping[str, PhoneFacts]) -> float | None:
    """Return the memory that a trial needs if its phone hardly has it; None if it has."""
    if trial.case.manifest is not None or trial.condition.too_large is not None:
        return None
    needed_mb = needed_bytes(trial.case) / 2**20
    return needed_mb if needed_mb > FREE_SHARE * facts_of[trial.phone].ram_mb else None


def _missing_steps(trial: Trial, step_time: StepTime) -> float | None:
    """Return how many steps a trial will lack at its time limit; None if it will lack none."""
    step_s = step_time(trial)
    launch = launch_for(trial.case, trial.condition.launch)
    if not step_s or step_s * launch.steps <= launch.max_seconds:
        return None
    return launch.steps - launch.max_seconds // step_s
