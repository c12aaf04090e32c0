"""Reads `workload`: what a sweep runs, one workload or several, with their parameters.

A workload is one of the catalogue, or an external program: `external:FILE` names its manifest.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

from pydantic import AfterValidator

from orchestrator.sweepfile.manifest_reader import problems_in, read_manifest
from orchestrator.sweepfile.model_reader import read_keys, written_keys
from orchestrator.sweepfile.node_reader import NodeReader
from orchestrator.sweepfile.yaml_nodes import (
    ErrorNode,
    MappingEntry,
    Node,
    ScalarNode,
    SourceLocation,
)
from workloads.catalogue import CATALOGUE, Case, bind, bind_external, workload_from_manifest
from workloads.external_program import Manifest
from workloads.protocol.base import WireModel
from workloads.protocol.faults import InvalidRequest
from workloads.protocol.file_keys import key
from workloads.run_options import RUN_OPTIONS, RunOption
from workloads.step_cost import Backend
from workloads.text import safe_text
from workloads.workload import Parameter

EXTERNAL_PREFIX = "external:"
FetchFile = Callable[[str], str]  # name of a file that a sweep refers to -> its text, or OSError


def _check_data(digest: str) -> str:
    if re.fullmatch(r"[0-9a-f]{64}", digest) is None:
        hint = "write the 64 characters that 'farm workload add --dataset' prints"
        raise ValueError(f"'{safe_text(digest, 40)}' is not the digest of a data set; {hint}")
    return digest


class WorkloadKeys(WireModel):
    """The keys of `workload`, where it is a mapping."""

    use: Any = key(..., "the workload", example="mlp-4", values="a name of `farm workload list`")
    with_: Any = key(
        None,
        "parameters and options that are the same in every cell",
        values="{parameter: value}",
    )
    backend: Backend | None = key(None, "where it computes; usually `cpu`")
    data: Annotated[str | None, AfterValidator(_check_data)] = key(
        None,
        "[your own data file](../howto/your-own-model.md)",
        values="the digest that `farm workload add --dataset` prints",
    )


class WorkloadResolver:
    """Resolves the workloads that a sweep names: of the catalogue, or external programs."""

    def __init__(self, fetch: FetchFile) -> None:
        self._fetch = fetch
        self._manifests: dict[str, Manifest] = {}
        self.data: str | None = None  # digest of the data set to train on
        self.backend: Backend | None = None  # if the sweep sets one for all its workloads

    def parameters(self, name: str) -> tuple[Parameter, ...]:
        if name in self._manifests:
            return workload_from_manifest(self._manifests[name]).parameters
        return CATALOGUE[name].parameters

    def options(self, name: str) -> tuple[RunOption, ...]:
        """Return the named choices of a workload."""
        return () if name in self._manifests else CATALOGUE[name].options

    def has_meaning(self, setting: str, backend: Backend | None) -> bool:
        """Return whether a setting applies with a backend; options of another one do not."""
        option = RUN_OPTIONS.get(setting)
        return option is None or option.backend in (None, backend or self.backend or "cpu")

    def bind(self, name: str, values: dict[str, Any], backend: Backend | None = None) -> Case:
        """Bind a workload's parameters to a case."""
        if name in self._manifests:
            return bind_external(self._manifests[name], values)
        return bind(name, values, self.data, backend or self.backend or "cpu")

    def takes_backend(self, name: str | None) -> bool:
        """Return whether the backend can be chosen; an external program chooses it itself."""
        return name not in self._manifests

    def set_data(self, reader: NodeReader, node: Node, name: str | None, digest: str) -> None:
        """Train on a data set, if the workload can."""
        path = "workload.data"
        if name in self._manifests:
            reader.refuse(node, path, "an external program takes no data set; remove this key")
            return
        self.data = digest
        if name is not None:
            try:
                bind(name, {}, digest)
            except InvalidRequest as error:
                reader.refuse(node, path, safe_text(error))

    def set_backend(
        self, reader: NodeReader, node: Node, name: str | None, backend: Backend
    ) -> None:
        """Compute with a backend, if the workload leaves the choice."""
        if not self.takes_backend(name):
            problem = "an external program chooses its backend; remove this key"
            reader.refuse(node, "workload.backend", problem)
        self.backend = backend

    def read_name(self, reader: NodeReader, node: Node, path: str) -> str | None:
        """Read the name of a workload; for an external program, also its manifest."""
        if not isinstance(node, ScalarNode) or not node.text.startswith(EXTERNAL_PREFIX):
            return reader.choice(node, path, sorted(CATALOGUE), "workload")
        if node.text not in self._manifests:
            manifest = self._read_manifest(reader, node, path)
            if manifest is None:
                return None
            if manifest in self._manifests.values():
                problem = f"'{manifest.name}' is listed twice; remove one of them"
                reader.refuse(node, path, problem)
                return None
            self._manifests[node.text] = manifest
        return node.text

    def _read_manifest(self, reader: NodeReader, node: ScalarNode, path: str) -> Manifest | None:
        file = node.text.removeprefix(EXTERNAL_PREFIX)
        try:
            text = self._fetch(file)
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
            shown = safe_text(file, 80) or "external:"
            reader.refuse(node, path, f"{shown} cannot be read: {safe_text(why, 80)}")
            return None
        manifest, manifest_reader = read_manifest(text)
        for problem in problems_in(manifest_reader, file):
            reader.refuse(node, path, problem)
        return manifest


def fetch_no_file(name: str) -> str:
    """Refuse every file, for a sweep text without a folder."""
    raise FileNotFoundError(2, "No such file or directory", name)


@dataclass(frozen=True)
class WorkloadSpec:
    """The workloads of a sweep, and the entry `workload.with` that fixes parameters."""

    workloads: tuple[str, ...]
    resolver: WorkloadResolver
    with_entry: MappingEntry | None = None

    def parameters(self) -> set[str]:
        """Return the names of all parameters; while no workload is known, of any workload."""
        return self.parameters_of(self.workloads or CATALOGUE)

    def parameters_of(self, workloads: Iterable[str]) -> set[str]:
        """Return the names of all parameters and options that at least one workload has."""
        names: set[str] = set()
        for workload in workloads:
            names |= {parameter.name for parameter in self.resolver.parameters(workload)}
            names |= {option.name for option in self.resolver.options(workload)}
        return names

    def read_value(self, reader: NodeReader, name: str, node: Node, path: str) -> int | str | None:
        """Read a parameter's value, within the bounds of every workload that has it."""
        if name in RUN_OPTIONS:
            return reader.choice(node, path, list(RUN_OPTIONS[name].choices), name)
        bounds = [
            (parameter.min, parameter.max)
            for workload in self.workloads
            for parameter in self.resolver.parameters(workload)
            if parameter.name == name
        ]
        if not bounds:
            return reader.integer(node, path)
        low, high = max(low for low, _ in bounds), min(high for _, high in bounds)
        return reader.integer_between(node, path, low, high)


def read_workload_spec(
    reader: NodeReader,
    root: SourceLocation,
    workload: MappingEntry | None,
    axis: MappingEntry | None,
    fetch: FetchFile,
) -> WorkloadSpec:
    """Read which workloads a sweep runs: from `workload`, or from the matrix."""
    before = len(reader.problems.items)
    resolver = WorkloadResolver(fetch)
    workloads, with_entry = _read_workloads(reader, resolver, root, workload, axis)
    if len(reader.problems.items) > before:
        # A mistake here must not cause further messages about everything that depends on it.
        workloads = ()
    return WorkloadSpec(workloads, resolver, with_entry)


def _read_workloads(
    reader: NodeReader,
    resolver: WorkloadResolver,
    root: SourceLocation,
    workload: MappingEntry | None,
    axis: MappingEntry | None,
) -> tuple[tuple[str, ...], MappingEntry | None]:
    if axis is None and workload is None:
        hint = "'farm workload list' shows all workloads"
        reader.problems.add(root, f"the key 'workload' is missing; {hint}")
    if axis is None:
        name, entry = _read_workload(reader, resolver, workload) if workload else (None, None)
        return (name,) if name else (), entry
    if workload is not None:
        line = workload.location.line
        problem = f"matrix: workload is already set at line {line}; remove one of them"
        reader.problems.add(axis.location, problem)
    read = partial(resolver.read_name, reader)
    return reader.distinct_values(axis.node, "matrix.workload", read), None


def _read_workload(
    reader: NodeReader, resolver: WorkloadResolver, entry: MappingEntry
) -> tuple[str | None, MappingEntry | None]:
    node = entry.node
    if isinstance(node, ScalarNode | ErrorNode):
        return resolver.read_name(reader, node, "workload"), None
    mapping = reader.mapping(node, "workload", "{use: mlp-4, with: {batch_size: 32}}")
    if mapping is None:
        return None, None
    reader.refuse_unknown(mapping, written_keys(WorkloadKeys), "workload")
    keys = read_keys(reader, WorkloadKeys, mapping, "workload")
    if "use" not in mapping.entries:
        return None, None
    name = resolver.read_name(reader, mapping.entries["use"].node, "workload.use")
    if keys.data is not None:
        resolver.set_data(reader, mapping.entries["data"].node, name, keys.data)
    if keys.backend is not None:
        resolver.set_backend(reader, mapping.entries["backend"].node, name, keys.backend)
    return name, mapping.entries.get("with")
