"""`farm study`: what others say they saw on phones, asked again here."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from orchestrator.commands.common import (
    json_option,
    lab_option,
    open_store,
    print_json,
    print_table,
    read_lab,
)
from orchestrator.commands.completion import complete_study
from workloads.protocol.faults import InvalidRequest

if TYPE_CHECKING:
    from orchestrator.store.database import Database
    from orchestrator.study.claim_table import ClaimRow
    from orchestrator.study.evidence import StudyEvidence
    from orchestrator.study.study_catalogue import Study

SPEED = 500.0
_STUDY = click.argument("name", metavar="STUDY", shell_complete=complete_study)


@click.group()
def study() -> None:
    """Ask again what three studies asked of phones: their claims beside ours."""


@study.command("list")
@json_option
def list_studies(as_json: bool) -> None:
    """List every study."""
    from orchestrator.study.study_catalogue import all_studies

    found = all_studies().values()
    if as_json:
        print_json([each.model_dump(mode="json", exclude={"claims"}) for each in found])
        return
    rows = [(each.name, len(each.claims), " ".join(each.covers), each.question) for each in found]
    print_table(("STUDY", "CLAIMS", "ROWS", "QUESTION"), rows)


@study.command()
@_STUDY
@click.option("--sweep", is_flag=True, help="Print its sweep file, to begin one of your own.")
@json_option
def show(name: str, sweep: bool, as_json: bool) -> None:
    """Show a STUDY: its question, its claims and where they stand written."""
    from orchestrator.study.study_catalogue import find_study

    found = find_study(name)
    if sweep:
        click.echo("---\n".join(found.sweeps()), nl=False)
    elif as_json:
        print_json(found.model_dump(mode="json"))
    else:
        click.echo(f"{found.name}: {found.title} ({', '.join(found.covers)})")
        click.echo(f"{found.question}\n{found.caveat}\n")
        rows = [
            (claim.text, claim.published, claim.published_on, found.citation_of(claim))
            for claim in found.claims
        ]
        print_table(("CLAIM", "PUBLISHED", "PUBLISHED ON", "CITATION"), rows)


_output_option = click.option("-o", "--output", default="", help="File for the page.")
_external_option = click.option(
    "--external",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    help="A foreign engine's manifest, for emdl-library.",
)


@study.command()
@_STUDY
@click.option(
    "--lab",
    type=click.Path(file_okay=False, path_type=Path),
    default=None,
    help="The folder of the lab that is up (default: lab, or what FARM_LAB says).",
)
@click.option("--virtual", is_flag=True, help="On virtual phones of a lab that lasts for this.")
@click.option("--native", is_flag=True, help="On this host as a phone, likewise.")
@click.option(
    "--speed",
    type=click.FloatRange(1, 1000),
    default=SPEED,
    show_default=True,
    help="Clock of the virtual phones.",
)
@click.option(
    "--dir",
    "folder",
    type=click.Path(file_okay=False, path_type=Path),
    default=None,
    help="Where such a lab goes (default: ./STUDY-DATE-TIME).",
)
@_external_option
@_output_option
@json_option
def run(  # noqa: PLR0913, PLR0917 (click hands options over one by one)
    name: str,
    lab: Path | None,
    virtual: bool,
    native: bool,
    speed: float,
    folder: Path | None,
    external: Path | None,
    output: str,
    as_json: bool,
) -> int:
    """Carry a STUDY out, and print its claims beside what is seen here.

    It runs on the phones of the lab that is up; with --virtual or --native a lab is brought up for
    it. Studies of kernels run on an OpenCL device of this computer, unless phones are asked for.
    Running it again in the same lab measures nothing twice.
    """
    from orchestrator.commands import study_targets as places
    from orchestrator.study.study_catalogue import find_study

    found = find_study(name)
    if virtual and native:
        raise click.UsageError("simulated phones would disturb a native one; say one of the two")
    place = places.StudyTarget(lab, virtual, native, speed, folder)
    if found.harness and lab is None and not place.private:
        return _finish(found, places.on_kernels(found), output, as_json)
    if native and not found.sweeps(native=True):
        from orchestrator.app.app_errors import InvalidState

        raise InvalidState(
            f"{name} has no sweep for this host as a phone: it asks for clocks, heat, energy or "
            "several phones; say --virtual, or --lab with phones"
        )
    with places.on_phones(found, place, external, quietly=as_json) as stored:
        if place.private and not output:
            output = str(stored.root / f"{name}.html")
        return _finish(found, stored.evidence, output, as_json, (stored.db, stored.sweeps))


@study.command()
@_STUDY
@lab_option
@_external_option
@_output_option
@json_option
def answer(name: str, lab_folder: Path, external: Path | None, output: str, as_json: bool) -> int:
    """Answer a STUDY from what a lab has stored, also if it is down, or imported from another."""
    from orchestrator.analysis.measurements import NothingMatches
    from orchestrator.app.run_study import gather_evidence, stored_ids
    from orchestrator.commands.study_targets import with_external
    from orchestrator.study.study_catalogue import find_study

    found = find_study(name)
    db = open_store(read_lab(lab_folder))
    texts = [*found.sweeps(), *found.sweeps(native=True)]
    texts, fetch = with_external(texts, external)
    sweeps = stored_ids(texts, db, fetch)
    if not sweeps:
        raise NothingMatches(f"the lab in {lab_folder} has never run {name}")
    return _finish(found, gather_evidence(db, sweeps, {}), output, as_json, (db, sweeps))


def _finish(
    found: "Study",
    evidence: "StudyEvidence",
    output: str,
    as_json: bool,
    stored: "tuple[Database, Sequence[str]] | None" = None,
) -> int:
    """Print the table and write the page."""
    from orchestrator.analysis.measurements import NothingMatches
    from orchestrator.study.claim_table import evaluate_claims as answers_of

    lines = answers_of(found, evidence)
    if not any(line.result for line in lines):
        reasons = dict.fromkeys(line.missing.text for line in lines if line.missing)
        shown = "; ".join(list(reasons)[:3])
        raise NothingMatches(f"{found.name}: nothing could be observed: {shown}")
    page = _write_page(found, lines, output, evidence.kernels, stored)
    if as_json:
        told = [line.as_json(found) for line in lines]
        print_json(
            {"study": found.name, "citation": found.citation, "page": str(page), "claims": told}
        )
    else:
        _print(found, lines, evidence.kernels)
        click.echo(str(page))
    return _left_open(*stored) if stored else 0


def _left_open(db: "Database", sweeps: Sequence[str]) -> int:
    """Say what is missing from a table, and leave with the code for it."""
    from orchestrator.app.run_study import failed_runs_of
    from orchestrator.commands.exit_codes import FAILURES
    from orchestrator.commands.export import incomplete
    from orchestrator.store.sweep_queries import sweep_summaries

    for sweep in (each for name in sweeps for each in sweep_summaries(db, name)):
        if not sweep.finished:
            click.echo(f"{sweep.name}: {incomplete(sweep)}", err=True)
    if failed := failed_runs_of(db, sweeps):
        click.echo(f"{failed} runs failed; 'farm sweep show' of that lab says why", err=True)
    return FAILURES if failed else 0


def _print(found: "Study", lines: "Sequence[ClaimRow]", kernels: bool) -> None:
    from orchestrator.study.claim_table import HEADINGS, blank_repeats, table_notes

    click.echo(f"\n{found.title}. {found.question}")
    rows = [line.cells for line in lines]
    print_table(HEADINGS, blank_repeats(rows) if sys.stdout.isatty() else rows)
    for note in table_notes(found, lines, kernels):
        click.echo(note)


def _write_page(
    found: "Study",
    lines: "Sequence[ClaimRow]",
    output: str,
    kernels: bool,
    stored: "tuple[Database, Sequence[str]] | None",
) -> Path:
    from orchestrator.commands.report import told_runs
    from orchestrator.export.report.page import render_page
    from orchestrator.export.report.study_section import study_section
    from orchestrator.study.claim_table import any_simulated

    path = Path(output or f"{found.name}.html")
    if any_simulated(lines) and ".simulated" not in path.name:
        path = path.with_name(f"{path.stem}.simulated{path.suffix}")
    runs, told = told_runs(*stored) if stored else ([], [])
    page = render_page(found.title, runs, told, first=study_section(found, lines, kernels))
    try:
        path.write_text(page, encoding="utf-8")
    except OSError as error:
        raise InvalidRequest(f"{path} cannot be written: {error.strerror}") from error
    return path
