"""The engine's operations once more, in numpy and double precision: what a dump is held against.

It reads the text of a plan's body, shares no code with what writes or executes it, and takes from
the dump only what chance decides: first values, loaded batches and dropout's masks. One file a
family, as in kernels/engine/cpu/.
"""

from tests.kernels.reference import (
    activations,
    losses,
    norms,
    plumbing,
    pooling,
    products,
    sequences,
    updates,
)
from tests.kernels.reference.machine import KINDS, Array, Machine, Plan, parse, read_dump

__all__ = [
    "KINDS",
    "Array",
    "Machine",
    "Plan",
    "activations",
    "losses",
    "norms",
    "parse",
    "plumbing",
    "pooling",
    "products",
    "read_dump",
    "sequences",
    "updates",
]
