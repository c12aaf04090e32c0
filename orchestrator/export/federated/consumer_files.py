"""What every consumer's files have in common: a folder, a manifest of conventions, a proof.

A simulated fleet is written only when that is allowed, and then every file's name says so.
"""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from orchestrator.analysis.measurements import weakest_provenance
from orchestrator.selection.client_types import Client, ClientTable
from orchestrator.selection.round_fleet import fits_in_memory
from workloads.protocol.faults import InvalidRequest

MANIFEST, MANIFESTS = "manifest.json", "manifest*.json"
AGREES_WITHIN = 0.001
PROGRAMS = ("py", "sh")


@dataclass(frozen=True)
class NetworkLink:
    """The network, which the farm does not measure: whoever exports must say."""

    down_kbps: float
    up_kbps: float

    @property
    def both_ways_kbps(self) -> float:
        """The one speed at which going there and back takes as long."""
        return 2 / (1 / self.down_kbps + 1 / self.up_kbps)


@dataclass(frozen=True)
class ConsumerEstimate:
    """How long a consumer will believe that a batch of training takes, and how long it took."""

    phone: str
    consumer_ms: float
    measured_ms: float

    @property
    def relative_error(self) -> float:
        """How far apart they are, as a share."""
        return abs(self.consumer_ms / self.measured_ms - 1)


@dataclass(frozen=True)
class Consumer:
    """A simulator: what its files hold, and how it reads them."""

    name: str
    title: str
    conventions: tuple[str, ...]
    needs_link: bool
    render_files: Callable[[ClientTable, NetworkLink | None], Mapping[str, bytes]]
    read_batch_ms: Callable[
        [Mapping[str, bytes], int], Sequence[float]
    ]  # in the order of the clients
    includes_all_phones: bool = False  # also phones that lack the memory


@dataclass(frozen=True)
class WrittenExport:
    """What was written, and what its reader will make of it."""

    files: tuple[Path, ...]
    estimates: tuple[ConsumerEstimate, ...]
    left_out: tuple[str, ...]  # phones that lack the memory


def write_consumer_files(
    consumer: Consumer,
    census: ClientTable,
    folder: Path,
    link: NetworkLink | None,
    allow_simulated: bool,
) -> WrittenExport:
    """Write a consumer's files and their manifest, then read them back."""
    able = tuple(
        client
        for client in census.clients
        if consumer.includes_all_phones or fits_in_memory(client)
    )
    if not able:
        raise InvalidRequest("no phone has figures to export")
    if consumer.needs_link and link is None:
        raise InvalidRequest(
            f"{consumer.title} wants a network speed, which the farm does not measure: "
            "say it with --link-kbps DOWN/UP"
        )
    if census.simulated and not allow_simulated:
        raise InvalidRequest(
            "these figures are simulated; a fleet of them is written with --allow-simulated"
        )
    left_out = tuple(client.phone for client in census.clients if client not in able)
    census = replace(census, clients=able)
    contents = {
        _marked(name, census.simulated): data
        for name, data in consumer.render_files(census, link).items()
    }
    manifest = _marked(MANIFEST, census.simulated)
    if any(path.name != manifest for path in folder.glob(MANIFESTS)):
        raise InvalidRequest(f"{folder} holds another export; choose an empty folder with -o")
    contents[manifest] = _manifest(consumer, census, link, contents)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, data in contents.items():
            (folder / name).write_bytes(data)
    except OSError as error:
        raise InvalidRequest(f"{folder} cannot be written: {error.strerror}") from error
    return WrittenExport(
        tuple(folder / name for name in contents), verify_export(folder)[1], left_out
    )


def verify_export(folder: Path) -> tuple[str, tuple[ConsumerEstimate, ...]]:
    """Read an export back through its consumer's own formula; say whose it is and what it says."""
    from orchestrator.export.federated import CONSUMERS

    path, manifest = _read_manifest(folder)
    try:
        consumer = CONSUMERS[manifest["for"]]
        contents = {
            name.replace(".simulated", ""): _read_as_written(folder / Path(name).name, digest)
            for name, digest in manifest["files"].items()
        }
        believed = consumer.read_batch_ms(contents, int(manifest["batch"]))
        return consumer.title, tuple(
            ConsumerEstimate(str(row["phone"]), float(milliseconds), float(row["batch_ms"]))
            for row, milliseconds in zip(manifest["clients"], believed, strict=True)
        )
    except (AttributeError, KeyError, TypeError, ValueError, ZeroDivisionError) as error:
        raise InvalidRequest(
            f"{path} and its files do not go together; export them again"
        ) from error


def _read_as_written(path: Path, digest: str) -> bytes:
    data = _read(path)
    if hashlib.sha256(data).hexdigest() != digest:
        raise InvalidRequest(f"{path} is not the file that was written; export it again")
    return data


def batch_ms(client: Client, batch: int) -> float:
    """What a batch takes when a phone goes on for long: sustained where known."""
    return (client.sustained_ms or client.cold_ms).value * batch


def _marked(name: str, simulated: bool) -> str:
    """Say so in the name of whatever holds figures; programs hold none."""
    stem, dot, suffix = name.partition(".")
    return f"{stem}.simulated{dot}{suffix}" if simulated and suffix not in PROGRAMS else name


def _manifest(
    consumer: Consumer, census: ClientTable, link: NetworkLink | None, contents: Mapping[str, bytes]
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
                "provenance": str(weakest_provenance(f.provenance for f in client.estimates)),
                "runs": client.runs,
            }
            for index, client in enumerate(census.clients)
        ],
    }
    return (json.dumps(content, indent=1) + "\n").encode()


def _read_manifest(folder: Path) -> tuple[Path, dict[str, Any]]:
    found = sorted(folder.glob(MANIFESTS))
    if not found:
        raise InvalidRequest(
            f"{folder} has no manifest: it was not written by 'farm select export'"
        )
    try:
        content = json.loads(_read(found[0]))
        if content["for"] and content["files"] and content["clients"] and content["batch"]:
            return found[0], dict(content)
    except (ValueError, KeyError, TypeError):
        pass
    raise InvalidRequest(f"{found[0]} is not a manifest that can be read; export it again")


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InvalidRequest(f"{path} cannot be read: {error.strerror}") from error
