"""The numpy peer: matrix products with the BLAS that numpy was built with."""

import sys
from typing import Any

import numpy as np
from peer_protocol import Turn, check_product, matmul_turns, random_matrices, serve


def make_turn(description: dict[str, Any]) -> Turn:
    """Build what the first line describes."""
    a, b = random_matrices(description)
    out = np.empty_like(a)
    check_product(np.matmul(a, b, out=out), a, b)
    return matmul_turns(lambda: np.matmul(a, b, out=out))


if __name__ == "__main__":
    serve(make_turn)
    sys.exit(0)
