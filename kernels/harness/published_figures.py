"""Figures of the Cambridge study (arXiv 2202.10100), which tables print next to measured ones."""

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any


@dataclass(frozen=True)
class PublishedMatmul:
    """The matrix products of one phone of the study."""

    phone: str
    naive_gflops: float
    optimised_gflops: float
    cpu_gflops: float

    @property
    def ratio(self) -> float:
        """The optimised kernel over the naive one."""
        return self.optimised_gflops / self.naive_gflops


@cache
def published_figures() -> dict[str, Any]:
    """Read published_figures.toml."""
    return tomllib.loads((files("kernels") / "harness" / "published_figures.toml").read_text())


def published_matmuls() -> list[PublishedMatmul]:
    """List the phones with published matrix products."""
    return [PublishedMatmul(**row) for row in published_figures()["gemm"]["phones"]]
