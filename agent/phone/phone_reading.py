"""PhoneReading: everything that a probe reads from a phone, as the phone printed it.

The probe interprets it; a capture writes it to a file, and such a file is read back into one.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from agent.deadline import Deadline
from agent.phone.battery_wear import CELL_NODES, HEALTH, WEAR_NODES
from agent.phone.computer_nodes import COMPUTER_NODES
from agent.phone.cpu_clusters import CLUSTER_NODES, offline_clusters, parse_clusters
from agent.phone.gpu_probe import GPU_NODES, gpu_limits, parse_gpu
from agent.phone.kernel_nodes import (
    CPU,
    SUPPLY,
    SUPPLY_KINDS,
    clock_node,
    first_number,
    supply_node,
    with_usual_supply,
)
from agent.phone.phone_driver import Phone
from agent.phone.phone_paths import UPTIME
from agent.phone.power_meters import METER_NODES, POWERCAP, find_rail_meters
from agent.phone.power_stats import parse_power_stats, reading_script
from agent.phone.shell_command import ShellCommand, write_node_command
from agent.phone.thermal_zones import ZONE_NODES, ZoneUse, examine_zones
from agent.phone.vendor_daemons import running_services
from workloads.protocol.phone_facts import ChargingSwitch, PowerStatsHal
from workloads.text import safe_text

SDK_FIXED_PERFORMANCE = 30
SDK_POWER_STATS, SDK_POWER_STATS_AIDL = 28, 31  # Android 9 and 12
BATTERY = f"{SUPPLY}/battery"
GAUGES = (f"{BATTERY}/current_now", f"{BATTERY}/power_now")
# Vendors' switches that stop charging while the cable stays connected, the most reliable first:
# path, value that stops, value that charges. https://github.com/VR-25/acc install/ctrl-files.sh
_SWITCHES = (
    (f"{BATTERY}/input_suspend", "1", "0"),
    (f"{BATTERY}/charge_disable", "1", "0"),
    (f"{BATTERY}/batt_slate_mode", "1", "0"),  # Samsung
    (f"{BATTERY}/charging_enabled", "0", "1"),
    (f"{BATTERY}/battery_charging_enabled", "0", "1"),
    (f"{BATTERY}/battery_input_suspend", "1", "0"),  # Xiaomi
    ("/sys/class/qcom-battery/input_suspend", "1", "0"),  # Xiaomi since Snapdragon 888
    (f"{SUPPLY}/charger/charge_disable", "1", "0"),  # Pixel 4, 5
    ("/sys/devices/platform/soc/soc:google,charger/charge_disable", "1", "0"),
    ("/sys/devices/platform/google,charger/charge_stop_level", "5", "100"),  # Tensor: in percent
    (f"{BATTERY}/mmi_charging_enable", "0", "1"),  # OPPO, OnePlus, realme
    ("/sys/class/oplus_chg/battery/mmi_charging_enable", "0", "1"),
    (f"{BATTERY}/op_disable_charge", "1", "0"),
    ("/sys/class/hw_power/charger/charge_data/enable_charger", "0", "1"),  # Huawei, Honor
    ("/sys/devices/platform/huawei_charger/enable_charger", "0", "1"),
    ("/sys/class/asuslib/charging_suspend_en", "1", "0"),  # Asus
    (f"{SUPPLY}/battery_ext/smart_charging_interruption", "1", "0"),  # Sony
    ("/sys/devices/platform/lge-unified-nodes/charging_enable", "0", "1"),  # LG
    ("/sys/kernel/nubia_charge/charger_bypass", "on", "off"),  # Nubia, RedMagic
    ("/sys/devices/platform/mt-battery/disable_charger", "1", "0"),  # MediaTek, old kernels
)
CHARGING_SWITCHES = tuple(ChargingSwitch(path=path, off=off, on=on) for path, off, on in _SWITCHES)
ROOT_MANAGERS = {
    "com.topjohnwu.magisk": "Magisk",
    "io.github.huskydg.magisk": "Magisk Delta",
    "me.weishu.kernelsu": "KernelSU",
    "com.rifsxd.ksunext": "KernelSU Next",
    "me.bmax.apatch": "APatch",
    "eu.chainfire.supersu": "SuperSU",
}
SERIAL_PROPERTIES = ("ro.serialno", "ro.boot.serialno")
SOC_PROPERTIES = (
    *("ro.soc.model", "ro.chipname", "ro.hardware.chipname", "ro.mediatek.platform"),
    *("ro.board.platform", "ro.hardware"),
)
PROPERTIES = (
    "ro.product.manufacturer",
    "ro.product.model",
    "ro.product.marketname",
    "ro.config.marketing_name",
    *SOC_PROPERTIES,
    "ro.product.cpu.abi",
    "ro.build.version.release",
    "ro.build.version.sdk",
)
PROBE_NODES = (
    "/proc/meminfo",
    UPTIME,
    *CLUSTER_NODES,
    *ZONE_NODES,
    *SUPPLY_KINDS,
    *(
        supply_node(path, "*")
        for path in (f"{BATTERY}/capacity", f"{BATTERY}/temp", *WEAR_NODES, *CELL_NODES, *GAUGES)
    ),
    "/proc/self/status",
    *GPU_NODES,
    *METER_NODES,
    *COMPUTER_NODES,
)
_ENERGY_COUNTER = f"{POWERCAP}/intel-rapl:0/energy_uj"
_PROPERTY = re.compile(r"^\[([A-Za-z0-9_.:-]{1,128})\]: \[(.*)\]\r?$", re.MULTILINE)
# Properties that identify a phone or its owner, by parts of their names.
_PRIVATE_NAME = re.compile(
    r"serial|imei|meid|imsi|iccid|msisdn|phone_?num|line1|mac(addr|$)|[._]mac[._]|bdaddr|bt_?addr|ssid"
    r"|hostname|device_name|android_?id|chip_?id|cpu_?id|[._](uid|did|sn\d?)$|account|email|owner"
    r"|ipaddress|gateway|dns\d",
    re.IGNORECASE,
)
_IDENTIFIER_CHARS_MIN = 5
_UNUSUAL = re.compile(r"[^\w .,:()/+'-]")
_DUMP_BATTERY = ("dumpsys", "battery")
_FIXED_PERFORMANCE = "set-fixed-performance-mode-enabled"


@dataclass(frozen=True)
class PhoneReading:
    """What a phone printed, and which of its nodes can be written."""

    properties: Mapping[str, str]
    nodes: Mapping[str, str]
    services: tuple[str, ...] = ()  # of init, those that run
    battery: str = ""  # `dumpsys battery`, read only if the nodes are hidden
    thermalservice: str = ""  # read only if the zones are hidden, or for a capture
    writable: frozenset[str] = frozenset()
    root: bool = False
    root_manager: str = ""  # that is on the phone and has not granted root to the shell
    fixed_performance: bool = False
    power_stats: PowerStatsHal | None = None  # shows the energy of these rails
    rails: tuple[str, ...] = ()
    counter_denied: bool = False  # the processor counts its energy, but only for root
    identifiers: tuple[str, ...] = ()  # of the phone and its owner; never in a capture

    def property(self, name: str) -> str:
        """A property; empty if it is not set."""
        return self.properties.get(name, "")


def read_phone(phone: Phone, deadline: Deadline, everything: bool = False) -> PhoneReading:
    """Read a phone; the framework's temperatures only if nothing else shows them."""
    listing = phone.shell(["getprop"], deadline).text
    properties = parse_properties(listing)
    nodes = phone.find_nodes(PROBE_NODES, deadline)
    nodes |= _nodes_of_offline_cores(phone, nodes, deadline)
    hidden = not any(at.use is ZoneUse.CPU for at in examine_zones(nodes))
    sdk = first_number(properties.get("ro.build.version.sdk", "")) or 0
    usage = sdk >= SDK_FIXED_PERFORMANCE and phone.shell(["cmd", "power", "help"], deadline).text
    dump = phone.shell(["dumpsys", "thermalservice"], deadline).text if hidden | everything else ""
    denied = _ENERGY_COUNTER not in nodes and (
        phone.shell(["test", "-e", _ENERGY_COUNTER], deadline).status == 0
    )
    battery = (
        ""
        if HEALTH in with_usual_supply(nodes) or not sdk
        else phone.shell(_DUMP_BATTERY, deadline).text
    )
    power_stats, rails = _find_power_stats(phone, nodes, sdk, deadline)
    return PhoneReading(
        properties=properties,
        nodes=nodes,
        services=running_services(listing),
        battery=battery,
        thermalservice=dump,
        writable=_writable_nodes(phone, nodes, deadline),
        root=phone.link.root,
        root_manager="" if phone.link.root else _find_root_manager(phone, deadline),
        fixed_performance=_FIXED_PERFORMANCE in (usage or ""),
        power_stats=power_stats,
        rails=rails,
        counter_denied=denied,
        identifiers=private_values(listing),
    )


def _find_root_manager(phone: Phone, deadline: Deadline) -> str:
    """What could grant root and did not: `su` may be hidden from those who may not call it."""
    commands = [ShellCommand(["pm", "path", package]) for package in ROOT_MANAGERS]
    commands.append(ShellCommand(["sh", "-c", "command -v su"]))
    *managers, su = phone.shell_batch(commands, deadline)
    found = zip(ROOT_MANAGERS.values(), managers, strict=True)
    names = (name for name, result in found if result.text.startswith("package:"))
    return next(names, "su" if su.status == 0 else "")


def _find_power_stats(
    phone: Phone, nodes: Mapping[str, str], sdk: int, deadline: Deadline
) -> tuple[PowerStatsHal | None, tuple[str, ...]]:
    """How the energy of rails can be read without root, and of which; nodes come first."""
    hals = [PowerStatsHal.AIDL] if sdk >= SDK_POWER_STATS_AIDL else []
    hals += [PowerStatsHal.HIDL] if sdk >= SDK_POWER_STATS else []
    if find_rail_meters(nodes) or not hals:
        return None, ()
    commands = [ShellCommand(["sh", "-c", reading_script(hal)]) for hal in hals]
    for hal, result in zip(hals, phone.shell_batch(commands, deadline), strict=True):
        if rails := parse_power_stats(result.text):
            return hal, tuple(rails)
    return None, ()


def parse_properties(listing: str) -> dict[str, str]:
    """The properties that identify a phone, from the output of `getprop`."""
    wanted = {*PROPERTIES, *SERIAL_PROPERTIES}
    found = {name: plain_property(value) for name, value in _PROPERTY.findall(listing)}
    return {name: value for name, value in found.items() if name in wanted}


def private_values(listing: str) -> tuple[str, ...]:
    """The values of properties that identify a phone or its owner; two SIMs are one property."""
    values = {
        part.strip()
        for name, value in _PROPERTY.findall(listing)
        if _PRIVATE_NAME.search(name)
        for part in value.split(",")
    }
    kept = {value for name, value in _PROPERTY.findall(listing) if name in PROPERTIES}
    # 'unknown' and 'supported' identify nothing.
    unique = [
        value
        for value in values - kept
        if len(value) >= _IDENTIFIER_CHARS_MIN and not (value.isalpha() and value.islower())
    ]
    return tuple(sorted(unique, key=lambda value: (-len(value), value)))


def plain_property(text: str) -> str:
    """A property reduced to letters, digits and the punctuation that names contain."""
    return _UNUSUAL.sub("?", safe_text(text, 64))


def _nodes_of_offline_cores(
    phone: Phone, nodes: Mapping[str, str], deadline: Deadline
) -> dict[str, str]:
    """Switch cores that hide their clock on for a moment, if the shell is root.

    If the phone is lost during this, they stay on until its governor switches them off again.
    """
    hidden = offline_clusters(nodes, parse_clusters(nodes))
    switches = [f"{CPU}/cpu{cpu}/online" for cluster in hidden for cpu in cluster.cpus]
    shown = phone.read_nodes(switches, deadline) if switches and phone.link.root else {}
    off = [path for path, text in shown.items() if text.strip() == "0"]
    if not off:
        return {}
    phone.shell_batch([write_node_command(path, "1") for path in off], deadline)
    try:
        return phone.find_nodes(CLUSTER_NODES, deadline)
    finally:
        phone.shell_batch([write_node_command(path, "0") for path in reversed(off)], deadline)


def _writable_nodes(phone: Phone, nodes: Mapping[str, str], deadline: Deadline) -> frozenset[str]:
    limits = [clock_node(cluster, "scaling_max_freq") for cluster in parse_clusters(nodes)]
    switches = [switch.path for switch in CHARGING_SWITCHES]
    paths = [*limits, *gpu_limits(parse_gpu(nodes)), *switches]
    results = phone.shell_batch([ShellCommand(["test", "-w", path]) for path in paths], deadline)
    return frozenset(
        path for path, result in zip(paths, results, strict=True) if result.status == 0
    )
