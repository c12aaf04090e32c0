"""Faults of the GPU and of the vendor's OpenCL library.

The runner maps them to the exit statuses of its contract.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from agent.virtual.mischief.fault_type import (
    Change,
    ChangeFault,
    FaultType,
    InjectionTarget,
    InvalidMischief,
)


@dataclass(eq=False)
class GpuMissing(ChangeFault):
    """The phone has no OpenCL library, or (`what=device`) one that lists no devices."""

    what: str = "library"

    def changes(self, target: InjectionTarget) -> Iterator[Change]:
        names = {"library": "library_missing", "device": "devices_missing"}
        if self.what not in names:
            raise InvalidMischief(f"what={self.what} is not possible; use library or device")
        yield Change(target.phone.opencl, names[self.what], True)


@dataclass(eq=False)
class GpuBuildFails(ChangeFault):
    """The vendor's compiler rejects every kernel with the message `text`."""

    text: str = "error: use of undeclared identifier"

    def changes(self, target: InjectionTarget) -> Iterator[Change]:
        yield Change(target.phone.opencl, "build_error", self.text)


@dataclass(eq=False)
class GpuMemory(ChangeFault):
    """The GPU allocates no buffer of more than `max_alloc_mb` MB."""

    max_alloc_mb: int = 0

    def changes(self, target: InjectionTarget) -> Iterator[Change]:
        yield Change(target.phone.opencl, "max_alloc_mb", self.max_alloc_mb)


@dataclass(eq=False)
class GpuLost(FaultType):
    """The driver resets the GPU: what runs on it fails, and the next run works again."""

    starts_inside_trigger = False
    is_lasting = False

    def start(self, target: InjectionTarget) -> None:
        target.phone.opencl.lose_device()


@dataclass(eq=False)
class GpuWrong(ChangeFault):
    """The GPU computes values that are not finite."""

    def changes(self, target: InjectionTarget) -> Iterator[Change]:
        yield Change(target.phone.opencl, "computes_nonsense", True)
