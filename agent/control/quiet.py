"""Quiet: the handful of settings that make a phone hold still, each put back as it was."""

from dataclasses import dataclass

from agent.control.change import AIRPLANE, Change
from agent.control.journal import Journal
from agent.phone.phone import Command, Phone
from workloads.text import safe_text


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
    # Animations wake the GPU and the big cores.
    Setting("global", "window_animation_scale", "0"),
    Setting("global", "transition_animation_scale", "0"),
    Setting("global", "animator_duration_scale", "0"),
    # The battery saver caps clocks below any node that shows it.
    Setting("global", "low_power", "0"),
    # Radios: no sync, no scans. A phone on Wi-Fi would saw off the branch it sits on.
    Setting("global", "airplane_mode_on", "1", wired_only=True),
)


def settings_for(address: str) -> tuple[Setting, ...]:
    """What is set on a phone, by the way it is reached: host:port means by network."""
    return tuple(setting for setting in QUIET if not (setting.wired_only and ":" in address))


def hush(phone: Phone, journal: Journal) -> None:
    """Make the phone quiet; what is so already is not touched."""
    settings = settings_for(phone.address)
    answers = phone.batch([setting.get() for setting in settings])
    loud = [
        (setting, safe_text(answer.text, 200))
        for setting, answer in zip(settings, answers, strict=True)
        if answer.status == 0 and answer.text.strip() != setting.value
    ]
    journal.note([Change(kind="setting", key=setting.key, old=old) for setting, old in loud])
    if loud:
        phone.batch([setting.put() for setting, _ in loud])
