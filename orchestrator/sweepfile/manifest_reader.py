"""Reads the manifest of an external program; every mistake is reported with its location."""

from typing import Any

from orchestrator.sweepfile.model_reader import read_keys, written_keys
from orchestrator.sweepfile.node_reader import NodeReader
from orchestrator.sweepfile.yaml_nodes import read_document
from workloads.external_program import VERSION, Manifest
from workloads.protocol.base import WireModel
from workloads.protocol.file_keys import key
from workloads.text import safe_text


class ManifestVersion(WireModel):
    """The first key of a manifest."""

    external: Any = key(..., "version of this format", example="1", values="`1`")


def read_manifest(text: str) -> tuple[Manifest | None, NodeReader]:
    """Read a manifest; if it is None, the reader has recorded why."""
    reader = NodeReader()
    node = read_document(text, reader.problems)
    root = reader.mapping(node, "the file", "'external: 1', one key per line") if node else None
    if root is None or not reader.check_version(root, "external", VERSION):
        return None, reader
    reader.refuse_unknown(root, written_keys(ManifestVersion, Manifest))
    read_keys(reader, ManifestVersion, root)
    manifest = read_keys(reader, Manifest, root)
    return None if reader.problems.items else manifest, reader


def problems_in(reader: NodeReader, name: str) -> list[str]:
    """List the problems of a manifest, each with its location in that file."""
    return [
        f"{safe_text(name, 80)}:{problem.line}:{problem.column}: {problem.text}"
        for problem in sorted(reader.problems.items)
    ]
