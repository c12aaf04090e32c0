"""The nodes that SELinux denies to the shell of an unrooted phone, whatever the mode bits say."""

import re

from agent.virtual.files.file_nodes import Directory
from agent.virtual.files.file_tree import FileTree

# Thermal zones and trips, live figures of the gauge, power rails, load and scheduler internals;
# clocks stay readable.
_DENIED_PATHS = re.compile(
    r"/sys/devices/virtual/thermal/thermal_zone\d+/.*"
    r"|/sys/devices/virtual/thermal/cooling_device\d+/(?!type$).*"
    r"|/sys/.*/power_supply/battery/(current_now|voltage_now|charge_counter|input_suspend)"
    r"|/sys/.*/(gpubusy|gpu_busy_percentage|utilization)"
    r"|/sys/bus/iio/devices/.*"
    r"|/sys/class/backlight/.*"
    r"|/proc/(loadavg|version)"
    r"|/dev/cpuctl/.*"
)


def deny_to_shell(tree: FileTree) -> None:
    """Deny those nodes to everyone but root."""
    _deny_below(tree.root, "")


def _deny_below(directory: Directory, path: str) -> None:
    for name, node in directory.children.items():
        node_path = f"{path}/{name}"
        if isinstance(node, Directory):
            _deny_below(node, node_path)
        elif _DENIED_PATHS.fullmatch(node_path):
            node.selinux_denied = True
