"""Reads the manifest of an external program; every mistake is reported with its location.

    external: 1                  version of the manifest language
    name: llama-bench            name for tables
    text: tokens per second      short description
    files:                       files to push, each with its SHA-256
      llama-bench: 5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03
    parameters:                  integers that a sweep may choose
      tokens: {default: 32, min: 1, max: 4096, text: tokens per step}
    environment: {LD_LIBRARY_PATH: .}
    command: ["{llama-bench}", -t, "{threads}", -n, "{tokens}", -r, "{steps}", -o, json]
    samples_per_step: tokens     a number, or the parameter that holds it
    read:
      steps: {json: samples_ns, unit: ns}

A name in braces is replaced by the path of a file, by a parameter, or by a launch value: threads,
warmup, steps, seconds, max_seconds. Step times are read at a `json` path of every printed object
(each item of a list is a step), or with a `regex` on every line: from its only group, or from the
groups time, n, min and max. `unit` is ns, us, ms, s or 1/s; `take` is all, first or last; `n` is
the number of steps that a time covers, `skip` the number of first steps to ignore. `loss` and
`peak_rss` are read in the same way; `training: true` needs a loss. `threads: 4` fixes the number of
threads; `seconds_max: 20m` is the time limit.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from pydantic import ValidationError

from orchestrator.sweepfile.node_reader import NodeReader, Read
from orchestrator.sweepfile.yaml_nodes import (
    MappingEntry,
    MappingNode,
    Node,
    ScalarNode,
    read_document,
)
from workloads.external_program import (
    ARGUMENTS_MAX,
    FILES_MAX,
    LAUNCH_NAMES,
    LOSS_RULE_MISSING,
    SIZES_KB,
    UNITS,
    VERSION,
    Manifest,
    NumberRule,
    ProgramFile,
    ProgramParameter,
    StepRule,
    check_argument,
    check_digest,
    check_file_name,
    check_json_path,
    check_name,
    check_number_regex,
    check_parameter_name,
    check_step_regex,
    check_variable,
)
from workloads.text import safe_text

KEYS = frozenset(
    {
        *("external", "name", "text", "files", "parameters", "environment", "command"),
        *("threads", "training", "samples_per_step", "seconds_max", "read"),
    }
)
NUMBER_MAX = 2**31 - 1
PARAMETER = "{default: 32, min: 1, max: 64}"  # how one is written
REQUIRED = {  # key -> how it is written
    "name": "a name such as 'name: llama-bench'",
    "files": "'files: {llama-bench: DIGEST}'",
    "command": "'command: [\"{llama-bench}\", -o, json]'",
    "read": "'read: {steps: {json: samples_ns, unit: ns}}'",
}
RULES = {"steps": "step", "loss": "loss", "peak_rss": "peak_rss"}  # key -> field
RULE_UNITS: dict[str, tuple[str, ...]] = {"steps": UNITS, "peak_rss": tuple(SIZES_KB)}


def read_manifest(text: str) -> tuple[Manifest | None, NodeReader]:
    """Read a manifest; if it is None, the reader has recorded why."""
    reader = NodeReader()
    node = read_document(text, reader.problems)
    root = reader.mapping(node, "the file", "'external: 1', one key per line") if node else None
    if root is None or not reader.check_version(root, "external", VERSION):
        return None, reader
    reader.refuse_unknown(root, KEYS)
    content = _ManifestReader(reader, root).read()
    if reader.problems.items:
        return None, reader
    try:
        return Manifest(**content), reader
    except ValidationError as error:
        reader.problems.add(root.location, safe_text(error.errors()[0]["msg"], 200))
        return None, reader


class _ManifestReader:
    """Reads the sections of a manifest."""

    def __init__(self, reader: NodeReader, root: MappingNode) -> None:
        self._reader = reader
        self._root = root
        self._file_names: set[str] = set()
        self._parameters: set[str] = set()

    def read(self) -> dict[str, Any]:
        """Return the fields of the manifest; values with a mistake are left out."""
        reader = self._reader
        for key, hint in REQUIRED.items():
            if key not in self._root.entries:
                reader.problems.add(
                    self._root.location, f"the key '{key}' is missing; write {hint}"
                )
        # The command refers to files and parameters, so it is read after them.
        readers: dict[str, Read] = {
            "name": partial(reader.checked, check=check_name),
            "files": self._files,
            "parameters": self._parameter_list,
            "command": self._command,
            "environment": self._environment,
            "read": self._rules,
            "text": reader.text,
            "threads": partial(reader.integer_between, low=1, high=1024),
            "samples_per_step": partial(self._count, low=0),
            "seconds_max": reader.duration,
            "training": self._training,
        }
        content = reader.values(self._root, readers)
        content |= content.pop("read", {})
        if content.get("training") and "loss" not in content:
            reader.refuse(self._root.entries["training"].node, "training", LOSS_RULE_MISSING)
        return content

    def _is_valid_key(self, entry: MappingEntry, path: str, check: Callable[[str], str]) -> bool:
        try:
            check(entry.key)
            if entry.key in self._file_names:
                shown = safe_text(entry.key, 60)
                raise ValueError(f"'{shown}' is already the name of a file; choose another name")
        except ValueError as error:
            self._reader.problems.add(entry.location, f"{path}: {error}")
            return False
        return True

    def _entries(self, node: Node, path: str, wanted: str) -> dict[str, MappingEntry]:
        mapping = self._reader.mapping(node, path, wanted)
        return mapping.entries if mapping else {}

    def _files(self, node: Node, path: str) -> tuple[ProgramFile, ...]:
        files = []
        section = self._entries(node, path, "{llama-bench: DIGEST}")
        if not 1 <= len(section) <= FILES_MAX:
            problem = f"files: {len(section)} files are listed; use 1 to {FILES_MAX}"
            self._reader.problems.add(self._root.entries[path].location, problem)
        for name, file in section.items():
            is_valid = self._is_valid_key(file, path, check_file_name)
            digest = self._reader.checked(file.node, f"{path}.{name}", check_digest)
            if is_valid and digest:
                files.append(ProgramFile(name=name, sha256=digest))
            self._file_names.add(name)
        return tuple(files)

    def _parameter_list(self, node: Node, path: str) -> tuple[ProgramParameter, ...]:
        parameters = []
        for name, entry in self._entries(node, path, f"{{tokens: {PARAMETER}}}").items():
            is_valid = self._is_valid_key(entry, path, check_parameter_name)
            self._parameters.add(name)
            values = self._parameter_values(entry.node, f"{path}.{name}")
            if is_valid and values is not None:
                parameters.append(ProgramParameter(name=name, **values))
        return tuple(parameters)

    def _parameter_values(self, node: Node, path: str) -> dict[str, Any] | None:
        number = partial(self._reader.integer_between, low=-NUMBER_MAX, high=NUMBER_MAX)
        readers = dict.fromkeys(("default", "min", "max"), number)
        values = self._reader.fields(node, path, PARAMETER, {**readers, "text": self._reader.text})
        if not isinstance(node, MappingNode):
            return None
        for key in readers:
            if key not in node.entries:
                self._reader.problems.add(node.location, f"{path}: the key '{key}' is missing")
        if not values.keys() >= readers.keys():
            return None
        if not values["min"] <= values["default"] <= values["max"]:
            allowed = f"use {values['min']} to {values['max']}"
            problem = f"{values['default']} is out of range; {allowed}"
            self._reader.refuse(node.entries["default"].node, f"{path}.default", problem)
            return None
        return values

    def _argument(self, node: Node, path: str) -> str | None:
        # Arguments such as `on` or `12:30` are passed as text, without YAML's meaning.
        wanted = "a word, in quotes if it begins with a brace"
        scalar = self._reader.scalar(node, path, wanted)
        if scalar is None:
            return None
        quoted = ScalarNode(scalar.location, scalar.text, plain=False)
        known = frozenset(self._file_names | self._parameters | set(LAUNCH_NAMES))
        return self._reader.checked(quoted, path, lambda text: check_argument(text, known))

    def _command(self, node: Node, path: str) -> tuple[str | None, ...]:
        words = self._reader.items(node, path) or ()
        if len(words) > ARGUMENTS_MAX:
            problem = f"command: {len(words)} words are too many; use at most {ARGUMENTS_MAX}"
            self._reader.problems.add(self._root.entries[path].location, problem)
        return tuple(self._argument(word, f"{path}[{index}]") for index, word in enumerate(words))

    def _environment(self, node: Node, path: str) -> dict[str, str | None]:
        return {
            name: self._argument(entry.node, f"{path}.{name}")
            for name, entry in self._entries(node, path, "{LD_LIBRARY_PATH: .}").items()
            if self._is_valid_key(entry, path, check_variable)
        }

    def _count(self, node: Node, path: str, low: int) -> int | str | None:
        """Read a number, or the name of a parameter or launch value that holds it."""
        names = self._parameters | set(LAUNCH_NAMES)
        if isinstance(node, ScalarNode) and node.text in names:
            return node.text
        if isinstance(node, ScalarNode) and node.text[:1].isalpha():
            return self._reader.choice(node, path, sorted(names), "parameter")
        return self._reader.integer_between(node, path, low, NUMBER_MAX)

    def _rules(self, node: Node, path: str) -> dict[str, Any]:
        """Read the section `read` as the fields step, loss and peak_rss; None after a mistake."""
        section = self._entries(node, path, "{steps: {json: samples_ns, unit: ns}}")
        location = self._root.entries[path].location
        self._reader.refuse_unknown(MappingNode(location, section), RULES, path)
        if "steps" not in section:
            self._reader.problems.add(location, "read: the key 'steps' is missing")
        return {
            field: self._rule(section[key].node, f"{path}.{key}", key)
            for key, field in RULES.items()
            if key in section
        }

    def _rule(self, node: Node, path: str, key: str) -> StepRule | NumberRule | None:
        reader, is_step = self._reader, key == "steps"
        wanted = "{json: samples_ns, unit: ns}" if is_step else "{regex: 'loss ([0-9.]+)'}"
        mapping = reader.mapping(node, path, wanted)
        if mapping is None:
            return None
        check = check_step_regex if is_step else check_number_regex
        readers: dict[str, Read] = {
            "json": partial(reader.checked, check=check_json_path),
            "regex": partial(reader.checked, check=check),
        }
        units = RULE_UNITS.get(key)
        if units:
            readers["unit"] = partial(reader.choice, choices=units, what="unit")
        if is_step:
            readers["take"] = partial(reader.choice, choices=("all", "first", "last"))
            readers |= {"n": partial(self._count, low=1), "skip": partial(self._count, low=0)}
        values = reader.fields(mapping, path, wanted, readers)
        if len(mapping.entries.keys() & {"json", "regex"}) != 1:
            reader.problems.add(mapping.location, f"{path}: write either json or regex")
        if units and "unit" not in mapping.entries:
            problem = f"{path}: the key 'unit' is missing; use one of {', '.join(units)}"
            reader.problems.add(mapping.location, problem)
        if reader.problems.items:
            return None
        values["json_path"] = values.pop("json", None)
        return StepRule(**values) if is_step else NumberRule(**values)

    def _training(self, node: Node, path: str) -> bool | None:
        scalar = self._reader.scalar(node, path, "true or false")
        if scalar is None:
            return None
        if not scalar.plain or scalar.text not in {"true", "false"}:
            self._reader.refuse(node, path, "not a boolean; write true or false")
        return scalar.text == "true"


def problems_in(reader: NodeReader, name: str) -> list[str]:
    """List the problems of a manifest, each with its location in that file."""
    return [
        f"{safe_text(name, 80)}:{problem.line}:{problem.column}: {problem.text}"
        for problem in sorted(reader.problems.items)
    ]
