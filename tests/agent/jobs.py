"""Jobs for tests of the lane."""

from collections.abc import Mapping
from typing import Any

from workloads.catalogue import bind
from workloads.protocol.condition import Condition
from workloads.protocol.messages import Job, RunId


def a_job(
    serial: str,
    fence: int = 1,
    workload: str = "mlp-4",
    parameters: Mapping[str, int] | None = None,
    **condition: Any,
) -> Job:
    """Build the job of one run."""
    return Job(
        run=RunId(trial="tr-" + "0" * 16, repeat=0, attempt=fence),
        phone=serial,
        fence=fence,
        lease_timeout_s=60,
        case=bind(workload, parameters or {}),
        condition=Condition(**condition),
    )
