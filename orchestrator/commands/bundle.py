"""`farm import`: a published bundle becomes a sweep of this lab; and what goes into a bundle."""

from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import click

from orchestrator.commands.common import lab_option, read_lab
from workloads.text import safe_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from orchestrator.export.bundle_file import BundleContents
    from orchestrator.export.table import Table
    from orchestrator.store.database import Database
    from orchestrator.store.sweep_queries import SweepSummary

README = """# {name}

The sweep `{name}` ({id}) of a farm of phones: {runs} runs, as they were reported.

- `sweep.yaml`: what was asked for, as it was submitted; the seed of its order is in the manifest.
- `figures.csv`: one row per run and metric, with unit, source, verdict, block and position.
- `rows/*.jsonl`: the store's own rows; reports verbatim, telemetry as it travelled.
- `manifest.json`: versions, and the SHA-256 of every file here.

Where a figure comes from stands in its column `source`: `phone`, `host` (a computer), `simulated`.
{simulated}
Read it into a lab with `farm import FILE`; exporting it from there gives these bytes again.
"""
SIMULATED = "**Figures of this sweep are simulated: they are not measurements of any phone.**\n"


def contents_of(db: "Database", sweep: "SweepSummary", figures: "Table") -> "BundleContents":
    """What a sweep's bundle holds."""
    from orchestrator.export.bundle_file import BundleContents, json_line
    from orchestrator.export.table_writers import csv_pieces
    from orchestrator.store.bundle_rows import PARTS, export_rows
    from orchestrator.store.database import SCHEMA
    from orchestrator.store.sweep_queries import has_simulated_metrics, sweep_seed, sweep_source

    simulated = has_simulated_metrics(db, sweep.id)
    readme = README.format(
        name=safe_text(sweep.name),
        id=sweep.id,
        runs=sweep.total,
        simulated=SIMULATED if simulated else "",
    )

    def rows(part: str) -> "Callable[[], Iterator[bytes]]":
        return lambda: map(json_line, export_rows(db, sweep.id, part))

    about = {
        "sweep": sweep.id,
        "name": safe_text(sweep.name),
        "seed": sweep_seed(db, sweep.id),
        "farm": version("farmhand"),
        "schema": SCHEMA,
        "simulated": simulated,
    }
    files: dict[str, Callable[[], Iterable[bytes]]] = {
        "README.md": lambda: [readme.encode()],
        "sweep.yaml": lambda: [sweep_source(db, sweep.id).encode()],
        "figures.csv": lambda: csv_pieces(figures),
        **{f"rows/{part}.jsonl": rows(part) for part in PARTS},
    }
    return BundleContents(about, files)


@click.command("import")
@click.argument("file", metavar="BUNDLE", type=click.Path(dir_okay=False, path_type=Path))
@lab_option
def import_(file: Path, lab_folder: Path) -> None:
    """Read a BUNDLE into the lab's store, once all its digests are right."""
    from orchestrator.export.bundle_file import BadBundle, open_bundle
    from orchestrator.store.bundle_rows import PARTS, import_rows
    from orchestrator.store.database import SCHEMA, Database
    from orchestrator.store.sweep_queries import sweep_exists
    from workloads.protocol.faults import BadFile

    db = Database(read_lab(lab_folder).store_url)
    try:
        with file.open("rb") as stream:
            bundle = open_bundle(stream)
            sweep, needs = str(bundle.manifest.get("sweep")), bundle.manifest.get("schema")
            if needs != SCHEMA:
                raise BadBundle(f"it has schema {needs}, this version has {SCHEMA}")
            db.migrate()
            if sweep_exists(db, sweep):
                click.echo(f"{safe_text(sweep)} is here already; nothing was changed")
                return
            parts = ((part, bundle.rows(f"rows/{part}.jsonl")) for part in PARTS)
            counts = import_rows(db, parts)
    except OSError as error:
        raise BadFile(f"{file} cannot be read: {error.strerror}") from error
    except (BadBundle, KeyError, ValueError, TypeError) as error:
        raise BadFile(f"{file}: {safe_text(error)}; nothing was imported") from error
    told = f"{counts['run']} runs, {counts['report']} reports"
    click.echo(f"{safe_text(sweep)} {safe_text(bundle.manifest.get('name'))}: {told}")
