"""What the exports of all consumers share: a folder, a manifest with conventions, verification.

Every export belongs to one duty cycle: a number of samples per round, and a pause after each. Its
times are those of `farm select` for this cycle, and verification compares the consumer's own
computation with the same clock. A simulated fleet is written only on request, and then the name of
every data file contains 'simulated'.
"""

import hashlib
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from orchestrator.analysis.measurements import weakest_provenance
from orchestrator.selection.client_types import ClientTable
from orchestrator.selection.population import (
    Population,
    PopulationPlan,
    draw_population,
    sibling_spread,
)
from orchestrator.selection.recommend import LocalWork
from orchestrator.selection.round_clock import Array, duty_heat, link_cost, work_cost
from orchestrator.selection.round_fleet import build_round_fleet, fits_in_memory
from workloads.protocol.faults import InvalidRequest

MANIFEST, MANIFESTS = "manifest.json", "manifest*.json"
AGREES_WITHIN, LINKS_WITHIN = 0.005, 0.03
PROGRAM_SUFFIXES = ("py", "sh", "toml", "md")
MODEL_KBIT = 8000.0  # 1 MB: the model with which links are verified


@dataclass(frozen=True)
class FleetExport:
    """What is exported; arrays are by client."""

    workload: str
    batch: int
    population: Population
    samples: float  # per round
    rest_s: float | None  # pause between two rounds of a client; None: until it is cool
    round_s: Array  # time of the work of a round in this duty cycle

    @property
    def sample_ms(self) -> Array:
        """The time per sample in this duty cycle."""
        return self.round_s * 1000 / self.samples

    @property
    def links(self) -> tuple[Array, Array]:
        """The speed of the network, down and up, in kbit/s."""
        assert self.population.link_kbps is not None
        return self.population.link_kbps

    @property
    def names(self) -> list[str]:
        """A name for every client: the serial of its phone, and a number where it is drawn."""
        phones, of = self.population.phones, self.population.phone_of
        if len(set(of.tolist())) == len(of):
            return [phones[index].phone for index in of]
        return [f"{phones[index].phone}-{number}" for number, index in enumerate(of)]

    @property
    def windows(self) -> list[list[list[float]]]:
        """When each client is available, as pairs of start and end in seconds."""
        available = self.population.availability
        pairs = np.stack([available.start_s, available.end_s], axis=-1)
        if not np.isnan(pairs).any():
            return list(pairs.tolist())
        return [[pair for pair in rows if not math.isnan(pair[0])] for rows in pairs.tolist()]


@dataclass(frozen=True)
class ConsumerRounds:
    """What a consumer computes from its files, in the order of the clients."""

    round_s: Array
    link_s: Array | None = None  # to fetch and send a model of MODEL_KBIT; None: not in the files


@dataclass(frozen=True)
class Consumer:
    """A simulator: the content of its files, and how it reads them."""

    name: str
    title: str
    conventions: tuple[str, ...]
    needs_link: bool
    render_files: Callable[[FleetExport], Mapping[str, bytes]]
    read_rounds: Callable[[Mapping[str, bytes], float, int], ConsumerRounds]  # samples, batch
    includes_all_phones: bool = False  # also phones that lack the memory


@dataclass(frozen=True)
class CheckedPhone:
    """A round of the client of a measured phone with the largest error."""

    phone: str
    clients: int
    consumer_s: float
    select_s: float
    relative_error: float


@dataclass(frozen=True)
class ExportCheck:
    """What a consumer computes beside what `farm select` predicts, by measured phone."""

    title: str
    clients: int
    rounds: tuple[CheckedPhone, ...]
    link_error: float | None

    @property
    def worst(self) -> float:
        """The largest relative error of a round."""
        return max(each.relative_error for each in self.rounds)

    @property
    def agrees(self) -> bool:
        """Whether the consumer computes what was measured."""
        return self.worst <= AGREES_WITHIN and (self.link_error or 0.0) <= LINKS_WITHIN


@dataclass(frozen=True)
class WrittenExport:
    """The written files, what the consumer derives from them, and for which rounds they hold."""

    files: tuple[Path, ...]
    check: ExportCheck
    left_out: tuple[str, ...]  # phones that lack the memory
    batch: int
    samples: float
    rest_s: float | None
    spread_unknown: bool  # a population was drawn, but no model was measured on two phones


def or_null(column: Array) -> list[float | None]:
    """Return a column in which unknown values are None."""
    return [None if math.isnan(value) else value for value in column.tolist()]


def prepare_export(
    consumer: Consumer, table: ClientTable, plan: PopulationPlan, work: LocalWork
) -> FleetExport:
    """Draw the population, and compute the time of a round in its duty cycle."""
    able = [c for c in table.clients if consumer.includes_all_phones or fits_in_memory(c)]
    if not able:
        raise InvalidRequest("no phone has values to export")
    if consumer.needs_link and plan.links is None:
        raise InvalidRequest(
            f"{consumer.title} needs a network speed, which is not measured; "
            "pass --link-kbps DOWN/UP or --links NAME"
        )
    population = draw_population(able, plan)
    samples = work.round_samples(build_round_fleet(table.clients))
    heat = duty_heat(population.fleet, samples, work.rest_s)
    seconds = work_cost(population.fleet, samples, heat).seconds
    return FleetExport(table.workload, table.batch, population, samples, work.rest_s, seconds)


def write_consumer_files(
    consumer: Consumer,
    table: ClientTable,
    folder: Path,
    plan: PopulationPlan,
    work: LocalWork,
    allow_simulated: bool,
) -> WrittenExport:
    """Write a consumer's files and their manifest, then read them back."""
    if table.simulated and not allow_simulated:
        raise InvalidRequest("these values are simulated; pass --allow-simulated to export them")
    export = prepare_export(consumer, table, plan, work)
    left_out = {c.phone for c in table.clients} - {c.phone for c in export.population.phones}
    contents = {
        _mark_simulated(name, table.simulated): data
        for name, data in consumer.render_files(export).items()
    }
    manifest = _mark_simulated(MANIFEST, table.simulated)
    if any(path.name != manifest for path in folder.glob(MANIFESTS)):
        raise InvalidRequest(f"{folder} contains another export; choose an empty folder with -o")
    contents[manifest] = _manifest(consumer, export, plan.seed, contents)
    try:
        for name, data in contents.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(data)
    except OSError as error:
        raise InvalidRequest(f"{folder} cannot be written: {error.strerror}") from error
    return WrittenExport(
        tuple(folder / name for name in contents),
        verify_export(folder),
        tuple(sorted(left_out)),
        *(export.batch, export.samples, export.rest_s),
        spread_unknown=plan.clients is not None
        and plan.unit_spread is None
        and sibling_spread(export.population.phones) is None,
    )


def verify_export(folder: Path) -> ExportCheck:
    """Read an export back with its consumer's formula, and compare it with the clock."""
    from orchestrator.export.federated import CONSUMERS

    path, manifest = _read_manifest(folder)
    try:
        consumer = CONSUMERS[manifest["for"]]
        contents = {
            name.replace(".simulated", ""): _read_verified(folder, name, digest)
            for name, digest in manifest["files"].items()
        }
        samples, batch = float(manifest["duty"]["samples"]), int(manifest["batch"])
        computed = consumer.read_rounds(contents, samples, batch)
        return _compare(consumer, manifest, computed)
    except (AttributeError, LookupError, TypeError, ValueError, ZeroDivisionError) as error:
        raise InvalidRequest(f"{path} does not match its files; export them again") from error


def _compare(
    consumer: Consumer, manifest: Mapping[str, Any], computed: ConsumerRounds
) -> ExportCheck:
    """Compare what the consumer computes with the clock, by measured phone."""
    phones = manifest["phones"]
    phone_of = np.array(manifest["phone_of"], dtype=np.int64)
    factor = np.array(manifest["speed_factor"], dtype=float)
    cold_ms, slowdown, heating_s = (
        np.array([float(phone[key]) for phone in phones])[phone_of]
        for key in ("cold_ms_per_sample", "slowdown", "heating_s")
    )
    clock = SimpleNamespace(
        cold_s=cold_ms * factor / 1000, slowdown=slowdown, heating_s=heating_s, energy_j=0.0
    )
    duty = manifest["duty"]
    heat = duty_heat(clock, duty["samples"], duty["rest_s"])
    select_s = work_cost(clock, duty["samples"], heat).seconds
    errors = np.abs(computed.round_s / select_s - 1)
    rounds = []
    for index, phone in enumerate(phones):
        members = np.flatnonzero(phone_of == index)
        if len(members):
            worst = members[errors[members].argmax()]
            seconds = (float(column[worst]) for column in (computed.round_s, select_s, errors))
            rounds.append(CheckedPhone(str(phone["phone"]), len(members), *seconds))
    link_error = None
    if computed.link_s is not None and manifest["link_kbps"]:
        stated_s, _ = link_cost(MODEL_KBIT, *map(np.array, manifest["link_kbps"]))
        link_error = float(np.abs(computed.link_s / stated_s - 1).max())
    return ExportCheck(consumer.title, len(phone_of), tuple(rounds), link_error)


def _mark_simulated(name: str, simulated: bool) -> str:
    """Add 'simulated' to the names of files with values; programs contain none."""
    folder, slash, file = name.rpartition("/")
    stem, dot, suffix = file.rpartition(".")
    is_marked = simulated and suffix not in PROGRAM_SUFFIXES
    return f"{folder}{slash}{stem}.simulated{dot}{suffix}" if is_marked else name


def _manifest(
    consumer: Consumer, export: FleetExport, seed: int, contents: Mapping[str, bytes]
) -> bytes:
    population = export.population
    fleet = build_round_fleet(population.phones)
    rest = "until they are cool" if export.rest_s is None else f"for {export.rest_s:g} s"
    content = {
        "for": consumer.name,
        "valid_for": f"rounds of {export.samples:.0f} samples with batch size {export.batch}, "
        f"after which the phones rest {rest}; other rounds take another time per sample",
        "conventions": consumer.conventions,
        "workload": export.workload,
        "batch": export.batch,
        "duty": {"samples": export.samples, "rest_s": export.rest_s},
        "seed": seed,
        "files": {name: hashlib.sha256(data).hexdigest() for name, data in contents.items()},
        "phones": [
            {
                "phone": client.phone,
                "model": client.model,
                "clients": int((population.phone_of == index).sum()),
                "cold_ms_per_sample": float(fleet.cold_s[index] * 1000),
                "slowdown": float(fleet.slowdown[index]),
                "heating_s": float(fleet.heating_s[index]),
                "provenance": str(weakest_provenance(f.provenance for f in client.estimates)),
                "runs": client.runs,
            }
            for index, client in enumerate(population.phones)
        ],
        "phone_of": population.phone_of.tolist(),
        "speed_factor": population.speed_factor.tolist(),
        "link_kbps": [side.tolist() for side in population.link_kbps]
        if population.link_kbps
        else None,
    }
    return (json.dumps(content) + "\n").encode()


def _read_manifest(folder: Path) -> tuple[Path, dict[str, Any]]:
    paths = sorted(folder.glob(MANIFESTS))
    if not paths:
        raise InvalidRequest(f"{folder} has no manifest; write one with 'farm select export'")
    try:
        content = json.loads(_read(paths[0]))
        needed = ("for", "files", "phones", "phone_of", "batch", "duty")
        if all(content[key] for key in needed):
            return paths[0], dict(content)
    except (ValueError, KeyError, TypeError):
        pass
    raise InvalidRequest(f"{paths[0]} is not a valid manifest; export it again")


def _read_verified(folder: Path, name: str, digest: str) -> bytes:
    path = folder / name
    if ".." in Path(name).parts or Path(name).is_absolute():
        raise InvalidRequest(f"{path} is outside the export; export it again")
    data = _read(path)
    if hashlib.sha256(data).hexdigest() != digest:
        raise InvalidRequest(f"checksum mismatch: {path} was changed; export it again")
    return data


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InvalidRequest(f"{path} cannot be read: {error.strerror}") from error
