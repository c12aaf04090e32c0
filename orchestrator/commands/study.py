"""`farm study`: reproduces published studies and compares their claims with new results."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from orchestrator.commands.common import (
    connect,
    json_option,
    lab_option,
    print_json,
    print_paragraph,
    print_table,
    wide_option,
)
from orchestrator.commands.completion import complete_study
from orchestrator.commands.exit_codes import FAILURES
from orchestrator.commands.output_file import output_path
from workloads.cli_options import EVENTS, PhoneSpeed
from workloads.command_output import say
from workloads.protocol.faults import FarmError, InvalidRequest
from workloads.text import safe_text

if TYPE_CHECKING:
    from orchestrator.app.run_study import Claim, ClaimRow, Study, StudyAnswer
    from orchestrator.commands.study_targets import StudyTarget

_STUDY = click.argument("name", metavar="STUDY", shell_complete=complete_study)
_output_option = click.option("-o", "--output", default="", help="File of the report page.")
_external_option = click.option(
    "--external",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Manifest of another engine, for emdl-library.",
)


@click.group()
def study() -> None:
    """Reproduce published studies on your phones."""


@study.command("list")
@json_option
def list_all(as_json: bool) -> None:
    """List all studies.

    Example: farm study list
    """
    from orchestrator.app.run_study import all_studies

    studies = all_studies().values()
    if as_json:
        print_json([item.model_dump(mode="json", exclude={"claims"}) for item in studies])
        return
    rows = [(item.name, len(item.claims), " ".join(item.covers), item.question) for item in studies]
    print_table(("STUDY", "CLAIMS", "TOPICS", "QUESTION"), rows)


@study.command()
@_STUDY
@click.option("--sweep", is_flag=True, help="Print its sweep file, as a start for your own.")
@wide_option
@json_option
def show(name: str, sweep: bool, as_json: bool) -> None:
    """Show a STUDY: its question and its claims, with citations.

    \b
    Examples:
      farm study show emdl-cpuconf
      farm study show emdl-cpuconf --sweep > my-study.yaml
    """
    from orchestrator.app.run_study import find_study

    shown = find_study(name)
    if sweep:
        click.echo("---\n".join(shown.sweeps()), nl=False)
    elif as_json:
        print_json(shown.model_dump(mode="json"))
    else:
        say(f"{shown.name}: {shown.title} ({', '.join(shown.covers)})")
        say(shown.question)
        print_paragraph(shown.caveat)
        click.echo()
        rows = [
            (
                *(claim.text, claim.published, claim.form or "", claim.published_on),
                *(shown.place_of(claim), shown.citation_of(claim)),
                _self_check_text(claim),
            )
            for claim in shown.claims
        ]
        headings = ("CLAIM", "PUBLISHED", "FORM", "PUBLISHED ON", "PLACE", "CITATION", "CHECK")
        print_table(headings, rows, ("CITATION", "FORM", "CHECK", "PLACE", "PUBLISHED ON"))


def _self_check_text(claim: "Claim") -> str:
    if claim.self_check is None:
        return ""
    verdict = "contradicts itself" if claim.contradicts_itself else "agrees"
    return f"{verdict}: {claim.self_check.result}"


@study.command()
@click.argument("name", metavar="[STUDY]", required=False, shell_complete=complete_study)
@click.option("--all", "every", is_flag=True, help="Run all studies; print one row per topic.")
@click.option(
    "--lab",
    type=click.Path(file_okay=False, path_type=Path),
    default=None,
    help="Folder of the running lab. Default: lab, or FARM_LAB.",
)
@click.option("--virtual", is_flag=True, help="Run in a temporary lab of virtual phones.")
@click.option(
    "--native", is_flag=True, help="Run in a temporary lab with this computer as the phone."
)
@click.option(
    "--speed",
    type=PhoneSpeed(1, 1000),
    metavar="N|events",
    default=EVENTS,
    show_default=True,
    help="Speed of the virtual phones' clocks relative to real time, or as fast as possible.",
)
@click.option(
    "--dir",
    "folder",
    type=click.Path(file_okay=False, path_type=Path),
    default=None,
    help="Folder of the temporary lab. Default: ./STUDY-DATE-TIME.",
)
@_external_option
@_output_option
@json_option
def run(  # noqa: PLR0913, PLR0917 (click passes options one by one)
    name: str | None,
    every: bool,
    lab: Path | None,
    virtual: bool,
    native: bool,
    speed: float,
    folder: Path | None,
    external: Path | None,
    output: str,
    as_json: bool,
) -> int:
    """Run a STUDY, and print its claims beside the results.

    It runs on the phones of the running lab; --virtual and --native start a temporary lab. With
    --native, studies of GPU kernels use the OpenCL device that FARM_OPENCL names, by default PoCL.
    Running a study again in the same lab repeats no measurement.

    \b
    Examples:
      farm study run emdl-cpuconf --virtual
      farm study run cambridge-gemm --native
      farm study run --all --virtual
    """
    from orchestrator.app.run_study import find_study
    from orchestrator.commands import study_targets

    if virtual and native:
        raise click.UsageError("--virtual and --native cannot be combined")
    if every == (name is not None):
        raise click.UsageError("name one STUDY, or pass --all")
    target = study_targets.StudyTarget(lab, virtual, native, speed, folder)
    if name is None:
        return _run_all(target, external, as_json)
    chosen = find_study(name)
    with study_targets.run_on_phones(chosen, target, external, quiet=as_json) as stored:
        if target.temporary and not output:
            output = str(stored.lab.lab.root / f"{name}.html")
        return _finish(stored.answer(chosen), output, as_json)


def _run_all(target: "StudyTarget", external: Path | None, as_json: bool) -> int:
    """Run every study and print one row per topic, with the reason if a study cannot run."""
    from orchestrator.app.run_study import TOPIC_HEADINGS, all_studies, topic_rows
    from orchestrator.commands.study_targets import answer_on_target

    answers: list[tuple[Study, Sequence[ClaimRow], str]] = []
    failed = waiting = 0
    studies = all_studies().values()
    for number, chosen in enumerate(studies, 1):
        click.echo(f"study {number} of {len(studies)}: {chosen.name}", err=True)
        try:
            answer = answer_on_target(chosen, target, external)
        except FarmError as error:
            answers.append((chosen, (), safe_text(error, 200)))
            click.echo(f"{chosen.name}: {safe_text(error, 400)}", err=True)
            continue
        failed += answer.failed_runs
        waiting += len(answer.waiting)
        answers.append((chosen, answer.rows, ""))
    rows = topic_rows(answers)
    answered = sum(row.is_answered for row in rows)
    if as_json:
        print_json([row.as_json() for row in rows])
    else:
        print_table(TOPIC_HEADINGS, [row.cells for row in rows])
    click.echo(_outcomes_text([row for _, of_study, _ in answers for row in of_study]), err=True)
    click.echo(f"{answered} of {len(rows)} topics have an answer; {failed} runs failed", err=True)
    return FAILURES if failed or waiting else 0


@study.command()
@_STUDY
@lab_option
@_external_option
@_output_option
@json_option
def report(name: str, lab_folder: Path, external: Path | None, output: str, as_json: bool) -> int:
    """Report on a STUDY from stored results.

    The lab need not be running.

    Example: farm study report emdl-cpuconf
    """
    from orchestrator.app import run_study
    from orchestrator.commands.study_targets import with_external

    chosen = run_study.find_study(name)
    lab = connect(lab_folder)
    texts, fetch = with_external([*chosen.sweeps(), *chosen.sweeps(native=True)], external)
    sweeps = run_study.stored_study_sweeps(lab, texts, fetch)
    if not sweeps:
        raise run_study.NothingMatches(f"the lab in {lab_folder} has not run {name}")
    return _finish(run_study.answer_stored_study(lab, name, sweeps, {}), output, as_json)


def _finish(answer: "StudyAnswer", output: str, as_json: bool) -> int:
    """Write the page, print the table, and return the exit code."""
    study = answer.study
    path = _write_page(answer, output)
    if as_json:
        claims = [row.as_json(study) for row in answer.rows]
        about = {"study": study.name, "citation": study.citation, "page": str(path)}
        print_json(about | {"incomplete": answer.incomplete, "claims": claims})
    else:
        _print(answer)
        click.echo(str(path))
    for line in answer.incomplete:
        click.echo(line, err=True)
    if answer.failed_runs:
        say(
            f"{answer.failed_runs} runs failed; 'farm sweep show' in that lab shows the reasons",
            err=True,
        )
    return FAILURES if answer.failed_runs or answer.waiting else 0


def _outcomes_text(rows: "Sequence[ClaimRow]") -> str:
    """Count the outcomes: '3 agrees, 2 undecided'."""
    from orchestrator.app.run_study import count_outcomes

    counts = count_outcomes(rows).items()
    return "Outcomes: " + ", ".join(f"{outcome.text} {count}" for outcome, count in counts if count)


def _print(answer: "StudyAnswer") -> None:
    from orchestrator.app.run_study import HEADINGS, blank_repeats, group_answers, table_notes

    click.echo(f"\n{answer.study.title}. {answer.study.question}")
    for group in group_answers(answer.study, answer.rows):
        print_paragraph(group.text)
    rows = [row.cells for row in answer.rows]
    print_table(HEADINGS, blank_repeats(rows) if sys.stdout.isatty() else rows)
    click.echo(_outcomes_text(answer.rows))
    for note in table_notes(answer.study, answer.rows):
        print_paragraph(note)


def _write_page(answer: "StudyAnswer", output: str) -> Path:
    from orchestrator.app.export_results import marked_name

    path = output_path(output, marked_name(f"{answer.study.name}.html", answer.simulated))
    try:
        path.write_text(answer.html, encoding="utf-8")
    except OSError as error:
        raise InvalidRequest(f"{path} cannot be written: {error.strerror}") from error
    return path
