"""Faults of the GPU and of the vendor's OpenCL library.

The runner maps them to the exit statuses of its contract.
"""

from dataclasses import dataclass, field

from agent.virtual.mischief.fault_type import FaultType, InjectionTarget, InvalidMischief


@dataclass(eq=False)
class GpuMissing(FaultType):
    """The phone has no OpenCL library, or (`what=device`) one that lists no devices."""

    what: str = "library"

    def start(self, target: InjectionTarget) -> None:
        self._set_missing(target, True)

    def stop(self, target: InjectionTarget) -> None:
        self._set_missing(target, False)

    def _set_missing(self, target: InjectionTarget, is_missing: bool) -> None:
        opencl = target.phone.opencl
        if self.what == "library":
            opencl.library_missing = is_missing
        elif self.what == "device":
            opencl.devices_missing = is_missing
        else:
            raise InvalidMischief(f"what={self.what} is not possible; use library or device")


@dataclass(eq=False)
class GpuBuildFails(FaultType):
    """The vendor's compiler rejects every kernel with the message `text`."""

    text: str = "error: use of undeclared identifier"

    def start(self, target: InjectionTarget) -> None:
        target.phone.opencl.build_error = self.text

    def stop(self, target: InjectionTarget) -> None:
        target.phone.opencl.build_error = ""


@dataclass(eq=False)
class GpuMemory(FaultType):
    """The GPU allocates no buffer of more than `max_alloc_mb` MB."""

    max_alloc_mb: int = 0
    _before_mb: int = field(default=0, init=False, repr=False)

    def start(self, target: InjectionTarget) -> None:
        opencl = target.phone.opencl
        self._before_mb, opencl.max_alloc_mb = opencl.max_alloc_mb, self.max_alloc_mb

    def stop(self, target: InjectionTarget) -> None:
        target.phone.opencl.max_alloc_mb = self._before_mb


@dataclass(eq=False)
class GpuLost(FaultType):
    """The driver resets the GPU: what runs on it fails, and the next run works again."""

    starts_inside_trigger = False
    is_lasting = False

    def start(self, target: InjectionTarget) -> None:
        target.phone.opencl.lose_device()


@dataclass(eq=False)
class GpuWrong(FaultType):
    """The GPU computes values that are not finite."""

    def start(self, target: InjectionTarget) -> None:
        target.phone.opencl.computes_nonsense = True

    def stop(self, target: InjectionTarget) -> None:
        target.phone.opencl.computes_nonsense = False
