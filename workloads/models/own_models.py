"""Your own models: one file in this folder and one line in the table below.

`farm workload new NAME` writes both. The file has `model(given)`, which returns the model for the
chosen parameters, and OPTIMIZER; it is imported when the workload is first used.
"""

from typing import NamedTuple

from workloads.workload import Parameter


class OwnModel(NamedTuple):
    """A workload: its name, what it does, and what a sweep may choose besides batch_size."""

    name: str
    text: str
    parameters: tuple[Parameter, ...] = ()
    batch_size: int = 16

    @property
    def module(self) -> str:
        return f"workloads.models.{self.name.replace('-', '_')}"


OWN_MODELS: tuple[OwnModel, ...] = (
    # new_models
)
