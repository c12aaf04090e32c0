"""`farm store`: backup, restoration, migration and pruning."""

from pathlib import Path

import click

from orchestrator.commands.common import (
    connect,
    dry_run_option,
    json_option,
    lab_option,
    print_json,
    read_lab,
)
from workloads.command_output import say, show_wait
from workloads.input_file import open_input
from workloads.protocol.faults import BadFile
from workloads.text import safe_text
from workloads.units import format_bytes


@click.group()
def store() -> None:
    """Back up, restore, migrate and prune the store."""


@store.command()
@click.option("--check", is_flag=True, help="Change nothing; exit with 5 if a migration is due.")
@lab_option
@show_wait("the store to be migrated")
def migrate(check: bool, lab_folder: Path) -> int:
    """Migrate the store to the schema of this version.

    'farm up' does this automatically. Make a backup first. Only one migration runs at a time;
    others wait for it.

    \b
    Examples:
      farm store migrate --check
      farm store migrate
    """
    from orchestrator.app.maintain_store import SCHEMA, stored_schema
    from orchestrator.app.services.run_service import migrate_store
    from orchestrator.commands.exit_codes import FAILURES
    from workloads.protocol.faults import StoreDown

    lab = read_lab(lab_folder)
    try:
        before = stored_schema(lab)
    except StoreDown:
        if check or not lab.has_embedded_store or lab.store_file.exists():
            raise
        before = None
    if check:
        click.echo(f"the store has schema {before or 'none'}; this version needs {SCHEMA}")
        return 0 if before == SCHEMA else FAILURES
    migrate_store(lab)
    click.echo(f"the store has schema {SCHEMA}; before: {before or 'none'}")
    return 0


@store.command()
@click.argument("file", metavar="FILE", type=click.Path(dir_okay=False, path_type=Path))
@lab_option
@show_wait("the store to be copied")
def backup(file: Path, lab_folder: Path) -> None:
    """Write a consistent copy of the whole store to FILE.

    The lab may be running. The file has all results, sweeps, phones, tokens and hosts, and the
    files of external programs and data sets. It does not depend on the database or on paths.
    Settings and keys are left out: copy lab.toml, tls/, secrets/ and servers/ yourself.

    Example: farm store backup lab-backup.zip
    """
    from orchestrator.app.maintain_store import write_backup
    from orchestrator.commands.output_file import open_output

    with open_output(str(file), "backup.zip", private=True) as stream:
        write_backup(read_lab(lab_folder), stream)


@store.command()
@click.argument("file", metavar="FILE", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--replace", is_flag=True, help="Remove everything from the store first.")
@lab_option
@show_wait("the backup to be checked and restored")
def restore(file: Path, replace: bool, lab_folder: Path) -> None:
    """Restore the store of a stopped lab from the backup in FILE.

    All checksums are verified first. The store must be empty, unless --replace is given. A backup
    of an older version is migrated; one of a newer version is refused.

    Example: farm store restore lab-backup.zip --lab new-lab
    """
    from orchestrator.app.maintain_store import BadBundle, restore_store
    from orchestrator.supervisor.lab_process import lab_lock

    lab = read_lab(lab_folder)
    try:
        with open_input(file) as stream, lab_lock(lab):
            counts = restore_store(lab, stream, replace)
    except OSError as error:
        raise BadFile(f"{file} cannot be read: {error.strerror}") from error
    except BadBundle as error:
        raise BadFile(f"{file}: {safe_text(error)}; nothing was restored") from error
    click.echo(f"{counts.get('sweep', 0)} sweeps, {counts.get('report', 0)} reports restored")
    say(
        "Tokens and hosts that were revoked since the backup have access again; see 'farm lab "
        "token list' and 'farm host list'.",
        err=True,
    )


@store.command()
@dry_run_option
@lab_option
@json_option
@show_wait("old results to be removed")
def prune(dry_run: bool, lab_folder: Path, as_json: bool) -> None:
    """Remove results and telemetry that are too old.

    `store.keep_metrics_days` is the age at which an ended sweep is removed with its results,
    `store.keep_telemetry_days` the age at which only its telemetry is. Pinned sweeps are kept.

    \b
    Examples:
      farm store prune --dry-run
      farm store prune
    """
    from orchestrator.app.maintain_store import prune_store

    pruned = prune_store(connect(lab_folder), dry_run)
    if as_json:
        print_json(vars(pruned) | {"dry_run": dry_run})
        return
    prefix = "dry run: " if dry_run else ""
    size = format_bytes(pruned.blob_bytes)
    counts = f"{len(pruned.sweeps)} sweeps, telemetry of {pruned.blobs} other runs ({size})"
    click.echo(f"{prefix}{counts} removed")
    for sweep in pruned.sweeps:
        click.echo(f"  {safe_text(sweep)}")
