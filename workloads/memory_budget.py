"""Memory budgets: the memory that a case will take, and the largest batch that fits.

Arenas and data set are known to the byte, because the plan lays them out; for what the engine adds
there is an allowance, unless the engine is asked (kernels/plan_memory.py).
"""

from collections.abc import Callable
from functools import lru_cache

from workloads.catalogue import CATALOGUE, Case, bind, step_of
from workloads.protocol.faults import InvalidRequest
from workloads.protocol.memory_outcome import ENGINE_OVERHEAD_MB

BATCH = "batch_size"


@lru_cache(maxsize=4096)
def _needed_bytes(workload: str, parameters: tuple[tuple[str, int], ...]) -> int:
    from workloads.lowering import step_memory

    step = step_of(Case(workload=workload, parameters=dict(parameters)))
    return step_memory(step).planned + int(ENGINE_OVERHEAD_MB * 2**20)


def needed_bytes(case: Case) -> int:
    """Return the most memory that a case will take."""
    return _needed_bytes(case.workload, tuple(case.parameters.items()))


def largest_batch(
    name: str,
    budget_bytes: int,
    given: dict[str, int] | None = None,
    needed: Callable[[Case], int] = needed_bytes,
) -> int | None:
    """Return the largest batch size that fits, or None if not even the smallest does."""
    parameters = bind(name, given or {}).parameters  # rejects bad values before the search
    batch = next(
        (parameter for parameter in CATALOGUE[name].parameters if parameter.name == BATCH), None
    )
    if batch is None:
        raise InvalidRequest(f"workload '{name}' has no parameter {BATCH}")
    sizes = batch.choices or range(batch.min, batch.max + 1)

    def fits(size: int) -> bool:
        return needed(bind(name, {**parameters, BATCH: size})) <= budget_bytes

    if not fits(sizes[0]):
        return None
    fitting, too_large = 0, len(sizes)
    while too_large - fitting > 1:
        middle = (fitting + too_large) // 2
        if fits(sizes[middle]):
            fitting = middle
        else:
            too_large = middle
    return sizes[fitting]


def fit_batch(
    name: str, budget_bytes: int, given: dict[str, int], needed: Callable[[Case], int]
) -> tuple[int | None, int]:
    """Return the largest batch size that fits, and what it needs; or None, and what 1 needs."""
    batch = largest_batch(name, budget_bytes, given, needed)
    return batch, needed(bind(name, {**given, BATCH: batch or 1}))
