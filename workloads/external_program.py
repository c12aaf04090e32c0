"""The manifest of an external program: what is pushed, how it is called, how its output is read.

The manifest is part of the case, so the case's digest covers it; files are identified by digest.
workloads/program_output.py parses the output.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from workloads.protocol.base import WireModel
from workloads.protocol.file_keys import (
    Form,
    Place,
    Problem,
    RuledModel,
    Seconds,
    Written,
    key,
    rule,
)
from workloads.protocol.limits import MANIFEST_BYTES_MAX
from workloads.text import safe_text, suggestion

VERSION = 1
PRINTED_BYTES_MAX = 1024 * 1024  # of stdout and of stderr, each
REGEX_MAX = 400
ARGUMENTS_MAX = 200
FILES_MAX = 32
NUMBER_MAX = 2**31 - 1
LAUNCH_NAMES = ("threads", "warmup", "steps", "seconds", "max_seconds")
UNITS_NS = {"ns": 1.0, "us": 1e3, "ms": 1e6, "s": 1e9}
PER_SECOND = "1/s"
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


WholeNumber = Annotated[int, Field(ge=-NUMBER_MAX, le=NUMBER_MAX)]
CountName = Annotated[str, Written(values="a number, or the name of a parameter")]
Argument = Annotated[
    str, Written(form=Form.VERBATIM, values="a word, in quotes if it begins with a brace")
]


class ProgramFile(WireModel):
    """A file that is pushed to the phone, identified by its content."""

    name: Annotated[str, AfterValidator(check_file_name)]
    sha256: Annotated[str, AfterValidator(check_digest)] = key(..., "SHA-256 of the file")


class ProgramParameter(RuledModel):
    """A whole number that a sweep may choose."""

    name: Annotated[str, AfterValidator(check_parameter_name)]
    default: WholeNumber = key(..., "value if a sweep chooses none")
    min: WholeNumber = key(..., "smallest value")
    max: WholeNumber = key(..., "largest value")
    text: str = key("", "what it does")

    @rule("default", "min", "max")
    def _check_default(self) -> Iterator[Problem]:
        if not self.min <= self.default <= self.max:
            allowed = f"use {self.min} to {self.max}"
            yield ("default",), f"{self.default} is out of range; {allowed}"


class _OutputRule(RuledModel):
    """Where a number is in a program's output: at a JSON path, or in a match of a regex."""

    json_path: Annotated[str, AfterValidator(check_json_path)] | None = key(
        None,
        "in every JSON object that is printed; of a list, each item",
        name="json",
        values="a path such as `results.time_ns`",
    )
    regex: str | None = None

    @rule("json_path", "regex")
    def _check_one_rule(self) -> Iterator[Problem]:
        if (self.json_path is None) == (self.regex is None):
            yield (), "write either json or regex"


class StepRule(_OutputRule):
    """Where the times of steps are in a program's output."""

    regex: Annotated[str, AfterValidator(check_step_regex)] | None = key(
        None,
        "on every line: its only group, or `time`, `n`, `min` and `max`",
        values="a regular expression",
    )
    unit: Literal["ns", "us", "ms", "s", "1/s"] = key(..., "unit of the times")
    take: Literal["all", "first", "last"] = key("all", "which of the times count")
    n: Annotated[int, Field(ge=1, le=NUMBER_MAX)] | CountName = key(
        1, "number of steps per printed time"
    )
    skip: Annotated[int, Field(ge=0, le=NUMBER_MAX)] | CountName = key(
        0, "first steps that do not count"
    )


class NumberRule(_OutputRule):
    """Where another number is in a program's output."""

    regex: Annotated[str, AfterValidator(check_number_regex)] | None = key(
        None, "on every line: its only group", values="a regular expression"
    )


class LossRule(NumberRule):
    """Where the losses are in a program's output."""

    unit: None = None  # part of the digest of a case


class SizeRule(NumberRule):
    """Where an amount of memory is in a program's output."""

    unit: Literal["bytes", "kB", "MB"] = key(..., "unit of the number")


class Manifest(RuledModel):
    """An external program: what is pushed, how it is called, and how its output is read."""

    name: Annotated[str, AfterValidator(check_name)] = key(
        ..., "name of the program in tables", example="llama-bench"
    )
    text: str = key("", "what it does", max_length=200)
    files: tuple[ProgramFile, ...] = key(
        ...,
        "files that are pushed to the phone, each with its SHA-256",
        example="{llama-bench: DIGEST}",
        min_length=1,
        max_length=FILES_MAX,
    )
    parameters: tuple[
        Annotated[ProgramParameter, Written(example="{default: 32, min: 1, max: 64}")], ...
    ] = key(
        (),
        "whole numbers that a sweep may choose",
        example="{tokens: {default: 32, min: 1, max: 64}}",
    )
    environment: dict[Annotated[str, AfterValidator(check_variable)], Argument] = key(
        {}, "variables of its environment", example="{LD_LIBRARY_PATH: .}"
    )
    command: tuple[Argument, ...] = key(
        ...,
        "how it is started",
        example='["{llama-bench}", -o, json]',
        values="a list of words",
        min_length=1,
        max_length=ARGUMENTS_MAX,
    )
    threads: int | None = key(
        None, "number of threads; usually one per core of the condition", ge=1, le=1024
    )
    training: bool = key(
        False,
        "whether a step trains. Then `read.loss` is required, and the loss has to fall. Otherwise "
        "a step is inference",
    )
    samples_per_step: Annotated[int, Field(ge=0, le=NUMBER_MAX)] | CountName = key(
        1, "for `samples_per_s`"
    )
    seconds_max: Seconds = key(600.0, "the program is ended after this time", gt=0, le=86400)
    step: StepRule = key(
        ..., "step times", name="read.steps", example="{json: samples_ns, unit: ns}"
    )
    loss: LossRule | None = key(
        None, "loss values", name="read.loss", example="{regex: 'loss ([0-9.]+)'}"
    )
    peak_rss: SizeRule | None = key(
        None, "peak memory", name="read.peak_rss", example="{json: peak_kb, unit: kB}"
    )

    @rule("files", "parameters")
    def _check_names(self) -> Iterator[Problem]:
        used = set(LAUNCH_NAMES)
        for file in self.files:
            if file.name in used:
                yield ("files", file.name), f"the name '{safe_text(file.name, 60)}' is used twice"
            used.add(file.name)
        used -= set(LAUNCH_NAMES)
        for parameter in self.parameters:
            if parameter.name in used:
                shown = safe_text(parameter.name, 60)
                problem = f"'{shown}' is already the name of a file; choose another name"
                yield ("parameters", parameter.name), problem
            used.add(parameter.name)

    @rule("files", "parameters", "command", "environment")
    def _check_arguments(self) -> Iterator[Problem]:
        known = frozenset({*(file.name for file in self.files), *self._number_names()})
        places: list[Place] = [("command", index) for index in range(len(self.command))]
        places += [("environment", name) for name in self.environment]
        for place, argument in zip(
            places, (*self.command, *self.environment.values()), strict=True
        ):
            try:
                check_argument(argument, known)
            except ValueError as error:
                yield place, str(error)

    @rule("parameters", "samples_per_step", "step")
    def _check_counts(self) -> Iterator[Problem]:
        names = self._number_names()
        counts: dict[Place, int | str] = {
            ("samples_per_step",): self.samples_per_step,
            ("read", "steps", "n"): self.step.n,
            ("read", "steps", "skip"): self.step.skip,
        }
        for place, count in counts.items():
            if isinstance(count, str) and count not in names:
                shown = safe_text(count, 60)
                yield place, f"unknown parameter '{shown}'; {suggestion(count, sorted(names))}"

    @rule("training", "loss")
    def _check_loss(self) -> Iterator[Problem]:
        if self.training and self.loss is None:
            problem = "a training needs a rule for its loss; add 'loss' under 'read'"
            yield ("training",), problem

    def _number_names(self) -> set[str]:
        return {*(parameter.name for parameter in self.parameters), *LAUNCH_NAMES}

    @model_validator(mode="after")
    def _check_size(self) -> Self:
        if (size := len(self.model_dump_json())) > MANIFEST_BYTES_MAX:
            raise ValueError(
                f"the manifest has {size} bytes; at most {MANIFEST_BYTES_MAX} fit a job"
            )
        return self


Values = Mapping[str, int]  # of parameters and of LAUNCH_NAMES


def fill_placeholders(argument: str, values: Mapping[str, str]) -> str:
    """Replace the placeholders in an argument; doubled braces become braces."""

    def replacement(match: "re.Match[str]") -> str:
        return values[match[1]] if match[1] is not None else match[0][0]

    return _PLACEHOLDER.sub(replacement, argument)


def resolve_count(count: int | str, values: Values) -> int:
    """Return a number of the manifest: a constant, or the value of a parameter."""
    return values[count] if isinstance(count, str) else count
