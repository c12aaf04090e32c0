"""The sweep file: what to run, on which phones, under which conditions, and how often.

    farm: 1                      version of the sweep-file language
    name: batch-study            lower case letters, digits, '.', '_' and '-'
    workload: mlp-4              or {use: mlp-4, with: {batch_size: 32}}, or external:FILE
    phones: all                  or a list of patterns such as [pixel*, sm8?50], or
      select: root and big >= 4  a selector ('farm help selectors'),
      take: 2 of each model      how many: each (the default), a number, or per model or soc,
      at_least: 4                and the minimum number of phones
    matrix:                      every combination of these values is one cell
      batch_size: [32, 256]      a parameter of the workload, `workload` itself, backend (cpu,
      cores: [big2, big4]        opencl), kernel, feed, input, protocol, cores, freq, gpu_freq,
                                 or an axis defined under `values`
    values:                      names for several settings at once
      setup:                     an axis
        burst: {cores: big4, freq: high}
    exclude:                     cells to leave out, on all phones or on some, and why
      - {batch_size: 256, when: ram_mb < 6000, why: out of memory}
    include:                     cells in addition to the matrix
      - {batch_size: 1024, cores: big4}
    conditions:                  conditions that are the same in every cell
      freq: high
      cool_wait_max: 20m         also start_temp_max_c (a number, or any), battery_min_pct,
                                 warmup_steps, steps_min and time_min (minimum run length),
                                 sample_hz (up to 200; limited to 6000 readings per run),
                                 trace_steps (steps with a time for every operation),
                                 resume (30s: a killed run continues from a checkpoint of that age),
                                 token_budget, target_loss (where the loss of a language model is
                                 read; they do not change how long a run takes)
    defaults: {batch_size: 32}   used where neither a cell nor `conditions` sets a value
    repeat: 3                    runs per cell and phone, or until the median is precise:
      until: 2%                  half the width of the median's confidence interval,
      confidence: 95%            with at least `min` and at most `max` runs, of a `metric`
    order:                       every block contains every cell once, in random order
      baseline: {batch_size: 32} this cell recurs within the block,
      every: 8                   one run per 8 other runs
    seed: 7                      of the random order; derived from the file if omitted
    retry: {phone: 3, condition: 3}      maximum attempts per run, by blame
    budget: {wall: 36h, failures: 10%}   the sweep pauses when a limit is exceeded
    collect: {telemetry: none}   store only the reports
    owner, priority (0-100), deadline, tags      its share of the lab, and labels

Patterns support * ? and [abc], ignore case, and are matched with a phone's serial, model and SoC.
The id of a sweep depends on what it measures: comments, order and spelling of keys and values do
not change it, nor do owner, priority, deadline, tags, retry, budget and collect.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

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
from orchestrator.sweepfile.node_reader import NodeReader
from orchestrator.sweepfile.phone_selection import PhoneSelection, read_phone_selection
from orchestrator.sweepfile.policy import Baseline, Policy
from orchestrator.sweepfile.policy_reader import KEYS as POLICY_KEYS
from orchestrator.sweepfile.policy_reader import PolicyReader
from orchestrator.sweepfile.sweep_errors import BadSweep
from orchestrator.sweepfile.workload_reader import FetchFile, fetch_no_file, read_workload_spec
from orchestrator.sweepfile.yaml_nodes import MappingEntry, MappingNode, read_document
from workloads.catalogue import Case
from workloads.protocol.base import digest_of, digest_with_prefix
from workloads.protocol.condition import Condition

VERSION = 1
RUNS_PER_PHONE_MAX = 20_000
SEED_MAX = 2**31 - 1
_CONTENT_KEYS = ("farm", "name", "workload", "phones", "matrix", "values", "exclude", "include")
KEYS = (*_CONTENT_KEYS, "conditions", "defaults", "seed", *POLICY_KEYS)
NAME_PATTERN = r"[a-z0-9][a-z0-9._-]{0,62}"


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
        reader.refuse_unknown(root, KEYS)
        name = _read_name(reader, root)
        phones = read_phone_selection(reader, root)
        seed = root.entries.get("seed")
        seed_value = reader.integer_between(seed.node, "seed", 0, SEED_MAX) if seed else None
        policy_reader = PolicyReader(reader, root)
        policy, every = policy_reader.read(), policy_reader.check_order()
        space = self._space()
        rules = CellRules(cells, root)
        added = rules.spaces(space.fixed)
        baseline = policy_reader.order.entries.get("baseline")
        baseline_values = read_baseline(cells, baseline.node) if baseline else None
        self._refuse_too_many([space, *added], policy)
        if reader.problems.items:
            return None
        built = space.build()
        kept = tuple(rules.apply(built, added))
        if not kept:
            location = root.entries["exclude"].location
            reader.problems.add(location, "exclude: no cell is left; remove a rule")
        if baseline is not None and baseline_values is not None:
            policy = _add_baseline(reader, baseline, baseline_values, kept, policy, every)
        return _build_sweep(name, kept, phones, policy, seed_value, tuple(rules.counts), len(built))

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
    entry: MappingEntry,
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
        reader.problems.add(entry.node.location, problem)
        return policy
    case, condition = matches[0].key
    baseline = Baseline(case_digest=case, condition_digest=condition, every=every)
    return policy.model_copy(update={"baseline": baseline})


def _build_sweep(
    name: str,
    cells: tuple[Cell, ...],
    phones: PhoneSelection,
    policy: Policy,
    seed: int | None,
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
        "name": name,
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
    if seed is None:
        seed = int(digest_of(identity)[:8], 16) & SEED_MAX
    digest = digest_of(identity | {"seed": seed})
    return Sweep(name, cells, phones, policy, seed, digest, rules, matrix_cells)


def _read_name(reader: NodeReader, root: MappingNode) -> str:
    entry = root.entries.get("name")
    if entry is None:
        problem = "the key 'name' is missing; write a name such as 'name: batch-study'"
        reader.problems.add(root.location, problem)
        return ""
    return reader.name(entry.node, "name", NAME_PATTERN, "a name", 63) or ""
