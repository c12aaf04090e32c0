"""A foreign program as a workload: its manifest and its command line.

The manifest travels inside the case, so the case's digest covers it; files are named by digest.
What the program printed is read elsewhere (workloads/printed.py).
"""

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from workloads.noun import Noun
from workloads.text import safe_text

VERSION = 1
PRINTED_BYTES_MAX = 1024 * 1024  # of stdout, and of stderr
REGEX_MAX = 400
WORDS_MAX = 200
FILES_MAX = 32
LAUNCH_NAMES = ("threads", "warmup", "steps", "seconds", "max_seconds")
UNITS_NS = {"ns": 1.0, "us": 1e3, "ms": 1e6, "s": 1e9}
PER_SECOND = "1/s"
UNITS = (*UNITS_NS, PER_SECOND)
SIZES_KB = {"bytes": 1 / 1024, "kB": 1.0, "MB": 1024.0}
GROUPS = ("time", "n", "min", "max")

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,40}")
_FILE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,100}")
_PARAMETER = re.compile(r"[a-z][a-z0-9_]{0,40}")
_VARIABLE = re.compile(r"[A-Z_][A-Z0-9_]{0,60}")
_PATH = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+){0,7}")
_DIGEST = re.compile(r"[0-9a-f]{64}")
_HOLE = re.compile(r"\{\{|\}\}|\{([^{}]*)\}")
# Python's regex tries every way to match; what is repeated twice over has too many of them.
_REPEATED_GROUP = re.compile(r"(?<!\\)\)[*+{]")


def check_name(name: str) -> str:
    """Accept the name of a manifest."""
    if not _NAME.fullmatch(name):
        raise ValueError(
            f"'{safe_text(name, 60)}' is not a name; write letters, digits, '.', '_', '-'"
        )
    return name


def check_file_name(name: str) -> str:
    """Accept a plain file name."""
    if not _FILE.fullmatch(name):
        raise ValueError(
            f"'{safe_text(name, 60)}' is not a plain file name; folders are not pushed"
        )
    return name


def check_digest(digest: str) -> str:
    """Accept a SHA-256 in hexadecimal."""
    if not _DIGEST.fullmatch(digest):
        raise ValueError(f"'{safe_text(digest, 20)}' is no SHA-256; write what sha256sum prints")
    return digest


def check_parameter_name(name: str) -> str:
    """Accept the name of a parameter."""
    if not _PARAMETER.fullmatch(name) or name in LAUNCH_NAMES:
        taken = f"and none of {', '.join(LAUNCH_NAMES)}"
        raise ValueError(f"'{safe_text(name, 60)}' is no name here; write small letters, {taken}")
    return name


def check_variable(name: str) -> str:
    """Accept the name of an environment variable."""
    if not _VARIABLE.fullmatch(name):
        raise ValueError(f"'{safe_text(name, 60)}' is not the name of a variable; write capitals")
    return name


def check_json_path(path: str) -> str:
    """Accept keys with points between them."""
    if not _PATH.fullmatch(path):
        raise ValueError(f"'{safe_text(path, 60)}' is no path; write keys such as results.time_ns")
    return path


def check_regex(regex: str) -> str:
    """Accept a regular expression; what may run away is refused as far as that can be seen."""
    if len(regex) > REGEX_MAX:
        raise ValueError(f"the regex has {len(regex)} characters; {REGEX_MAX} are enough")
    if _REPEATED_GROUP.search(regex):
        raise ValueError("a repeated group may take for ever; repeat single characters only")
    try:
        re.compile(regex)
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(f"this is no regex: {safe_text(error, 80)}") from None
    return regex


def check_step_regex(regex: str) -> str:
    """Accept a regex that finds times: in its only group, or in the one that is called `time`."""
    compiled = re.compile(check_regex(regex))
    unknown = sorted(set(compiled.groupindex) - set(GROUPS))
    if unknown:
        has = ", ".join(GROUPS)
        raise ValueError(f"the group '{safe_text(unknown[0], 40)}' means nothing; there are {has}")
    if "time" not in compiled.groupindex and (compiled.groups != 1 or compiled.groupindex):
        raise ValueError("the regex needs one group, or one that is called time: (?P<time>[0-9.]+)")
    return regex


def check_number_regex(regex: str) -> str:
    """Accept a regex that finds single numbers."""
    if re.compile(check_regex(regex)).groups != 1:
        raise ValueError("the regex needs exactly one group, around the number")
    return regex


def holes(word: str) -> Iterator[str]:
    """The names in braces in a word of the command."""
    rest = _HOLE.sub("", word)
    if "{" in rest or "}" in rest:
        raise ValueError(f"a brace is left open in '{safe_text(word, 60)}'; write {{{{ for a brace")
    return (hole[1] for hole in _HOLE.finditer(word) if hole[1] is not None)


def check_word(word: str, known: frozenset[str]) -> str:
    """Accept a word of the command whose holes can all be filled."""
    for name in holes(word):
        if name not in known:
            there = ", ".join(sorted(known))
            raise ValueError(f"nothing is called '{safe_text(name, 40)}'; there are {there}")
    if "\0" in word or "\n" in word:
        raise ValueError("a word of the command is one line")
    return word


class ForeignFile(Noun):
    """A file that has to be on the phone, known by its content."""

    name: Annotated[str, AfterValidator(check_file_name)]
    sha256: Annotated[str, AfterValidator(check_digest)]


class ForeignParameter(Noun):
    """A whole number that a sweep may choose."""

    name: Annotated[str, AfterValidator(check_parameter_name)]
    default: int
    least: int
    most: int
    text: str = ""

    @model_validator(mode="after")
    def _default_is_within(self) -> Self:
        if not self.least <= self.default <= self.most:
            text = f"the default {self.default} is not within {self.least} to {self.most}"
            raise ValueError(text)
        return self


class StepRule(Noun):
    """Where a program tells how long its steps took."""

    json_path: Annotated[str, AfterValidator(check_json_path)] | None = None
    regex: Annotated[str, AfterValidator(check_step_regex)] | None = None
    unit: Literal["ns", "us", "ms", "s", "1/s"]
    take: Literal["all", "first", "last"] = "all"
    n: int | str = Field(default=1, description="steps behind one time; or a parameter's name")
    skip: int | str = Field(default=0, description="first steps that do not count")

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if (self.json_path is None) == (self.regex is None):
            raise ValueError("steps are read from json or by regex: one of them")
        return self


class NumberRule(Noun):
    """Where a program tells some other number."""

    json_path: Annotated[str, AfterValidator(check_json_path)] | None = None
    regex: Annotated[str, AfterValidator(check_number_regex)] | None = None
    unit: Literal["bytes", "kB", "MB"] | None = None

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if (self.json_path is None) == (self.regex is None):
            raise ValueError("a number is read from json or by regex: one of them")
        return self


class Manifest(Noun):
    """A foreign program: what is pushed, how it is called, and how its numbers are read."""

    name: Annotated[str, AfterValidator(check_name)]
    text: str = Field(default="", max_length=200)
    files: tuple[ForeignFile, ...] = Field(min_length=1, max_length=FILES_MAX)
    parameters: tuple[ForeignParameter, ...] = ()
    environment: dict[Annotated[str, AfterValidator(check_variable)], str] = Field(
        default_factory=dict
    )
    command: tuple[str, ...] = Field(min_length=1, max_length=WORDS_MAX)
    threads: int | None = Field(default=None, ge=1, le=1024)
    training: bool = False
    samples_per_step: int | str = 1
    seconds_max: float = Field(default=600.0, gt=0, le=86400)
    step: StepRule
    loss: NumberRule | None = None
    peak_rss: NumberRule | None = None

    @property
    def known(self) -> frozenset[str]:
        """The names that may stand in braces."""
        return frozenset((*self._named, *LAUNCH_NAMES))

    @property
    def _named(self) -> list[str]:
        return [*(file.name for file in self.files), *(each.name for each in self.parameters)]

    @model_validator(mode="after")
    def _parts_agree(self) -> Self:
        for name in self._named:
            if self._named.count(name) > 1:
                raise ValueError(f"two files or parameters are called '{name}'")
        for word in (*self.command, *self.environment.values()):
            check_word(word, self.known)
        counts = (self.samples_per_step, self.step.n, self.step.skip)
        chosen = {each.name for each in self.parameters} | set(LAUNCH_NAMES)
        for count in counts:
            if isinstance(count, str) and count not in chosen:
                raise ValueError(f"no parameter is called '{safe_text(count, 40)}'")
        if self.training and self.loss is None:
            raise ValueError(UNSEEN_TRAINING)
        return self


UNSEEN_TRAINING = "a training whose loss is not seen is not believed; say where the loss is read"

Values = Mapping[str, int]  # parameters, and what the launch says


def fill(word: str, values: Mapping[str, str]) -> str:
    """A word of the command with its holes filled."""

    def filled(hole: "re.Match[str]") -> str:
        return values[hole[1]] if hole[1] is not None else hole[0][0]

    return _HOLE.sub(filled, word)


def value_of(count: int | str, values: Values) -> int:
    """A number of the manifest: as it stands, or a parameter's."""
    return values[count] if isinstance(count, str) else count
