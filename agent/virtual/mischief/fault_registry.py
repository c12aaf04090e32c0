"""All kinds of faults by name."""

from agent.virtual.mischief import (
    daemon_faults,
    device_faults,
    link_faults,
    output_faults,
    sysfs_faults,
)
from agent.virtual.mischief.fault_type import FaultType, InvalidMischief, build_fault

FAULT_TYPES: dict[str, type[FaultType]] = {
    "unplug": link_faults.Unplug,
    "flap": link_faults.Flap,
    "adbd_restarts": link_faults.AdbdRestarts,
    "hang": link_faults.Hang,
    "partition": link_faults.Partition,
    "slow": link_faults.Slow,
    "unauthorized": link_faults.Unauthorized,
    "offline": link_faults.Offline,
    "version_clash": link_faults.VersionClash,
    "reboot": device_faults.Reboot,
    "clock_ignored": sysfs_faults.ClockIgnored,
    "clock_pretends": sysfs_faults.ClockPretends,
    "clock_reset": sysfs_faults.ClockReset,
    "hotplug": daemon_faults.Hotplug,
    "migrate": daemon_faults.Migrate,
    "other_work": daemon_faults.OtherWork,
    "charger_returns": daemon_faults.ChargerReturns,
    "hidden_limit": daemon_faults.HiddenLimit,
    "memory_contention": daemon_faults.MemoryContention,
    "bus_throttle": daemon_faults.BusThrottle,
    "foreground": daemon_faults.Foreground,
    "gpu_contention": daemon_faults.GpuContention,
    "screen": daemon_faults.Screen,
    "power_draw": daemon_faults.PowerDraw,
    "governor": daemon_faults.Governor,
    "time_jump": device_faults.TimeJump,
    "sleep": daemon_faults.Sleep,
    "throttle": device_faults.ThrottleNow,
    "sensor": sysfs_faults.Sensor,
    "node_value": sysfs_faults.NodeValue,
    "op_power": sysfs_faults.OpPower,
    "never_cools": device_faults.NeverCools,
    "battery_drains": device_faults.BatteryDrains,
    "disk_full": device_faults.DiskFull,
    "refuse_settings": device_faults.RefuseSettings,
    "screen_off": device_faults.ScreenOff,
    "low_memory": device_faults.LowMemory,
    "gpu_missing": device_faults.GpuMissing,
    "gpu_build_fails": device_faults.GpuBuildFails,
    "gpu_memory": device_faults.GpuMemory,
    "gpu_lost": device_faults.GpuLost,
    "gpu_wrong": device_faults.GpuWrong,
    "false_times": output_faults.FalseTimes,
    "false_loss": output_faults.FalseLoss,
    "truncated": output_faults.Truncated,
    "endless": output_faults.Endless,
    "hostile": output_faults.Hostile,
    "hostile_names": output_faults.HostileNames,
    "duplicate_serial": device_faults.DuplicateSerial,
}


def make_fault(kind: str, options: dict[str, object]) -> FaultType:
    """Make a fault of a kind; an unknown kind or option is an error."""
    if kind not in FAULT_TYPES:
        text = f"unknown kind '{kind}'; use one of {', '.join(FAULT_TYPES)}"
        raise InvalidMischief(text, key="kind")
    return build_fault(FAULT_TYPES[kind], options)
