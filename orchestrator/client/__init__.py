"""A lab from Python: `from orchestrator.client import Lab`."""

from orchestrator.client.lab_client import LabClient as Lab
from orchestrator.client.sweep_client import SweepClient as Sweep

__all__ = ["Lab", "Sweep"]
