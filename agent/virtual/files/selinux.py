"""What a phone as sold keeps from its shell: SELinux says no, whatever the mode bits say."""

import re

from agent.virtual.files.nodes import Directory, Node
from agent.virtual.files.tree import FileTree

# Zones and trips, the gauge's live figures, load and scheduler internals; clocks stay readable.
_SEALED = re.compile(
    r"/sys/devices/virtual/thermal/thermal_zone\d+/.*"
    r"|/sys/devices/virtual/thermal/cooling_device\d+/(?!type$).*"
    r"|/sys/.*/power_supply/battery/(current_now|voltage_now|charge_counter|input_suspend)"
    r"|/sys/.*/(gpubusy|gpu_busy_percentage|utilization)"
    r"|/proc/(loadavg|version)"
    r"|/dev/cpuctl/.*"
)


def seal(tree: FileTree) -> None:
    """Close those nodes to everybody but root."""
    _seal_below(tree.root, "")


def _seal_below(folder: Directory, path: str) -> None:
    for name, node in folder.children.items():
        here = f"{path}/{name}"
        if isinstance(node, Directory):
            _seal_below(node, here)
        else:
            _seal_one(node, here)


def _seal_one(node: Node, path: str) -> None:
    if _SEALED.fullmatch(path):
        node.sealed = True
