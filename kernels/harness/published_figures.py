"""The study's figures (study.toml), for the tables that stand beside them."""

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any


@dataclass(frozen=True)
class StudyPhone:
    """One phone's square products."""

    phone: str
    naive_gflops: float
    optimised_gflops: float
    cpu_gflops: float

    @property
    def gain(self) -> float:
        """Its optimised kernel by its naive one."""
        return self.optimised_gflops / self.naive_gflops


@cache
def figures() -> dict[str, Any]:
    """All of them, as they are written."""
    return tomllib.loads((files("kernels") / "harness" / "study.toml").read_text())


def phones() -> list[StudyPhone]:
    """The phones whose products are known."""
    return [StudyPhone(**row) for row in figures()["gemm"]["phones"]]
