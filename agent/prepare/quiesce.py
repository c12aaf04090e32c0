"""Quiesce a phone: screen, radios, updates, optimisers, sleep and charger, for a quiet run.

Settings that have the wanted value already are not touched; all others are restored afterwards.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from agent.phone.kernel_nodes import first_number
from agent.phone.phone_driver import Phone
from agent.phone.shell_command import ShellCommand, ShellResult, write_node_command
from agent.restore.restore_journal import RestoreJournal
from agent.restore.reversible_change import (
    AIRPLANE,
    FRAMEWORK_MODES,
    OFF,
    ON,
    UNSET,
    WAKE_LOCK,
    ChangeKind,
    ReversibleChange,
)
from workloads.protocol.faults import ShellFailed
from workloads.protocol.phone_address import is_over_network
from workloads.protocol.phone_facts import ChargingSwitch
from workloads.text import safe_text

SDK_DEXOPT_COMMAND = 34  # Android 14: the background optimiser has its own command
DEXOPT_PROPERTY = "pm.dexopt.disable_bg_dexopt"
_NO_SERVICE, _NO_COMMAND = 20, 127  # status of `cmd` without the service; of a shell
LEVEL_FULL = "100"  # of a switch that is a level: charging stops above it
# Since Android 7 the shell may allow itself to count its own cycles, as profilers do
# (AOSP, sepolicy commit 38ac77e4: "expose control over unpriv perf access to shell").
COUNTER_PROPERTY = "security.perf_harden"


@dataclass(frozen=True)
class QuietSetting:
    """A setting and the value that makes the phone quieter."""

    namespace: str
    name: str
    value: str
    wired_only: bool = False

    @property
    def key(self) -> str:
        """The key of this setting in the journal."""
        return f"{self.namespace} {self.name}"

    def put_command(self) -> ShellCommand:
        """The command that sets it."""
        if self.key == AIRPLANE:
            return ShellCommand(["cmd", "connectivity", "airplane-mode", "enable"])
        return ShellCommand(["settings", "put", self.namespace, self.name, self.value])


QUIET_SETTINGS = (
    # The screen stays on while connected (7: any charger): a sleeping phone lowers its clocks.
    QuietSetting("global", "stay_on_while_plugged_in", "7"),
    # ... and as dark as possible: the panel heats, and automatic brightness varies the heat.
    QuietSetting("system", "screen_brightness_mode", "0"),
    QuietSetting("system", "screen_brightness", "1"),
    QuietSetting("system", "accelerometer_rotation", "0"),
    # Animations and pop-ups wake the GPU and the big cores.
    QuietSetting("global", "window_animation_scale", "0"),
    QuietSetting("global", "transition_animation_scale", "0"),
    QuietSetting("global", "animator_duration_scale", "0"),
    QuietSetting("global", "heads_up_notifications_enabled", "0"),
    # The battery saver caps clocks without any node that shows it.
    QuietSetting("global", "low_power", "0"),
    # No system update, and no scan for networks in the background.
    QuietSetting("global", "ota_disable_automatic_update", "1"),
    QuietSetting("global", "wifi_scan_always_enabled", "0"),
    QuietSetting("global", "ble_scan_always_enabled", "0"),
    # Radios: no sync, no scans. Never on Wi-Fi adb: airplane mode would cut our own connection.
    QuietSetting("global", "airplane_mode_on", "1", wired_only=True),
)
_NAMESPACES = ("global", "system")
_DOZE_QUERY = ShellCommand(["dumpsys", "deviceidle", "enabled"])
_DATA_SAVER_QUERY = ShellCommand(["cmd", "netpolicy", "get", "restrict-background"])
_SDK_QUERY = ShellCommand(["getprop", "ro.build.version.sdk"])
_DEXOPT_QUERY = ShellCommand(["getprop", DEXOPT_PROPERTY])
_COUNTER_QUERY = ShellCommand(["getprop", COUNTER_PROPERTY])
_MODE_QUERIES = (_DOZE_QUERY, _DATA_SAVER_QUERY, _SDK_QUERY, _DEXOPT_QUERY, _COUNTER_QUERY)
_WAKE_QUERIES = (
    ShellCommand(["sh", "-c", "dumpsys power | grep mWakefulness="]),
    ShellCommand(["test", "-w", WAKE_LOCK]),
)
_WAKE = ShellCommand(["input", "keyevent", "KEYCODE_WAKEUP"])


@dataclass(frozen=True)
class QuietStep:
    """One change, the command that makes it, and the value that shows then."""

    change: ReversibleChange
    command: ShellCommand
    wanted: str = ""

    @property
    def check(self) -> ShellCommand | None:
        """The command that shows whether the phone obeyed; modes of Android show nothing."""
        return self.change.check_command()

    def is_refused(self, result: ShellResult, shown: ShellResult | None) -> bool:
        """Whether the phone kept its old value, whatever the command printed."""
        if shown is None or shown.status != 0:
            return result.status != 0
        return self.change.shown_value(shown.text) != self.wanted


def quiet_settings(address: str) -> tuple[QuietSetting, ...]:
    """The settings for a phone by its adb address."""
    over_network = is_over_network(address)
    return tuple(setting for setting in QUIET_SETTINGS if not (setting.wired_only and over_network))


def quiet_queries(phone: Phone) -> list[ShellCommand]:
    """The commands that show which settings are not quiet."""
    queries = [ShellCommand(["settings", "list", namespace]) for namespace in _NAMESPACES]
    charging = phone.facts.charging
    switch = [ShellCommand(["cat", charging.path])] if charging is not None else []
    return [*queries, *_MODE_QUERIES, *_WAKE_QUERIES, *switch]


def quiesce(
    phone: Phone, journal: RestoreJournal, answers: Sequence[ShellResult] = ()
) -> tuple[str, ...]:
    """Wake the phone, make it quiet, and stop charging last; return the settings that it refused.

    `answers` are those to quiet_queries. Every change is read back: several vendors refuse changes
    by adb until a switch of theirs is set, and some of their commands fail without a status.
    """
    results = answers or phone.shell_batch(quiet_queries(phone))
    charging = phone.facts.charging
    lists, rest = results[: len(_NAMESPACES)], results[len(_NAMESPACES) :]
    modes, rest = rest[: len(_MODE_QUERIES)], rest[len(_MODE_QUERIES) :]
    wakefulness, lock = rest[: len(_WAKE_QUERIES)]
    steps = [*_setting_steps(phone, lists), *_mode_steps(phone, *modes)]
    if phone.facts.rooted and lock.status == 0:  # a phone whose charger is cut may go to sleep
        steps.append(_mode_step("wake-lock", ON))
    if charging is not None:
        steps += charging_steps(charging, results[-1].text.strip())
    is_asleep = "mWakefulness=" in wakefulness.text and "=Awake" not in wakefulness.text
    wake = [_WAKE] if is_asleep else []
    if not steps and not wake:
        return ()
    journal.record_changes([step.change for step in steps])
    checks = {check.line(): check for step in steps if (check := step.check) is not None}
    commands = [*wake, *(step.command for step in steps), *checks.values()]
    results = phone.shell_batch(commands)[len(wake) :]
    shown = dict(zip(checks, results[len(steps) :], strict=True))
    return tuple(_refused_keys(steps, results, shown))


def _refused_keys(
    steps: Sequence[QuietStep], results: Sequence[ShellResult], shown: Mapping[str, ShellResult]
) -> Iterator[str]:
    for step, result in zip(steps, results, strict=False):
        if result.status != 0 and step.change.kind is ChangeKind.NODE:
            raise ShellFailed(f"charging cannot be stopped: {safe_text(result.text, 80)}")
        check = step.check
        if step.is_refused(result, shown[check.line()] if check is not None else None):
            yield step.change.key


def _setting_steps(phone: Phone, lists: Sequence[ShellResult]) -> Iterator[QuietStep]:
    values: dict[str, str] = {}
    for namespace, result in zip(_NAMESPACES, lists, strict=True):
        if result.status == 0:
            pairs = (line.partition("=") for line in result.text.splitlines())
            values |= {f"{namespace} {name}": safe_text(value, 200) for name, _, value in pairs}
    if not values:
        check_framework(lists)
        return
    for setting in quiet_settings(phone.address):
        old = values.get(setting.key, UNSET)
        if old != setting.value:
            change = ReversibleChange(kind=ChangeKind.SETTING, key=setting.key, old=old)
            yield QuietStep(change, setting.put_command(), setting.value)


def check_framework(lists: Sequence[ShellResult]) -> None:
    """Fail if the framework refuses to answer; it may not have started yet, or there is none.

    SELinux keeps the root shell of some variants of KernelSU from calling it:
    https://github.com/SukiSU-Ultra/SukiSU-Ultra/issues/303
    """
    for result in lists:
        if result.status not in {0, _NO_SERVICE, _NO_COMMAND}:
            raise ShellFailed(
                f"the settings of Android cannot be read: {safe_text(result.text, 80)}; if `su` is "
                "the cause, allow its shell to call services, or deny root to the shell"
            )


def charging_steps(charging: ChargingSwitch, present: str) -> Iterator[QuietStep]:
    """Stop charging; where the switch is a level in percent, the owner may have set another one."""
    is_level = charging.on == LEVEL_FULL and re.fullmatch("[0-9]{1,3}", present) is not None
    if present == charging.on or (is_level and present != charging.off):
        change = ReversibleChange(kind=ChangeKind.NODE, key=charging.path, old=present)
        command = write_node_command(charging.path, charging.off)
        yield QuietStep(change, command, charging.off)


def _mode_steps(
    phone: Phone,
    doze: ShellResult,
    saver: ShellResult,
    sdk: ShellResult,
    dexopt: ShellResult,
    counters: ShellResult,
) -> Iterator[QuietStep]:
    if doze.text.strip() == "1":  # Doze throttles background work while the screen is off
        yield _mode_step("doze", OFF)
    if is_over_network(phone.address) and saver.text.strip().endswith("disabled"):
        yield _mode_step("data-saver", ON)  # over Wi-Fi the radio stays on, so reduce its traffic
    if (first_number(sdk.text) or 0) >= SDK_DEXOPT_COMMAND:
        yield _mode_step("dexopt", OFF)
    elif phone.facts.rooted and dexopt.text.strip() != "true":
        yield _property_step(DEXOPT_PROPERTY, dexopt, "true")
    if not phone.facts.rooted and counters.text.strip() == "1":
        yield _property_step(COUNTER_PROPERTY, counters, "0")


def _property_step(name: str, shown: ShellResult, wanted: str) -> QuietStep:
    old = safe_text(shown.text, 40)
    change = ReversibleChange(kind=ChangeKind.PROPERTY, key=f"property {name}", old=old)
    return QuietStep(change, ShellCommand(["setprop", name, wanted]), wanted)


def _mode_step(name: str, wanted: str) -> QuietStep:
    old = OFF if wanted == ON else ON
    change = ReversibleChange(kind=ChangeKind.MODE, key=f"mode {name}", old=old)
    return QuietStep(change, ShellCommand(FRAMEWORK_MODES[name][wanted]))
