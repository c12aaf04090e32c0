"""The power statistics of a Pixel: state residencies, energy consumers and the energy meter.

The layouts are those of Google's HALs, from their format strings:
https://github.com/LineageOS/android_hardware_google_pixel/blob/ba5e7ac6/powerstats/PowerStatsAidl.cpp
and, for HAL 1.0, powerstats/PowerStats.cpp of the same repository. As there, totals are rounded to
float32, and `delta` has one baseline for all callers.
"""

import struct

from agent.virtual.files.rail_nodes import odpm_energies_uj
from agent.virtual.shell.command_call import CommandCall
from agent.virtual.virtual_phone import VirtualPhone

AIDL_SERVICE = "android.hardware.power.stats.IPowerStats/default"
_HIDL_SERVICE = "android.hardware.power.stats@1.0::IPowerStats/default"
_SDK_AIDL = 31


def has_power_stats(phone: VirtualPhone, aidl: bool) -> bool:
    """Return whether the phone shows its rails through this generation of the HAL."""
    return phone.profile.rails == "odpm" and (phone.profile.sdk >= _SDK_AIDL) == aidl


def power_stats_text(phone: VirtualPhone, arguments: list[str]) -> str:
    """Return the dump of the AIDL HAL."""
    energies = odpm_energies_uj(phone.soc)
    rows = {f"{f'[{rail}]:{subsystem}':>32}": uj for (rail, subsystem), uj in energies.items()}
    table = _energy_table(phone, rows, f"{'Channel':>32}", arguments == ["delta"])
    gpu = next(uj for (_, subsystem), uj in energies.items() if subsystem == "GPU")
    return (
        "\n============= PowerStats HAL 2.0 state residencies ==============\n"
        f"  {'Entity':>16}   {'State':>18}   {'Total time':>16}   {'Total entries':>15}   "
        f"{'Last entry tstamp':>17}\n"
        f"  {'CPU':>16}   {'DOWN':>18}   {int(phone.uptime() * 500):13} ms   {1234:15}   "
        f"{int(phone.uptime() * 1000):14} ms\n"
        "========== End of PowerStats HAL 2.0 state residencies ==========\n"
        "\n============= PowerStats HAL 2.0 energy consumers ==============\n"
        f"{'GPU':<12} : {_milliwatt_seconds(gpu)}\n  {1000:10} - {_milliwatt_seconds(gpu // 2)}\n"
        "========== End of PowerStats HAL 2.0 energy consumers ==========\n"
        f"\n============= PowerStats HAL 2.0 energy meter ==============\n{table}"
        "========== End of PowerStats HAL 2.0 energy meter ==========\n"
    )


def lshal(call: CommandCall) -> int:
    """Handle `lshal debug` of the HIDL HAL."""
    call.phone.catch_up()
    match call.argv[1:]:
        case ["debug", service, *arguments] if service == _HIDL_SERVICE and has_power_stats(
            call.phone, aidl=False
        ):
            energies = odpm_energies_uj(call.phone.soc)
            rows = {
                f"{subsystem:>14}   {rail:>18}": uj for (rail, subsystem), uj in energies.items()
            }
            header = f"{'Subsys':>14}   {'Rail':>18}"
            table = _energy_table(call.phone, rows, header, arguments == ["delta"])
            call.print(
                f"\n============= PowerStats HAL 1.0 rail energy data ==============\n{table}"
                "========== End of PowerStats HAL 1.0 rail energy data ==========\n"
            )
        case ["debug", service, *_]:
            return call.fail(f"Could not retrieve service {service}", 1)
        case _:
            return call.fail("Unknown command", 1)
    return 0


def _energy_table(phone: VirtualPhone, rows: dict[str, int], header: str, is_delta: bool) -> str:
    total = f"{'Cumulative Energy':>18}"
    if not is_delta:
        lines = [f"  {name}   {_milliwatt_seconds(uj)}\n" for name, uj in rows.items()]
        return f"  {header}   {total}\n{''.join(lines)}"
    now = phone.uptime()
    since, before = phone.rail_baseline or (now, {})
    phone.rail_baseline = (now, rows)
    deltas = {name: _float32(uj - before.get(name, uj)) / 1000 for name, uj in rows.items()}
    lines = [
        f"  {name}   {_milliwatt_seconds(uj)} ({deltas[name]:14.2f})\n" for name, uj in rows.items()
    ]
    elapsed_ms = int((now - since) * 1000)
    delta = "Delta   "
    return f"Elapsed time: {elapsed_ms} ms\n  {header}   {total} ({delta:>14})\n{''.join(lines)}"


def _milliwatt_seconds(microjoules: int) -> str:
    return f"{_float32(microjoules) / 1000:14.2f} mWs"


def _float32(value: int) -> float:
    return float(struct.unpack("f", struct.pack("f", value))[0])
