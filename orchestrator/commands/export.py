"""`farm export`: writes a sweep's results for other tools."""

from pathlib import Path

import click

from orchestrator.app.export_formats import FORMATS, TABLES
from orchestrator.commands.common import connect, lab_option
from orchestrator.commands.completion import complete_sweep
from orchestrator.commands.output_file import open_output
from workloads.cli_options import value_option
from workloads.command_output import show_wait


@click.command()
@click.argument("name", metavar="SWEEP", shell_complete=complete_sweep)
@lab_option
@value_option(
    "--format",
    "form",
    type=click.Choice(FORMATS),
    default="csv",
    help="Format of the table; results: all that was reported, without what only the computer "
    "knows; trace: timeline of a run for Perfetto; bundle: the whole sweep.",
)
@click.option(
    "--table",
    type=click.Choice(TABLES),
    default=None,
    help="What one row is. figures: a metric of a run; ranking: a phone in a cell; samples: a "
    "window of steps; readings: a reading of all sensors; ops: an operation; outcomes: a planned "
    "run. Default: figures; for md and latex: ranking.",
)
@click.option("-o", "--output", default="", help="File or folder to write; - for standard output.")
@click.option("--include-invalid", is_flag=True, help="Include suspect and void runs, marked.")
@click.option(
    "--run",
    default="",
    metavar="TRIAL.REPEAT",
    help="Run to export as a trace. Default: the first.",
)
@show_wait("the results to be written")
def export(
    name: str,
    lab_folder: Path,
    form: str,
    table: str | None,
    output: str,
    include_invalid: bool,
    run: str,
) -> None:
    """Write the results of a SWEEP to a file.

    The default file name contains "simulated" if the sweep has simulated results.

    \b
    Examples:
      farm export smoke
      farm export smoke --table samples --format parquet
      farm export smoke --format bundle -o published/
    """
    from orchestrator.app.export_results import ExportRequest, prepare_export, write_export

    default_table = "ranking" if form in ("md", "latex") else "figures"
    request = ExportRequest(form, table or default_table, include_invalid, run)
    lab = connect(lab_folder)
    result = prepare_export(lab, name, request)
    with open_output(output, result.file_name) as stream:
        note = write_export(lab, name, request, stream)
    for line in filter(None, (note, result.incomplete, result.left_out)):
        click.echo(line, err=True)
