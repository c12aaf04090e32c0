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
from typing import Any

from pydantic import ValidationError

from orchestrator.sweepfile.node_reader import NodeReader
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
Check = Callable[[str], str]


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
        """Return the fields of the manifest; a value with a mistake is None."""
        content: dict[str, Any] = {
            "name": self._required("name", check_name, "a name such as 'name: llama-bench'"),
            "files": self._files(),
            "parameters": self._parameter_list(),
        }
        # The command refers to files and parameters, so it is read after them.
        content["command"] = self._command()
        content["environment"] = self._environment()
        content |= self._read_section()
        if "text" in self._root.entries:
            content["text"] = self._reader.text(self._root.entries["text"].node, "text")
        if "threads" in self._root.entries:
            node = self._root.entries["threads"].node
            content["threads"] = self._reader.integer_between(node, "threads", 1, 1024)
        if "samples_per_step" in self._root.entries:
            entry = self._root.entries["samples_per_step"]
            content["samples_per_step"] = self._count(entry, "samples_per_step", 0)
        if "seconds_max" in self._root.entries:
            node = self._root.entries["seconds_max"].node
            content["seconds_max"] = self._reader.duration(node, "seconds_max")
        return content | self._training(content)

    def _entry(self, key: str, hint: str) -> MappingEntry | None:
        entry = self._root.entries.get(key)
        if entry is None:
            text = f"the key '{key}' is missing; write {hint}"
            self._reader.problems.add(self._root.location, text)
        return entry

    def _required(self, key: str, check: Check, hint: str) -> str | None:
        entry = self._entry(key, hint)
        return self._read_checked(entry.node, key, check) if entry else None

    def _read_checked(self, node: Node, path: str, check: Check) -> str | None:
        text = self._reader.text(node, path)
        if text is None:
            return None
        try:
            return check(text)
        except ValueError as error:
            self._reader.refuse(node, path, str(error))
            return None

    def _is_valid_key(self, entry: MappingEntry, path: str, check: Check) -> bool:
        try:
            check(entry.key)
            if entry.key in self._file_names:
                shown = safe_text(entry.key, 60)
                raise ValueError(f"'{shown}' is already the name of a file; choose another name")
        except ValueError as error:
            self._reader.problems.add(entry.location, f"{path}: {error}")
            return False
        return True

    def _section(self, key: str, wanted: str) -> dict[str, MappingEntry]:
        entry = self._root.entries.get(key)
        mapping = self._reader.mapping(entry.node, key, wanted) if entry else None
        return mapping.entries if mapping else {}

    def _files(self) -> tuple[ProgramFile, ...]:
        entry = self._entry("files", "'files: {llama-bench: DIGEST}'")
        files = []
        section = self._section("files", "{llama-bench: DIGEST}")
        if entry is not None and not 1 <= len(section) <= FILES_MAX:
            problem = f"files: {len(section)} files are listed; use 1 to {FILES_MAX}"
            self._reader.problems.add(entry.location, problem)
        for name, file in section.items():
            is_valid = self._is_valid_key(file, "files", check_file_name)
            digest = self._read_checked(file.node, f"files.{name}", check_digest)
            if is_valid and digest:
                files.append(ProgramFile(name=name, sha256=digest))
            self._file_names.add(name)
        return tuple(files)

    def _parameter_list(self) -> tuple[ProgramParameter, ...]:
        parameters = []
        wanted = "{default: 32, min: 1, max: 64}"
        for name, entry in self._section("parameters", f"{{tokens: {wanted}}}").items():
            path = f"parameters.{name}"
            is_valid = self._is_valid_key(entry, "parameters", check_parameter_name)
            self._parameters.add(name)
            mapping = self._reader.mapping(entry.node, path, wanted)
            if not is_valid or mapping is None:
                continue
            self._reader.refuse_unknown(mapping, ("default", "min", "max", "text"), path)
            values = self._parameter_values(mapping, path)
            if values is not None:
                parameters.append(ProgramParameter(name=name, **values))
        return tuple(parameters)

    def _parameter_values(self, mapping: MappingNode, path: str) -> dict[str, Any] | None:
        values: dict[str, Any] = {}
        for key in ("default", "min", "max"):
            if key not in mapping.entries:
                self._reader.problems.add(mapping.location, f"{path}: the key '{key}' is missing")
                return None
            values[key] = self._reader.integer_between(
                mapping.entries[key].node, f"{path}.{key}", -NUMBER_MAX, NUMBER_MAX
            )
        if None in values.values():
            return None
        if not values["min"] <= values["default"] <= values["max"]:
            node = mapping.entries["default"].node
            allowed = f"use {values['min']} to {values['max']}"
            problem = f"{values['default']} is out of range; {allowed}"
            self._reader.refuse(node, f"{path}.default", problem)
            return None
        if "text" in mapping.entries:
            values["text"] = self._reader.text(mapping.entries["text"].node, f"{path}.text") or ""
        return values

    @property
    def _known_names(self) -> frozenset[str]:
        return frozenset(self._file_names | self._parameters | set(LAUNCH_NAMES))

    def _argument(self, node: Node, path: str) -> str | None:
        # Arguments such as `on` or `12:30` are passed as text, without YAML's meaning.
        wanted = "a word, in quotes if it begins with a brace"
        scalar = self._reader.scalar(node, path, wanted)
        if scalar is None:
            return None
        quoted = ScalarNode(scalar.location, scalar.text, plain=False)
        return self._read_checked(
            quoted, path, lambda text: check_argument(text, self._known_names)
        )

    def _command(self) -> tuple[str | None, ...]:
        entry = self._entry("command", "'command: [\"{llama-bench}\", -o, json]'")
        words = self._reader.items(entry.node, "command") if entry else None
        if entry is not None and words is not None and len(words) > ARGUMENTS_MAX:
            problem = f"command: {len(words)} words are too many; use at most {ARGUMENTS_MAX}"
            self._reader.problems.add(entry.location, problem)
        return tuple(
            self._argument(node, f"command[{index}]") for index, node in enumerate(words or ())
        )

    def _environment(self) -> dict[str, str | None]:
        variables = {}
        for name, entry in self._section("environment", "{LD_LIBRARY_PATH: .}").items():
            if self._is_valid_key(entry, "environment", check_variable):
                variables[name] = self._argument(entry.node, f"environment.{name}")
        return variables

    def _count(self, entry: MappingEntry, path: str, low: int) -> int | str | None:
        """Read a number, or the name of a parameter or launch value that holds it."""
        node = entry.node
        names = self._parameters | set(LAUNCH_NAMES)
        if isinstance(node, ScalarNode) and node.text in names:
            return node.text
        if isinstance(node, ScalarNode) and node.text[:1].isalpha():
            return self._reader.choice(node, path, sorted(names), "parameter")
        return self._reader.integer_between(node, path, low, NUMBER_MAX)

    def _read_section(self) -> dict[str, Any]:
        entry = self._entry("read", "'read: {steps: {json: samples_ns, unit: ns}}'")
        section = self._section("read", "{steps: {json: samples_ns, unit: ns}}")
        if entry is None:
            return {}
        rules = MappingNode(entry.location, section)
        self._reader.refuse_unknown(rules, ("steps", "loss", "peak_rss"), "read")
        content: dict[str, Any] = {}
        if "steps" in section:
            content["step"] = self._step_rule(section["steps"])
        else:
            self._reader.problems.add(entry.location, "read: the key 'steps' is missing")
        for key, units in (("loss", ()), ("peak_rss", tuple(SIZES_KB))):
            if key in section:
                content[key] = self._number_rule(section[key], f"read.{key}", units)
        return content

    def _step_rule(self, entry: MappingEntry) -> StepRule | None:
        path = "read.steps"
        mapping = self._reader.mapping(entry.node, path, "{json: samples_ns, unit: ns}")
        if mapping is None:
            return None
        self._reader.refuse_unknown(mapping, ("json", "regex", "unit", "take", "n", "skip"), path)
        values = self._source(mapping, path, check_step_regex)
        values["unit"] = self._unit(mapping, path, UNITS)
        if "take" in mapping.entries:
            node = mapping.entries["take"].node
            values["take"] = self._reader.choice(node, f"{path}.take", ("all", "first", "last"))
        for key, low in (("n", 1), ("skip", 0)):
            if key in mapping.entries:
                values[key] = self._count(mapping.entries[key], f"{path}.{key}", low)
        return StepRule(**values) if self._is_valid else None

    def _number_rule(
        self, entry: MappingEntry, path: str, units: tuple[str, ...]
    ) -> NumberRule | None:
        mapping = self._reader.mapping(entry.node, path, "{regex: 'loss ([0-9.]+)'}")
        if mapping is None:
            return None
        known = ("json", "regex", "unit") if units else ("json", "regex")
        self._reader.refuse_unknown(mapping, known, path)
        values = self._source(mapping, path, check_number_regex)
        if units:
            values["unit"] = self._unit(mapping, path, units)
        return NumberRule(**values) if self._is_valid else None

    @property
    def _is_valid(self) -> bool:
        return not self._reader.problems.items

    def _source(self, mapping: MappingNode, path: str, check: Check) -> dict[str, Any]:
        keys = [key for key in ("json", "regex") if key in mapping.entries]
        if len(keys) != 1:
            self._reader.problems.add(mapping.location, f"{path}: write either json or regex")
            return {}
        node = mapping.entries[keys[0]].node
        if keys == ["json"]:
            return {"json_path": self._read_checked(node, f"{path}.json", check_json_path)}
        return {"regex": self._read_checked(node, f"{path}.regex", check)}

    def _unit(self, mapping: MappingNode, path: str, units: tuple[str, ...]) -> str | None:
        if "unit" not in mapping.entries:
            problem = f"{path}: the key 'unit' is missing; use one of {', '.join(units)}"
            self._reader.problems.add(mapping.location, problem)
            return None
        return self._reader.choice(mapping.entries["unit"].node, f"{path}.unit", units, "unit")

    def _training(self, content: dict[str, Any]) -> dict[str, Any]:
        entry = self._root.entries.get("training")
        if entry is None:
            return {}
        scalar = self._reader.scalar(entry.node, "training", "true or false")
        if scalar is None:
            return {}
        if not scalar.plain or scalar.text not in {"true", "false"}:
            self._reader.refuse(entry.node, "training", "not a boolean; write true or false")
        elif scalar.text == "true" and "loss" not in content:
            self._reader.refuse(entry.node, "training", LOSS_RULE_MISSING)
        return {"training": scalar.text == "true"}


def problems_in(reader: NodeReader, name: str) -> list[str]:
    """List the problems of a manifest, each with its location in that file."""
    return [
        f"{safe_text(name, 80)}:{problem.line}:{problem.column}: {problem.text}"
        for problem in sorted(reader.problems.items)
    ]
