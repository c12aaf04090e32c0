"""The graphics processor's nodes: kgsl for Adreno, devfreq for Mali and Tegra.

Power level 0 is the fastest, and a limit reads back as the effective one.
"""

import errno
import re
from collections.abc import Callable

from agent.virtual.files.nodes import Live, constant, live, live_number
from agent.virtual.files.tree import FileTree, failed
from agent.virtual.physics.gpu import Gpu
from agent.virtual.physics.soc import Soc

_KGSL = "/sys/class/kgsl/kgsl-3d0"
_DEVFREQ = {"mali": "e82c0000.mali", "nvgpu": "17000000.gp10b"}
_NUMBER = re.compile(r"\s*(\d+)")


def plant_gpu_nodes(tree: FileTree, soc: Soc) -> None:
    """Put the GPU's nodes into the tree, where the phone has one."""
    gpu = soc.gpu
    if gpu is None:
        return
    folder = f"/sys/class/devfreq/{_DEVFREQ.get(gpu.profile.driver, 'kgsl-3d0')}"
    for leaf, node in _devfreq_nodes(soc, gpu).items():
        tree.put(f"{folder}/{leaf}", node)
    if gpu.profile.driver == "mali":
        tree.put(
            "/sys/class/misc/mali0/device/gpuinfo", constant(f"{gpu.profile.name} cores r0p0\n")
        )
    if gpu.profile.driver == "kgsl":
        for leaf, node in _kgsl_nodes(soc, gpu).items():
            tree.put(f"{_KGSL}/{leaf}", node)
        for leaf, node in _devfreq_nodes(soc, gpu).items():
            tree.put(f"{_KGSL}/devfreq/{leaf}", node)


def _devfreq_nodes(soc: Soc, gpu: Gpu) -> dict[str, Live]:
    ladder = " ".join(str(khz * 1000) for khz in gpu.ladder)
    return {
        "cur_freq": live_number(lambda: gpu.clock_khz * 1000),
        "target_freq": live_number(lambda: gpu.clock_khz * 1000),
        "min_freq": live_number(lambda: gpu.min_khz * 1000, _limit(soc, gpu, "min", 1000)),
        "max_freq": live_number(lambda: gpu.max_khz * 1000, _limit(soc, gpu, "max", 1000)),
        "available_frequencies": constant(f"{ladder}\n"),
        "available_governors": constant(" ".join(gpu.governors) + "\n"),
        "governor": live(lambda: f"{gpu.governor}\n", _governor(soc, gpu)),
        "load": live(lambda: f"{round(100 * gpu.busy)}@{gpu.clock_khz * 1000}Hz\n"),
    }


def _kgsl_nodes(soc: Soc, gpu: Gpu) -> dict[str, Live]:
    """Adreno counts its levels from the fastest."""
    top = len(gpu.ladder) - 1

    def level(khz: Callable[[], int]) -> Callable[[], int]:
        return lambda: top - gpu.ladder.index(khz())

    def set_level(which: str) -> Callable[[str], None]:
        def write(text: str) -> None:
            wanted = gpu.ladder[top - min(_count(text), top)]
            _limit(soc, gpu, which, 1)(str(wanted))

        return write

    ladder = " ".join(str(khz * 1000) for khz in reversed(gpu.ladder))
    model = gpu.profile.name.replace("Adreno ", "Adreno") + "v1"
    return {
        "gpu_model": constant(f"{model}\n"),
        "gpuclk": live_number(lambda: gpu.clock_khz * 1000),
        "max_gpuclk": live_number(lambda: gpu.max_khz * 1000),
        "clock_mhz": live_number(lambda: gpu.clock_khz // 1000),
        "gpu_available_frequencies": constant(f"{ladder}\n"),
        "num_pwrlevels": constant(f"{len(gpu.ladder)}\n"),
        "min_pwrlevel": live_number(level(lambda: gpu.min_khz), set_level("min")),
        "max_pwrlevel": live_number(level(lambda: gpu.max_khz), set_level("max")),
        "thermal_pwrlevel": live_number(lambda: gpu.throttle_state),
        "gpubusy": live(lambda: f"{round(1000000 * gpu.busy):>7} {1000000:>7}\n"),
        "gpu_busy_percentage": live(lambda: f"{round(100 * gpu.busy)} %\n"),
        "force_clk_on": live(lambda: "0\n", _ignore),
        "idle_timer": live(lambda: "80\n", _ignore),
    }


def _limit(soc: Soc, gpu: Gpu, which: str, per_khz: int) -> Callable[[str], None]:
    def write(text: str) -> None:
        wanted = _count(text) // per_khz
        rung = min(gpu.ladder, key=lambda khz: abs(khz - wanted))

        def mutate() -> None:
            if which == "min":
                gpu.user_min_khz = min(rung, gpu.user_max_khz)
            else:
                gpu.user_max_khz = max(rung, gpu.user_min_khz)

        soc.change(mutate)

    return write


def _governor(soc: Soc, gpu: Gpu) -> Callable[[str], None]:
    def write(text: str) -> None:
        if text.strip() not in gpu.governors:
            raise failed(errno.EINVAL)
        soc.change(lambda: setattr(gpu, "governor", text.strip()))

    return write


def _ignore(text: str) -> None:
    """Taken, checked, and without effect here."""
    _count(text)


def _count(text: str) -> int:
    match = _NUMBER.match(text)
    if match is None:
        raise failed(errno.EINVAL)
    return min(int(match[1]), 1 << 40)
