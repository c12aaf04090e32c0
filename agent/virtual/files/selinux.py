"""The nodes that SELinux denies to the shell of an unrooted phone, whatever the mode bits say.

Policies differ by the maker of the SoC. Those of Qualcomm and MediaTek are what the firmware of
four phones allows the shell user: SM8450 (Android 12), SM8550 (Android 13 and 15), MT6765 (Android
13). Policies of other makers and of older releases are not known: theirs are guessed.
"""

import re

from agent.virtual.files.file_nodes import Directory
from agent.virtual.files.file_tree import FileTree

# Power rails, load and scheduler internals; CPU clocks, /proc/stat and own cycles stay readable.
_EVERYWHERE = (
    r"/sys/devices/virtual/thermal/cooling_device\d+/(?!type$).*|/sys/bus/iio/devices/.*"
    r"|/sys/class/backlight/.*|/proc/(loadavg|version)|/dev/cpuctl/.*"
)
_ZONES = r"/sys/devices/virtual/thermal/thermal_zone\d+/.*"
_BATTERY = r"/sys/.*/power_supply/battery/.*"
_GPU = r"/sys/.*(kgsl-3d0|mali|devfreq/.*gpu).*/(?!gpu_model$)[^/]*"
_GAUGE = r"/sys/.*/power_supply/battery/(current_now|voltage_now|charge_counter|input_suspend)"
_GPU_LOAD = r"/sys/.*/(gpubusy|gpu_busy_percentage|utilization)"
_GUESSED = "guessed"
_POLICIES = {
    "SM8450 to SM8550, Android 12 to 15": (_BATTERY, _GPU),  # zones are readable
    "MT6765, Android 13": (_ZONES, _GPU),  # the battery is readable
    _GUESSED: (_ZONES, _GAUGE, _GPU_LOAD),
}
_MAKERS = (("sm", "sdm", "msm"), ("mt",))  # of the policies that are known
_SDK_MIN = 31


def deny_to_shell(tree: FileTree, soc: str, sdk: int) -> None:
    """Deny the nodes of the policy of a SoC's maker to everyone but root."""
    denied = re.compile("|".join((_EVERYWHERE, *_POLICIES[policy_of(soc, sdk)])))
    _deny_below(tree.root, "", denied)


def policy_of(soc: str, sdk: int) -> str:
    """The name of the policy of a SoC and a release: of the phones that it was read from."""
    makers = zip(_POLICIES, _MAKERS, strict=False)
    known = (name for name, socs in makers if soc.lower().startswith(socs))
    return next(known, _GUESSED) if sdk >= _SDK_MIN else _GUESSED


def _deny_below(directory: Directory, path: str, denied: re.Pattern[str]) -> None:
    for name, node in directory.children.items():
        node_path = f"{path}/{name}"
        if isinstance(node, Directory):
            _deny_below(node, node_path, denied)
        elif denied.fullmatch(node_path):
            node.selinux_denied = True
