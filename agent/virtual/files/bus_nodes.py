"""The clock of the memory bus in /sys/class/devfreq, under the name that the vendor gives it."""

from agent.virtual.files.file_nodes import constant_node, live_number_node
from agent.virtual.files.file_tree import FileTree
from agent.virtual.physics.soc import Soc

_NAMES = {"kgsl": "soc:qcom,cpu-llcc-ddr-bw", "mali": "17000010.devfreq_mif"}
_FULL_KHZ = 2_092_000  # LPDDR4X at 4,184 MT/s


def add_bus_nodes(tree: FileTree, soc: Soc) -> None:
    """Add the clock of the memory bus, on phones whose vendor shows it."""
    name = _NAMES.get(soc.gpu.profile.driver) if soc.gpu is not None else None
    if name is not None:
        folder = f"/sys/class/devfreq/{name}"
        tree.add_node(
            f"{folder}/cur_freq", live_number_node(lambda: round(_FULL_KHZ * soc.bus_share))
        )
        tree.add_node(f"{folder}/max_freq", constant_node(f"{_FULL_KHZ}\n"))
