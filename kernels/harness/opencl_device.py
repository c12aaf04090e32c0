"""OpenCL devices of this computer: the only door to pyopencl.

A device is chosen by whoever asks, never taken because it comes first: two installations of one
driver show up under the same name.
"""

import shutil
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files
from typing import Any

import numpy as np
import numpy.typing as npt
import pyopencl as cl

from workloads.fault import Refused
from workloads.noun import digest_of
from workloads.text import safe_text

LOG_MAX = 2000
QUIETLY = "-w"  # drivers print warnings straight onto the user's screen
POCL = "Portable Computing Language"
NO_DEVICE = "no OpenCL device was found; 'pip install pyopencl[pocl]' brings one for the CPU"
Floats = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Timing:
    """One launch on the device's own clock, and what it waited for."""

    queued_s: float  # from the call to the driver's hand-over
    waited_s: float  # from there to the start
    executed_s: float


@dataclass(frozen=True)
class DeviceFacts:
    """What a device says of itself."""

    platform: str
    name: str
    version: str
    driver: str
    kind: str
    units: int
    clock_mhz: int
    global_bytes: int
    local_bytes: int
    local_is_own: bool
    max_group: int
    images: bool

    @property
    def label(self) -> str:
        """One line that tells it from its neighbours."""
        return f"{self.name} ({self.platform} {self.driver})"

    @property
    def digest(self) -> str:
        """The identity under which tuned parameters are kept: device and driver."""
        return digest_of({"name": self.name, "version": self.version, "driver": self.driver})


class Device:
    """A device with a queue that keeps time."""

    def __init__(self, raw: cl.Device) -> None:
        self.facts = _facts(raw)
        self._raw = raw
        self._built: dict[tuple[str, ...], Program] = {}

    @cached_property
    def _context(self) -> cl.Context:
        return cl.Context([self._raw])

    @cached_property
    def _queue(self) -> cl.CommandQueue:
        timed = cl.command_queue_properties.PROFILING_ENABLE
        return cl.CommandQueue(self._context, properties=timed)

    @cached_property
    def _side(self) -> cl.CommandQueue:
        timed = cl.command_queue_properties.PROFILING_ENABLE
        return cl.CommandQueue(self._context, properties=timed)

    def program(self, name: str, options: Sequence[str] = ()) -> "Program":
        """Build a file of kernels/opencl, once; what does not build shows the compiler's words."""
        key = (name, *options)
        if key not in self._built:
            source = (files("kernels") / "opencl" / name).read_text()
            self._built[key] = self.program_from(source, name, options)
        return self._built[key]

    def program_from(self, source: str, name: str, options: Sequence[str] = ()) -> "Program":
        """Build kernels from their text."""
        _need_linker(self.facts)
        try:
            built = cl.Program(self._context, source).build([QUIETLY, *options])
        except cl.Error as error:
            log = safe_text(error, LOG_MAX, lines=True)
            raise Refused(f"{name} does not build for {self.facts.label}:\n{log}") from None
        return Program(self._queue, built)

    def buffer(self, content: npt.NDArray[Any]) -> cl.Buffer:
        """A buffer with this content."""
        flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
        return cl.Buffer(self._context, flags, hostbuf=np.ascontiguousarray(content))

    def empty(self, size_bytes: int) -> cl.Buffer:
        """A buffer of so many bytes, whatever is in them."""
        try:
            return cl.Buffer(self._context, cl.mem_flags.READ_WRITE, max(size_bytes, 4))
        except cl.Error as error:
            raise Refused(f"{self.facts.label} has no {size_bytes} bytes: {error}.") from None

    def image(self, width: int, height: int) -> cl.Image:
        """A two-dimensional image of four floats a pixel."""
        form = cl.ImageFormat(cl.channel_order.RGBA, cl.channel_type.FLOAT)
        return cl.create_image(self._context, cl.mem_flags.READ_WRITE, form, shape=(width, height))

    def write(self, buffer: cl.Buffer, content: npt.NDArray[Any]) -> Any:
        """Begin to copy to the device; whoever drops the event before it ended waits for it."""
        return cl.enqueue_copy(self._queue, buffer, content, is_blocking=False)

    def write_beside(
        self, buffer: cl.Buffer, content: npt.NDArray[Any], after: Sequence[Any] | None
    ) -> Any:
        """The same on a queue of its own, beside the kernels and behind these events."""
        return cl.enqueue_copy(self._side, buffer, content, is_blocking=False, wait_for=after)

    def write_mapped(self, buffer: cl.Buffer, content: npt.NDArray[Any]) -> Any:
        """Put content where the device will read it, without a copy of the driver's."""
        memory, event = self._map(buffer, content.shape, content.dtype)
        memory[...] = content
        memory.base.release(self._queue)
        return event

    def touch(self, buffer: cl.Buffer, shape: tuple[int, ...], dtype: Any) -> None:
        """Map a buffer and let it go again: what a producer pays who writes in place."""
        memory, _ = self._map(buffer, shape, dtype)
        memory.base.release(self._queue)
        self._queue.finish()

    def _map(self, buffer: cl.Buffer, shape: tuple[int, ...], dtype: Any) -> tuple[Any, Any]:
        flags = cl.map_flags.WRITE_INVALIDATE_REGION
        memory, event = cl.enqueue_map_buffer(self._queue, buffer, flags, 0, shape, dtype)
        return memory, event

    def shared(self, size_bytes: int) -> cl.Buffer:
        """A buffer that lies where this process and the device can both reach it."""
        flags = cl.mem_flags.READ_WRITE | cl.mem_flags.ALLOC_HOST_PTR
        return cl.Buffer(self._context, flags, size_bytes)

    def read_into(self, content: npt.NDArray[Any], buffer: cl.Buffer) -> Any:
        """Copy from the device into this array, and wait for it; answer the event."""
        return cl.enqueue_copy(self._queue, content, buffer)

    def read(self, buffer: cl.Buffer, shape: tuple[int, ...]) -> Floats:
        """Copy from the device, and wait for it."""
        content = np.empty(shape, np.float32)
        self.read_into(content, buffer)
        return content

    def finish(self) -> None:
        """Wait until all is done."""
        self._queue.finish()
        if "_side" in self.__dict__:
            self._side.finish()


class Program:
    """Kernels that were built, by the name of their entry point."""

    def __init__(self, queue: cl.CommandQueue, built: cl.Program) -> None:
        self._queue = queue
        self._built = built

    def bind(
        self,
        name: str,
        size: tuple[int, ...],
        group: tuple[int, ...] | None,
        *arguments: object,
    ) -> "Launch":
        """A launch with its arguments set once; whole numbers travel as int, others as float.

        Setting arguments costs ten times what a launch costs, so a loop binds before it begins.
        """
        passed: list[Any] = [
            np.int32(word) if isinstance(word, int) else word for word in arguments
        ]
        passed = [np.float32(word) if isinstance(word, float) else word for word in passed]
        kernel = cl.Kernel(self._built, name)
        kernel.set_args(*passed)
        return Launch(self._queue, kernel, size, group, passed)


class Launch:
    """One kernel, ready to be enqueued as often as one likes."""

    def __init__(
        self,
        queue: cl.CommandQueue,
        kernel: cl.Kernel,
        size: tuple[int, ...],
        group: tuple[int, ...] | None,
        held: Sequence[object],
    ) -> None:
        self._queue, self._kernel, self._size, self._group = queue, kernel, size, group
        self._held = held  # a kernel does not hold on to its memory

    def __call__(self, after: Sequence[Any] | None = None) -> Any:
        """Enqueue it, behind these events of another queue; answer its event."""
        try:
            return cl.enqueue_nd_range_kernel(
                self._queue, self._kernel, self._size, self._group, wait_for=after
            )
        except cl.Error as error:
            name = self._kernel.function_name
            raise Refused(f"{name} cannot be launched: {safe_text(error, 200)}.") from None


def timing_of(event: Any) -> Timing:
    """Read an event that has ended, or is about to: PoCL's finish() may return a moment before."""
    event.wait()
    stamps = event.profile
    queued, submitted, start, end = stamps.queued, stamps.submit, stamps.start, stamps.end
    return Timing((submitted - queued) / 1e9, (start - submitted) / 1e9, (end - start) / 1e9)


def all_devices() -> list[Device]:
    """Every device of every platform."""
    found: list[Device] = []
    try:
        platforms = cl.get_platforms()
    except cl.Error:
        return found
    for platform in platforms:
        with suppress(cl.Error):
            found += [Device(raw) for raw in platform.get_devices()]
    return found


def choose_device(wanted: str | None) -> Device:
    """The device of this number, or whose label holds this text; the only one if none is named."""
    devices = all_devices()
    if not devices:
        raise Refused(NO_DEVICE)
    if wanted is not None and wanted.isdigit():
        matching = devices[int(wanted) : int(wanted) + 1]
    else:
        text = (wanted or "").lower()
        matching = [device for device in devices if text in device.facts.label.lower()]
    if len(matching) == 1:
        return matching[0]
    listed = "; ".join(f"{at}: {device.facts.label}" for at, device in enumerate(devices))
    if not matching:
        raise Refused(f"no OpenCL device is '{wanted}'; there are {listed}")
    raise Refused(f"several OpenCL devices fit; choose one with --device: {listed}")


def _need_linker(facts: DeviceFacts) -> None:
    """PoCL links kernels with the system's ld, and ends the whole process where there is none."""
    if facts.platform == POCL and shutil.which("ld") is None:
        raise Refused(
            f"{facts.label} needs the linker 'ld' to build kernels, and PATH has none; "
            "install it (Debian: apt install binutils)"
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
        local_is_own=raw.local_mem_type == cl.device_local_mem_type.LOCAL,
        max_group=raw.max_work_group_size,
        images=bool(raw.image_support),
    )


def _kind_of(bits: int) -> str:
    kinds = {"cpu": cl.device_type.CPU, "gpu": cl.device_type.GPU}
    return next((name for name, bit in kinds.items() if bits & int(bit)), "accelerator")
