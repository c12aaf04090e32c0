"""The operations of the engine again, in numpy and double precision, to compare dumps with.

The reference reads the text of a plan's body, shares no code with what writes or executes it, and
takes from the dump only what is random: initial values, loaded batches and dropout masks. One file
per family, as in kernels/engine/cpu/.
"""

from kernels.reference import (
    numpy_activations,
    numpy_losses,
    numpy_matmul,
    numpy_norms,
    numpy_optimizers,
    numpy_pooling,
    numpy_sequence_ops,
    numpy_shape_ops,
)
from kernels.reference.machine import (
    KINDS,
    Array,
    Machine,
    Plan,
    parse,
    read_dump,
    relative_error,
)

__all__ = [
    "KINDS",
    "Array",
    "Machine",
    "Plan",
    "numpy_activations",
    "numpy_losses",
    "numpy_matmul",
    "numpy_norms",
    "numpy_optimizers",
    "numpy_pooling",
    "numpy_sequence_ops",
    "numpy_shape_ops",
    "parse",
    "read_dump",
    "relative_error",
]
