"""The switches that let adb change settings on the phones of each vendor. Pure."""

from typing import NamedTuple


class VendorSwitches(NamedTuple):
    """The places to tap on the phones of a vendor."""

    settings: str  # until then `settings put` and key events are refused
    developer: str  # how the developer options are enabled


_OPTIONS = "Settings > System > Developer options"
_USUAL = VendorSwitches(
    settings=f"look in {_OPTIONS} for a switch that lets adb change settings",
    developer="Settings > About phone: tap 'Build number' seven times",
)
_XIAOMI = VendorSwitches(
    settings="turn on 'USB debugging (Security settings)' in the developer options, then reboot",
    developer="Settings > About phone: tap 'MIUI version' or 'OS version' seven times",
)
_OPPO = VendorSwitches(
    settings="turn on 'Disable permission monitoring' in the developer options, then reboot",
    developer="Settings > About device > Version: tap 'Build number' seven times",
)
_VIVO = VendorSwitches(
    settings="turn on 'USB security permissions' in the developer options",
    developer="Settings > About phone > Software information: tap 'Build number' seven times",
)
_HUAWEI = VendorSwitches(
    settings="turn on 'Allow ADB debugging in charge only mode' in the developer options",
    developer=_USUAL.developer,
)
_SAMSUNG = VendorSwitches(
    settings="turn off Settings > Security and privacy > Auto Blocker",
    developer="Settings > About phone > Software information: tap 'Build number' seven times",
)
_VENDORS = {
    **dict.fromkeys(("xiaomi", "redmi", "poco"), _XIAOMI),
    **dict.fromkeys(("oppo", "oneplus", "realme"), _OPPO),
    **dict.fromkeys(("vivo", "iqoo"), _VIVO),
    **dict.fromkeys(("huawei", "honor"), _HUAWEI),
    "samsung": _SAMSUNG,
}


def vendor_switches(model: str) -> VendorSwitches:
    """The places to tap on a phone, by its model name, which begins with its maker."""
    return _VENDORS.get(model.partition(" ")[0].lower(), _USUAL)
