"""Quiet: what makes a phone hold still: screen, radios, updates, optimisers, sleep and charger.

What is so already is not touched; everything else is put back as it was.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from agent.control.change import AIRPLANE, MODES, OFF, ON, Change
from agent.control.journal import Journal
from agent.phone.nodes import first_number
from agent.phone.phone import Answer, Command, Phone, writing
from workloads.fault import ShellFailed
from workloads.text import safe_text

SDK_DEXOPT_SWITCH = 34  # Android 14: the optimiser got a command of its own
DEXOPT_PROPERTY = "pm.dexopt.disable_bg_dexopt"


@dataclass(frozen=True)
class Setting:
    """A setting and the value that makes the phone quieter."""

    namespace: str
    name: str
    value: str
    wired_only: bool = False

    @property
    def key(self) -> str:
        """As the journal names it."""
        return f"{self.namespace} {self.name}"

    def get(self) -> Command:
        """Ask for its value."""
        return Command(["settings", "get", self.namespace, self.name])

    def put(self) -> Command:
        """Set it."""
        if self.key == AIRPLANE:
            return Command(["cmd", "connectivity", "airplane-mode", "enable"])
        return Command(["settings", "put", self.namespace, self.name, self.value])


QUIET = (
    # The screen stays on while on the cable (7: any charger): a sleeping phone drops its clocks.
    Setting("global", "stay_on_while_plugged_in", "7"),
    # ... and as dark as it goes: the panel heats, and automatic brightness heats as it likes.
    Setting("system", "screen_brightness_mode", "0"),
    Setting("system", "screen_brightness", "1"),
    Setting("system", "accelerometer_rotation", "0"),
    # Animations and pop-ups wake the GPU and the big cores.
    Setting("global", "window_animation_scale", "0"),
    Setting("global", "transition_animation_scale", "0"),
    Setting("global", "animator_duration_scale", "0"),
    Setting("global", "heads_up_notifications_enabled", "0"),
    # The battery saver caps clocks below any node that shows it.
    Setting("global", "low_power", "0"),
    # No update of the system, no search for networks while nobody looks.
    Setting("global", "ota_disable_automatic_update", "1"),
    Setting("global", "wifi_scan_always_enabled", "0"),
    Setting("global", "ble_scan_always_enabled", "0"),
    # Radios: no sync, no scans. A phone on Wi-Fi would saw off the branch it sits on.
    Setting("global", "airplane_mode_on", "1", wired_only=True),
)
_SPACES = ("global", "system")
_ASK_DOZE = Command(["dumpsys", "deviceidle", "enabled"])
_ASK_SAVER = Command(["cmd", "netpolicy", "get", "restrict-background"])
_ASK_SDK = Command(["getprop", "ro.build.version.sdk"])
_ASK_DEXOPT = Command(["getprop", DEXOPT_PROPERTY])


@dataclass(frozen=True)
class Step:
    """One change, and the command that makes it."""

    change: Change
    command: Command


def settings_for(address: str) -> tuple[Setting, ...]:
    """What is set on a phone, by the way it is reached: host:port means by network."""
    return tuple(setting for setting in QUIET if not (setting.wired_only and ":" in address))


def hush(phone: Phone, journal: Journal) -> None:
    """Make the phone quiet, and cut the charger off last."""
    questions = [Command(["settings", "list", space]) for space in _SPACES]
    questions += [_ASK_DOZE, _ASK_SAVER, _ASK_SDK, _ASK_DEXOPT]
    switch = phone.known.charging
    if switch is not None:
        questions.append(Command(["cat", switch.path]))
    answers = phone.batch(questions)
    steps = [
        *_settings(phone, answers[: len(_SPACES)]),
        *_modes(phone, *answers[len(_SPACES) : len(_SPACES) + 4]),
    ]
    if switch is not None and answers[-1].text.strip() == switch.on:
        change = Change(kind="node", key=switch.path, old=switch.on)
        steps.append(Step(change, writing(switch.path, switch.off)))
    if not steps:
        return
    journal.note([step.change for step in steps])
    for step, said in zip(steps, phone.batch([step.command for step in steps]), strict=True):
        if said.status != 0 and step.change.kind == "node":
            raise ShellFailed(f"The charger cannot be cut off: {safe_text(said.text, 80)}")


def _settings(phone: Phone, listed: list[Answer]) -> Iterator[Step]:
    found: dict[str, str] = {}
    for space, answer in zip(_SPACES, listed, strict=True):
        if answer.status == 0:
            pairs = (line.partition("=") for line in answer.text.splitlines())
            found |= {f"{space} {name}": safe_text(value, 200) for name, _, value in pairs}
    if not found:  # a framework that is not up yet, or none at all
        return
    for setting in settings_for(phone.address):
        old = found.get(setting.key, "null")
        if old != setting.value:
            yield Step(Change(kind="setting", key=setting.key, old=old), setting.put())


def _modes(
    phone: Phone, doze: Answer, saver: Answer, sdk: Answer, dexopt: Answer
) -> Iterator[Step]:
    if doze.text.strip() == "1":  # a phone that dozes holds back who works without a screen
        yield _mode("doze", OFF)
    if ":" in phone.address and saver.text.strip().endswith("disabled"):
        yield _mode("data-saver", ON)  # by network the radio stays, so its traffic has to go
    if (first_number(sdk.text) or 0) >= SDK_DEXOPT_SWITCH:
        yield _mode("dexopt", OFF)
    elif phone.known.rooted and dexopt.text.strip() != "true":
        change = Change(
            kind="property", key=f"property {DEXOPT_PROPERTY}", old=safe_text(dexopt.text, 40)
        )
        yield Step(change, Command(["setprop", DEXOPT_PROPERTY, "true"]))


def _mode(name: str, wanted: str) -> Step:
    change = Change(kind="mode", key=f"mode {name}", old=OFF if wanted == ON else ON)
    return Step(change, Command(MODES[name][wanted]))
