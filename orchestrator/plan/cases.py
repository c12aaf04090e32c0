"""The part of a sweep that says what is run: a workload, or several, with their parameters."""

import itertools
import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial

from orchestrator.plan.document import Broken, Entries, Entry, Node, Place, Scalar
from orchestrator.plan.reading import Reader
from workloads.catalogue import CATALOGUE, Case, bind

WORKLOAD_KEYS = ("use", "with")


@dataclass(frozen=True)
class CaseSpace:
    """Every case of a sweep, not yet built: it can be counted first.

    A workload takes only the parameters that it has, so that an axis which means nothing to it
    does not multiply its cases.
    """

    workloads: tuple[str, ...]
    fixed: dict[str, int]
    axes: dict[str, tuple[int, ...]]

    def count(self) -> int:
        """How many cases there are."""
        return sum(math.prod(map(len, self._axes_of(name).values())) for name in self.workloads)

    def build(self) -> tuple[Case, ...]:
        """Bind every case."""
        return tuple(
            bind(name, {**self.fixed, **dict(zip(axes, values, strict=True))})
            for name in self.workloads
            for axes in [self._axes_of(name)]
            for values in itertools.product(*axes.values())
        )

    def _axes_of(self, workload: str) -> dict[str, tuple[int, ...]]:
        known = parameters_of([workload])
        return {name: values for name, values in self.axes.items() if name in known}


def parameters_of(workloads: Iterable[str]) -> set[str]:
    """The names of every parameter that at least one of the workloads has."""
    return {
        parameter.name for workload in workloads for parameter in CATALOGUE[workload].parameters
    }


def read_cases(reader: Reader, root: Place, workload: Entry | None, matrix: Entries) -> CaseSpace:
    """Read `workload` and the axes of the matrix that belong to it."""
    before = len(reader.problems.found)
    workloads, given = _read_workloads(reader, root, workload, matrix.entries.get("workload"))
    if len(reader.problems.found) > before:
        # A mistake here must not make mistakes of everything that hangs on it.
        workloads = ()
    fixed = _read_fixed(reader, workloads, given) if given else {}
    return CaseSpace(workloads, fixed, _read_axes(reader, workloads, fixed, matrix))


def _read_workloads(
    reader: Reader, root: Place, workload: Entry | None, axis: Entry | None
) -> tuple[tuple[str, ...], Entry | None]:
    if axis is None and workload is None:
        names = ", ".join(sorted(CATALOGUE))
        reader.problems.add(root, f"the key 'workload' is missing; there are {names}")
    if axis is None:
        name, given = _read_workload(reader, workload) if workload else (None, None)
        return (name,) if name else (), given
    if workload is not None:
        text = f"matrix: workload stands at line {workload.place.line} already; say it once"
        reader.problems.add(axis.place, text)
    return reader.distinct(axis.node, "matrix.workload", partial(_read_name, reader)), None


def _read_workload(reader: Reader, entry: Entry) -> tuple[str | None, Entry | None]:
    node = entry.node
    if isinstance(node, Scalar | Broken):
        return _read_name(reader, node, "workload"), None
    entries = reader.entries(node, "workload", "{use: mlp-4, with: {batch_size: 32}}")
    if entries is None:
        return None, None
    reader.refuse_unknown(entries, WORKLOAD_KEYS, "workload")
    use = entries.entries.get("use")
    if use is None:
        reader.refuse(node, "workload", "the key 'use' is missing; it names the workload")
        return None, None
    return _read_name(reader, use.node, "workload.use"), entries.entries.get("with")


def _read_fixed(reader: Reader, workloads: tuple[str, ...], given: Entry) -> dict[str, int]:
    entries = reader.entries(given.node, "workload.with", "{batch_size: 32}")
    if entries is None:
        return {}
    known = sorted(parameters_of(workloads or CATALOGUE))
    reader.refuse_unknown(entries, known, "workload.with", "parameter")
    fixed = {}
    for name, entry in entries.entries.items():
        if name in known:
            value = _read_value(reader, name, workloads, entry.node, f"workload.with.{name}")
            fixed[name] = value or 0  # after a mistake nothing is built: only the name matters
    return fixed


def _read_axes(
    reader: Reader, workloads: tuple[str, ...], fixed: dict[str, int], matrix: Entries
) -> dict[str, tuple[int, ...]]:
    known = parameters_of(workloads or CATALOGUE)
    axes: dict[str, tuple[int, ...]] = {}
    for name, entry in sorted(matrix.entries.items()):
        if name not in known:
            continue
        if name in fixed:
            text = f"matrix: {name} stands under workload.with already; say it once"
            reader.problems.add(entry.place, text)
        read = partial(_read_value, reader, name, workloads)
        axes[name] = reader.distinct(entry.node, f"matrix.{name}", read)
    return axes


def _read_name(reader: Reader, node: Node, path: str) -> str | None:
    return reader.choice(node, path, "workload", sorted(CATALOGUE))


def _read_value(
    reader: Reader, name: str, workloads: tuple[str, ...], node: Node, path: str
) -> int | None:
    bounds = [
        (parameter.least, parameter.most)
        for workload in workloads
        for parameter in CATALOGUE[workload].parameters
        if parameter.name == name
    ]
    if not bounds:
        return reader.whole_number(node, path)
    least, most = max(low for low, _ in bounds), min(high for _, high in bounds)
    return reader.whole(node, path, least, most)
