"""What every consumer's files have in common: a folder, a manifest of conventions, a proof.

A simulated fleet is written only when that is allowed, and then every file's name says so.
"""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orchestrator.selection.client import Census, Client
from workloads.fault import Refused

MANIFEST = "manifest.json"
AGREES_WITHIN = 0.001
PROGRAMS = ("py", "sh")


@dataclass(frozen=True)
class Link:
    """The network, which the farm does not measure: whoever exports must say."""

    down_kbps: float
    up_kbps: float


@dataclass(frozen=True)
class Belief:
    """How long a consumer will believe that a batch of training takes, and how long it took."""

    phone: str
    believed_ms: float
    measured_ms: float

    @property
    def off(self) -> float:
        """How far apart they are, as a share."""
        return abs(self.believed_ms / self.measured_ms - 1)


@dataclass(frozen=True)
class Consumer:
    """A simulator: what its files hold, and how it reads them."""

    name: str
    title: str
    conventions: tuple[str, ...]
    needs_link: bool
    render: Callable[[Census, Link | None], Mapping[str, bytes]]
    batch_ms: Callable[[Mapping[str, bytes], int], Sequence[float]]  # in the order of the clients


@dataclass(frozen=True)
class Written:
    """What was written, and what its reader will make of it."""

    files: tuple[Path, ...]
    beliefs: tuple[Belief, ...]


def write_for(
    consumer: Consumer, census: Census, folder: Path, link: Link | None, allow_simulated: bool
) -> Written:
    """Write a consumer's files and their manifest, then read them back."""
    if not census.clients:
        raise Refused("no phone has figures to export")
    if consumer.needs_link and link is None:
        raise Refused(
            f"{consumer.title} wants a network speed, which the farm does not measure: "
            "say it with --link-kbps DOWN/UP"
        )
    if census.simulated and not allow_simulated:
        raise Refused(
            "these figures are simulated; a fleet of them is written with --allow-simulated"
        )
    contents = {
        _marked(name, census.simulated): data
        for name, data in consumer.render(census, link).items()
    }
    contents[_marked(MANIFEST, census.simulated)] = _manifest(consumer, census, link, contents)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, data in contents.items():
            (folder / name).write_bytes(data)
    except OSError as error:
        raise Refused(f"{folder} cannot be written: {error.strerror}") from error
    return Written(tuple(folder / name for name in contents), verify(folder)[1])


def verify(folder: Path) -> tuple[str, tuple[Belief, ...]]:
    """Read an export back through its consumer's own formula; say whose it is and what it says."""
    from orchestrator.export.federated import CONSUMERS

    manifest = _read_manifest(folder)
    consumer = CONSUMERS[manifest["for"]]
    contents = {}
    for name, digest in manifest["files"].items():
        data = _read(folder / name)
        if hashlib.sha256(data).hexdigest() != digest:
            raise Refused(f"{folder / name} is not the file that was written; export it again")
        contents[name.replace(".simulated", "")] = data
    believed = consumer.batch_ms(contents, manifest["batch"])
    return consumer.title, tuple(
        Belief(row["phone"], float(milliseconds), row["batch_ms"])
        for row, milliseconds in zip(manifest["clients"], believed, strict=True)
    )


def batch_ms(client: Client, batch: int) -> float:
    """What a batch takes when a phone goes on for long: sustained where known."""
    return (client.sustained_ms or client.cold_ms).value * batch


def _marked(name: str, simulated: bool) -> str:
    """Say so in the name of whatever holds figures; programs hold none."""
    stem, dot, suffix = name.partition(".")
    return f"{stem}.simulated{dot}{suffix}" if simulated and suffix not in PROGRAMS else name


def _manifest(
    consumer: Consumer, census: Census, link: Link | None, contents: Mapping[str, bytes]
) -> bytes:
    content = {
        "for": consumer.name,
        "conventions": consumer.conventions,
        "workload": census.workload,
        "batch": census.batch,
        "link_kbps": vars(link) if link else None,
        "files": {name: hashlib.sha256(data).hexdigest() for name, data in contents.items()},
        "clients": [
            {
                "client": index,
                "phone": client.phone,
                "model": client.model,
                "batch_ms": batch_ms(client, census.batch),
                "protocol": "sustained" if client.sustained_ms else "cold",
                "provenance": str(client.cold_ms.provenance),
                "runs": client.runs,
            }
            for index, client in enumerate(census.clients)
        ],
    }
    return (json.dumps(content, indent=1) + "\n").encode()


def _read_manifest(folder: Path) -> dict[str, Any]:
    found = sorted(folder.glob("manifest*.json"))
    if not found:
        raise Refused(f"{folder} has no manifest: it was not written by 'farm select export'")
    try:
        content = json.loads(_read(found[0]))
        if content["for"] and content["files"] and content["clients"] and content["batch"]:
            return dict(content)
    except (ValueError, KeyError, TypeError):
        pass
    raise Refused(f"{found[0]} is not a manifest that can be read; export it again")


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise Refused(f"{path} cannot be read: {error.strerror}") from error
