"""numpy's turns: a matrix product by whatever BLAS it was built with, on so many threads."""

import sys
from typing import Any

import numpy as np
from speak import Turn, check_product, matrices, multiplier, take_turns


def make(description: dict[str, Any]) -> Turn:
    """What the first line asks for."""
    a, b = matrices(description)
    out = np.empty_like(a)
    check_product(np.matmul(a, b, out=out), a, b)
    return multiplier(lambda: np.matmul(a, b, out=out))


if __name__ == "__main__":
    take_turns(make)
    sys.exit(0)
