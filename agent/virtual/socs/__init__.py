"""Tables of SoCs: reads and checks one TOML file per SoC, with measured curves and their source.

A curve has a row per clock step: kHz, CoreMark iterations per second, and milliwatts of one busy
core above the idle phone. A table with missing or unordered steps is refused.
"""

import itertools
import tomllib
from functools import cache
from pathlib import Path
from statistics import median
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from agent.virtual.socs.core_designs import CORE_DESIGNS

_FOLDER = Path(__file__).parent
_FULL_WORK_SHARE = 0.97  # below it, a step does less work per MHz than its neighbours

CurveRow = tuple[int, float, float]
CurveGrade = Literal["measured", "points", "family"]
SocMaker = Literal[
    "qualcomm", "samsung", "mediatek", "hisilicon", "nvidia", "unisoc", "apple", "other"
]


class _TablePart(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class CorePower(_TablePart):
    """Power of one busy core above idle: base + dyn·MHz·(1 + (clock/knee)³).

    The term in brackets is the square of the supply voltage relative to the lowest one; the knee
    is the clock at which that square has doubled.
    """

    base_mw: float = Field(gt=0)  # leakage, and what the cluster keeps awake around it
    dyn_uw_per_mhz: float = Field(gt=0)  # of one core at the lowest voltage
    knee_khz: float = Field(gt=0)

    def volts_squared(self, khz: float) -> float:
        """Return the square of the supply voltage relative to the lowest one."""
        return 1.0 + float((khz / self.knee_khz) ** 3)

    def dynamic_mw(self, khz: float) -> float:
        return self.dyn_uw_per_mhz * khz * self.volts_squared(khz) * 1e-6

    def milliwatts(self, khz: float) -> float:
        return self.base_mw + self.dynamic_mw(khz)


class SocCluster(_TablePart):
    """Cores that share a clock."""

    role: Literal["little", "mid", "big", "prime"]
    core: str
    design: str  # of Arm, or the nearest one: its family
    cpus: tuple[int, ...] = Field(min_length=1)
    part: int  # CPU part as /proc/cpuinfo prints it
    ladder_khz: tuple[int, ...]
    flops_per_cycle: float  # single precision, reached by a good matrix product
    curve: tuple[CurveRow, ...] = ()  # one row per step
    points: tuple[CurveRow, ...] = ()  # a few rows, if no more were published
    slow_steps: tuple[tuple[int, float], ...] = ()  # share of the usual work per MHz, with points
    power: CorePower | None = None  # fitted to the rows of all SoCs

    @model_validator(mode="after")
    def _check_steps(self) -> "SocCluster":
        if self.design not in CORE_DESIGNS:
            raise ValueError(f"unknown design '{self.design}'; use {', '.join(CORE_DESIGNS)}")
        for name, steps in (("ladder_khz", self.ladder_khz), ("curve", _clocks(self.curve))):
            if any(low >= high for low, high in itertools.pairwise(steps)):
                raise ValueError(f"{name} of {self.role} does not rise; sort its steps by clock")
        if len(self.ladder_khz) < 2 or self.ladder_khz[0] <= 0:
            raise ValueError(f"ladder_khz of {self.role} needs two or more positive clocks")
        if any(min(row) <= 0 for row in self.rows):
            raise ValueError(f"a row of {self.role} is not positive; measure that step again")
        missing = set(self.ladder_khz) - set(_clocks(self.curve))
        if self.curve and missing:
            raise ValueError(
                f"curve of {self.role} has no row for {min(missing)} kHz; measure every step"
            )
        strange = set(_clocks(self.rows)) - set(self.ladder_khz)
        if strange:
            raise ValueError(
                f"{min(strange)} kHz is not a step of {self.role}; add it to its ladder"
            )
        return self

    @property
    def rows(self) -> tuple[CurveRow, ...]:
        return self.curve or self.points

    @property
    def grade(self) -> CurveGrade:
        """Return where the power comes from."""
        return "measured" if self.curve else "points" if self.points else "family"

    @property
    def work_per_mhz(self) -> float:
        """Return CoreMark iterations per second and MHz of this kind of core."""
        rows = self.rows
        if rows:
            return median(work / khz * 1000 for khz, work, _ in rows)
        return CORE_DESIGNS[self.design].coremark_per_mhz

    @property
    def work_shares(self) -> tuple[float, ...]:
        """Return the work per MHz of each step relative to the usual one: 1, or less."""
        shares = {khz: work / khz * 1000 / self.work_per_mhz for khz, work, _ in self.curve}
        shares |= dict(self.slow_steps)
        return tuple(
            share if (share := shares.get(khz, 1.0)) < _FULL_WORK_SHARE else 1.0
            for khz in self.ladder_khz
        )

    @property
    def top_work(self) -> float:
        """Return CoreMark iterations per second at the highest clock."""
        return self.work_per_mhz * self.ladder_khz[-1] / 1000


class SocTable(_TablePart):
    """One SoC."""

    id: str
    name: str
    maker: SocMaker
    process_nm: int = Field(ge=2, le=45)
    measured_on: str = ""  # phone of the curves
    trust: Literal["verified", "unknown", "low", "none"] = "none"  # of its author in the curves
    sources: tuple[str, ...] = Field(min_length=1)
    cluster: tuple[SocCluster, ...] = Field(min_length=1)

    @property
    def is_measured(self) -> bool:
        """Return whether any curve or point of this SoC was measured."""
        return any(part.rows for part in self.cluster)

    def capacity(self, part: SocCluster) -> int:
        """Return cpu_capacity: 1024 is the fastest core."""
        return round(1024 * part.top_work / max(other.top_work for other in self.cluster))


class InvalidSoc(ValueError):
    """A SoC table that cannot be used, in one sentence."""


def read_soc(path: Path) -> SocTable:
    """Read one table; the error names the file and the first defect."""
    try:
        return SocTable.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InvalidSoc(f"{path.name}: {error}") from None
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        message = str(first["msg"]).removeprefix("Value error, ")
        raise InvalidSoc(f"{path.name}: {place}: {message}") from None


@cache
def load_soc(soc_id: str) -> SocTable:
    """Read a table of the project by its id, or any table by the path of its file."""
    if soc_id.endswith(".toml"):
        return read_soc(Path(soc_id))
    if soc_id not in soc_ids():
        raise InvalidSoc(f"unknown SoC '{soc_id}'; use one of {', '.join(soc_ids())}")
    return read_soc(soc_path(soc_id))


def soc_path(soc_id: str) -> Path:
    return _FOLDER / f"{soc_id}.toml"


@cache
def soc_ids() -> tuple[str, ...]:
    """Return the ids of all tables, sorted."""
    return tuple(sorted(path.stem for path in _FOLDER.glob("*.toml")))


def _clocks(rows: tuple[CurveRow, ...]) -> tuple[int, ...]:
    return tuple(row[0] for row in rows)
