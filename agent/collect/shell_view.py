"""ShellView: what the shell sees of screen, heat and other work around a run.

Thermal status, headroom and Samsung's siop level come from the vendor's software and may be wrong
or missing: a Galaxy S24+ that was capped at 1.8 of 3.2 GHz had status 0, and a Xiaomi 12 gives no
headroom. They can explain a slow run, but do not prove that a run was not slowed down.

Headroom is computed as Android does: 1 at the threshold of severe throttling, 0 at 30 °C below it
(services/core/java/com/android/server/power/ThermalManagerService.java of AOSP since Android 11).
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from agent.phone.phone_driver import Phone
from agent.phone.phone_paths import UPTIME
from agent.phone.shell_command import ShellCommand
from agent.phone.thermalservice import thermal_status
from workloads.protocol.faults import PhoneTrouble
from workloads.protocol.metrics import Source

SIOP_LEVEL = "sys.siop.level"
BATTERY_DUMP = ShellCommand(["dumpsys", "battery"])
_CHARGE_STATUS = re.compile(r"^\s*status: ([1-5])\s*$", re.MULTILINE)  # 2: charging
_COMMANDS = (
    ShellCommand(["dumpsys", "thermalservice"]),
    ShellCommand(["getprop", SIOP_LEVEL]),
    ShellCommand(["ps", "-A", "-o", "UID,TIME+"]),
    ShellCommand(["dumpsys", "power"]),
    ShellCommand(["dumpsys", "window", "policy"]),
    BATTERY_DUMP,
    ShellCommand(["cat", UPTIME]),
)
_SCREEN_ONLY = 3  # the first of those commands that a rooted phone needs
AWAKE = "Awake"
_WAKEFULNESS = re.compile(r"^\s*mWakefulness=([A-Za-z]{1,20})\b", re.MULTILINE)
_SLEPT = re.compile(r"mLastSleepTime=(\d{1,15}) \(", re.ASCII)
# Of the lock screen's delegate since Android 7; of the window policy before.
_LOCKED = re.compile(r"(?:KeyguardServiceDelegate\s+showing|mShowingLockscreen)=(true|false)\b")
# By the power manager's clock, which stops while the phone is suspended.
_USED = re.compile(
    r"(?:mLastWakeTime|[lL]astUserActivityTime(?:\(\w{0,20}\))?)=(\d{1,15}) \((\d{1,15}) ms ago\)",
    re.ASCII,
)
_SHELL_UID = 2000
_SEVERE, _SKIN = 3, 3  # index of a threshold; type of a temperature
_HEADROOM_RANGE_C = 30.0
_THRESHOLDS = re.compile(
    r"mType=(\d{1,4}), mName=([^,}\n]{1,64}), mHotThrottlingThresholds=\[([^\]\n]{1,200})\]"
)
_TEMPERATURE = re.compile(
    r"\{mValue=(-?\d{1,3}(?:\.\d{1,9})?), mType=(\d{1,4}), mName=([^,}\n]{1,64}),"
)
_CURRENT = re.compile(r"Current temperatures from HAL.*", re.DOTALL)  # not the cached ones
_SIOP = re.compile(r"-?\d{1,3}")
_CPU_TIME = re.compile(
    r"^ *(\d{1,10}) +((?:\d{1,6}[-:]){0,3}\d{1,6}(?:\.\d{1,2})?) *$", re.MULTILINE | re.ASCII
)


@dataclass(frozen=True)
class ShellView:
    """The state of a phone at one time; None where it is not shown."""

    t_s: float | None = None
    status: int | None = None
    headroom: float | None = None
    siop_level: int | None = None
    cpu_s: Mapping[int, float] = field(default_factory=dict)  # by uid, of living processes
    used_ms: int | None = None  # when the phone was last woken or touched, by its own clock
    used_ago_s: float = 0.0
    wakefulness: str = ""  # as the power manager calls it; empty where it is not shown
    slept_ms: int | None = None  # when the phone last fell asleep, by the clock of used_ms
    locked: bool | None = None
    charging: bool | None = None  # by the framework; phones may hide the battery's nodes


@dataclass(frozen=True)
class ViewsAroundRun:
    """The views before and after a run."""

    before: ShellView = ShellView()
    after: ShellView = ShellView()
    during: ShellView = ShellView()  # only whether it charged

    @property
    def charging_share(self) -> float:
        """In how many of the views the battery charged."""
        views = (self.before, self.during, self.after)
        known = [view.charging for view in views if view.charging is not None]
        return sum(known) / len(known) if known else 0.0

    @property
    def status(self) -> int | None:
        """The higher thermal status; above 0 the framework says that it throttles."""
        return _highest(self.before.status, self.after.status)

    @property
    def siop_level(self) -> int | None:
        """The higher level of Samsung's thermal control; above 0 it limits the phone."""
        return _highest(self.before.siop_level, self.after.siop_level)

    @property
    def headroom(self) -> float | None:
        """The share of the way to severe throttling that was used up."""
        known = [view.headroom for view in (self.before, self.after) if view.headroom is not None]
        return max(known, default=None)

    @property
    def is_asleep(self) -> bool:
        """Whether the screen was off before the run and after it."""
        return all(view.wakefulness not in {"", AWAKE} for view in (self.before, self.after))

    @property
    def fell_asleep(self) -> bool:
        """Whether the screen went off between the views."""
        before, after = self.before, self.after
        if before.wakefulness != AWAKE or not after.wakefulness:
            return False
        return after.wakefulness != AWAKE or (after.slept_ms or 0) > (before.slept_ms or 0)

    @property
    def used_at_s(self) -> float | None:
        """When the phone was woken or touched between the views, by its uptime; None if not."""
        before, after = self.before.used_ms, self.after.used_ms
        if before is None or after is None or after <= before or self.after.t_s is None:
            return None
        return self.after.t_s - self.after.used_ago_s

    @property
    def other_cores(self) -> dict[int, float]:
        """How many cores each user except the shell kept busy, without ended processes."""
        before, after = self.before, self.after
        if not before.cpu_s or before.t_s is None or after.t_s is None or after.t_s <= before.t_s:
            return {}
        used_s = {uid: cpu_s - before.cpu_s.get(uid, 0.0) for uid, cpu_s in after.cpu_s.items()}
        return {
            uid: seconds / (after.t_s - before.t_s)
            for uid, seconds in used_s.items()
            if uid != _SHELL_UID and seconds > 0
        }


NO_VIEWS = ViewsAroundRun()


def read_shell_view(phone: Phone) -> ShellView:
    """Look at a phone; a rooted phone shows all but its screen by nodes, a computer everything."""
    provenance = phone.facts.provenance
    source = provenance.time.source if provenance and provenance.time else None
    if source is Source.HOST:
        return ShellView()
    if phone.facts.rooted:
        *texts, _ = (each.text for each in phone.shell_batch(_COMMANDS[_SCREEN_ONLY:]))
        return parse_screen(*texts)
    *texts, window, battery, uptime = (result.text for result in phone.shell_batch(_COMMANDS))
    try:
        t_s = phone.parse_uptime(uptime)
    except PhoneTrouble:
        t_s = None
    thermal, siop, processes, power = texts
    view = parse_view(thermal, siop, processes, power, t_s)
    screen = parse_screen(power, window, battery)
    return replace(
        view,
        wakefulness=screen.wakefulness,
        slept_ms=screen.slept_ms,
        locked=screen.locked,
        charging=screen.charging,
    )


def read_charging(phone: Phone) -> ShellView:
    """Ask the framework whether the battery charges."""
    return parse_screen("", "", phone.shell_batch([BATTERY_DUMP])[0].text)


def parse_screen(power: str, window: str, battery: str = "") -> ShellView:
    """Parse what the dumps say about screen, lock and charger."""
    status = _CHARGE_STATUS.search(battery)
    wakefulness, slept = _WAKEFULNESS.search(power), _SLEPT.search(power)
    locked = _LOCKED.search(window)
    return ShellView(
        wakefulness=wakefulness[1] if wakefulness else "",
        slept_ms=int(slept[1]) if slept else None,
        locked=locked[1] == "true" if locked else None,
        charging=status[1] == "2" if status else None,
    )


def parse_view(thermal: str, siop: str, processes: str, power: str, t_s: float | None) -> ShellView:
    """Parse what the commands printed."""
    level = _SIOP.fullmatch(siop.strip())
    cpu_s: dict[int, float] = {}
    for uid, text in _CPU_TIME.findall(processes):
        cpu_s[int(uid)] = cpu_s.get(int(uid), 0.0) + _seconds(text)
    used = max(((int(ms), int(ago)) for ms, ago in _USED.findall(power)), default=None)
    return ShellView(
        t_s=t_s,
        used_ms=used[0] if used else None,
        used_ago_s=used[1] / 1e3 if used else 0.0,
        status=thermal_status(thermal),
        headroom=_headroom(thermal),
        siop_level=int(level[0]) if level else None,
        cpu_s=cpu_s,
    )


def _headroom(thermal: str) -> float | None:
    """The least headroom of all skin sensors; None without a temperature or a threshold."""
    severe_c = {}
    for kind, name, texts in _THRESHOLDS.findall(thermal):
        values = texts.split(", ")
        if int(kind) == _SKIN and len(values) > _SEVERE and values[_SEVERE] != "NaN":
            severe_c[name] = _number(values[_SEVERE])
    current = _CURRENT.search(thermal)
    used = [
        1 - (severe - float(value)) / _HEADROOM_RANGE_C
        for value, kind, name in _TEMPERATURE.findall(current[0] if current else "")
        if int(kind) == _SKIN and (severe := severe_c.get(name)) is not None
    ]
    return max(0.0, *used) if used else None


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 20 <= value <= 120 else None


def _seconds(text: str) -> float:
    """The seconds of [[days-]hours:]minutes:seconds."""
    *larger, seconds = re.split("[-:]", text)
    units = (60, 3600, 86400)
    return float(seconds) + sum(
        unit * int(part) for unit, part in zip(units, reversed(larger), strict=False)
    )


def _highest(*values: int | None) -> int | None:
    return max((value for value in values if value is not None), default=None)
