"""Every kind of trouble by its name."""

from agent.virtual.mischief.body_kinds import (
    BatteryDrains,
    DiskFull,
    DuplicateSerial,
    LowMemory,
    NeverCools,
    Reboot,
    ThrottleNow,
)
from agent.virtual.mischief.daemon_kinds import (
    ChargerReturns,
    HiddenLimit,
    Hotplug,
    Migrate,
    OtherWork,
    Sleep,
)
from agent.virtual.mischief.effect import BadMischief, Effect, make_effect
from agent.virtual.mischief.link_kinds import (
    Flap,
    Hang,
    Offline,
    Partition,
    Slow,
    Unauthorized,
    Unplug,
    VersionClash,
)
from agent.virtual.mischief.node_kinds import ClockIgnored, ClockReset, Sensor
from agent.virtual.mischief.output_kinds import Endless, Hostile, HostileNames, Truncated

KINDS: dict[str, type[Effect]] = {
    "unplug": Unplug,
    "flap": Flap,
    "hang": Hang,
    "partition": Partition,
    "slow": Slow,
    "unauthorized": Unauthorized,
    "offline": Offline,
    "version_clash": VersionClash,
    "reboot": Reboot,
    "clock_ignored": ClockIgnored,
    "clock_reset": ClockReset,
    "hotplug": Hotplug,
    "migrate": Migrate,
    "other_work": OtherWork,
    "charger_returns": ChargerReturns,
    "hidden_limit": HiddenLimit,
    "sleep": Sleep,
    "throttle": ThrottleNow,
    "sensor": Sensor,
    "never_cools": NeverCools,
    "battery_drains": BatteryDrains,
    "disk_full": DiskFull,
    "low_memory": LowMemory,
    "truncated": Truncated,
    "endless": Endless,
    "hostile": Hostile,
    "hostile_names": HostileNames,
    "duplicate_serial": DuplicateSerial,
}


def make(kind: str, options: dict[str, object]) -> Effect:
    """One effect of a kind; a name or an option that does not exist is refused."""
    if kind not in KINDS:
        raise BadMischief(f"no mischief is called '{kind}'; there are {', '.join(KINDS)}")
    return make_effect(KINDS[kind], options)
