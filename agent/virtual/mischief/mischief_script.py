"""What is planned: which trouble, on which phones, when, for how long. Pure.

The same words serve the script file, the control socket and the command line.
"""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path

from agent.virtual.mischief.effect import BadMischief
from agent.virtual.mischief.kinds import make

_RUN_SHARE = re.compile(r"run@(\d+(?:\.\d+)?)%")
_EVENT = re.compile(r"[a-z_]+")
# People say service and write; the journal says open and sysfs.
_ALIASES = {"service": "open", "write": "sysfs"}
_NUMBERS = ("after", "after_host", "jitter", "for", "for_host", "some", "chance", "times")


@dataclass(frozen=True, slots=True)
class Trigger:
    """The n-th event of a kind with a fact like a pattern, or a share of a run."""

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
        return Trigger("run_start", run_share=float(share[1]) / 100)
    rest, mark, number = text.rpartition("#")
    nth = int(number) if mark and number.isdigit() else 1
    event, _, pattern = (rest if mark and number.isdigit() else text).partition(":")
    if not _EVENT.fullmatch(event) or nth < 1:
        raise BadMischief(f"at='{text}' is no trigger; say EVENT[:GLOB][#N] or run@50%")
    return Trigger(_ALIASES.get(event, event), pattern or "*", nth)


@dataclass(frozen=True, slots=True)
class Plan:
    """One trouble as somebody planned it."""

    kind: str
    options: Mapping[str, object] = field(default_factory=dict)
    phones: tuple[str, ...] = ("*",)
    some: float = 1.0  # share of those phones, drawn by the seed
    at: str = ""
    after_s: float = 0.0  # of the phone's clock
    after_host_s: float = 0.0
    jitter_s: float = 0.0  # up to so many of the phone's seconds more, drawn by the seed
    for_s: float | None = None
    for_host_s: float | None = None
    times: int = 1  # 0: whenever the trigger comes
    chance: float = 1.0  # of each time, drawn by the seed

    @property
    def trigger(self) -> Trigger | None:
        return parse_trigger(self.at) if self.at else None

    def is_for(self, serial: str) -> bool:
        return any(fnmatchcase(serial, pattern) for pattern in self.phones)


def read_plan(words: Mapping[str, object]) -> Plan:
    """Check what somebody asks for; what is no word of the plan is an option of its kind."""
    left = dict(words)
    kind = str(left.pop("kind", "")).replace("-", "_")
    phones = left.pop("phones", left.pop("phone", "*"))
    at = str(left.pop("at", "") or "")
    numbers = {name: _number(name, left.pop(name, None)) for name in _NUMBERS}
    times = numbers["times"]
    plan = Plan(
        kind=kind,
        options=left,
        phones=tuple(map(str, phones)) if isinstance(phones, list | tuple) else (str(phones),),
        some=1.0 if numbers["some"] is None else numbers["some"],
        at=at,
        after_s=numbers["after"] or 0.0,
        after_host_s=numbers["after_host"] or 0.0,
        jitter_s=numbers["jitter"] or 0.0,
        for_s=numbers["for"],
        for_host_s=numbers["for_host"],
        times=1 if times is None else int(times),
        chance=1.0 if numbers["chance"] is None else numbers["chance"],
    )
    make(plan.kind, left)
    if plan.trigger is None and plan.times != 1:
        raise BadMischief("times needs a trigger to come again; say at=...")
    return plan


def read_script(path: Path) -> tuple[list[Plan], int | None]:
    """The plans of a file, and its seed where it names one."""
    try:
        content = tomllib.loads(path.read_text())
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadMischief(f"{path}: {error}") from None
    seed = content.pop("seed", None)
    entries = content.pop("mischief", [])
    if content or not isinstance(entries, list) or not isinstance(seed, int | None):
        raise BadMischief(f"{path}: holds [[mischief]] tables and perhaps a seed, nothing else")
    plans = []
    for number, entry in enumerate(entries, 1):
        try:
            plans.append(read_plan(entry))
        except BadMischief as error:
            raise BadMischief(f"{path}: mischief {number}: {error}") from None
    return plans, seed


def _number(name: str, value: object) -> float | None:
    if value is None:
        return None
    try:
        number = float(str(value))
    except ValueError:
        number = -1.0
    if not 0 <= number < 1e9:
        raise BadMischief(f"{name}={value} is not a number of at least 0")
    return number
