"""`farm report`: writes the report page of a sweep."""

from pathlib import Path

import click

from orchestrator.commands.common import connect, lab_option
from orchestrator.commands.completion import complete_sweep
from orchestrator.commands.output_file import open_output
from workloads.command_output import show_wait


@click.command()
@click.argument("name", metavar="SWEEP", shell_complete=complete_sweep)
@lab_option
@click.option(
    "-o", "--output", default="", help="File to write (default: SWEEP.html); - for standard output."
)
@click.option(
    "--allow-mixed",
    is_flag=True,
    help="Allow ranking results with different sources, control levels or energy grades.",
)
@show_wait("the figures and curves of the report")
def report(name: str, lab_folder: Path, output: str, allow_mixed: bool) -> None:
    """Write the report page of a SWEEP: one HTML file that works offline.

    Example: farm report smoke -o smoke.html
    """
    from orchestrator.app.export_results import prepare_report

    result = prepare_report(connect(lab_folder), name, allow_mixed)
    with open_output(output, result.file_name) as stream:
        stream.write(result.html.encode())
