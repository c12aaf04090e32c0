"""The part of a sweep that says what is run: a workload, or several, with their parameters.

A workload is one of the catalogue, or a foreign program: `external:FILE` names its manifest.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

from orchestrator.plan.document import Broken, Entry, Node, Place, Scalar
from orchestrator.plan.manifest import problems_in, read_manifest
from orchestrator.plan.reading import Reader
from workloads.catalogue import CATALOGUE, Case, Parameter, bind, bind_external, wrapped
from workloads.external import Manifest
from workloads.fault import Refused
from workloads.text import safe_text
from workloads.work import Backend

WORKLOAD_KEYS = ("use", "with", "data", "backend")
_DIGEST = re.compile(r"[0-9a-f]{64}")
EXTERNAL_PREFIX = "external:"
Fetch = Callable[[str], str]  # a file that a sweep names -> its text, or OSError


class Offers:
    """Every workload that a sweep may name: the catalogue's, and those that it brings itself."""

    def __init__(self, fetch: Fetch) -> None:
        self._fetch = fetch
        self._brought: dict[str, Manifest] = {}
        self.data: str | None = None  # digest of the file that is learned from
        self.backend: Backend | None = None  # who computes, where the sweep says it once for all

    def parameters(self, name: str) -> tuple[Parameter, ...]:
        """What can be chosen of a workload."""
        if name in self._brought:
            return wrapped(self._brought[name]).parameters
        return CATALOGUE[name].parameters

    def bind(self, name: str, given: dict[str, int], backend: Backend | None = None) -> Case:
        """A case of a workload."""
        if name in self._brought:
            return bind_external(self._brought[name], given)
        return bind(name, given, self.data, backend or self.backend or "cpu")

    def takes_backend(self, name: str | None) -> bool:
        """Whether it can be said who computes; a foreign program decides that itself."""
        return name not in self._brought

    def read_backend(self, reader: Reader, node: Node, path: str) -> Backend | None:
        """Read who is to compute."""
        match reader.text(node, path, "cpu or opencl"):
            case "cpu" | "opencl" as backend:
                return backend
            case str(text):
                wanted = "it is cpu or opencl, for a workload of the catalogue"
                reader.refuse(node, path, f"'{safe_text(text, 40)}' is no backend; {wanted}")
        return None

    def read_data(self, reader: Reader, node: Node, name: str | None) -> None:
        """Read the digest of a data file, and see whether the workload can learn from one."""
        path = "workload.data"
        text = reader.text(node, path, "the digest that 'farm workload data' prints")
        if text is None:
            return
        if _DIGEST.fullmatch(text) is None or name in self._brought:
            wanted = "write the 64 letters that 'farm workload data' prints"
            reader.refuse(
                node, path, f"'{safe_text(text, 40)}' is no digest of a data file; {wanted}"
            )
            return
        self.data = text
        if name is not None:
            try:
                bind(name, {}, text)
            except Refused as error:
                reader.refuse(node, path, safe_text(error))

    def read_name(self, reader: Reader, node: Node, path: str) -> str | None:
        """Read the name of a workload; of a foreign program, its manifest as well."""
        if not isinstance(node, Scalar) or not node.text.startswith(EXTERNAL_PREFIX):
            return reader.choice(node, path, "workload", sorted(CATALOGUE))
        if node.text not in self._brought:
            manifest = self._read_manifest(reader, node, path)
            if manifest is None:
                return None
            if manifest in self._brought.values():
                reader.refuse(node, path, f"'{manifest.name}' stands here already")
                return None
            self._brought[node.text] = manifest
        return node.text

    def _read_manifest(self, reader: Reader, node: Scalar, path: str) -> Manifest | None:
        file = node.text.removeprefix(EXTERNAL_PREFIX)
        try:
            text = self._fetch(file)
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
            shown = safe_text(file, 80) or "external:"
            reader.refuse(node, path, f"{shown} cannot be read: {safe_text(why, 80)}")
            return None
        manifest, read = read_manifest(text)
        for problem in problems_in(read, file):
            reader.refuse(node, path, problem)
        return manifest


def fetch_nothing(name: str) -> str:
    """For a sweep that stands alone: it brings no files."""
    raise FileNotFoundError(2, "No such file or directory", name)


@dataclass(frozen=True)
class Program:
    """What a sweep runs: its workloads, whatever they offer, and what is fixed of them."""

    workloads: tuple[str, ...]
    offers: Offers
    given: Entry | None = None  # what stands under workload.with

    def parameters(self) -> set[str]:
        """The names of what can be chosen; while no workload is known, of any workload's."""
        return self.parameters_of(self.workloads or CATALOGUE)

    def parameters_of(self, workloads: Iterable[str]) -> set[str]:
        """The names of every parameter that at least one of the workloads has."""
        return {each.name for name in workloads for each in self.offers.parameters(name)}

    def read_value(self, reader: Reader, name: str, node: Node, path: str) -> int | None:
        """Read a parameter's value, within the bounds of every workload that has it."""
        bounds = [
            (parameter.least, parameter.most)
            for workload in self.workloads
            for parameter in self.offers.parameters(workload)
            if parameter.name == name
        ]
        if not bounds:
            return reader.whole_number(node, path)
        least, most = max(low for low, _ in bounds), min(high for _, high in bounds)
        return reader.whole(node, path, least, most)


def read_program(
    reader: Reader, root: Place, workload: Entry | None, axis: Entry | None, fetch: Fetch
) -> Program:
    """Read which workloads a sweep runs: from `workload`, or from the matrix."""
    before = len(reader.problems.found)
    offers = Offers(fetch)
    workloads, given = _read_workloads(reader, offers, root, workload, axis)
    if len(reader.problems.found) > before:
        # A mistake here must not make mistakes of everything that hangs on it.
        workloads = ()
    return Program(workloads, offers, given)


def _read_workloads(
    reader: Reader, offers: Offers, root: Place, workload: Entry | None, axis: Entry | None
) -> tuple[tuple[str, ...], Entry | None]:
    if axis is None and workload is None:
        see = "'farm workload list' shows what there is"
        reader.problems.add(root, f"the key 'workload' is missing; {see}")
    if axis is None:
        name, given = _read_workload(reader, offers, workload) if workload else (None, None)
        return (name,) if name else (), given
    if workload is not None:
        text = f"matrix: workload stands at line {workload.place.line} already; say it once"
        reader.problems.add(axis.place, text)
    read = partial(offers.read_name, reader)
    return reader.distinct(axis.node, "matrix.workload", read), None


def _read_workload(reader: Reader, offers: Offers, entry: Entry) -> tuple[str | None, Entry | None]:
    node = entry.node
    if isinstance(node, Scalar | Broken):
        return offers.read_name(reader, node, "workload"), None
    entries = reader.entries(node, "workload", "{use: mlp-4, with: {batch_size: 32}}")
    if entries is None:
        return None, None
    reader.refuse_unknown(entries, WORKLOAD_KEYS, "workload")
    use = entries.entries.get("use")
    if use is None:
        reader.refuse(node, "workload", "the key 'use' is missing; it names the workload")
        return None, None
    name = offers.read_name(reader, use.node, "workload.use")
    if "data" in entries.entries:
        offers.read_data(reader, entries.entries["data"].node, name)
    if "backend" in entries.entries:
        _read_backend(reader, offers, entries.entries["backend"].node, name)
    return name, entries.entries.get("with")


def _read_backend(reader: Reader, offers: Offers, node: Node, name: str | None) -> None:
    path = "workload.backend"
    backend = offers.read_backend(reader, node, path)
    if backend is not None and not offers.takes_backend(name):
        reader.refuse(node, path, "a foreign program decides itself who computes")
    offers.backend = backend
