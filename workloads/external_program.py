"""The manifest of an external program: what is pushed, how it is called, how its output is read.

The manifest is part of the case, so the case's digest covers it; files are identified by digest.
workloads/program_output.py parses the output.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from workloads.protocol.base import WireModel
from workloads.protocol.limits import MANIFEST_BYTES_MAX
from workloads.text import safe_text

VERSION = 1
PRINTED_BYTES_MAX = 1024 * 1024  # of stdout and of stderr, each
REGEX_MAX = 400
ARGUMENTS_MAX = 200
FILES_MAX = 32
LAUNCH_NAMES = ("threads", "warmup", "steps", "seconds", "max_seconds")
UNITS_NS = {"ns": 1.0, "us": 1e3, "ms": 1e6, "s": 1e9}
PER_SECOND = "1/s"
UNITS = (*UNITS_NS, PER_SECOND)
SIZES_KB = {"bytes": 1 / 1024, "kB": 1.0, "MB": 1024.0}
STEP_GROUPS = ("time", "n", "min", "max")

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,40}")
_FILE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,100}")
_PARAMETER = re.compile(r"[a-z][a-z0-9_]{0,40}")
_VARIABLE = re.compile(r"[A-Z_][A-Z0-9_]{0,60}")
_PATH = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+){0,7}")
_DIGEST = re.compile(r"[0-9a-f]{64}")
_PLACEHOLDER = re.compile(r"\{\{|\}\}|\{([^{}]*)\}")
# Python's regular expressions backtrack; a repeated group can take exponential time.
_REPEATED_GROUP = re.compile(r"(?<!\\)\)[*+{]")


def _check(text: str, pattern: "re.Pattern[str]", problem: str) -> str:
    if not pattern.fullmatch(text):
        raise ValueError(f"'{safe_text(text, 60)}' {problem}")
    return text


def check_name(name: str) -> str:
    """Return the name of a program if it is valid."""
    return _check(name, _NAME, "is not a valid name; use a-z, 0-9, '.', '_' and '-'")


def check_file_name(name: str) -> str:
    """Return a file name if it is plain, without folders."""
    return _check(name, _FILE, "is not a plain file name; use A-Z, a-z, 0-9 and _.+-")


def check_digest(digest: str) -> str:
    """Return a SHA-256 in hexadecimal if it is valid."""
    return _check(digest, _DIGEST, "is not a SHA-256; use the output of sha256sum")


def check_parameter_name(name: str) -> str:
    """Return the name of a parameter if it is valid and not reserved."""
    if name in LAUNCH_NAMES:
        raise ValueError(f"'{name}' is reserved, like {', '.join(LAUNCH_NAMES)}; use another name")
    return _check(name, _PARAMETER, "is not a valid name; use a-z, 0-9 and '_'")


def check_variable(name: str) -> str:
    """Return the name of an environment variable if it is valid."""
    return _check(name, _VARIABLE, "is not a valid variable; use A-Z, 0-9 and '_'")


def check_json_path(path: str) -> str:
    """Return a path of JSON keys if it is valid."""
    return _check(path, _PATH, "is not a path of keys; use for example results.time_ns")


def check_regex(regex: str) -> str:
    """Return a regular expression if it is valid and not obviously exponential."""
    if len(regex) > REGEX_MAX:
        raise ValueError(f"the regex has {len(regex)} characters; at most {REGEX_MAX} are allowed")
    if _REPEATED_GROUP.search(regex):
        raise ValueError(
            "a repeated group can take exponential time; repeat single characters only"
        )
    try:
        re.compile(regex)
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(f"invalid regex: {safe_text(error, 80)}") from None
    return regex


def check_step_regex(regex: str) -> str:
    """Return a regex whose only group, or whose group `time`, matches times."""
    compiled = re.compile(check_regex(regex))
    unknown = sorted(set(compiled.groupindex) - set(STEP_GROUPS))
    if unknown:
        has = ", ".join(STEP_GROUPS)
        raise ValueError(f"unknown group '{safe_text(unknown[0], 40)}'; use {has}")
    if "time" not in compiled.groupindex and (compiled.groups != 1 or compiled.groupindex):
        raise ValueError("the regex needs one group, or one called time: (?P<time>[0-9.]+)")
    return regex


def check_number_regex(regex: str) -> str:
    """Return a regex whose only group matches numbers."""
    if re.compile(check_regex(regex)).groups != 1:
        raise ValueError("the regex needs exactly one group, around the number")
    return regex


def placeholders(argument: str) -> Iterator[str]:
    """Yield the names in braces in an argument."""
    rest = _PLACEHOLDER.sub("", argument)
    if "{" in rest or "}" in rest:
        raise ValueError(f"unmatched brace in '{safe_text(argument, 60)}'; use {{{{ for a brace")
    return (match[1] for match in _PLACEHOLDER.finditer(argument) if match[1] is not None)


def check_argument(argument: str, known: frozenset[str]) -> str:
    """Return an argument of the command if all its placeholders are known."""
    for name in placeholders(argument):
        if name not in known:
            names = ", ".join(sorted(known))
            raise ValueError(f"unknown placeholder '{safe_text(name, 40)}'; use {names}")
    if "\0" in argument or "\n" in argument:
        raise ValueError("an argument must be one line")
    return argument


class ProgramFile(WireModel):
    """A file that is pushed to the phone, identified by its content."""

    name: Annotated[str, AfterValidator(check_file_name)]
    sha256: Annotated[str, AfterValidator(check_digest)]


class ProgramParameter(WireModel):
    """A whole number that a sweep may choose."""

    name: Annotated[str, AfterValidator(check_parameter_name)]
    default: int
    min: int
    max: int
    text: str = ""

    @model_validator(mode="after")
    def _check_default(self) -> Self:
        if not self.min <= self.default <= self.max:
            raise ValueError(f"the default {self.default} is not within {self.min} to {self.max}")
        return self


class _OutputRule(WireModel):
    """Where a number is in a program's output: at a JSON path, or in a match of a regex."""

    json_path: Annotated[str, AfterValidator(check_json_path)] | None = None
    regex: str | None = None

    @model_validator(mode="after")
    def _check_one_rule(self) -> Self:
        if (self.json_path is None) == (self.regex is None):
            raise ValueError("set either json or regex")
        return self


class StepRule(_OutputRule):
    """Where the times of steps are in a program's output."""

    regex: Annotated[str, AfterValidator(check_step_regex)] | None = None
    unit: Literal["ns", "us", "ms", "s", "1/s"]
    take: Literal["all", "first", "last"] = "all"
    n: int | str = Field(default=1, description="steps per time, or the name of a parameter")
    skip: int | str = Field(default=0, description="warm-up steps at the start, which do not count")


class NumberRule(_OutputRule):
    """Where another number is in a program's output."""

    regex: Annotated[str, AfterValidator(check_number_regex)] | None = None
    unit: Literal["bytes", "kB", "MB"] | None = None


class Manifest(WireModel):
    """An external program: what is pushed, how it is called, and how its output is read."""

    name: Annotated[str, AfterValidator(check_name)]
    text: str = Field(default="", max_length=200)
    files: tuple[ProgramFile, ...] = Field(min_length=1, max_length=FILES_MAX)
    parameters: tuple[ProgramParameter, ...] = ()
    environment: dict[Annotated[str, AfterValidator(check_variable)], str] = Field(
        default_factory=dict
    )
    command: tuple[str, ...] = Field(min_length=1, max_length=ARGUMENTS_MAX)
    threads: int | None = Field(default=None, ge=1, le=1024)
    training: bool = False
    samples_per_step: int | str = 1
    seconds_max: float = Field(default=600.0, gt=0, le=86400)
    step: StepRule
    loss: NumberRule | None = None
    peak_rss: NumberRule | None = None

    @model_validator(mode="after")
    def _check_consistency(self) -> Self:
        numbers = [*(parameter.name for parameter in self.parameters), *LAUNCH_NAMES]
        names = [*(file.name for file in self.files), *numbers]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"two files or parameters are called '{name}'")
        for argument in (*self.command, *self.environment.values()):
            check_argument(argument, frozenset(names))
        for count in (self.samples_per_step, self.step.n, self.step.skip):
            if isinstance(count, str) and count not in numbers:
                raise ValueError(f"no parameter is called '{safe_text(count, 40)}'")
        if self.training and self.loss is None:
            raise ValueError(LOSS_RULE_MISSING)
        if (size := len(self.model_dump_json())) > MANIFEST_BYTES_MAX:
            raise ValueError(
                f"the manifest has {size} bytes; at most {MANIFEST_BYTES_MAX} fit a job"
            )
        return self


LOSS_RULE_MISSING = "a training needs a rule for its loss; add 'loss' under 'read'"

Values = Mapping[str, int]  # of parameters and of LAUNCH_NAMES


def fill_placeholders(argument: str, values: Mapping[str, str]) -> str:
    """Replace the placeholders in an argument; doubled braces become braces."""

    def replacement(match: "re.Match[str]") -> str:
        return values[match[1]] if match[1] is not None else match[0][0]

    return _PLACEHOLDER.sub(replacement, argument)


def resolve_count(count: int | str, values: Values) -> int:
    """Return a number of the manifest: a constant, or the value of a parameter."""
    return values[count] if isinstance(count, str) else count
