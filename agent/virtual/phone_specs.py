"""Which phones a shelf holds: words on the command line, or a small TOML file, to specs.

A fleet file is a list of tables; every key but `profile` may be left out:

    [[phone]]
    profile = "meizu-16t"
    count = 3          # units of this model; the first is nominal, the others differ a little
    serial = "LAB01"   # only where count is 1
    speed = 100.0      # model seconds per second; the command line's where absent
    stock = true       # as sold: no su, and nodes that a shell may not read
    userdebug = true   # adb root works
    native = true      # commands really run on this host; no heat, clock or battery
"""

import tomllib
from dataclasses import dataclass, replace
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from agent.virtual.fleet import make_fleet
from agent.virtual.profiles import profile_ids

_MANNERS = ("stock", "userdebug", "native")


@dataclass(frozen=True, slots=True)
class PhoneSpec:
    """One phone to be."""

    profile: str
    serial: str | None = None
    unit: int = 1
    speed: float | None = None
    stock: bool = False
    native: bool = False
    userdebug: bool = False
    seed: int | None = None


class _Entry(BaseModel):
    model_config = ConfigDict(extra="forbid")

    profile: str
    serial: str | None = None
    count: int = Field(default=1, ge=1, le=1000)
    speed: float | None = Field(default=None, gt=0)
    stock: bool = False
    native: bool = False
    userdebug: bool = False

    @model_validator(mode="after")
    def _one_serial_names_one_phone(self) -> "_Entry":
        if self.serial and self.count > 1:
            raise ValueError(f"serial {self.serial} cannot name {self.count} phones")
        return self


class _Fleet(BaseModel):
    model_config = ConfigDict(extra="forbid")

    phone: list[_Entry] = Field(min_length=1)


def read_words(words: tuple[str, ...], count: int = 1) -> tuple[PhoneSpec, ...]:
    """Specs of PROFILE[:MANNER]..[=SERIAL] words, so many units of each."""
    specs: list[PhoneSpec] = []
    for word in words:
        head, _, serial = word.partition("=")
        name, *manners = head.split(":")
        if strange := [manner for manner in manners if manner not in _MANNERS]:
            raise ValueError(f"'{strange[0]}' is no manner of a phone; say {', '.join(_MANNERS)}")
        chosen = {manner: manner in manners for manner in _MANNERS}
        spec = PhoneSpec(known(name), serial or None, **chosen)
        specs += [replace(spec, unit=unit) for unit in range(1, count + 1)]
    return tuple(specs)


def read_fleet(path: Path) -> tuple[PhoneSpec, ...]:
    """Specs of a fleet file; units of one model are counted through the whole file."""
    try:
        fleet = _Fleet.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    except (tomllib.TOMLDecodeError, ValidationError) as error:
        raise ValueError(f"{path}: {_first_sentence(error)}") from None
    units: dict[str, int] = {}
    specs: list[PhoneSpec] = []
    for entry in fleet.phone:
        for _ in range(entry.count):
            units[entry.profile] = unit = units.get(entry.profile, 0) + 1
            name = known(entry.profile)
            facts = entry.model_dump(exclude={"profile", "count"})
            specs.append(PhoneSpec(name, unit=unit, **facts))
    return tuple(specs)


def mixed(count: int, seed: int) -> tuple[PhoneSpec, ...]:
    """So many phones in the mix one meets; none of them is the nominal unit of its model."""
    return tuple(
        PhoneSpec(each.profile, each.serial, unit=2, seed=each.seed)
        for each in make_fleet(count, seed)
    )


def known(name: str) -> str:
    """The profile's name, if there is such a profile."""
    if name not in profile_ids():
        raise ValueError(f"no profile '{name}'; there are {', '.join(profile_ids())}")
    return name


def _first_sentence(error: Exception) -> str:
    if isinstance(error, ValidationError):
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        return f"{where}: {first['msg']}"
    return str(error)
