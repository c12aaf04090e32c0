"""The battery: supplies the power that the charger cannot supply, and charges with the rest.

The gauge adds the vendor's sign, unit and sampling period; the state here has none of these.
"""

from agent.virtual.profiles import BatteryProfile

# Open-circuit voltage of a lithium cell by charge: flat in the middle, steep at the ends.
_OPEN_CIRCUIT_CURVE = (
    (0.0, 0.0),
    (0.1, 0.27),
    (0.3, 0.40),
    (0.5, 0.48),
    (0.7, 0.63),
    (0.9, 0.86),
    (1.0, 1.0),
)


class BatteryModel:
    """Charge in µAh, power in W; `power_w` is positive while discharging."""

    def __init__(self, profile: BatteryProfile, start_percent: float) -> None:
        self.profile = profile
        self.charge_uah = profile.capacity_uah * start_percent / 100.0
        self.charging_allowed = True
        self.cycles = 211  # in its life so far
        self.power_w = 0.0
        self._open_circuit_v = self.open_circuit_v()
        self.usb_w = 0.0
        self.loss_w = 0.0
        self._system_w = 0.0

    @property
    def percent(self) -> float:
        return 100.0 * self.charge_uah / self.profile.capacity_uah

    @property
    def is_full(self) -> bool:
        return self.percent >= 99.9

    def open_circuit_v(self) -> float:
        """Return the voltage at rest."""
        level = min(max(self.percent / 100.0, 0.0), 1.0)
        lower = [point for point in _OPEN_CIRCUIT_CURVE if point[0] <= level][-1]
        upper = next(point for point in _OPEN_CIRCUIT_CURVE if point[0] >= level)
        width = upper[0] - lower[0]
        fraction = lower[1] + (upper[1] - lower[1]) * ((level - lower[0]) / width if width else 0.0)
        return self.profile.empty_v + (self.profile.full_v - self.profile.empty_v) * fraction

    def volts(self) -> float:
        return self._open_circuit_v - self.amps() * self.profile.resistance_ohm

    def amps(self) -> float:
        """Return the current out of the battery."""
        return self.power_w / self._open_circuit_v

    def split_power(self, system_w: float) -> None:
        """Split the phone's power between charger and battery."""
        self._open_circuit_v = self.open_circuit_v()
        self._system_w = system_w
        self.usb_w, self.power_w = self._split(system_w)
        self.loss_w = self.amps() ** 2 * self.profile.resistance_ohm + 0.05 * max(-self.power_w, 0)

    def _split(self, system_w: float) -> tuple[float, float]:
        """Return what the charger supplies, and what the battery does."""
        limit = self.profile.usb_a * self.profile.usb_v if self.charging_allowed else 0.0
        if system_w >= limit or self.is_full:
            usb_w = min(system_w, limit)
            return usb_w, system_w - usb_w
        charging_w = 0.9 * (limit - system_w) * self._charge_acceptance()
        return system_w + charging_w / 0.9, -charging_w

    def advance(self, seconds: float) -> None:
        """Move charge for some seconds at the present power."""
        self.charge_uah = self.charge_after(seconds)

    def charge_after(self, seconds: float) -> float:
        """Return the charge in µAh after some seconds at the present power."""
        moved_uah = self.amps() * 1e6 * seconds / 3600.0
        return min(max(self.charge_uah - moved_uah, 0.0), float(self.profile.capacity_uah))

    def gauge_current(self, more_w: float = 0.0) -> int:
        """Return current_now, with the vendor's sign and unit; `more_w` than the mean is drawn."""
        scale = 1e6 if self.profile.current_unit == "uA" else 1e3
        amps = self._split(self._system_w + more_w)[1] / self._open_circuit_v
        return round(amps * scale * self.profile.discharge_sign)

    def _charge_acceptance(self) -> float:
        """Return the share of full charging power: a cell accepts less and less above 85 %."""
        return min(1.0, max(0.05, (100.0 - self.percent) / 15.0))
