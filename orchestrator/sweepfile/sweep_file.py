"""The sweep file: what to run, on which phones, under which conditions, and how often.

    farm: 1
    name: batch-study
    workload: mlp-4
    phones: all
    matrix:                            every combination is one cell
      batch_size: [32, 256]
      setup: [burst, calm]
    values:                            names for several settings at once
      setup: {burst: {cores: big4, freq: high}, calm: {cores: little2, freq: low}}
    exclude:
      - {batch_size: 256, when: ram_mb < 6000, why: out of memory}
    conditions: {cool_wait_max: 20m}   the same in every cell
    repeat: {until: 2%}                or a number

Patterns support * ? and [abc], ignore case, and are matched with a phone's serial, model and SoC.
The id of a sweep depends on what it measures: comments, order and spelling of keys and values do
not change it, nor do owner, priority, deadline, tags, retry, budget and collect.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any

from pydantic import AfterValidator

from orchestrator.sweepfile.cell_rules import CellRules, RuleCount, read_baseline
from orchestrator.sweepfile.cells import (
    WORKLOAD,
    Cell,
    CellReader,
    CellSpace,
    WrittenValue,
    read_axes,
    read_fixed_settings,
    refuse_options_without_backend,
)
from orchestrator.sweepfile.model_reader import read_keys, written_keys
from orchestrator.sweepfile.node_reader import NodeReader
from orchestrator.sweepfile.phone_selection import PhoneSelection, read_phone_selection
from orchestrator.sweepfile.policy import (
    BASELINE_EVERY,
    Baseline,
    BaselineEvery,
    Policy,
    check_label,
)
from orchestrator.sweepfile.sweep_errors import BadSweep
from orchestrator.sweepfile.workload_reader import FetchFile, fetch_no_file, read_workload_spec
from orchestrator.sweepfile.yaml_nodes import MappingNode, Node, read_document
from workloads.catalogue import Case
from workloads.protocol.base import WireModel, digest_of, digest_with_prefix
from workloads.protocol.condition import Condition
from workloads.protocol.file_keys import Problem, RuledModel, key, rule

VERSION = 1
RUNS_PER_PHONE_MAX = 20_000
SEED_MAX = 2**31 - 1
NAME_PATTERN = r"[a-z0-9][a-z0-9._-]{0,62}"


class OrderKeys(RuledModel):
    """The keys of `order`."""

    baseline: Any = key(
        None, "this cell recurs within each block", values="axis values that name one cell"
    )
    every: BaselineEvery = key(BASELINE_EVERY, "one baseline run per this many other runs")

    @rule("baseline", "every")
    def _check_baseline(self) -> Iterator[Problem]:
        if "every" in self.model_fields_set and self.baseline is None:
            yield ("every",), "needs a baseline; add baseline, or remove every"


def _check_name(name: str) -> str:
    return check_label(name, NAME_PATTERN, "a name", 63)


class SweepKeys(WireModel):
    """The keys of a sweep file, besides those of its policy."""

    farm: Any = key(..., "version of this format", example="1", values="`1`")
    name: Annotated[str, AfterValidator(_check_name)] = key(
        ...,
        "up to 63 lower case letters, digits, `.`, `_` and `-`",
        example="batch-study",
        values="a name such as batch-study",
    )
    workload: Any = key(
        None,
        "what runs; required unless it is an axis of `matrix`",
        values="a name, `external:FILE`, or a mapping",
    )
    phones: Any = key(..., "on which phones", example="all", values="`all`, patterns, or a mapping")
    matrix: Any = key(
        None, "every combination of these values is one cell", values="{axis: [value, ...]}"
    )
    values: Any = key(
        None,
        "names for several settings at once, usable as an axis",
        values="{axis: {name: {key: value}}}",
    )
    exclude: Any = key(None, "cells to leave out", values="a list of rules")
    include: Any = key(None, "cells in addition to the matrix", values="a list of rules")
    conditions: Any = key(
        None, "[conditions](conditions.md) that apply to every cell", values="{condition: value}"
    )
    defaults: Any = key(
        None, "used where neither a cell nor `conditions` sets a value", values="{key: value}"
    )
    order: OrderKeys = key(
        OrderKeys(), "the baseline of each block", example="{baseline: {cores: big4}, every: 8}"
    )
    seed: int | None = key(
        None, "of the random orders; usually derived from the file", ge=0, le=SEED_MAX
    )


@dataclass(frozen=True)
class Sweep:
    """A sweep that can be executed: every cell is bound."""

    name: str
    cells: tuple[Cell, ...]
    phones: PhoneSelection
    policy: Policy
    seed: int
    digest: str
    rules: tuple[RuleCount, ...] = ()
    matrix_cells: int = 0  # before rules are applied

    @property
    def id(self) -> str:
        """The id; files that measure the same have the same id."""
        return f"sw-{self.digest[:8]}"

    @cached_property
    def cases(self) -> tuple[Case, ...]:
        """All cases, each once."""
        return tuple({cell.case_digest: cell.case for cell in self.cells}.values())

    @cached_property
    def conditions(self) -> tuple[Condition, ...]:
        """All conditions, each once."""
        return tuple({cell.condition_digest: cell.condition for cell in self.cells}.values())

    @property
    def repeat(self) -> int:
        """The maximum number of blocks per phone."""
        return self.policy.blocks

    @property
    def runs_per_phone(self) -> int:
        """The maximum number of runs of a phone that can run every cell."""
        others = len(self.cells) - 1
        baseline = self.policy.baseline
        return (others + (baseline.runs_per_block(others) if baseline else 1)) * self.repeat

    def trial_id(self, cell: tuple[str, str], phone: str) -> str:
        """Return the id of a cell's trial on a phone; it does not depend on other phones."""
        digest = self._digest_prefixes.get(cell)
        if digest is None:
            digest = self._digest_prefixes[cell] = digest_with_prefix([self.id, *cell])
        return f"tr-{digest(phone)[:16]}"

    @cached_property
    def _digest_prefixes(self) -> dict[tuple[str, str], Callable[[str], str]]:
        """Cached digests of cells without a phone: a large sweep computes a hundred thousand."""
        return {}


def read_sweep(text: str, fetch: FetchFile = fetch_no_file) -> Sweep:
    """Read a sweep file; BadSweep lists all its mistakes.

    `fetch` returns the text of a file that the sweep names: the manifest of an external program.
    """
    reader = NodeReader()
    node = read_document(text, reader.problems)
    root = reader.mapping(node, "the file", "'farm: 1', one key per line") if node else None
    sweep = None
    if root is not None and reader.check_version(root, "farm", VERSION):
        sweep = _SweepReader(reader, root, fetch).read()
    if sweep is None or reader.problems.items:
        raise BadSweep(reader.problems.items, text)
    return sweep


class _SweepReader:
    """Reads the sections of a file; cells are built only if there was no mistake."""

    def __init__(self, reader: NodeReader, root: MappingNode, fetch: FetchFile) -> None:
        self._reader = reader
        self._root = root
        self._matrix = reader.section(root, "matrix", "{batch_size: [32, 256]}")
        axis, workload = self._matrix.entries.get(WORKLOAD), root.entries.get(WORKLOAD)
        self._workload_spec = read_workload_spec(reader, root.location, workload, axis, fetch)
        self._cells = CellReader(reader, self._workload_spec)

    def read(self) -> Sweep | None:
        reader, root, cells = self._reader, self._root, self._cells
        reader.refuse_unknown(root, written_keys(SweepKeys, Policy))
        keys = read_keys(reader, SweepKeys, root)
        policy = read_keys(reader, Policy, root)
        phones = read_phone_selection(reader, root.entries.get("phones"))
        space = self._space()
        rules = CellRules(cells, root)
        added = rules.spaces(space.fixed)
        baseline = keys.order.baseline
        baseline_values = read_baseline(cells, baseline) if baseline else None
        self._refuse_too_many([space, *added], policy)
        if reader.problems.items:
            return None
        built = space.build()
        kept = tuple(rules.apply(built, added))
        if not kept:
            location = root.entries["exclude"].location
            reader.problems.add(location, "exclude: no cell is left; remove a rule")
        if baseline_values is not None:
            every = keys.order.every
            policy = _add_baseline(reader, baseline, baseline_values, kept, policy, every)
        return _build_sweep(keys, kept, phones, policy, tuple(rules.counts), len(built))

    def _space(self) -> CellSpace:
        """Read the matrix and the settings that are fixed."""
        reader, cells = self._reader, self._cells
        cells.read_named_settings(
            reader.section(self._root, "values", "{setup: {burst: {cores: big4}}}")
        )
        axes = read_axes(cells, self._matrix)
        entry = self._workload_spec.with_entry
        section = reader.mapping(entry.node, "workload.with", "{batch_size: 32}") if entry else None
        section = section or MappingNode(self._root.location, {})
        fixed = read_fixed_settings(cells, self._root, section, self._matrix, axes)
        refuse_options_without_backend(cells, (section, self._matrix), axes)
        return CellSpace(self._workload_spec, self._workload_spec.workloads, fixed, axes)

    def _refuse_too_many(self, spaces: Sequence[CellSpace], policy: Policy) -> None:
        runs = sum(space.count() for space in spaces) * policy.blocks
        if runs > RUNS_PER_PHONE_MAX:
            entry = self._root.entries.get("matrix")
            location = entry.location if entry else self._root.location
            problem = f"{runs:,} runs per phone; a sweep may have at most {RUNS_PER_PHONE_MAX:,}"
            self._reader.problems.add(location, problem)


def _add_baseline(
    reader: NodeReader,
    node: Node,
    values: Mapping[str, tuple[WrittenValue, ...]],
    cells: Sequence[Cell],
    policy: Policy,
    every: int,
) -> Policy:
    """Add the baseline to the policy: the one cell that has these values."""
    matches = [
        cell for cell in cells if all(cell.has_value(key, wanted) for key, wanted in values.items())
    ]
    if len(matches) != 1:
        count = "no cell matches" if not matches else f"{len(matches)} cells match"
        problem = f"order.baseline: {count}; write the axis values of one cell"
        reader.problems.add(node.location, problem)
        return policy
    case, condition = matches[0].key
    baseline = Baseline(case_digest=case, condition_digest=condition, every=every)
    return policy.model_copy(update={"baseline": baseline})


def _build_sweep(
    keys: SweepKeys,
    cells: tuple[Cell, ...],
    phones: PhoneSelection,
    policy: Policy,
    rules: tuple[RuleCount, ...],
    matrix_cells: int,
) -> Sweep:
    """Build the sweep with its id: the digest of what is measured, and in which order.

    Keys are added to the digest only when they are used, so that files without them keep their id.
    """
    cases = sorted({cell.case_digest for cell in cells})
    conditions = sorted({cell.condition_digest for cell in cells})
    identity: dict[str, Any] = {
        "farm": VERSION,
        "name": keys.name,
        "cases": cases,
        "conditions": conditions,
        "phones": phones.identity,
        "repeat": policy.repeat if policy.stop is None else policy.stop.model_dump(mode="json"),
    }
    varies_by_phone = any(
        cell.removed_by or (cell.added_by and cell.added_by.when) for cell in cells
    )
    if varies_by_phone or len(cells) != len(cases) * len(conditions):
        identity["cells"] = sorted(cell.identity for cell in cells)
    if policy.baseline is not None:
        identity["baseline"] = policy.baseline.model_dump(mode="json")
    seed = int(digest_of(identity)[:8], 16) & SEED_MAX if keys.seed is None else keys.seed
    digest = digest_of(identity | {"seed": seed})
    return Sweep(keys.name, cells, phones, policy, seed, digest, rules, matrix_cells)
