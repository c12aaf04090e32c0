"""Find the GPU and its clock steps in kernel nodes: Adreno by kgsl, others by devfreq. Pure.

Steps are in Hz, in ascending or descending order depending on the vendor. The GPUs of Jetson boards
have the names gp10b, gv11b, ga10b or gpu, and show their utilisation in tenths of a percent.
"""

import re
from collections.abc import Mapping

from agent.phone.kernel_nodes import STEPS_MAX, all_numbers
from workloads.protocol.phone_facts import Gpu
from workloads.text import safe_text

KGSL = "/sys/class/kgsl/kgsl-3d0"
DEVFREQ = "/sys/class/devfreq"
_STEPS = "available_frequencies"
_LADDER = re.compile(rf"({KGSL}/devfreq|{DEVFREQ}/[A-Za-z0-9_.,@-]{{1,64}})/{_STEPS}")
_NAMES = (f"{KGSL}/gpu_model", "/sys/class/misc/mali0/device/gpuinfo")
_DRIVERS = ("mali", "kgsl", "gp10b", "gv11b", "ga10b", "gpu")
JETSON_LOAD = "device/load"
GPU_NODES = (
    *_NAMES,
    f"{KGSL}/devfreq/{_STEPS}",
    *(f"{DEVFREQ}/*{driver}*/{name}" for driver in _DRIVERS for name in (_STEPS, JETSON_LOAD)),
)


def parse_gpu(nodes: Mapping[str, str]) -> Gpu | None:
    """Find the GPU among the nodes that a probe read; whether it is writable is checked later."""
    ladders = {path: text for path, text in nodes.items() if _LADDER.fullmatch(path)}
    # An Adreno shows the same clock twice; the kgsl folder exists on every Adreno.
    for path in sorted(ladders, key=lambda path: (not path.startswith(KGSL), path)):
        steps = sorted({hertz // 1000 for hertz in all_numbers(ladders[path])} - {0})[:STEPS_MAX]
        if steps:
            folder = path.removesuffix(f"/{_STEPS}")
            load = f"{folder}/{JETSON_LOAD}"
            return Gpu(
                name=_name(nodes, folder),
                folder=folder,
                ladder_khz=tuple(steps),
                load_node=load if load in nodes else "",
            )
    return None


def _name(nodes: Mapping[str, str], folder: str) -> str:
    text = next((nodes[path] for path in _NAMES if nodes.get(path, "").strip()), "")
    # Mali appends its number of cores and its revision: 'Mali-G76 10 cores r0p0 0x72110000'.
    name = safe_text(text, 64).split(" cores", maxsplit=1)[0]
    return name or safe_text(folder.rpartition("/")[2], 64)
