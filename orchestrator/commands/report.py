"""`farm report`: writes the report page of a sweep, and its figures for a paper."""

from pathlib import Path

import click

from orchestrator.commands.common import connect, lab_option
from orchestrator.commands.completion import complete_sweep
from orchestrator.commands.output_file import open_output
from workloads.command_output import show_wait

FIGURE_KINDS = ("pdf", "svg", "png")


@click.command()
@click.argument("name", metavar="SWEEP", shell_complete=complete_sweep)
@lab_option
@click.option(
    "-o", "--output", default="", help="File to write (default: SWEEP.html); - for standard output."
)
@click.option(
    "--figure",
    "figure_file",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write one figure instead, as .pdf, .svg or .png, at the width of a paper's column.",
)
@click.option("--which", default="", metavar="NAME", help="Which figure. Default: the main one.")
@click.option(
    "--figures",
    "folder",
    metavar="DIR",
    type=click.Path(path_type=Path, file_okay=False),
    help="Write every figure as PDF and SVG to a folder, and their captions as captions.txt.",
)
@click.option(
    "--allow-mixed",
    is_flag=True,
    help="Allow ranking results with different sources, control levels or energy grades.",
)
@show_wait("the figures and curves of the report")
def report(
    name: str,
    lab_folder: Path,
    output: str,
    figure_file: Path | None,
    which: str,
    folder: Path | None,
    allow_mixed: bool,
) -> None:
    """Write the report page of a SWEEP: one HTML file that works offline.

    The source of the numbers is inside every figure.

    \b
    Examples:
      farm report smoke -o smoke.html
      farm report smoke --figure smoke.pdf
      farm report smoke --figures figures/
    """
    from orchestrator.app.export_results import draw_figures, prepare_report

    lab = connect(lab_folder)
    if figure_file is not None:
        kind = figure_file.suffix.lower().removeprefix(".")
        if kind not in FIGURE_KINDS:
            raise click.BadParameter("name a file that ends with .pdf, .svg or .png")
        (drawn,) = draw_figures(lab, name, (kind,), which, allow_mixed)
        with open_output(str(figure_file), figure_file.name) as stream:
            stream.write(drawn.content)
        click.echo(drawn.caption, err=True)
        return
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        figures = draw_figures(lab, name, ("pdf", "svg"), None, allow_mixed)
        for figure in figures:
            (folder / f"{figure.name}.{figure.kind}").write_bytes(figure.content)
        captions = {f"{figure.name}: {figure.caption}\n": None for figure in figures}
        (folder / "captions.txt").write_text("".join(captions), encoding="utf-8")
        click.echo(f"{folder}: {len(captions)} figures")
        return
    result = prepare_report(lab, name, allow_mixed)
    with open_output(output, result.file_name) as stream:
        stream.write(result.html.encode())
