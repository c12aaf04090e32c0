"""A change: one thing that is about to be changed on a phone, and how it is undone. Pure.

Each kind is undone in its own way, and only what stands in these tables can be: a list of changes
that comes from a phone is the phone's word.
"""

import re
from typing import Literal

from pydantic import Field

from agent.phone.phone import Command, is_writable, writing
from workloads.noun import Noun

AIRPLANE = "global airplane_mode_on"  # the radios listen to a command, not to the setting
ON, OFF = "on", "off"
_UNSET = "null"  # what `settings get` prints for a setting that was never made

Kind = Literal["node", "setting", "service", "property", "mode"]
_FIXED = ["cmd", "power", "set-fixed-performance-mode-enabled"]
_SAVER = ["cmd", "netpolicy", "set", "restrict-background"]
_DEXOPT = ["pm", "bg-dexopt-job"]
# States of the framework that are switched by a command, and how.
MODES: dict[str, dict[str, list[str]]] = {
    "fixed-performance": {ON: [*_FIXED, "true"], OFF: [*_FIXED, "false"]},
    "doze": {ON: ["dumpsys", "deviceidle", "enable"], OFF: ["dumpsys", "deviceidle", "disable"]},
    "data-saver": {ON: [*_SAVER, "true"], OFF: [*_SAVER, "false"]},
    "dexopt": {ON: [*_DEXOPT, "--enable"], OFF: [*_DEXOPT, "--disable"]},
}
_SHAPES: dict[Kind, re.Pattern[str]] = {
    "setting": re.compile(r"(global|system|secure) [a-z0-9_.]{1,64}"),
    "service": re.compile(r"service [A-Za-z0-9_.-]{1,64}"),
    "property": re.compile(r"property [a-z0-9_.]{1,64}"),
    "mode": re.compile(rf"mode ({'|'.join(MODES)})"),
}
# What does not outlive a reboot: kernel and init make these anew.
FORGOTTEN_AT_BOOT: frozenset[Kind] = frozenset({"node", "service", "property"})


class Change(Noun):
    """One thing that is about to be changed, and its value before."""

    kind: Kind
    key: str = Field(description="a node's path, 'global screen_brightness', 'service perfd', ...")
    old: str

    def line(self) -> str:
        """As the phone's own list has it."""
        return f"{self.key}\t{self.old}\n"

    def undo(self) -> Command:
        """The command that puts the old value back."""
        if self.kind == "node":
            return writing(self.key, self.old)
        if self.key == AIRPLANE:
            was = "enable" if self.old == "1" else "disable"
            return Command(["cmd", "connectivity", "airplane-mode", was])
        space, name = self.key.split(" ")
        if self.kind == "service":
            return Command(["start", name])
        if self.kind == "property":
            return Command(["setprop", name, self.old])
        if self.kind == "mode":
            return Command(MODES[name][ON if self.old == ON else OFF])
        if self.old == _UNSET:
            return Command(["settings", "delete", space, name])
        return Command(["settings", "put", space, name, self.old])

    def look(self) -> Command | None:
        """The command that shows whether it was undone; None where nothing tells."""
        if self.kind == "node":
            return Command(["cat", self.key])
        space, name = self.key.split(" ")
        looks = {
            "setting": ["settings", "get", space, name],
            "service": ["getprop", f"init.svc.{name}"],
            "property": ["getprop", name],
        }
        return Command(looks[self.kind]) if self.kind in looks else None

    def is_undone(self, text: str) -> bool:
        """Whether what the look shows is what stood there before."""
        if self.kind == "service":  # init takes its time
            return text.strip() in {self.old, "restarting", ""}
        return text.strip() == self.old.strip()


def parse_changes(text: str) -> tuple[Change, ...]:
    """Read a list of changes from the phone; lines that name nothing we change are skipped."""
    changes = []
    for line in text.splitlines():
        key, tab, old = line.partition("\t")
        kind = _kind_of(key) if tab else None
        if kind is not None:
            changes.append(Change(kind=kind, key=key, old=old))
    return tuple(changes)


def _kind_of(key: str) -> Kind | None:
    if is_writable(key):
        return "node"
    return next((kind for kind, shape in _SHAPES.items() if shape.fullmatch(key)), None)
