"""The manifest of a foreign program, read like a sweep: every mistake with its place.

    external: 1                  the version of this language
    name: llama-bench            what tables call it
    text: tokens a second        what it does, in a few words
    files:                       what is pushed, each with its SHA-256
      llama-bench: 5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03
    parameters:                  whole numbers that a sweep may choose
      tokens: {default: 32, least: 1, most: 4096, text: tokens a step}
    environment: {LD_LIBRARY_PATH: .}
    command: ["{llama-bench}", -t, "{threads}", -n, "{tokens}", -r, "{steps}", -o, json]
    samples_per_step: tokens     a number, or the parameter that holds it
    read:
      steps: {json: samples_ns, unit: ns}

A name in braces stands for a file's path, a parameter, or what the launch asks: threads, warmup,
steps, seconds, max_seconds. Steps are read at a `json` path of every object that is printed (of a
list, each item is a step), or by a `regex` on every line: in its only group, or in those that are
called time, n, min and max. `unit` is ns, us, ms, s or 1/s; `take` is all, first or last; `n` says
how many steps a time stands for, `skip` how many first ones do not count. `loss` and `peak_rss` are
read likewise; `training: true` needs a loss. `threads: 4` fixes the threads, `seconds_max: 20m` is
when it is ended.
"""

from collections.abc import Callable
from typing import Any

from pydantic import ValidationError

from orchestrator.plan.document import Entries, Entry, Scalar, read_document
from orchestrator.plan.document import Node as Written
from orchestrator.plan.reading import Reader
from workloads.external import (
    FILES_MAX,
    LAUNCH_NAMES,
    SIZES_KB,
    UNITS,
    UNSEEN_TRAINING,
    VERSION,
    WORDS_MAX,
    ForeignFile,
    ForeignParameter,
    Manifest,
    NumberRule,
    StepRule,
    check_digest,
    check_file_name,
    check_json_path,
    check_name,
    check_number_regex,
    check_parameter_name,
    check_step_regex,
    check_variable,
    check_word,
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


def read_manifest(text: str) -> tuple[Manifest | None, Reader]:
    """Read a manifest; without one, the reader has noted why."""
    reader = Reader()
    node = read_document(text, reader.problems)
    root = reader.entries(node, "the file", "'external: 1', one key on a line") if node else None
    if root is None or not reader.right_version(root, "external", VERSION):
        return None, reader
    reader.refuse_unknown(root, KEYS)
    content = _Content(reader, root).read()
    if reader.problems.found:
        return None, reader
    try:
        return Manifest(**content), reader
    except ValidationError as error:
        reader.problems.add(root.place, safe_text(error.errors()[0]["msg"], 200))
        return None, reader


class _Content:
    """The manifest's parts, each read where it stands."""

    def __init__(self, reader: Reader, root: Entries) -> None:
        self._reader = reader
        self._root = root
        self._names: set[str] = set()
        self._parameters: set[str] = set()

    def read(self) -> dict[str, Any]:
        """Everything that stands in the file; what was refused is left out."""
        content: dict[str, Any] = {
            "name": self._required("name", check_name, "a name such as 'name: llama-bench'"),
            "files": self._files(),
            "parameters": self._parameter_list(),
        }
        # The command names files and parameters, so it is read after them.
        content["command"] = self._command()
        content["environment"] = self._environment()
        content |= self._read_section()
        if "text" in self._root.entries:
            content["text"] = self._reader.text(self._root.entries["text"].node, "text")
        if "threads" in self._root.entries:
            node = self._root.entries["threads"].node
            content["threads"] = self._reader.whole(node, "threads", 1, 1024)
        if "samples_per_step" in self._root.entries:
            entry = self._root.entries["samples_per_step"]
            content["samples_per_step"] = self._count(entry, "samples_per_step", 0)
        if "seconds_max" in self._root.entries:
            node = self._root.entries["seconds_max"].node
            content["seconds_max"] = self._reader.duration(node, "seconds_max")
        return content | self._training(content)

    def _entry(self, key: str, hint: str) -> Entry | None:
        entry = self._root.entries.get(key)
        if entry is None:
            text = f"the key '{key}' is missing; write {hint}"
            self._reader.problems.add(self._root.place, text)
        return entry

    def _required(self, key: str, check: Check, hint: str) -> str | None:
        entry = self._entry(key, hint)
        return self._checked(entry.node, key, check) if entry else None

    def _checked(self, node: Written, path: str, check: Check) -> str | None:
        text = self._reader.text(node, path)
        if text is None:
            return None
        try:
            return check(text)
        except ValueError as error:
            self._reader.refuse(node, path, str(error))
            return None

    def _checked_key(self, entry: Entry, path: str, check: Check) -> bool:
        try:
            check(entry.key)
            if entry.key in self._names:
                raise ValueError(f"'{safe_text(entry.key, 60)}' is the name of a file already")
        except ValueError as error:
            self._reader.problems.add(entry.place, f"{path}: {error}")
            return False
        return True

    def _section(self, key: str, wanted: str) -> dict[str, Entry]:
        entry = self._root.entries.get(key)
        found = self._reader.entries(entry.node, key, wanted) if entry else None
        return found.entries if found else {}

    def _files(self) -> tuple[ForeignFile, ...]:
        entry = self._entry("files", "'files: {llama-bench: DIGEST}'")
        files = []
        found = self._section("files", "{llama-bench: DIGEST}")
        if entry is not None and not 1 <= len(found) <= FILES_MAX:
            self._reader.problems.add(entry.place, f"files: there are 1 to {FILES_MAX}")
        for name, file in found.items():
            named = self._checked_key(file, "files", check_file_name)
            digest = self._checked(file.node, f"files.{name}", check_digest)
            if named and digest:
                files.append(ForeignFile(name=name, sha256=digest))
            self._names.add(name)
        return tuple(files)

    def _parameter_list(self) -> tuple[ForeignParameter, ...]:
        parameters = []
        wanted = "{default: 32, least: 1, most: 64}"
        for name, entry in self._section("parameters", f"{{tokens: {wanted}}}").items():
            path = f"parameters.{name}"
            named = self._checked_key(entry, "parameters", check_parameter_name)
            self._parameters.add(name)
            given = self._reader.entries(entry.node, path, wanted)
            if not named or given is None:
                continue
            self._reader.refuse_unknown(given, ("default", "least", "most", "text"), path)
            values = self._bounds(given, path)
            if values is not None:
                parameters.append(ForeignParameter(name=name, **values))
        return tuple(parameters)

    def _bounds(self, given: Entries, path: str) -> dict[str, Any] | None:
        values: dict[str, Any] = {}
        for key in ("default", "least", "most"):
            if key not in given.entries:
                self._reader.problems.add(given.place, f"{path}: the key '{key}' is missing")
                return None
            values[key] = self._reader.whole(
                given.entries[key].node, f"{path}.{key}", -NUMBER_MAX, NUMBER_MAX
            )
        if None in values.values():
            return None
        if not values["least"] <= values["default"] <= values["most"]:
            node = given.entries["default"].node
            span = f"{values['least']} to {values['most']}"
            self._reader.refuse(node, f"{path}.default", f"it is not within {span}")
            return None
        if "text" in given.entries:
            values["text"] = self._reader.text(given.entries["text"].node, f"{path}.text") or ""
        return values

    @property
    def _known(self) -> frozenset[str]:
        return frozenset(self._names | self._parameters | set(LAUNCH_NAMES))

    def _word(self, node: Written, path: str) -> str | None:
        # `on`, `12:30` and the like are words like others to a program.
        wanted = "a word, in quotes where it begins with a brace"
        scalar = self._reader.scalar(node, path, wanted)
        if scalar is None:
            return None
        quoted = Scalar(scalar.place, scalar.text, plain=False)
        return self._checked(quoted, path, lambda word: check_word(word, self._known))

    def _command(self) -> tuple[str | None, ...]:
        entry = self._entry("command", "'command: [\"{llama-bench}\", -o, json]'")
        words = self._reader.items(entry.node, "command") if entry else None
        if entry is not None and words is not None and len(words) > WORDS_MAX:
            text = f"command: it has {len(words)} words, at most {WORDS_MAX} are taken"
            self._reader.problems.add(entry.place, text)
        return tuple(
            self._word(node, f"command[{index}]") for index, node in enumerate(words or ())
        )

    def _environment(self) -> dict[str, str | None]:
        found = {}
        for name, entry in self._section("environment", "{LD_LIBRARY_PATH: .}").items():
            if self._checked_key(entry, "environment", check_variable):
                found[name] = self._word(entry.node, f"environment.{name}")
        return found

    def _count(self, entry: Entry, path: str, least: int) -> int | str | None:
        """A number, or the name of what holds it."""
        node = entry.node
        named = isinstance(node, Scalar) and node.text in self._parameters | set(LAUNCH_NAMES)
        if isinstance(node, Scalar) and named:
            return node.text
        if isinstance(node, Scalar) and node.text[:1].isalpha():
            there = ", ".join(sorted(self._parameters | set(LAUNCH_NAMES)))
            shown = safe_text(node.text, 40)
            self._reader.refuse(node, path, f"no parameter is called '{shown}'; there are {there}")
            return None
        return self._reader.whole(node, path, least, NUMBER_MAX)

    def _read_section(self) -> dict[str, Any]:
        entry = self._entry("read", "'read: {steps: {json: samples_ns, unit: ns}}'")
        found = self._section("read", "{steps: {json: samples_ns, unit: ns}}")
        if entry is None:
            return {}
        rules = Entries(entry.place, found)
        self._reader.refuse_unknown(rules, ("steps", "loss", "peak_rss"), "read")
        content: dict[str, Any] = {}
        if "steps" in found:
            content["step"] = self._step_rule(found["steps"])
        else:
            self._reader.problems.add(entry.place, "read: the key 'steps' is missing")
        for key, units in (("loss", ()), ("peak_rss", tuple(SIZES_KB))):
            if key in found:
                content[key] = self._number_rule(found[key], f"read.{key}", units)
        return content

    def _step_rule(self, entry: Entry) -> StepRule | None:
        path = "read.steps"
        given = self._reader.entries(entry.node, path, "{json: samples_ns, unit: ns}")
        if given is None:
            return None
        self._reader.refuse_unknown(given, ("json", "regex", "unit", "take", "n", "skip"), path)
        values = self._way(given, path, check_step_regex)
        values["unit"] = self._unit(given, path, UNITS)
        if "take" in given.entries:
            node = given.entries["take"].node
            choices = ("all", "first", "last")
            values["take"] = self._reader.choice(node, f"{path}.take", "way to take", choices)
        for key, least in (("n", 1), ("skip", 0)):
            if key in given.entries:
                values[key] = self._count(given.entries[key], f"{path}.{key}", least)
        return StepRule(**values) if self._fine else None

    def _number_rule(self, entry: Entry, path: str, units: tuple[str, ...]) -> NumberRule | None:
        given = self._reader.entries(entry.node, path, "{regex: 'loss ([0-9.]+)'}")
        if given is None:
            return None
        known = ("json", "regex", "unit") if units else ("json", "regex")
        self._reader.refuse_unknown(given, known, path)
        values = self._way(given, path, check_number_regex)
        if units:
            values["unit"] = self._unit(given, path, units)
        return NumberRule(**values) if self._fine else None

    @property
    def _fine(self) -> bool:
        return not self._reader.problems.found

    def _way(self, given: Entries, path: str, check: Check) -> dict[str, Any]:
        ways = [key for key in ("json", "regex") if key in given.entries]
        if len(ways) != 1:
            text = f"{path}: write either json or regex"
            self._reader.problems.add(given.place, text)
            return {}
        node = given.entries[ways[0]].node
        if ways == ["json"]:
            return {"json_path": self._checked(node, f"{path}.json", check_json_path)}
        return {"regex": self._checked(node, f"{path}.regex", check)}

    def _unit(self, given: Entries, path: str, units: tuple[str, ...]) -> str | None:
        if "unit" not in given.entries:
            text = f"{path}: the key 'unit' is missing; there are {', '.join(units)}"
            self._reader.problems.add(given.place, text)
            return None
        return self._reader.choice(given.entries["unit"].node, f"{path}.unit", "unit", units)

    def _training(self, content: dict[str, Any]) -> dict[str, Any]:
        entry = self._root.entries.get("training")
        if entry is None:
            return {}
        scalar = self._reader.scalar(entry.node, "training", "true or false")
        if scalar is None:
            return {}
        if not scalar.plain or scalar.text not in {"true", "false"}:
            self._reader.refuse(entry.node, "training", "write true or false")
        elif scalar.text == "true" and "loss" not in content:
            self._reader.refuse(entry.node, "training", UNSEEN_TRAINING)
        return {"training": scalar.text == "true"}


def problems_in(reader: Reader, name: str) -> list[str]:
    """Everything that is wrong with a manifest, each with its place in that file."""
    found = sorted(reader.problems.found)
    return [f"{safe_text(name, 80)}:{each.line}:{each.column}: {each.text}" for each in found]
