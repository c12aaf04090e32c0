"""The sweep file: what to run, on which phones, how often, and when enough is enough.

    farm: 1                      the version of this language
    name: batch-study            lower case letters, digits, '.', '_' and '-'
    workload: mlp-4              or {use: mlp-4, with: {batch_size: 32}}, or external:FILE
    phones: all                  or a list of patterns such as [pixel*, sm8?50], or
      select: root and big >= 4  a selector ('farm help selectors'),
      take: 2 of each model      each (as a rule), some, or some of each model or soc,
      at_least: 4                and how many it needs
    matrix:                      every combination of these is one cell
      batch_size: [32, 256]      a parameter of the workload, `workload` itself,
      cores: [big2, big4]        backend (cpu, opencl), protocol, cores, freq, gpu_freq, or an
                                 axis of `values`
    values:                      names for what is set together
      setup:                     an axis
        burst: {cores: big4, freq: high}
    exclude:                     cells that are left out, always or on some phones, and why
      - {batch_size: 256, when: ram_mb < 6000, why: out of memory}
    include:                     cells beside the matrix
      - {batch_size: 1024, cores: big4}
    conditions:                  what is the same in every cell
      freq: high
      cool_wait_max: 20m         also start_temp_max_c (a number, or any), battery_min_pct,
                                 warmup_steps, steps_min and time_min (how long a run looks),
                                 sample_hz (up to 100, while that leaves at most 6000 readings)
    defaults: {batch_size: 32}   for whatever neither a cell nor `conditions` says
    repeat: 3                    runs of every cell on every phone, or until it is known:
      until: 2%                  half the width of the median's interval,
      confidence: 95%            with at least `min` and at most `max` runs, of a `metric`
    order:                       every block holds every cell once, in a random order
      orders: 4                  so many are drawn of a block; the farm takes the coolest
      baseline: {batch_size: 32} this cell recurs within the block,
      every: 8                   once among so many others
    seed: 7                      of the order; derived from the rest when left out
    retry: {phone: 3, condition: 3}      how often a run is tried, by who is to blame
    budget: {wall: 36h, failures: 10%}   then the sweep pauses
    collect: {telemetry: none}   keep only the report of a run
    owner, priority (0-100), deadline, tags      whose it is, and what goes first

A pattern knows * ? and [abc], ignores case, and is held against a phone's serial, model and SoC.
A sweep is known by what it measures: comments, the order of keys and values and the way they are
written do not change its id, nor do owner, priority, deadline, tags, retry, budget and collect.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from orchestrator.plan.cases import Fetch, fetch_nothing, read_program
from orchestrator.plan.cells import (
    WORKLOAD,
    Cell,
    CellReader,
    CellSpace,
    Written,
    read_axes,
    read_fixed,
)
from orchestrator.plan.choice import PhoneChoice, read_choice
from orchestrator.plan.document import Entries, Entry, read_document
from orchestrator.plan.policy import ORDERS_DEFAULT, Baseline, Policy
from orchestrator.plan.policy_reading import KEYS as POLICY_KEYS
from orchestrator.plan.policy_reading import PolicyReader
from orchestrator.plan.problem import BadSweep
from orchestrator.plan.reading import Reader
from orchestrator.plan.rules import RuleCount, Rules, read_baseline
from workloads.catalogue import Case
from workloads.condition import Condition
from workloads.noun import digest_begun, digest_of

VERSION = 1
RUNS_PER_PHONE_MAX = 20_000
SEED_MAX = 2**31 - 1
_OWN_KEYS = ("farm", "name", "workload", "phones", "matrix", "values", "exclude", "include")
KEYS = (*_OWN_KEYS, "conditions", "defaults", "seed", *POLICY_KEYS)
NAME_PATTERN = r"[a-z0-9][a-z0-9._-]{0,62}"


@dataclass(frozen=True)
class Sweep:
    """A sweep that can be carried out: every cell bound, nothing left open."""

    name: str
    cells: tuple[Cell, ...]
    phones: PhoneChoice
    policy: Policy
    seed: int
    digest: str
    rules: tuple[RuleCount, ...] = ()
    matrix_cells: int = 0  # before any rule

    @property
    def id(self) -> str:
        """Same meaning, same id."""
        return f"sw-{self.digest[:8]}"

    @cached_property
    def cases(self) -> tuple[Case, ...]:
        """Every case, once."""
        return tuple({cell.case_digest: cell.case for cell in self.cells}.values())

    @cached_property
    def conditions(self) -> tuple[Condition, ...]:
        """Every condition, once."""
        return tuple({cell.condition_digest: cell.condition for cell in self.cells}.values())

    @property
    def repeat(self) -> int:
        """How many blocks a phone gets at most."""
        return self.policy.blocks

    @property
    def runs_per_phone(self) -> int:
        """How many runs a phone gets at most, one that can do everything."""
        others = len(self.cells) - 1
        baseline = self.policy.baseline
        return (others + (baseline.runs_in(others) if baseline else 1)) * self.repeat

    def trial_id(self, cell: tuple[str, str], phone: str) -> str:
        """The id of a cell's trial on a phone: the same whatever other phones there are."""
        begun = self._begun.get(cell)
        if begun is None:
            begun = self._begun[cell] = digest_begun([self.id, *cell])
        return f"tr-{begun(phone)[:16]}"

    @cached_property
    def _begun(self) -> dict[tuple[str, str], Callable[[str], str]]:
        """Digests of cells that wait for a phone: a large sweep takes a hundred thousand."""
        return {}


def read_sweep(text: str, fetch: Fetch = fetch_nothing) -> Sweep:
    """Read a sweep file; BadSweep names everything that is wrong with it.

    `fetch` answers the text of a file that the sweep names: the manifest of a foreign program.
    """
    reader = Reader()
    node = read_document(text, reader.problems)
    root = reader.entries(node, "the file", "'farm: 1', one key on a line") if node else None
    sweep = None
    if root is not None and reader.right_version(root, "farm", VERSION):
        sweep = _SweepReader(reader, root, fetch).read()
    if sweep is None or reader.problems.found:
        raise BadSweep(reader.problems.found, text)
    return sweep


class _SweepReader:
    """Reads the parts of a file, each where it stands; builds nothing while one is wrong."""

    def __init__(self, reader: Reader, root: Entries, fetch: Fetch) -> None:
        self._reader = reader
        self._root = root
        self._matrix = reader.section(root, "matrix", "{batch_size: [32, 256]}")
        axis, workload = self._matrix.entries.get(WORKLOAD), root.entries.get(WORKLOAD)
        self._program = read_program(reader, root.place, workload, axis, fetch)
        self._cells = CellReader(reader, self._program)

    def read(self) -> Sweep | None:
        reader, root, cells = self._reader, self._root, self._cells
        reader.refuse_unknown(root, KEYS)
        name = _read_name(reader, root)
        phones = read_choice(reader, root)
        seed = root.entries.get("seed")
        number = reader.whole(seed.node, "seed", 0, SEED_MAX) if seed else None
        how = PolicyReader(reader, root)
        policy, every = how.read(), how.check_order()
        space = self._space()
        rules = Rules(cells, root)
        added = rules.spaces(space.fixed)
        baseline = how.order.entries.get("baseline")
        wants = read_baseline(cells, baseline.node) if baseline else None
        self._refuse_too_many([space, *added], policy)
        if reader.problems.found:
            return None
        built = space.build()
        kept = tuple(rules.applied(built, added))
        if not kept:
            reader.problems.add(root.entries["exclude"].place, "exclude: no cell is left")
        if baseline is not None and wants is not None:
            policy = _with_baseline(reader, baseline, wants, kept, policy, every)
        return _identified(name, kept, phones, policy, number, rules.counts, len(built))

    def _space(self) -> CellSpace:
        """The matrix and what is fixed beside it."""
        reader, cells = self._reader, self._cells
        cells.read_named(reader.section(self._root, "values", "{setup: {burst: {cores: big4}}}"))
        axes = read_axes(cells, self._matrix)
        given = self._program.given
        entries = reader.entries(given.node, "workload.with", "{batch_size: 32}") if given else None
        own = entries or Entries(self._root.place, {})
        fixed = read_fixed(cells, self._root, own, self._matrix, axes)
        return CellSpace(self._program, self._program.workloads, fixed, axes)

    def _refuse_too_many(self, spaces: Sequence[CellSpace], policy: Policy) -> None:
        runs = sum(space.count() for space in spaces) * policy.blocks
        if runs > RUNS_PER_PHONE_MAX:
            entry = self._root.entries.get("matrix")
            place = entry.place if entry else self._root.place
            text = f"{runs:,} runs per phone; at most {RUNS_PER_PHONE_MAX:,} go into one sweep"
            self._reader.problems.add(place, text)


def _with_baseline(
    reader: Reader,
    entry: Entry,
    wants: Mapping[str, tuple[Written, ...]],
    cells: Sequence[Cell],
    policy: Policy,
    every: int,
) -> Policy:
    """Find the one cell that is meant."""
    meant = [cell for cell in cells if all(cell.has(key, values) for key, values in wants.items())]
    if len(meant) != 1:
        found = "no cell is" if not meant else f"{len(meant)} cells are"
        text = f"order.baseline: {found} like this; name one cell by its axes"
        reader.problems.add(entry.node.place, text)
        return policy
    case, condition = meant[0].key
    baseline = Baseline(case_digest=case, condition_digest=condition, every=every)
    return policy.model_copy(update={"baseline": baseline})


def _identified(
    name: str,
    cells: tuple[Cell, ...],
    phones: PhoneChoice,
    policy: Policy,
    seed: int | None,
    rules: tuple[RuleCount, ...],
    matrix_cells: int,
) -> Sweep:
    """Give a sweep its identity: what is measured and in which order, in one spelling.

    Whatever keeps to the language's first words has the id that it always had.
    """
    cases = sorted({cell.case_digest for cell in cells})
    conditions = sorted({cell.condition_digest for cell in cells})
    meaning: dict[str, Any] = {
        "farm": VERSION,
        "name": name,
        "cases": cases,
        "conditions": conditions,
        "phones": phones.meaning,
        "repeat": policy.repeat if policy.stop is None else policy.stop.model_dump(mode="json"),
    }
    for_some = any(cell.removed_by or (cell.added_by and cell.added_by.when) for cell in cells)
    if for_some or len(cells) != len(cases) * len(conditions):
        meaning["cells"] = sorted(cell.meaning for cell in cells)
    if policy.baseline is not None:
        meaning["baseline"] = policy.baseline.model_dump(mode="json")
    if policy.orders != ORDERS_DEFAULT:
        meaning["orders"] = policy.orders
    if seed is None:
        seed = int(digest_of(meaning)[:8], 16) & SEED_MAX
    digest = digest_of(meaning | {"seed": seed})
    return Sweep(name, cells, phones, policy, seed, digest, rules, matrix_cells)


def _read_name(reader: Reader, root: Entries) -> str:
    entry = root.entries.get("name")
    if entry is None:
        text = "the key 'name' is missing; write a name such as 'name: batch-study'"
        reader.problems.add(root.place, text)
        return ""
    return reader.named(entry.node, "name", NAME_PATTERN, "a name", 63) or ""
