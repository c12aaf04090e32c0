"""System properties and settings of a freshly booted phone.

They live in memory only: a reboot resets them to what the profile says.
"""

from agent.virtual.profiles import PhoneProfile


def boot_properties(profile: PhoneProfile, serial: str) -> dict[str, str]:
    """Return what `getprop` prints after boot."""
    properties = {
        "ro.serialno": serial,
        "ro.boot.serialno": serial,
        "ro.product.cpu.abi": "arm64-v8a",
        "ro.product.cpu.abilist": "arm64-v8a,armeabi-v7a,armeabi",
        "ro.build.version.release": profile.android,
        "ro.build.version.sdk": str(profile.sdk),
        "ro.build.type": "user",
        "ro.build.tags": "release-keys",
        "ro.debuggable": "0",
        "ro.secure": "1",
        "security.perf_harden": "1",
        "ro.soc.model": profile.soc,
        "ro.kernel.version": profile.kernel.release.split("-")[0],
        "ro.crypto.state": "encrypted",
        "sys.boot_completed": "1",
        "dev.bootcomplete": "1",
        "init.svc.bootanim": "stopped",
        "service.bootanim.exit": "1",
        "sys.usb.state": "adb",
        "persist.sys.timezone": "UTC",
        **profile.build,
    }
    if not profile.soc:  # Android has this property since version 12
        properties.pop("ro.soc.model", None)
    properties |= {f"init.svc.{service}": "running" for service in profile.services}
    if properties.get("ro.product.manufacturer") == "samsung":
        properties["sys.siop.level"] = "-3"  # as Galaxy S8 and S9 print it at rest
    maker, device = properties["ro.product.brand"], properties["ro.product.device"]
    properties["ro.build.fingerprint"] = (
        f"{maker}/{properties['ro.product.name']}/{device}:{profile.android}/"
        f"{properties['ro.build.id']}/1:user/release-keys"
    )
    return properties


def boot_settings() -> dict[str, dict[str, str]]:
    """Return what `settings list` prints on a phone in everyday use."""
    return {
        "global": {
            "adb_enabled": "1",
            "airplane_mode_on": "0",
            "animator_duration_scale": "1.0",
            "ble_scan_always_enabled": "1",
            "bluetooth_on": "1",
            "development_settings_enabled": "1",
            "low_power": "0",
            "stay_on_while_plugged_in": "0",
            "transition_animation_scale": "1.0",
            "wifi_on": "1",
            "wifi_scan_always_enabled": "1",
            "window_animation_scale": "1.0",
        },
        "system": {
            "accelerometer_rotation": "1",
            "screen_brightness": "102",
            "screen_brightness_mode": "1",
            "screen_off_timeout": "60000",
        },
        "secure": {"location_mode": "3", "doze_enabled": "1", "user_setup_complete": "1"},
    }
