"""What the exports of all consumers share: a folder, a manifest with conventions, verification.

A simulated fleet is written only on request, and then the name of every data file says so.
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
PROGRAM_SUFFIXES = ("py", "sh")


@dataclass(frozen=True)
class NetworkLink:
    """The speed of the network, which is not measured and has to be given."""

    down_kbps: float
    up_kbps: float

    @property
    def harmonic_mean_kbps(self) -> float:
        """The speed at which sending the same amount both ways takes as long in total."""
        return 2 / (1 / self.down_kbps + 1 / self.up_kbps)


@dataclass(frozen=True)
class ConsumerEstimate:
    """The time of a batch that a consumer derives from its files, and the measured time."""

    phone: str
    consumer_ms: float
    measured_ms: float

    @property
    def relative_error(self) -> float:
        """The difference between the two times, relative to the measured one."""
        return abs(self.consumer_ms / self.measured_ms - 1)


@dataclass(frozen=True)
class Consumer:
    """A simulator: the content of its files, and how it reads them."""

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
    """The written files, and the times that the consumer derives from them."""

    files: tuple[Path, ...]
    estimates: tuple[ConsumerEstimate, ...]
    left_out: tuple[str, ...]  # phones that lack the memory


def write_consumer_files(
    consumer: Consumer,
    table: ClientTable,
    folder: Path,
    link: NetworkLink | None,
    allow_simulated: bool,
) -> WrittenExport:
    """Write a consumer's files and their manifest, then read them back."""
    able = tuple(
        client for client in table.clients if consumer.includes_all_phones or fits_in_memory(client)
    )
    if not able:
        raise InvalidRequest("no phone has values to export")
    if consumer.needs_link and link is None:
        raise InvalidRequest(
            f"{consumer.title} needs a network speed, which is not measured; "
            "pass --link-kbps DOWN/UP"
        )
    if table.simulated and not allow_simulated:
        raise InvalidRequest("these values are simulated; pass --allow-simulated to export them")
    left_out = tuple(client.phone for client in table.clients if client not in able)
    table = replace(table, clients=able)
    contents = {
        _mark_simulated(name, table.simulated): data
        for name, data in consumer.render_files(table, link).items()
    }
    manifest = _mark_simulated(MANIFEST, table.simulated)
    if any(path.name != manifest for path in folder.glob(MANIFESTS)):
        raise InvalidRequest(f"{folder} contains another export; choose an empty folder with -o")
    contents[manifest] = _manifest(consumer, table, link, contents)
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
    """Read an export back with its consumer's formula; return the consumer and its times."""
    from orchestrator.export.federated import CONSUMERS

    path, manifest = _read_manifest(folder)
    try:
        consumer = CONSUMERS[manifest["for"]]
        contents = {
            name.replace(".simulated", ""): _read_verified(folder / Path(name).name, digest)
            for name, digest in manifest["files"].items()
        }
        times_ms = consumer.read_batch_ms(contents, int(manifest["batch"]))
        return consumer.title, tuple(
            ConsumerEstimate(str(row["phone"]), float(time_ms), float(row["batch_ms"]))
            for row, time_ms in zip(manifest["clients"], times_ms, strict=True)
        )
    except (AttributeError, KeyError, TypeError, ValueError, ZeroDivisionError) as error:
        raise InvalidRequest(f"{path} does not match its files; export them again") from error


def _read_verified(path: Path, digest: str) -> bytes:
    data = _read(path)
    if hashlib.sha256(data).hexdigest() != digest:
        raise InvalidRequest(f"checksum mismatch: {path} was changed; export it again")
    return data


def batch_ms(client: Client, batch: int) -> float:
    """Return the time of a batch in a long training: sustained where known, else cold."""
    return (client.sustained_ms or client.cold_ms).value * batch


def _mark_simulated(name: str, simulated: bool) -> str:
    """Add 'simulated' to the names of files with values; programs contain none."""
    stem, dot, suffix = name.partition(".")
    is_marked = simulated and suffix not in PROGRAM_SUFFIXES
    return f"{stem}.simulated{dot}{suffix}" if is_marked else name


def _manifest(
    consumer: Consumer, table: ClientTable, link: NetworkLink | None, contents: Mapping[str, bytes]
) -> bytes:
    content = {
        "for": consumer.name,
        "conventions": consumer.conventions,
        "workload": table.workload,
        "batch": table.batch,
        "link_kbps": vars(link) if link else None,
        "files": {name: hashlib.sha256(data).hexdigest() for name, data in contents.items()},
        "clients": [
            {
                "client": index,
                "phone": client.phone,
                "model": client.model,
                "batch_ms": batch_ms(client, table.batch),
                "protocol": "sustained" if client.sustained_ms else "cold",
                "provenance": str(weakest_provenance(f.provenance for f in client.estimates)),
                "runs": client.runs,
            }
            for index, client in enumerate(table.clients)
        ],
    }
    return (json.dumps(content, indent=1) + "\n").encode()


def _read_manifest(folder: Path) -> tuple[Path, dict[str, Any]]:
    paths = sorted(folder.glob(MANIFESTS))
    if not paths:
        raise InvalidRequest(f"{folder} has no manifest; write one with 'farm select export'")
    try:
        content = json.loads(_read(paths[0]))
        if content["for"] and content["files"] and content["clients"] and content["batch"]:
            return paths[0], dict(content)
    except (ValueError, KeyError, TypeError):
        pass
    raise InvalidRequest(f"{paths[0]} is not a valid manifest; export it again")


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InvalidRequest(f"{path} cannot be read: {error.strerror}") from error
