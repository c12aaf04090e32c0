"""All kinds of faults by name."""

from agent.virtual.mischief.daemon_faults import (
    BusThrottle,
    ChargerReturns,
    Foreground,
    GpuContention,
    HiddenLimit,
    Hotplug,
    MemoryContention,
    Migrate,
    OtherWork,
    Screen,
    Sleep,
)
from agent.virtual.mischief.device_faults import (
    BatteryDrains,
    DiskFull,
    DuplicateSerial,
    LowMemory,
    NeverCools,
    Reboot,
    ThrottleNow,
    TimeJump,
)
from agent.virtual.mischief.fault_type import FaultType, InvalidMischief, build_fault
from agent.virtual.mischief.gpu_faults import (
    GpuBuildFails,
    GpuLost,
    GpuMemory,
    GpuMissing,
    GpuWrong,
)
from agent.virtual.mischief.link_faults import (
    AdbdRestarts,
    Flap,
    Hang,
    Offline,
    Partition,
    Slow,
    Unauthorized,
    Unplug,
    VersionClash,
)
from agent.virtual.mischief.output_faults import (
    Endless,
    FalseLoss,
    FalseTimes,
    Hostile,
    HostileNames,
    Truncated,
)
from agent.virtual.mischief.sysfs_faults import (
    ClockIgnored,
    ClockPretends,
    ClockReset,
    OpPower,
    Sensor,
)

FAULT_TYPES: dict[str, type[FaultType]] = {
    "unplug": Unplug,
    "flap": Flap,
    "adbd_restarts": AdbdRestarts,
    "hang": Hang,
    "partition": Partition,
    "slow": Slow,
    "unauthorized": Unauthorized,
    "offline": Offline,
    "version_clash": VersionClash,
    "reboot": Reboot,
    "clock_ignored": ClockIgnored,
    "clock_pretends": ClockPretends,
    "clock_reset": ClockReset,
    "hotplug": Hotplug,
    "migrate": Migrate,
    "other_work": OtherWork,
    "charger_returns": ChargerReturns,
    "hidden_limit": HiddenLimit,
    "memory_contention": MemoryContention,
    "bus_throttle": BusThrottle,
    "foreground": Foreground,
    "gpu_contention": GpuContention,
    "screen": Screen,
    "time_jump": TimeJump,
    "sleep": Sleep,
    "throttle": ThrottleNow,
    "sensor": Sensor,
    "op_power": OpPower,
    "never_cools": NeverCools,
    "battery_drains": BatteryDrains,
    "disk_full": DiskFull,
    "low_memory": LowMemory,
    "gpu_missing": GpuMissing,
    "gpu_build_fails": GpuBuildFails,
    "gpu_memory": GpuMemory,
    "gpu_lost": GpuLost,
    "gpu_wrong": GpuWrong,
    "false_times": FalseTimes,
    "false_loss": FalseLoss,
    "truncated": Truncated,
    "endless": Endless,
    "hostile": Hostile,
    "hostile_names": HostileNames,
    "duplicate_serial": DuplicateSerial,
}


def make_fault(kind: str, options: dict[str, object]) -> FaultType:
    """Make a fault of a kind; an unknown kind or option is an error."""
    if kind not in FAULT_TYPES:
        text = f"unknown kind '{kind}'; use one of {', '.join(FAULT_TYPES)}"
        raise InvalidMischief(text, key="kind")
    return build_fault(FAULT_TYPES[kind], options)
