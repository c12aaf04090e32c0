"""The sweep file: what to run, on which phones, how often.

    farm: 1                      the version of this language
    name: batch-study            lower case letters, digits, '.', '_' and '-'
    workload: mlp-4              or {use: mlp-4, with: {batch_size: 32}}, or external:FILE
    phones: all                  or a list of patterns such as [pixel*, sm8?50]
    matrix:                      every combination of these is one cell
      batch_size: [32, 256]      a parameter of the workload, `workload` itself,
      cores: [big2, big4]        or protocol, cores, freq
    conditions:                  what is the same in every cell
      freq: high
      cool_wait_max: 20m         also start_temp_max_c (a number, or any), battery_min_pct,
                                 warmup_steps, steps_min and time_min (how long a run looks)
    repeat: 3                    runs of every cell on every phone
    seed: 7                      of the order; derived from the rest when left out

A pattern knows * ? and [abc], ignores case, and is held against a phone's serial, model and SoC.
A sweep is known by what it means: comments, the order of keys and values and the way they are
written do not change its id.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from orchestrator.plan.cases import CaseSpace, Fetch, fetch_nothing, read_cases
from orchestrator.plan.conditions import AXES, ConditionSpace, read_conditions
from orchestrator.plan.document import Entries, Entry, Items, Place, read_document
from orchestrator.plan.problem import BadSweep
from orchestrator.plan.reading import Reader
from workloads.catalogue import Case
from workloads.condition import Condition
from workloads.noun import digest_of
from workloads.text import safe_text

VERSION = 1
RUNS_PER_PHONE_MAX = 20_000
REPEAT_DEFAULT = 3
REPEAT_MAX = 100
SEED_MAX = 2**31 - 1
PATTERN_MAX = 100
KEYS = ("farm", "name", "workload", "phones", "matrix", "conditions", "repeat", "seed")
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")
_NOTHING = Entries(Place(1, 1), {})


@dataclass(frozen=True)
class Sweep:
    """A sweep that can be carried out: every case and condition bound, nothing left open."""

    name: str
    cases: tuple[Case, ...]
    conditions: tuple[Condition, ...]
    phones: tuple[str, ...]
    repeat: int
    seed: int
    digest: str

    @property
    def id(self) -> str:
        """Same meaning, same id."""
        return f"sw-{self.digest[:8]}"

    @property
    def cells(self) -> Iterator[tuple[Case, Condition]]:
        """Every case under every condition."""
        return ((case, condition) for case in self.cases for condition in self.conditions)

    @property
    def runs_per_phone(self) -> int:
        """How many runs a phone gets that can do everything."""
        return len(self.cases) * len(self.conditions) * self.repeat


def read_sweep(text: str, fetch: Fetch = fetch_nothing) -> Sweep:
    """Read a sweep file; BadSweep names everything that is wrong with it.

    `fetch` answers the text of a file that the sweep names: the manifest of a foreign program.
    """
    reader = Reader()
    sweep = _read(reader, text, fetch)
    if sweep is None or reader.problems.found:
        raise BadSweep(reader.problems.found, text)
    return sweep


def _read(reader: Reader, text: str, fetch: Fetch) -> Sweep | None:
    node = read_document(text, reader.problems)
    root = reader.entries(node, "the file", "'farm: 1', one key on a line") if node else None
    if root is None or not _right_version(reader, root):
        return None
    reader.refuse_unknown(root, KEYS)
    matrix = _section(reader, root, "matrix", "{batch_size: [32, 256]}")
    given = _section(reader, root, "conditions", "{cores: big4, freq: high}")
    name = _read_name(reader, root)
    phones = _read_phones(reader, root)
    repeat = _read_number(reader, root, "repeat", 1, REPEAT_MAX) or REPEAT_DEFAULT
    seed = _read_number(reader, root, "seed", 0, SEED_MAX)
    cases = read_cases(reader, root.place, root.entries.get("workload"), matrix, fetch)
    conditions = read_conditions(reader, given, matrix)
    _refuse_unknown_axes(reader, matrix, cases)
    _refuse_too_many(reader, root, cases, conditions, repeat)
    if reader.problems.found:
        return None
    return _sweep(name, cases.build(), conditions.build(), phones, repeat, seed)


def _sweep(
    name: str,
    cases: tuple[Case, ...],
    conditions: tuple[Condition, ...],
    phones: tuple[str, ...],
    repeat: int,
    seed: int | None,
) -> Sweep:
    meaning = {
        "farm": VERSION,
        "name": name,
        "cases": sorted(case.digest for case in cases),
        "conditions": sorted(condition.digest for condition in conditions),
        "phones": list(phones),
        "repeat": repeat,
    }
    if seed is None:
        seed = int(digest_of(meaning)[:8], 16) & SEED_MAX
    digest = digest_of(meaning | {"seed": seed})
    return Sweep(name, cases, conditions, phones, repeat, seed, digest)


def _right_version(reader: Reader, root: Entries) -> bool:
    """A file of another version is not judged by the rules of this one."""
    entry = root.entries.get("farm")
    if entry is None:
        reader.problems.add(root.place, "the key 'farm' is missing; begin with 'farm: 1'")
        return True
    version = reader.whole_number(entry.node, "farm")
    if version in {None, VERSION}:
        return True
    sentence = f"version {version} is not known here; this farm reads 'farm: {VERSION}'"
    reader.refuse(entry.node, "farm", sentence)
    return False


def _section(reader: Reader, root: Entries, key: str, wanted: str) -> Entries:
    entry = root.entries.get(key)
    return (reader.entries(entry.node, key, wanted) if entry else None) or _NOTHING


def _required(reader: Reader, root: Entries, key: str, hint: str) -> Entry | None:
    entry = root.entries.get(key)
    if entry is None:
        reader.problems.add(root.place, f"the key '{key}' is missing; write {hint}")
    return entry


def _read_name(reader: Reader, root: Entries) -> str:
    entry = _required(reader, root, "name", "a name such as 'name: batch-study'")
    name = reader.text(entry.node, "name") if entry else None
    if entry is None or name is None:
        return ""
    if not _NAME.fullmatch(name):
        rule = "up to 63 lower case letters, digits, '.', '_' and '-', the first a letter or digit"
        reader.refuse(entry.node, "name", f"'{safe_text(name, 70)}' is not a name; write {rule}")
    return name


def _read_phones(reader: Reader, root: Entries) -> tuple[str, ...]:
    """Read patterns in one spelling: lower case, each once, sorted; `all` is the pattern *."""
    entry = _required(reader, root, "phones", "'phones: all'")
    if entry is None:
        return ()
    if not isinstance(entry.node, Items):
        word = reader.text(entry.node, "phones", "'all' or a list such as [pixel*]")
        if word not in {None, "all"}:
            shown = safe_text(word, 60)
            reader.refuse(entry.node, "phones", f"'{shown}' is not 'all'; write a list: [{shown}]")
        return ("*",)
    patterns = set()
    for index, node in enumerate(reader.items(entry.node, "phones") or ()):
        pattern = reader.text(node, f"phones[{index}]", "a pattern such as pixel*")
        if pattern is not None and not 0 < len(pattern.strip()) <= PATTERN_MAX:
            reader.refuse(node, f"phones[{index}]", f"a pattern has 1 to {PATTERN_MAX} characters")
        if pattern == "all":
            reader.refuse(node, f"phones[{index}]", "'all' stands alone: write 'phones: all'")
        patterns.add((pattern or "").strip().lower())
    return tuple(sorted(patterns))


def _read_number(reader: Reader, root: Entries, key: str, least: int, most: int) -> int | None:
    entry = root.entries.get(key)
    return reader.whole(entry.node, key, least, most) if entry else None


def _refuse_unknown_axes(reader: Reader, matrix: Entries, cases: CaseSpace) -> None:
    known = sorted(cases.parameters())
    reader.refuse_unknown(matrix, ["workload", *known, *AXES], "matrix", "axis")


def _refuse_too_many(
    reader: Reader, root: Entries, cases: CaseSpace, conditions: ConditionSpace, repeat: int
) -> None:
    runs = cases.count() * conditions.count() * repeat
    if runs > RUNS_PER_PHONE_MAX:
        place = root.entries["matrix"].place if "matrix" in root.entries else root.place
        text = f"{runs:,} runs per phone; at most {RUNS_PER_PHONE_MAX:,} go into one sweep"
        reader.problems.add(place, text)
