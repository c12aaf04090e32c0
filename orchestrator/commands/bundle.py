"""`farm import`: stores the sweep of a published bundle in this lab."""

from dataclasses import asdict
from pathlib import Path

import click

from orchestrator.commands.common import connect, json_option, lab_option, print_json
from workloads.input_file import open_input
from workloads.text import safe_text
from workloads.units import count_text


@click.command("import")
@click.argument("file", metavar="BUNDLE", type=click.Path(dir_okay=False, path_type=Path))
@lab_option
@json_option
def import_(file: Path, lab_folder: Path, as_json: bool) -> None:
    """Import a BUNDLE into the lab, after all its checksums are verified.

    Example: farm import results.bundle.zip
    """
    from orchestrator.app.exchange_bundles import BadBundle, import_bundle
    from workloads.protocol.faults import BadFile

    try:
        with open_input(file) as stream:
            result = import_bundle(connect(lab_folder), stream)
    except OSError as error:
        raise BadFile(f"{file} cannot be read: {error.strerror}") from error
    except BadBundle as error:
        raise BadFile(f"{file}: {safe_text(error)}; nothing was imported") from error
    if as_json:
        print_json(asdict(result))
        return
    if result.already_stored:
        click.echo(f"{safe_text(result.sweep)} is already stored; nothing was changed")
        return
    counts = f"{count_text(result.runs, 'run')}, {count_text(result.reports, 'report')}"
    click.echo(f"{safe_text(result.sweep)} {safe_text(result.name)}: {counts}")
