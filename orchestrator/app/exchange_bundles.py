"""Bundles: a whole sweep as one file for publication, and its import into another lab."""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from typing import BinaryIO

from orchestrator.app.app_errors import InvalidState
from orchestrator.app.lab_connection import LabConnection
from orchestrator.app.operation import Role, Upload, operation
from orchestrator.export.bundle_file import (
    BadBundle,
    BundleContents,
    json_line,
    open_bundle,
    write_bundle,
)
from orchestrator.export.table import Table
from orchestrator.export.table_writers import csv_pieces
from orchestrator.store import bundle_rows, sweep_queries
from orchestrator.store.audit_log import AuditEntry
from orchestrator.store.database import SCHEMA, Database
from orchestrator.store.sweep_queries import SweepSummary
from workloads.protocol.faults import InvalidRequest
from workloads.text import safe_text

SWEEP_ID = r"sw-[0-9a-f]{8}"
README = """# {name}

The sweep `{name}` ({id}) of a phone lab: {runs} runs, as they were reported.

- `sweep.yaml`: the sweep file as it was submitted; the seed of its order is in the manifest.
- `figures.csv`: one row per run and metric, with unit, source, verdict, block and position.
  It has all runs. Only those whose `verdict` is `valid` count as results.
- `rows/*.jsonl`: the rows of the store; reports verbatim, telemetry as it was sent.
- `manifest.json`: versions, and the SHA-256 of every file.

The column `source` says where a number comes from: `phone`, `host` (a computer) or `simulated`.
{simulated}
Import it into a lab with `farm import FILE`; exporting it from there gives the same bytes again.
"""
SIMULATED_NOTE = "**This sweep contains simulated numbers: they were not measured on a phone.**\n"


@dataclass(frozen=True)
class ImportResult:
    """An imported bundle."""

    sweep: str
    name: str
    already_stored: bool
    runs: int = 0
    reports: int = 0


@operation(Role.ADMIN)
def import_bundle(lab: LabConnection, stream: Upload) -> ImportResult:
    """Store the sweep of a bundle, after all checksums of the bundle have been verified."""
    bundle = open_bundle(stream)
    sweep, name = str(bundle.manifest.get("sweep")), str(bundle.manifest.get("name"))
    if re.fullmatch(SWEEP_ID, sweep) is None:
        raise BadBundle("the id of its sweep is not valid")
    schema = bundle.manifest.get("schema")
    if schema != SCHEMA:
        raise BadBundle(f"the bundle has schema {schema}, this version has {SCHEMA}")
    store = Database(lab.lab.store_url)
    try:
        store.migrate()
        if sweep_queries.sweep_exists(store, sweep):
            return ImportResult(sweep, name, already_stored=True)
        parts = ((part, bundle.rows(f"rows/{part}.jsonl")) for part in bundle_rows.PARTS)
        entry = AuditEntry(
            *(datetime.now(UTC), lab.user, "import", sweep),
            *({}, {"name": safe_text(name, 100)}, f"farm sweep remove {sweep}"),
        )
        counts = bundle_rows.import_rows(store, sweep, parts, entry)
    except (KeyError, ValueError, TypeError) as error:
        raise BadBundle(safe_text(error)) from error
    except InvalidRequest as error:
        raise BadBundle(str(error)) from error
    finally:
        store.close()
    return ImportResult(sweep, name, False, counts["run"], counts["report"])


def write_sweep_bundle(
    store: Database, sweep: SweepSummary, figures: Table, stream: BinaryIO
) -> None:
    """Write the bundle of a finished sweep."""
    if not sweep.finished:
        raise InvalidState(
            f"{sweep.id} is not finished; a bundle can only be made of a finished sweep"
        )
    write_bundle(_bundle_contents(store, sweep, figures), stream)


def _bundle_contents(store: Database, sweep: SweepSummary, figures: Table) -> BundleContents:
    simulated = sweep_queries.has_simulated_metrics(store, sweep.id)
    readme = README.format(
        name=safe_text(sweep.name),
        id=sweep.id,
        runs=sweep.total,
        simulated=SIMULATED_NOTE if simulated else "",
    )

    def rows(part: str) -> Callable[[], Iterator[bytes]]:
        return lambda: map(json_line, bundle_rows.export_rows(store, sweep.id, part))

    about = {
        "sweep": sweep.id,
        "name": safe_text(sweep.name),
        "seed": sweep_queries.sweep_seed(store, sweep.id),
        "farm": version("farmhand"),
        "schema": SCHEMA,
        "simulated": simulated,
    }
    files: dict[str, Callable[[], Iterable[bytes]]] = {
        "README.md": lambda: [readme.encode()],
        "sweep.yaml": lambda: [sweep_queries.sweep_source(store, sweep.id).encode()],
        "figures.csv": lambda: csv_pieces(figures),
        **{f"rows/{part}.jsonl": rows(part) for part in bundle_rows.PARTS},
    }
    return BundleContents(about, files)
