"""The included manifests of other engines, and the requirements of a study on a manifest."""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from orchestrator.sweepfile.manifest_reader import problems_in, read_manifest
from orchestrator.sweepfile.sweep_file import read_sweep
from workloads.catalogue import bind
from workloads.external_program import Manifest
from workloads.protocol.faults import InvalidRequest
from workloads.text import safe_text

CHECKED_BYTES_MAX = 1 << 24  # programs are smaller; models are not read at every check
ENGINES = Path(__file__).resolve().parents[1] / "examples" / "external" / "engines"


@dataclass(frozen=True)
class EngineFiles:
    """A manifest that comes with the farm, and the files of its program."""

    manifest: Manifest
    text: str
    shipped: tuple[Path, ...]  # programs in Python, which run with the engine's package

    @property
    def needed(self) -> tuple[str, ...]:
        """The names of the files that the user provides: a built program and its model."""
        names = {path.name for path in self.shipped}
        return tuple(file.name for file in self.manifest.files if file.name not in names)


def list_engines() -> dict[str, EngineFiles]:
    """Return the included manifests, by name."""
    engines = {}
    for path in sorted(ENGINES.glob("*.yaml")):
        text = path.read_text(encoding="utf-8")
        manifest = check_manifest(text, path.name)
        shipped = (ENGINES / file.name for file in manifest.files)
        engines[path.stem] = EngineFiles(manifest, text, tuple(p for p in shipped if p.exists()))
    return engines


def check_manifest(text: str, name: str) -> Manifest:
    """Return the manifest in a text; InvalidRequest lists its mistakes with their positions."""
    manifest, reader = read_manifest(text)
    if manifest is None:
        raise InvalidRequest("; ".join(problems_in(reader, name)))
    return manifest


def changed_files(text: str, folder: Path) -> dict[str, str]:
    """Return the files beside a manifest that differ from those it names, with their digests."""
    manifest, _ = read_manifest(text)
    changed = {}
    for file in manifest.files if manifest else ():
        path = folder / file.name
        if path.is_file() and path.stat().st_size <= CHECKED_BYTES_MAX:
            digest = hashlib.sha256(path.read_bytes()).hexdigest()
            if digest != file.sha256:
                changed[file.name] = digest
    return changed


def check_study_manifest(text: str, name: str, sweeps: Sequence[str]) -> Manifest:
    """Return a manifest whose steps can be compared with the training steps in a study's sweeps."""
    manifest = check_manifest(text, name)
    shown = safe_text(name, 80)
    if not manifest.training:
        raise InvalidRequest(
            f"{shown} measures inference, and this study compares training steps; name a manifest "
            "with 'training: true' and a rule for the loss"
        )
    known = {parameter.name for parameter in manifest.parameters}
    chosen = {name for sweep in sweeps for name in _chosen_parameters(sweep)}
    if missing := sorted(chosen - known):
        raise InvalidRequest(
            f"{shown} has no parameter {' and no parameter '.join(missing)}, which this study "
            "chooses; add it, so that both engines train the same"
        )
    return manifest


def _chosen_parameters(sweep: str) -> Iterator[str]:
    """Yield the parameters of our workloads that a sweep sets to other values than the default."""
    for case in read_sweep(sweep).cases:
        default = bind(case.workload, {}).parameters
        yield from (name for name, value in case.parameters.items() if value != default[name])
