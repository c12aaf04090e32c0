"""Mischief scripts: which fault to inject into which phones, when, and for how long.

A TOML file, the control socket and the command line use the same keys. This module only parses
and checks; the injectors act.
"""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path

from agent.virtual.event_journal import JournalEvent
from agent.virtual.mischief.fault_registry import make_fault
from agent.virtual.mischief.fault_type import InvalidMischief

_RUN_SHARE = re.compile(r"run@(\d+(?:\.\d+)?)%")
# A trigger names an event of the journal, by one of these short names or in full. Commands are not
# in the journal, but can trigger a fault as well.
COMMAND = "command"
_SHORT_EVENTS = {
    COMMAND: COMMAND,
    "service": JournalEvent.ADB_SERVICE,
    "write": JournalEvent.SYSFS_WRITE,
    "push": JournalEvent.PUSH_START,
    "setting": JournalEvent.SETTING_WRITE,
    "property": JournalEvent.PROPERTY_WRITE,
}
_EVENTS = {**{event.value: event for event in JournalEvent}, **_SHORT_EVENTS}
_NUMBER_KEYS = (
    *("after", "after_host", "jitter", "for", "for_host", "every"),
    *("some", "chance", "times"),
)


@dataclass(frozen=True, slots=True)
class Trigger:
    """The n-th event of a kind with a fact that matches a glob, or a share of a run."""

    event: str
    pattern: str = "*"
    nth: int = 1
    run_share: float | None = None

    def matches(self, event: str, facts: Mapping[str, object]) -> bool:
        if event != self.event:
            return False
        return self.pattern == "*" or any(
            fnmatchcase(str(fact), self.pattern) for fact in facts.values()
        )


def parse_trigger(text: str) -> Trigger:
    """Read EVENT[:GLOB][#N] or run@X%."""
    if share := _RUN_SHARE.fullmatch(text):
        return Trigger(JournalEvent.RUN_START, run_share=float(share[1]) / 100)
    before, hash_sign, number = text.rpartition("#")
    is_numbered = bool(hash_sign) and number.isdigit()
    nth = int(number) if is_numbered else 1
    event, _, pattern = (before if is_numbered else text).partition(":")
    if event not in _EVENTS or nth < 1:
        raise InvalidMischief(
            f"at='{text}' is not a trigger; write EVENT[:GLOB][#N] or run@50%, "
            f"where EVENT is one of {', '.join(sorted(_EVENTS))}",
            key="at",
        )
    return Trigger(_EVENTS[event], pattern or "*", nth)


@dataclass(frozen=True, slots=True)
class MischiefPlan:
    """One fault to inject, and when."""

    kind: str
    options: Mapping[str, object] = field(default_factory=dict)
    phones: tuple[str, ...] = ("*",)
    some: float = 1.0  # share of those phones that gets the fault, drawn with the seed
    trigger_text: str = ""
    after_s: float = 0.0  # delay in phone seconds
    after_host_s: float = 0.0  # delay in host seconds
    jitter_s: float = 0.0  # extra delay of at most this many phone seconds, drawn with the seed
    for_s: float | None = None  # duration in phone seconds
    for_host_s: float | None = None  # duration in host seconds
    every_s: float = 0.0  # phone seconds between two starts of a fault with a duration
    until_text: str = ""  # the event that stops the fault
    times: int = 1  # how often the trigger may start the fault; 0: without limit
    chance: float = 1.0  # that a trigger starts the fault, drawn with the seed

    @property
    def trigger(self) -> Trigger | None:
        return parse_trigger(self.trigger_text) if self.trigger_text else None

    @property
    def until(self) -> Trigger | None:
        return parse_trigger(self.until_text) if self.until_text else None

    def matches_phone(self, serial: str) -> bool:
        return any(fnmatchcase(serial, pattern) for pattern in self.phones)


def parse_plan(entry: Mapping[str, object]) -> MischiefPlan:
    """Parse one entry; keys that are not listed here are options of the fault."""
    options = dict(entry)
    kind = str(options.pop("kind", "")).replace("-", "_")
    phones = options.pop("phones", options.pop("phone", "*"))
    trigger_text = str(options.pop("at", "") or "")
    until_text = str(options.pop("until", "") or "")
    numbers = {name: _parse_number(name, options.pop(name, None)) for name in _NUMBER_KEYS}
    times = numbers["times"]
    plan = MischiefPlan(
        kind=kind,
        options=options,
        phones=tuple(map(str, phones)) if isinstance(phones, list | tuple) else (str(phones),),
        some=1.0 if numbers["some"] is None else numbers["some"],
        trigger_text=trigger_text,
        after_s=numbers["after"] or 0.0,
        after_host_s=numbers["after_host"] or 0.0,
        jitter_s=numbers["jitter"] or 0.0,
        for_s=numbers["for"],
        for_host_s=numbers["for_host"],
        every_s=numbers["every"] or 0.0,
        until_text=until_text,
        times=1 if times is None else int(times),
        chance=1.0 if numbers["chance"] is None else numbers["chance"],
    )
    make_fault(plan.kind, options)
    if plan.trigger is None and plan.times != 1:
        raise InvalidMischief("times needs a trigger; add at=EVENT", key="times")
    if plan.every_s and not 0 < (plan.for_s or 0.0) < plan.every_s:
        raise InvalidMischief("every needs a shorter duration; add for=SECONDS", key="every")
    if plan.until is not None and (plan.until.run_share is not None or plan.until.nth > 1):
        raise InvalidMischief(f"until='{until_text}' is not EVENT[:GLOB]", key="until")
    return plan


def read_mischief_script(path: Path) -> tuple[list[MischiefPlan], int | None]:
    """Read the plans of a file, and its seed if it names one."""
    try:
        content = tomllib.loads(path.read_text())
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidMischief(f"{path}: {error}") from None
    seed = content.pop("seed", None)
    entries = content.pop("mischief", [])
    if content or not isinstance(entries, list) or not isinstance(seed, int | None):
        raise InvalidMischief(f"{path}: only [[mischief]] tables and a seed are allowed")
    plans = []
    for number, entry in enumerate(entries, 1):
        try:
            plans.append(parse_plan(entry))
        except InvalidMischief as error:
            raise InvalidMischief(f"{path}: mischief {number}: {error}", error.key) from None
    return plans, seed


def _parse_number(name: str, value: object) -> float | None:
    if value is None:
        return None
    try:
        number = float(str(value))
    except ValueError:
        number = -1.0
    if not 0 <= number < 1e9:
        raise InvalidMischief(f"{name}={value} is not a number of at least 0", key=name)
    return number
