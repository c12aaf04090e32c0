"""The vendor's OpenCL library of a phone: the devices that it lists, and how it fails.

Faults set its fields; the runner reads them.
"""

from collections.abc import Callable

from agent.virtual.profiles import GpuProfile, OpenCLProfile

_MIB = 1 << 20


class OpenCLDriver:
    """What a program finds when it loads the library."""

    def __init__(self, gpu: GpuProfile | None) -> None:
        self._opencl = gpu.opencl if gpu else None
        self.library_missing = False
        self.devices_missing = False
        self.build_error = ""  # what the compiler says about every program
        self.max_alloc_mb = self._opencl.max_alloc_mb if self._opencl else 0
        self.computes_nonsense = False
        # of the runs on the device, each with a function that ends it
        self.runs: dict[object, Callable[[], None]] = {}

    @property
    def has_library(self) -> bool:
        return self._opencl is not None and not self.library_missing

    @property
    def devices(self) -> tuple[OpenCLProfile, ...]:
        """Return the devices that the library lists."""
        opencl = self._opencl
        if opencl is None or self.library_missing or self.devices_missing or not opencl.has_device:
            return ()
        return (opencl,)

    @property
    def max_alloc_bytes(self) -> int:
        return self.max_alloc_mb * _MIB

    def lose_device(self) -> None:
        """Fail everything that runs on the device."""
        for end_run in list(self.runs.values()):
            end_run()

    def describe(self, device: OpenCLProfile) -> dict[str, object]:
        """Return a device as `runner info` lists it."""
        return {
            **device_names(device),
            "type": "gpu",
            "units": device.units,
            "global_bytes": device.global_mb * _MIB,
            "max_alloc_bytes": self.max_alloc_bytes,
            "local_bytes": device.local_kb * 1024,
            "max_group": device.max_group,
            "images": device.images,
        }


def device_names(device: OpenCLProfile) -> dict[str, object]:
    """Return the names of a device, as records have them."""
    return {
        "platform": device.platform,
        "device": device.device,
        "version": device.version,
        "driver": device.driver,
    }
