"""The operations of the engine again, in numpy and double precision, to compare dumps with.

The reference reads the text of a plan's body, shares no code with what writes or executes it, and
takes from the dump only what is random: initial values, loaded batches and dropout masks. One file
per family, as in kernels/engine/cpu/.
"""

from tests.kernels.reference import (
    activations,
    losses,
    matmul,
    norms,
    optimizers,
    pooling,
    sequence_ops,
    shape_ops,
)
from tests.kernels.reference.machine import KINDS, Array, Machine, Plan, parse, read_dump

__all__ = [
    "KINDS",
    "Array",
    "Machine",
    "Plan",
    "activations",
    "losses",
    "matmul",
    "norms",
    "optimizers",
    "parse",
    "pooling",
    "read_dump",
    "sequence_ops",
    "shape_ops",
]
