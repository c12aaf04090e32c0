"""OpenCL devices of this computer; the only module that imports pyopencl.

The caller chooses a device; none is used just because it is listed first, since two installations
of one driver have the same name.
"""

from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property

import pyopencl as cl

from kernels.autotuner import OpenCLIdentity
from kernels.pocl import add_linker_to_path
from kernels.runner_builds import kernel_sources
from workloads.protocol.faults import InvalidRequest
from workloads.text import safe_text

LOG_MAX = 2000
POCL = "Portable Computing Language"
NO_DEVICE = "no OpenCL device was found; 'pip install pyopencl[pocl]' installs one for the CPU"


@dataclass(frozen=True)
class DeviceFacts:
    """Properties that a device reports."""

    platform: str
    name: str
    version: str
    driver: str
    kind: str
    units: int
    global_bytes: int
    local_bytes: int
    max_group: int

    @property
    def label(self) -> str:
        """Device, platform and driver on one line."""
        return f"{self.name} ({self.platform} {self.driver})"

    @property
    def identity(self) -> OpenCLIdentity:
        """The device as tuning files and the runner identify it."""
        return OpenCLIdentity(self.name, self.version, self.driver)


@dataclass(frozen=True)
class BuiltKernel:
    """What the driver says of a kernel that it built."""

    name: str
    max_group: int  # work items
    local_bytes: int
    private_bytes: int


class Device:
    """A device on which kernels can be built."""

    def __init__(self, raw: cl.Device) -> None:
        self.facts = _facts(raw)
        self._raw = raw

    @cached_property
    def context(self) -> cl.Context:
        """Its context."""
        return cl.Context([self._raw])

    def inspect_files(self, names: str, options: str) -> list[BuiltKernel]:
        """Build files of kernels/opencl ("FILE", or "FILE FILE"), and inspect their kernels.

        All are built after common.cl.
        """
        used = ("common.cl", *names.split())
        sources = kernel_sources().files
        return self.inspect(b"".join(sources[file] for file in used).decode(), used[-1], options)

    def inspect(self, source: str, name: str, options: str = "-w") -> list[BuiltKernel]:
        """Build kernels from source text and inspect them; an error quotes the compiler."""
        _need_linker(self.facts)
        try:
            built = cl.Program(self.context, source).build(options.split())
        except cl.Error as error:
            log = safe_text(error, LOG_MAX, lines=True)
            raise InvalidRequest(f"{name} does not build for {self.facts.label}:\n{log}") from None
        return [self._inspect(kernel) for kernel in built.all_kernels()]

    def _inspect(self, kernel: cl.Kernel) -> BuiltKernel:
        info = cl.kernel_work_group_info
        wanted = (info.WORK_GROUP_SIZE, info.LOCAL_MEM_SIZE, info.PRIVATE_MEM_SIZE)
        sizes = [int(kernel.get_work_group_info(member, self._raw)) for member in wanted]
        return BuiltKernel(safe_text(kernel.function_name, 60), *sizes)


def all_devices() -> list[Device]:
    """List the devices of all platforms."""
    devices: list[Device] = []
    try:
        platforms = cl.get_platforms()
    except cl.Error:
        return devices
    for platform in platforms:
        with suppress(cl.Error):
            devices += [Device(raw) for raw in platform.get_devices()]
    return devices


def choose_device(wanted: str | None) -> Device:
    """Choose a device by number or by a part of its label; the only one if none is named."""
    devices = all_devices()
    if not devices:
        raise InvalidRequest(NO_DEVICE)
    if wanted is not None and wanted.isdigit():
        matching = devices[int(wanted) : int(wanted) + 1]
    else:
        text = (wanted or "").lower()
        matching = [device for device in devices if text in device.facts.label.lower()]
    if len(matching) == 1:
        return matching[0]
    listed = "; ".join(f"{number}: {device.facts.label}" for number, device in enumerate(devices))
    if not matching:
        raise InvalidRequest(f"no OpenCL device matches '{wanted}'; choose one of {listed}")
    raise InvalidRequest(f"several OpenCL devices match; choose one with --device: {listed}")


def _need_linker(facts: DeviceFacts) -> None:
    """Let PoCL find a linker; without one it would end the whole process."""
    if facts.platform == POCL and not add_linker_to_path():
        raise InvalidRequest(
            f"{facts.label} needs the linker 'ld' to build kernels, and it is not on PATH; "
            "install it (Debian: apt install binutils; anywhere: pip install ziglang)"
        )


def _facts(raw: cl.Device) -> DeviceFacts:
    return DeviceFacts(
        platform=safe_text(raw.platform.name.strip(), 60),
        name=safe_text(raw.name.strip(), 200),
        version=safe_text(raw.version.strip(), 200),
        driver=safe_text(raw.driver_version.strip(), 200),
        kind=_kind_of(raw.type),
        units=raw.max_compute_units,
        global_bytes=raw.global_mem_size,
        local_bytes=raw.local_mem_size,
        max_group=raw.max_work_group_size,
    )


def _kind_of(bits: int) -> str:
    kinds = {"cpu": cl.device_type.CPU, "gpu": cl.device_type.GPU}
    return next((name for name, bit in kinds.items() if bits & int(bit)), "accelerator")
