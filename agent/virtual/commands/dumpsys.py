"""dumpsys: the framework's view of battery, idle mode and temperatures; battery values can be
overridden.
"""

import math

from agent.virtual.commands.power_stats_dump import AIDL_SERVICE, has_power_stats, power_stats_text
from agent.virtual.files.power_nodes import battery_status, battery_tenths_c
from agent.virtual.files.thermal_nodes import cooling_state
from agent.virtual.profiles import ServiceProfile, ServiceRowProfile
from agent.virtual.shell.command_call import CommandCall
from agent.virtual.virtual_phone import VirtualPhone

_STATUS = {"Charging": 2, "Discharging": 3, "Not charging": 4, "Full": 5}
# Temperature types of the thermal HAL.
_CPU, _GPU, _BATTERY, _SKIN = 0, 1, 2, 3
# Light to shutdown: of a Galaxy S26, as its `dumpsys thermalservice` prints them.
_SKIN_THRESHOLDS_C = (38.0, 40.0, 42.0, 45.0, 47.0, 60.0)

_NO_SERVICE = "Can't find service: thermalservice\n"

# Services with a fixed output, reduced to the lines that tools look for.
_FIXED_OUTPUT = {
    "deviceidle": "  mState=ACTIVE\n  mLightState=ACTIVE\n",
    "input": "  Viewport: orientation=0, isActive=1\n",
    "power": "",  # see _power_text
    "window": "  Display: mDisplayId=0\n    init=1080x2340 cur=1080x2340 app=1080x2340\n",
}


def dumpsys(call: CommandCall) -> int:
    words = call.argv[1:]
    words = words[2:] if words[:1] == ["-t"] else words  # its timeout
    call.phone.catch_up()
    match words:
        case ["battery", *verb]:
            _handle_battery(call, verb)
        case ["deviceidle", verb, *_]:
            call.print(_handle_deviceidle(call.phone, verb))
        case ["power", *_]:
            call.print(_power_text(call.phone))
        case ["window", "policy"]:
            call.print("WINDOW MANAGER POLICY STATE\n    KeyguardServiceDelegate\n")
            call.print(f"      showing={str(not call.phone.is_awake).lower()}\n")
        case ["thermalservice"]:
            call.print(_thermal_text(call.phone))
        case [service, *arguments] if service == AIDL_SERVICE and has_power_stats(
            call.phone, aidl=True
        ):
            call.print(power_stats_text(call.phone, arguments))
        case ["-l"]:
            rails = [AIDL_SERVICE] if has_power_stats(call.phone, aidl=True) else []
            names = sorted({*_FIXED_OUTPUT, "battery", *rails})
            call.print("Currently running services:\n" + "".join(f"  {name}\n" for name in names))
        case [name, *_] if name in _FIXED_OUTPUT:
            call.print(_FIXED_OUTPUT[name])
        case [name, *_]:
            call.print(f"Can't find service: {name}\n")
        case _:
            return 0
    return 0


def _power_text(phone: VirtualPhone) -> str:
    """Return when the phone was last woken and used, in ms since its boot."""
    moments = (phone.uptime(), phone.touched_at, phone.slept_at)
    now_ms, used_ms, slept_ms = (round(1000 * moment) for moment in moments)
    state, display = ("Awake", "ON") if phone.is_awake else ("Asleep", "OFF")
    return (
        f"POWER MANAGER (dumpsys power)\n\nDisplay Power: state={display}\n"
        f"  mWakefulness={state}\n  mLastSleepTime={slept_ms} ({now_ms - slept_ms} ms ago)\n"
        f"  mLastWakeTime={used_ms} ({now_ms - used_ms} ms ago)\n"
        f"  mLastUserActivityTime={used_ms} ({now_ms - used_ms} ms ago)\n"
    )


def _handle_battery(call: CommandCall, verb: list[str]) -> None:
    overrides = call.phone.battery_overrides
    match verb:
        case ["unplug"]:
            overrides |= {"USB powered": "false", "status": "3"}
        case ["set", name, value]:
            overrides[name] = value
        case ["reset"]:
            overrides.clear()
        case []:
            call.print(_battery_text(call.phone))


def _handle_deviceidle(phone: VirtualPhone, verb: str) -> str:
    if verb in ("enable", "disable"):
        phone.set_framework_mode("doze", verb == "enable")
        return f"Deep idle mode {verb}d\nLight idle mode {verb}d\n"
    return (
        f"{int(phone.framework_modes['doze'])}\n"
        if verb == "enabled"
        else _FIXED_OUTPUT["deviceidle"]
    )


def _battery_text(phone: VirtualPhone) -> str:
    battery = phone.soc.battery
    facts = {
        "AC powered": "false",
        "USB powered": str(battery.charging_allowed).lower(),
        "Wireless powered": "false",
        "Max charging current": str(round(battery.profile.usb_a * 1e6)),
        "Max charging voltage": "5000000",
        "Charge counter": str(round(battery.charge_uah)),
        "status": str(_STATUS[battery_status(battery)]),
        "health": "2",
        "present": "true",
        "level": str(int(battery.percent + 0.05)),
        "scale": "100",
        "voltage": str(round(battery.volts() * 1000)),
        "temperature": str(battery_tenths_c(phone.soc)),
        "technology": "Li-ion",
    }
    override_note = (
        "  (UPDATES STOPPED -- use 'reset' to restart)\n" if phone.battery_overrides else ""
    )
    facts |= phone.battery_overrides
    rows = "".join(f"  {name}: {value}\n" for name, value in facts.items())
    return f"Current Battery Service state:\n{override_note}{rows}"


def _thermal_text(phone: VirtualPhone) -> str:
    soc = phone.soc
    if phone.profile.layout is not None:
        return _captured_thermal_text(phone, phone.profile.layout.service)
    if phone.profile.sdk < 29:
        return _NO_SERVICE
    rows = []
    for zone in soc.zones:
        hal_type = _CPU if zone.profile.cluster else _hal_type(zone.profile.type)
        if hal_type is not None:
            value = soc.read_zone_mc(zone) / 1000
            facts = f"mValue={value:.1f}, mType={hal_type}, mName={zone.profile.type}, mStatus=0"
            rows.append(f"\tTemperature{{{facts}}}\n")
    states = [(cooling.type, cooling_state(soc, cooling)) for cooling in phone.profile.cooling]
    cooling_rows = [
        f"\tCoolingDevice{{mValue={state}, mType=2, mName={name}}}\n" for name, state in states
    ]
    maker = phone.properties.get("ro.product.manufacturer", "")
    status = min(max((state for _, state in states), default=0), 3)
    if maker == "samsung":  # throttles by other rules than those that make this status
        cooling_rows, status = [], 0
    return (
        f"IsStatusOverride: false\nThermal Status: {status}\nCached temperatures:\n"
        f"{''.join(rows)}HAL Ready: true\nHAL connection:\n\tThermalHAL 2.0 connected: yes\n"
        f"Current temperatures from HAL:\n{''.join(rows)}"
        f"Current cooling devices from HAL:\n{''.join(cooling_rows)}"
        f"{_thresholds_text(phone, maker) if phone.profile.sdk >= 30 else ''}"
    )


def _captured_thermal_text(phone: VirtualPhone, service: ServiceProfile | None) -> str:
    """The rows of a captured phone, with the temperatures of the model."""
    if service is None:
        return _NO_SERVICE
    heat = phone.soc.heat
    phone.soc.update()
    model = {_CPU: heat.node("die"), _BATTERY: heat.node("battery"), _SKIN: heat.node("body")}

    def rows(temperatures: tuple[ServiceRowProfile, ...]) -> str:
        lines = []
        for row in temperatures:
            # Samsung's Sdhms numbers the types from 1.
            kind = row.type - row.name.startswith("TYPE_")
            is_live = 10.0 < row.value < 100.0
            value = model.get(kind, row.value) if is_live else row.value
            facts = f"mValue={value:.1f}, mType={row.type}, mName={row.name}, mStatus=0"
            lines.append(f"\tTemperature{{{facts}}}\n")
        return "".join(lines)

    head = f"IsStatusOverride: false\nThermal Status: {service.status}\n"
    head += f"Cached temperatures:\n{rows(service.cached)}"
    if not service.connection:
        return f"{head}HAL Ready: false\nHAL connection:\n"
    return (
        f"{head}HAL Ready: true\nHAL connection:\n\t{service.connection} connected: yes\n"
        f"Current temperatures from HAL:\n{rows(service.current)}"
        "Current cooling devices from HAL:\n"
    )


def _thresholds_text(phone: VirtualPhone, maker: str) -> str:
    """Return the thresholds of the skin; those of some phones are not set."""
    hot = [math.nan] * 7 if maker == "Xiaomi" else [math.nan, *_SKIN_THRESHOLDS_C]
    texts = ", ".join("NaN" if math.isnan(value) else str(value) for value in hot)
    rows = [
        f"\tTemperatureThreshold{{mType={_SKIN}, mName={zone.profile.type}, "
        f"mHotThrottlingThresholds=[{texts}], "
        f"mColdThrottlingThresholds=[{', '.join(['NaN'] * 7)}]}}\n"
        for zone in phone.soc.zones
        if _hal_type(zone.profile.type) == _SKIN and not zone.profile.cluster
    ]
    return f"Temperature static thresholds from HAL:\n{''.join(rows)}"


def _hal_type(zone_type: str) -> int | None:
    for word, kind in (("cpu", _CPU), ("gpu", _GPU), ("battery", _BATTERY), ("skin", _SKIN)):
        if word in zone_type:
            return kind
    return None
