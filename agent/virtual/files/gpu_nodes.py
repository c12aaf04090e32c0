"""GPU nodes: kgsl for Adreno, devfreq for Mali and Tegra, their own folder for Mali in Tensor.

Power level 0 is the fastest; a limit reads back as the effective value.
"""

import errno
import re
from collections.abc import Callable

from agent.virtual.files.file_nodes import LiveNode, constant_node, live_node, live_number_node
from agent.virtual.files.file_tree import FileTree, os_error
from agent.virtual.physics.gpu_model import GpuModel
from agent.virtual.physics.soc import Soc

_KGSL = "/sys/class/kgsl/kgsl-3d0"
_MALI = "/sys/class/misc/mali0/device"
_DEVFREQ = {"mali": "e82c0000.mali", "nvgpu": "17000000.gp10b"}
_NUMBER = re.compile(r"\s*(\d+)")


def add_gpu_nodes(tree: FileTree, soc: Soc) -> None:
    """Add the GPU's nodes to the tree, if the phone has a GPU."""
    gpu = soc.gpu
    if gpu is None:
        return
    folder = f"/sys/class/devfreq/{_DEVFREQ.get(gpu.profile.driver, 'kgsl-3d0')}"
    folder = folder if gpu.profile.devfreq else _MALI
    nodes = _devfreq_nodes(soc, gpu) if gpu.profile.devfreq else _tensor_nodes(soc, gpu)
    for leaf, node in nodes.items():
        tree.add_node(f"{folder}/{leaf}", node)
    if gpu.profile.driver == "nvgpu":  # in tenths of a percent
        load_node = live_number_node(lambda: round(1000 * gpu.busy))
        tree.add_node(f"{folder}/device/load", load_node)
    if gpu.profile.driver == "mali":
        tree.add_node(f"{_MALI}/gpuinfo", constant_node(f"{gpu.profile.name} cores r0p0\n"))
    if gpu.profile.driver == "kgsl":
        for leaf, node in _kgsl_nodes(soc, gpu).items():
            tree.add_node(f"{_KGSL}/{leaf}", node)
        for leaf, node in _devfreq_nodes(soc, gpu).items():
            tree.add_node(f"{_KGSL}/devfreq/{leaf}", node)


def _devfreq_nodes(soc: Soc, gpu: GpuModel) -> dict[str, LiveNode]:
    ladder = " ".join(str(khz * 1000) for khz in gpu.ladder)
    return {
        "cur_freq": live_number_node(lambda: gpu.clock_khz * 1000),
        "target_freq": live_number_node(lambda: gpu.clock_khz * 1000),
        "min_freq": live_number_node(
            lambda: gpu.min_khz * 1000, _limit_writer(soc, gpu, "min", 1000)
        ),
        "max_freq": live_number_node(
            lambda: gpu.max_khz * 1000, _limit_writer(soc, gpu, "max", 1000)
        ),
        "available_frequencies": constant_node(f"{ladder}\n"),
        "available_governors": constant_node(" ".join(gpu.governors) + "\n"),
        "governor": live_node(lambda: f"{gpu.governor}\n", _governor_writer(soc, gpu)),
        "load": live_node(lambda: f"{round(100 * gpu.busy)}@{gpu.clock_khz * 1000}Hz\n"),
    }


def _tensor_nodes(soc: Soc, gpu: GpuModel) -> dict[str, LiveNode]:
    """Make the nodes of Google's driver, in kHz; min_freq and max_freq are those of the chip."""
    ladder = [str(khz) for khz in reversed(gpu.ladder)]
    return {
        "available_frequencies": constant_node(" ".join(ladder) + "\n"),
        "cur_freq": live_number_node(lambda: gpu.clock_khz),
        "min_freq": constant_node(f"{ladder[-1]}\n"),
        "max_freq": constant_node(f"{ladder[0]}\n"),
        "scaling_min_freq": live_number_node(
            lambda: gpu.min_khz, _limit_writer(soc, gpu, "min", 1)
        ),
        "scaling_max_freq": live_number_node(
            lambda: gpu.max_khz, _limit_writer(soc, gpu, "max", 1)
        ),
        "utilization": live_number_node(lambda: round(100 * gpu.busy)),
    }


def _kgsl_nodes(soc: Soc, gpu: GpuModel) -> dict[str, LiveNode]:
    """Make the kgsl nodes; Adreno numbers its power levels from the fastest."""
    slowest_level = len(gpu.ladder) - 1

    def level(khz: Callable[[], int]) -> Callable[[], int]:
        return lambda: slowest_level - gpu.ladder.index(khz())

    def set_level(which: str) -> Callable[[str], None]:
        def write(text: str) -> None:
            requested_khz = gpu.ladder[slowest_level - min(_parse_number(text), slowest_level)]
            _limit_writer(soc, gpu, which, 1)(str(requested_khz))

        return write

    ladder = " ".join(str(khz * 1000) for khz in reversed(gpu.ladder))
    model = gpu.profile.name.replace("Adreno ", "Adreno") + "v1"
    return {
        "gpu_model": constant_node(f"{model}\n"),
        "gpuclk": live_number_node(lambda: gpu.clock_khz * 1000),
        "max_gpuclk": live_number_node(lambda: gpu.max_khz * 1000),
        "clock_mhz": live_number_node(lambda: gpu.clock_khz // 1000),
        "gpu_available_frequencies": constant_node(f"{ladder}\n"),
        "num_pwrlevels": constant_node(f"{len(gpu.ladder)}\n"),
        "min_pwrlevel": live_number_node(level(lambda: gpu.min_khz), set_level("min")),
        "max_pwrlevel": live_number_node(level(lambda: gpu.max_khz), set_level("max")),
        "thermal_pwrlevel": live_number_node(lambda: gpu.throttle_state),
        "gpubusy": live_node(lambda: f"{round(1000000 * gpu.busy):>7} {1000000:>7}\n"),
        "gpu_busy_percentage": live_node(lambda: f"{round(100 * gpu.busy)} %\n"),
        "force_clk_on": live_node(lambda: "0\n", _check_number),
        "idle_timer": live_node(lambda: "80\n", _check_number),
    }


def _limit_writer(soc: Soc, gpu: GpuModel, which: str, per_khz: int) -> Callable[[str], None]:
    def write(text: str) -> None:
        requested_khz = _parse_number(text) // per_khz
        rung = min(gpu.ladder, key=lambda khz: abs(khz - requested_khz))

        def set_limit() -> None:
            if which == "min":
                gpu.user_min_khz = min(rung, gpu.user_max_khz)
            else:
                gpu.user_max_khz = max(rung, gpu.user_min_khz)

        soc.change(set_limit)

    return write


def _governor_writer(soc: Soc, gpu: GpuModel) -> Callable[[str], None]:
    def write(text: str) -> None:
        if text.strip() not in gpu.governors:
            raise os_error(errno.EINVAL)
        soc.change(lambda: setattr(gpu, "governor", text.strip()))

    return write


def _check_number(text: str) -> None:
    """Check the number and ignore it."""
    _parse_number(text)


def _parse_number(text: str) -> int:
    match = _NUMBER.match(text)
    if match is None:
        raise os_error(errno.EINVAL)
    return min(int(match[1]), 1 << 40)
