"""ReversibleChange: one setting that is about to be changed on a phone, and how it is undone. Pure.

Only the kinds in these tables can be undone: a list of changes that comes from a phone is not
trusted.
"""

import re
from enum import StrEnum

from pydantic import Field

from agent.phone.shell_command import ShellCommand, is_writable, write_node_command
from workloads.protocol.base import WireModel

AIRPLANE = "global airplane_mode_on"  # the radios react to a command, not to the setting
ON, OFF = "on", "off"
WAKE_LOCK = "/sys/power/wake_lock"  # root may keep the phone awake by a name in it
UNSET = "null"  # what `settings get` prints for a setting that was never written


class ChangeKind(StrEnum):
    """What is changed: a kernel node, or something of Android."""

    NODE = "node"
    SETTING = "setting"
    SERVICE = "service"
    PROPERTY = "property"
    MODE = "mode"


_FIXED = ["cmd", "power", "set-fixed-performance-mode-enabled"]
_SAVER = ["cmd", "netpolicy", "set", "restrict-background"]
_DEXOPT = ["pm", "bg-dexopt-job"]
# Modes of the framework that are switched by a command.
FRAMEWORK_MODES: dict[str, dict[str, list[str]]] = {
    "fixed-performance": {ON: [*_FIXED, "true"], OFF: [*_FIXED, "false"]},
    "doze": {ON: ["dumpsys", "deviceidle", "enable"], OFF: ["dumpsys", "deviceidle", "disable"]},
    "data-saver": {ON: [*_SAVER, "true"], OFF: [*_SAVER, "false"]},
    "dexopt": {ON: [*_DEXOPT, "--enable"], OFF: [*_DEXOPT, "--disable"]},
    # It may be released twice.
    "wake-lock": {
        ON: ["sh", "-c", f"echo farmhand >{WAKE_LOCK}"],
        OFF: ["sh", "-c", "echo farmhand >/sys/power/wake_unlock 2>/dev/null || :"],
    },
}
_KEY_PATTERNS: dict[ChangeKind, re.Pattern[str]] = {
    ChangeKind.SETTING: re.compile(r"(global|system|secure) [a-z0-9_.]{1,64}"),
    ChangeKind.SERVICE: re.compile(r"service [A-Za-z0-9_.-]{1,64}"),
    ChangeKind.PROPERTY: re.compile(r"property [a-z0-9_.]{1,64}"),
    ChangeKind.MODE: re.compile(rf"mode ({'|'.join(FRAMEWORK_MODES)})"),
}
# A reboot resets these: kernel and init start from their defaults.
RESET_BY_REBOOT = frozenset({ChangeKind.NODE, ChangeKind.SERVICE, ChangeKind.PROPERTY})


class ReversibleChange(WireModel):
    """One setting that is about to be changed, and its old value."""

    kind: ChangeKind
    key: str = Field(description="a node's path, 'global screen_brightness', 'service perfd', ...")
    old: str

    def line(self) -> str:
        """The line of this change in the phone's own list."""
        return f"{self.key}\t{self.old}\n"

    def undo_command(self) -> ShellCommand:
        """The command that restores the old value."""
        if self.kind is ChangeKind.NODE:
            return write_node_command(self.key, self.old)
        if self.key == AIRPLANE:
            action = "enable" if self.old == "1" else "disable"
            return ShellCommand(["cmd", "connectivity", "airplane-mode", action])
        namespace, name = self.key.split(" ")
        if self.kind is ChangeKind.SERVICE:
            return ShellCommand(["start", name])
        if self.kind is ChangeKind.PROPERTY:
            return ShellCommand(["setprop", name, self.old])
        if self.kind is ChangeKind.MODE:
            return ShellCommand(FRAMEWORK_MODES[name][ON if self.old == ON else OFF])
        if self.old == UNSET:
            return ShellCommand(["settings", "delete", namespace, name])
        return ShellCommand(["settings", "put", namespace, name, self.old])

    def check_command(self) -> ShellCommand | None:
        """The command that shows whether the change was undone; None where none does."""
        if self.kind is ChangeKind.NODE:
            return ShellCommand(["cat", self.key])
        namespace, name = self.key.split(" ")
        queries = {
            ChangeKind.SETTING: ["settings", "list", namespace],  # one call serves all settings
            ChangeKind.SERVICE: ["getprop", f"init.svc.{name}"],
            ChangeKind.PROPERTY: ["getprop", name],
        }
        return ShellCommand(queries[self.kind]) if self.kind in queries else None

    def shown_value(self, text: str) -> str:
        """The present value in the output of the check command."""
        if self.kind is not ChangeKind.SETTING:
            return text.strip()
        name = self.key.partition(" ")[2]
        lines = (line.partition("=") for line in text.splitlines())
        return next((value.strip() for found, _, value in lines if found == name), UNSET)

    def is_undone(self, text: str) -> bool:
        """Whether the output of the check command is the old value."""
        if self.kind is ChangeKind.SERVICE:  # init takes a moment to start it
            return text.strip() in {self.old, "restarting", ""}
        if self.kind is ChangeKind.SETTING:
            return self.shown_value(text) == self.old.strip()
        return text.strip() == self.old.strip()


def parse_changes(text: str) -> tuple[ReversibleChange, ...]:
    """Parse a list of changes from the phone; lines that name nothing we change are skipped."""
    changes = []
    for line in text.splitlines():
        key, tab, old = line.partition("\t")
        kind = _kind_of_key(key) if tab else None
        if kind is not None:
            changes.append(ReversibleChange(kind=kind, key=key, old=old))
    return tuple(changes)


def _kind_of_key(key: str) -> ChangeKind | None:
    if is_writable(key):
        return ChangeKind.NODE
    return next((kind for kind, shape in _KEY_PATTERNS.items() if shape.fullmatch(key)), None)
