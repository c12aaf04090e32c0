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
from workloads.text import list_text
from workloads.units import count_text

USABLE_SHARE = 0.9  # of the memory; no phone gives a program more
PHONES_SHOWN = 6
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
    """Yield the warnings about limits that some trials exceed, each with all its phones."""
    ram_mb = {facts.serial: facts.ram_mb for facts in phones}
    on_phone = [trial for trial in trials if workload_of(trial.case).on_phone]
    warnings: dict[str, list[str]] = {}
    too_large = _by_phone(on_phone, lambda trial: _excess_mb(trial, ram_mb))
    for phone, shortage in too_large.items():
        is_sure = shortage.figure > USABLE_SHARE * ram_mb[phone]
        text = (
            f"memory: {count_text(shortage.cells, 'cell')} {'cannot' if is_sure else 'will hardly'}"
            f" fit: {shortage.worst.case.label} needs {shortage.figure:,.0f} MB, and about half of "
            "a phone's RAM is free; use a smaller batch_size"
        )
        warnings.setdefault(text, []).append(f"{phone} ({ram_mb[phone]:,} MB)")
    too_slow = _by_phone(on_phone, lambda trial: _missing_steps(trial, step_time))
    for phone, shortage in too_slow.items():
        launch = launch_for(shortage.worst.case, shortage.worst.condition.launch)
        what = f"{shortage.worst.case.label} on {shortage.worst.condition.cores}"
        text = (
            f"steps: {count_text(shortage.cells, 'cell')} will be suspect: {what} does not reach "
            f"{launch.steps} steps in {launch.max_seconds:.0f} s; write steps_min: {launch.steps}, "
            f"which allows {STEPS_MAX_S:.0f} s, or use a smaller batch_size"
        )
        steps = launch.steps - shortage.figure
        warnings.setdefault(text, []).append(f"{phone} (about {steps:.0f})")
    for text, names in warnings.items():
        yield f"{text}: {list_text(names, PHONES_SHOWN)}"


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


def _excess_mb(trial: Trial, ram_mb: Mapping[str, int]) -> float | None:
    """Return the memory that a trial needs if its phone hardly has it; None if it has."""
    if trial.case.manifest is not None or trial.condition.too_large is not None:
        return None
    needed_mb = needed_bytes(trial.case) / 2**20
    return needed_mb if needed_mb > FREE_SHARE * ram_mb[trial.phone] else None


def _missing_steps(trial: Trial, step_time: StepTime) -> float | None:
    """Return how many steps a trial will lack at its time limit; None if it will lack none."""
    step_s = step_time(trial)
    launch = launch_for(trial.case, trial.condition.launch)
    if not step_s or step_s * launch.steps <= launch.max_seconds:
        return None
    return launch.steps - launch.max_seconds // step_s
