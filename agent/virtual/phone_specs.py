"""Which phones a fleet has: parses command-line words and fleet files into specs.

A fleet file is a list of tables; every key except `profile` is optional:

    [[phone]]
    profile = "meizu-16t"  # or the path of a facts file that `farm phone capture` wrote
    count = 3          # units of this model; the first is nominal, the others differ slightly
    serial = "LAB01"   # only if count is 1
    speed = 100.0      # phone seconds per second, or "events"; default: the command line's
    stock = true       # as sold: no su, and nodes that the shell may not read
    userdebug = true   # adb root works
    native = true      # commands run on this host, with its own sensors
    no_opencl = true   # without the vendor's OpenCL library
    noise = "recorded" # times scatter as recorded on real phones; "low": by 1 to 2.5 %
    background = true  # an idle Android's bursts of work while something is measured
"""

import tomllib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    WrapValidator,
    model_validator,
)

from agent.virtual.facts_layout import is_facts_file
from agent.virtual.fleet_mix import make_fleet
from agent.virtual.physics.phone_noise import NoiseKind
from agent.virtual.profiles import load_profile, profile_ids
from workloads.cli_options import EVENT_TIME, EVENTS

# What each variant of a word sets.
_VARIANTS: dict[str, dict[str, object]] = {
    **{name: {name: True} for name in ("stock", "userdebug", "native", "no_opencl")},
    "quiet": {"noise": NoiseKind.LOW, "background": False},
    "noisy": {"noise": NoiseKind.RECORDED},
    "background": {"background": True},
}


@dataclass(frozen=True, slots=True)
class PhoneSpec:
    """One phone to create."""

    profile: str
    serial: str | None = None
    unit: int = 1
    speed: float | None = None
    stock: bool = False
    native: bool = False
    userdebug: bool = False
    no_opencl: bool = False
    seed: int | None = None
    noise: NoiseKind | None = None  # None: as the fleet's
    background: bool | None = None


_Speed = Annotated[
    float,
    Field(ge=0.1, le=10_000, allow_inf_nan=False),
    WrapValidator(lambda value, check: EVENT_TIME if value == EVENTS else check(value)),
]


class _FleetEntry(BaseModel):
    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    profile: str
    serial: str | None = None
    count: int = Field(default=1, ge=1, le=1000)
    speed: _Speed | None = None
    stock: bool = False
    native: bool = False
    userdebug: bool = False
    no_opencl: bool = False
    noise: NoiseKind | None = None
    background: bool | None = None

    @model_validator(mode="after")
    def _one_serial_names_one_phone(self) -> "_FleetEntry":
        if self.serial and self.count > 1:
            raise ValueError(
                f"serial '{self.serial}' cannot be used for {self.count} phones; set count = 1"
            )
        return self


class _FleetFile(BaseModel):
    model_config = ConfigDict(extra="forbid")

    phone: list[_FleetEntry] = Field(min_length=1)


def parse_phone_words(words: tuple[str, ...], count: int = 1) -> tuple[PhoneSpec, ...]:
    """Parse PROFILE[:VARIANT]..[=SERIAL] words, each into `count` units."""
    specs: list[PhoneSpec] = []
    for word in words:
        before_serial, _, serial = word.partition("=")
        name, *variants = before_serial.split(":")
        if unknown := [variant for variant in variants if variant not in _VARIANTS]:
            raise ValueError(f"unknown variant '{unknown[0]}'; use {', '.join(_VARIANTS)}")
        settings: dict[str, Any] = {}
        for variant in variants:
            settings |= _VARIANTS[variant]
        spec = replace(PhoneSpec(check_profile(name), serial or None), **settings)
        specs += [replace(spec, unit=unit) for unit in range(1, count + 1)]
    return tuple(specs)


def read_fleet_file(path: Path) -> tuple[PhoneSpec, ...]:
    """Read a fleet file; units of one model are numbered through the whole file."""
    try:
        fleet = _FleetFile.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    except (tomllib.TOMLDecodeError, ValidationError) as error:
        raise ValueError(f"{path}: {_describe_error(error)}") from None
    units: dict[str, int] = {}
    specs: list[PhoneSpec] = []
    for entry in fleet.phone:
        for _ in range(entry.count):
            units[entry.profile] = unit = units.get(entry.profile, 0) + 1
            name = check_profile(entry.profile)
            options = entry.model_dump(exclude={"profile", "count"})
            specs.append(PhoneSpec(name, unit=unit, **options))
    return tuple(specs)


def draw_mixed_phones(count: int, seed: int) -> tuple[PhoneSpec, ...]:
    """Draw phones in the mix of the field; none of them is the nominal unit of its model."""
    return tuple(
        PhoneSpec(phone.profile, phone.serial, unit=2, seed=phone.seed)
        for phone in make_fleet(count, seed)
    )


def check_profile(name: str) -> str:
    """Return the name if a profile has it, or if it is the path of a facts file or profile."""
    if is_facts_file(name):
        return name
    if name.endswith(".toml"):
        try:
            load_profile(name)
        except (OSError, ValueError, KeyError) as error:
            raise ValueError(f"{name} is not a profile: {_describe_error(error)}") from None
    elif name not in profile_ids():
        raise ValueError(f"unknown profile '{name}'; use one of {', '.join(profile_ids())}")
    return name


def _describe_error(error: Exception) -> str:
    if isinstance(error, ValidationError):
        first = error.errors()[0]
        location = ".".join(str(part) for part in first["loc"])
        return f"{location}: {first['msg']}"
    return f"it lacks {error}" if isinstance(error, KeyError) else str(error)
