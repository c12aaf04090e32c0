"""Budgets: the memory that a case will take, known before it runs, and the batch that it allows.

Arenas and data set are known to the byte, since the plan lays them out. What the engine adds is
allowed for.
"""

from functools import lru_cache

from workloads.catalogue import CATALOGUE, Case, bind, step_of
from workloads.fault import Refused
from workloads.fit import ALLOWANCE_MB

BATCH = "batch_size"


@lru_cache(maxsize=4096)
def _needed(workload: str, parameters: tuple[tuple[str, int], ...]) -> int:
    from workloads.lowering import memory_of

    step = step_of(Case(workload=workload, parameters=dict(parameters)))
    return memory_of(step).planned + int(ALLOWANCE_MB * 2**20)


def needed_bytes(case: Case) -> int:
    """The memory that a case will take at most."""
    return _needed(case.workload, tuple(case.parameters.items()))


def largest_batch(name: str, budget_bytes: int, given: dict[str, int] | None = None) -> int | None:
    """The largest batch that fits into so many bytes, or None where not even the smallest does."""
    chosen = bind(name, given or {}).parameters  # so that nonsense is refused first
    sizes = {each.name: each for each in CATALOGUE[name].parameters}.get(BATCH)
    if sizes is None:
        raise Refused(f"workload '{name}' has no batch to choose")
    choices = sizes.only or range(sizes.least, sizes.most + 1)

    def fits(size: int) -> bool:
        return needed_bytes(bind(name, {**chosen, BATCH: size})) <= budget_bytes

    if not fits(choices[0]):
        return None
    most, beyond = 0, len(choices)
    while beyond - most > 1:
        middle = (most + beyond) // 2
        most, beyond = (middle, beyond) if fits(choices[middle]) else (most, middle)
    return choices[most]
