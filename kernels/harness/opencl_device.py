"""OpenCL devices of this computer; the only module that imports pyopencl.

The caller chooses a device; none is used just because it is listed first, since two installations
of one driver have the same name.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files
from typing import Any

import numpy as np
import numpy.typing as npt
import pyopencl as cl

from kernels.pocl import add_linker_to_path
from workloads.protocol.base import digest_of
from workloads.protocol.faults import InvalidRequest
from workloads.text import safe_text

LOG_MAX = 2000
NO_WARNINGS = "-w"  # some drivers print warnings to the terminal
POCL = "Portable Computing Language"
NO_DEVICE = "no OpenCL device was found; 'pip install pyopencl[pocl]' installs one for the CPU"
Floats = npt.NDArray[np.float32]


@dataclass(frozen=True)
class LaunchTiming:
    """How long one launch was queued, waited and ran, by the clock of the device."""

    queued_s: float  # from the call until the driver submitted it
    waited_s: float  # from there to the start
    executed_s: float


@dataclass(frozen=True)
class DeviceFacts:
    """Properties that a device reports."""

    platform: str
    name: str
    version: str
    driver: str
    kind: str
    units: int
    clock_mhz: int
    global_bytes: int
    local_bytes: int
    max_group: int
    images: bool

    @property
    def label(self) -> str:
        """Device, platform and driver on one line."""
        return f"{self.name} ({self.platform} {self.driver})"

    @property
    def digest(self) -> str:
        """The key of tuned parameters: device and driver."""
        return digest_of({"name": self.name, "version": self.version, "driver": self.driver})


class Device:
    """A device with a command queue that records timestamps."""

    def __init__(self, raw: cl.Device) -> None:
        self.facts = _facts(raw)
        self._raw = raw
        self._built: dict[tuple[str, ...], KernelProgram] = {}

    @cached_property
    def _context(self) -> cl.Context:
        return cl.Context([self._raw])

    @cached_property
    def _queue(self) -> cl.CommandQueue:
        return self._make_queue()

    @cached_property
    def _copy_queue(self) -> cl.CommandQueue:
        return self._make_queue()

    def _make_queue(self) -> cl.CommandQueue:
        profiling = cl.command_queue_properties.PROFILING_ENABLE
        return cl.CommandQueue(self._context, properties=profiling)

    def program(self, names: str, options: Sequence[str] = ()) -> "KernelProgram":
        """Build files of kernels/opencl ("FILE", or "FILE FILE"), once per set of options.

        All are built after common.cl.
        """
        key = (names, *options)
        if key not in self._built:
            folder, used = files("kernels") / "opencl", ("common.cl", *names.split())
            source = "".join((folder / file).read_text() for file in used)
            self._built[key] = self.program_from(source, used[-1], options)
        return self._built[key]

    def program_from(self, source: str, name: str, options: Sequence[str] = ()) -> "KernelProgram":
        """Build kernels from source text; an error quotes the compiler."""
        _need_linker(self.facts)
        try:
            built = cl.Program(self._context, source).build([NO_WARNINGS, *options])
        except cl.Error as error:
            log = safe_text(error, LOG_MAX, lines=True)
            raise InvalidRequest(f"{name} does not build for {self.facts.label}:\n{log}") from None
        return KernelProgram(self._queue, built)

    def buffer(self, content: npt.NDArray[Any]) -> cl.Buffer:
        """Allocate a buffer with this content."""
        flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
        return cl.Buffer(self._context, flags, hostbuf=np.ascontiguousarray(content))

    def empty(self, size_bytes: int) -> cl.Buffer:
        """Allocate a buffer with undefined content."""
        try:
            return cl.Buffer(self._context, cl.mem_flags.READ_WRITE, max(size_bytes, 4))
        except cl.Error as error:
            raise InvalidRequest(
                f"{self.facts.label} cannot allocate {size_bytes} bytes: {error}"
            ) from None

    def image(self, width: int, height: int) -> cl.Image:
        """Allocate a two-dimensional image with four floats per pixel."""
        form = cl.ImageFormat(cl.channel_order.RGBA, cl.channel_type.FLOAT)
        return cl.create_image(self._context, cl.mem_flags.READ_WRITE, form, shape=(width, height))

    def write(self, buffer: cl.Buffer, content: npt.NDArray[Any]) -> Any:
        """Start a copy to the device; dropping the event before it ended waits for it."""
        return cl.enqueue_copy(self._queue, buffer, content, is_blocking=False)

    def write_on_copy_queue(
        self, buffer: cl.Buffer, content: npt.NDArray[Any], after: Sequence[Any] | None
    ) -> Any:
        """Start a copy on a second queue, parallel to the kernels and after these events."""
        return cl.enqueue_copy(self._copy_queue, buffer, content, is_blocking=False, wait_for=after)

    def write_mapped(self, buffer: cl.Buffer, content: npt.NDArray[Any]) -> Any:
        """Write content into the mapped buffer, without a copy by the driver."""
        memory, event = self._map(buffer, content.shape, content.dtype)
        memory[...] = content
        memory.base.release(self._queue)
        return event

    def map_and_unmap(self, buffer: cl.Buffer, shape: tuple[int, ...], dtype: Any) -> None:
        """Map a buffer and unmap it: the overhead of a producer that writes in place."""
        memory, _ = self._map(buffer, shape, dtype)
        memory.base.release(self._queue)
        self._queue.finish()

    def _map(self, buffer: cl.Buffer, shape: tuple[int, ...], dtype: Any) -> tuple[Any, Any]:
        flags = cl.map_flags.WRITE_INVALIDATE_REGION
        memory, event = cl.enqueue_map_buffer(self._queue, buffer, flags, 0, shape, dtype)
        return memory, event

    def host_visible(self, size_bytes: int) -> cl.Buffer:
        """Allocate a buffer in memory that this process and the device share."""
        flags = cl.mem_flags.READ_WRITE | cl.mem_flags.ALLOC_HOST_PTR
        return cl.Buffer(self._context, flags, size_bytes)

    def read_into(self, content: npt.NDArray[Any], buffer: cl.Buffer) -> Any:
        """Copy from the device into this array and wait; return the event."""
        return cl.enqueue_copy(self._queue, content, buffer)

    def read(self, buffer: cl.Buffer, shape: tuple[int, ...]) -> Floats:
        """Copy floats from the device and wait."""
        content = np.empty(shape, np.float32)
        self.read_into(content, buffer)
        return content

    def finish(self) -> None:
        """Wait for all commands."""
        self._queue.finish()
        if "_copy_queue" in self.__dict__:
            self._copy_queue.finish()


class KernelProgram:
    """Built kernels, by the names of their entry points."""

    def __init__(self, queue: cl.CommandQueue, built: cl.Program) -> None:
        self._queue = queue
        self._built = built

    def bind(
        self,
        name: str,
        size: tuple[int, ...],
        group: tuple[int, ...] | None,
        *arguments: object,
    ) -> "KernelLaunch":
        """Set the arguments of a kernel once; Python ints become int, floats become float.

        Setting arguments costs ten times as much as a launch, so loops bind before they begin.
        """
        values: list[Any] = [
            np.int32(value) if isinstance(value, int) else value for value in arguments
        ]
        values = [np.float32(value) if isinstance(value, float) else value for value in values]
        kernel = cl.Kernel(self._built, name)
        kernel.set_args(*values)
        return KernelLaunch(self._queue, kernel, size, group, values)


class KernelLaunch:
    """A kernel with its arguments set, which can be enqueued any number of times."""

    def __init__(
        self,
        queue: cl.CommandQueue,
        kernel: cl.Kernel,
        size: tuple[int, ...],
        group: tuple[int, ...] | None,
        arguments: Sequence[object],
    ) -> None:
        self._queue, self._kernel, self._size, self._group = queue, kernel, size, group
        self._arguments = arguments  # a kernel does not keep its buffers alive

    def __call__(self, after: Sequence[Any] | None = None) -> Any:
        """Enqueue the kernel, after these events of another queue; return its event."""
        try:
            return cl.enqueue_nd_range_kernel(
                self._queue, self._kernel, self._size, self._group, wait_for=after
            )
        except cl.Error as error:
            name = self._kernel.function_name
            raise InvalidRequest(f"{name} cannot be launched: {safe_text(error, 200)}") from None


def timing_of(event: Any) -> LaunchTiming:
    """Read the timestamps of an event; it may still be running: PoCL's finish() returns early."""
    event.wait()
    times = event.profile
    queued, submitted, start, end = times.queued, times.submit, times.start, times.end
    return LaunchTiming((submitted - queued) / 1e9, (start - submitted) / 1e9, (end - start) / 1e9)


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
        clock_mhz=raw.max_clock_frequency,
        global_bytes=raw.global_mem_size,
        local_bytes=raw.local_mem_size,
        max_group=raw.max_work_group_size,
        images=bool(raw.image_support),
    )


def _kind_of(bits: int) -> str:
    kinds = {"cpu": cl.device_type.CPU, "gpu": cl.device_type.GPU}
    return next((name for name, bit in kinds.items() if bits & int(bit)), "accelerator")
