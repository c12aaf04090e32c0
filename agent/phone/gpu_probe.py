"""Find the GPU and its clock steps in kernel nodes. Pure.

Most drivers have a devfreq folder; the Mali of Tensor phones and some GPUs of Samsung do not. Steps
are in ascending or descending order depending on the vendor. The GPUs of Jetson boards have the
names gp10b, gv11b, ga10b or gpu, and show their utilisation in tenths of a percent.
"""

import re
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import NamedTuple

from agent.phone.kernel_nodes import STEPS_MAX, all_numbers
from workloads.protocol.phone_facts import Gpu
from workloads.text import safe_text

KGSL = "/sys/class/kgsl/kgsl-3d0"
DEVFREQ = "/sys/class/devfreq"
_MALI = "/sys/class/misc/mali0/device"
_SAMSUNG = "/sys/kernel/gpu"
_STEPS = "available_frequencies"
_LADDER = re.compile(rf"({KGSL}/devfreq|{DEVFREQ}/[A-Za-z0-9_.,@-]{{1,64}})/{_STEPS}")
_NAMES = (f"{KGSL}/gpu_model", f"{_MALI}/gpuinfo", f"{_SAMSUNG}/gpu_model")
_DRIVERS = ("mali", "kgsl", "gp10b", "gv11b", "ga10b", "gpu")
JETSON_LOAD = "device/load"
# Of a GPU: no lower step, and a highest one in this range. Buses of a GPU have steps in MB/s.
_STEP_MIN_HZ, _TOP_HZ = 5_000_000, (50_000_000, 4_000_000_000)


class _Layout(NamedTuple):
    """A folder that is the same on all phones of a driver, and the names of its nodes."""

    name: str
    folder: str
    steps: str
    limits: tuple[str, str]
    clock: str
    load: str


# https://github.com/iree-org/iree build_tools/benchmarks/set_pixel6_gpu_scaling_policy.sh
# https://github.com/ARM-software/devlib devlib/module/gpufreq.py
_LAYOUTS = (
    _Layout(
        *("Mali", _MALI, _STEPS, ("scaling_min_freq", "scaling_max_freq")),
        *("cur_freq", "utilization"),
    ),
    _Layout(
        *("GPU", _SAMSUNG, "gpu_freq_table", ("gpu_min_clock", "gpu_max_clock")),
        *("gpu_clock", "gpu_busy"),
    ),
)
GPU_NODES = (
    *_NAMES,
    f"{KGSL}/devfreq/{_STEPS}",
    *(f"{DEVFREQ}/*{driver}*/{name}" for driver in _DRIVERS for name in (_STEPS, JETSON_LOAD)),
    *(f"{layout.folder}/{layout.steps}" for layout in _LAYOUTS),
)


def parse_gpu(nodes: Mapping[str, str]) -> Gpu | None:
    """Find the GPU among the nodes that a probe read; whether it is writable is checked later."""
    return next(chain(_devfreq_gpus(nodes), _other_gpus(nodes)), None)


def gpu_limits(gpu: Gpu | None) -> list[str]:
    """The nodes that have to be writable for the clock of a GPU to be set."""
    return [f"{gpu.folder}/{name}" for name in gpu.limits] if gpu else []


def _devfreq_gpus(nodes: Mapping[str, str]) -> Iterator[Gpu]:
    ladders = {path: text for path, text in nodes.items() if _LADDER.fullmatch(path)}
    # An Adreno shows the same clock twice; the kgsl folder exists on every Adreno.
    for path in sorted(ladders, key=lambda path: (not path.startswith(KGSL), path)):
        folder = path.removesuffix(f"/{_STEPS}")
        load = f"{folder}/{JETSON_LOAD}"
        for unit_hz in (1, 1000):  # the latter: Xclipse of Exynos
            if steps := _steps_khz(ladders[path], unit_hz):
                yield Gpu(
                    name=_name(nodes) or safe_text(folder.rpartition("/")[2], 64),
                    folder=folder,
                    ladder_khz=steps,
                    load_node=load if load in nodes else "",
                    unit_hz=unit_hz,
                )


def _other_gpus(nodes: Mapping[str, str]) -> Iterator[Gpu]:
    """Those whose nodes have another name and, depending on the kernel, another unit."""
    for layout in _LAYOUTS:
        text = nodes.get(f"{layout.folder}/{layout.steps}", "")
        for unit_hz in (1, 1000, 1_000_000):
            if steps := _steps_khz(text, unit_hz):
                yield Gpu(
                    name=_name(nodes) or layout.name,
                    folder=layout.folder,
                    ladder_khz=steps,
                    load_node=f"{layout.folder}/{layout.load}",
                    limits=layout.limits,
                    clock=layout.clock,
                    unit_hz=unit_hz,
                )


def _steps_khz(text: str, unit_hz: int) -> tuple[int, ...]:
    """The steps, ascending; none if they cannot be those of a GPU in this unit."""
    steps = sorted({number * unit_hz for number in all_numbers(text)})
    steps = [hertz for hertz in steps if hertz >= _STEP_MIN_HZ]
    if not steps or not _TOP_HZ[0] <= steps[-1] <= _TOP_HZ[1]:
        return ()
    return tuple(hertz // 1000 for hertz in steps[:STEPS_MAX])


def _name(nodes: Mapping[str, str]) -> str:
    text = next((nodes[path] for path in _NAMES if nodes.get(path, "").strip()), "")
    # Mali appends its number of cores and its revision: 'Mali-G76 10 cores r0p0 0x72110000'.
    return safe_text(text, 64).split(" cores", maxsplit=1)[0]
