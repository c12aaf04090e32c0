"""The manifests of other engines that come with the farm, and what a study asks of a manifest."""

from dataclasses import dataclass
from pathlib import Path

from orchestrator.sweepfile.manifest_reader import problems_in, read_manifest
from workloads.external_program import Manifest
from workloads.protocol.faults import InvalidRequest
from workloads.text import safe_text

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
    """Return the manifests that come with the farm, by name."""
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


def check_study_manifest(text: str, name: str, parameters: frozenset[str]) -> Manifest:
    """Return a manifest whose steps can be compared with training steps of ours."""
    manifest = check_manifest(text, name)
    shown = safe_text(name, 80)
    if not manifest.training:
        raise InvalidRequest(
            f"{shown} measures inference, and this study compares training steps; name a manifest "
            "with 'training: true' and a rule for the loss"
        )
    missing = parameters - {parameter.name for parameter in manifest.parameters}
    if missing:
        raise InvalidRequest(
            f"{shown} has no parameter {' and no parameter '.join(sorted(missing))}, which this "
            "study varies; add it, so that both engines train the same"
        )
    return manifest
