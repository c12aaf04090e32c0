"""`farm study`: what others say they saw on phones, asked again here."""

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from orchestrator.commands.common import (
    json_option,
    lab_option,
    open_broker,
    open_store,
    print_json,
    print_table,
    read_lab,
)
from workloads.fault import Refused

if TYPE_CHECKING:
    from orchestrator.dispatch.broker import Broker
    from orchestrator.store.database import Database
    from orchestrator.study.answers import Line
    from orchestrator.study.catalogue import Study
    from orchestrator.study.evidence import Evidence

SPEED = 500.0


@click.group()
def study() -> None:
    """Ask again what three studies asked of phones: their claims beside ours."""


@study.command("list")
@json_option
def list_studies(as_json: bool) -> None:
    """List every study."""
    from orchestrator.study.catalogue import studies

    found = studies().values()
    if as_json:
        print_json([each.model_dump(mode="json", exclude={"claims"}) for each in found])
        return
    rows = [(each.name, len(each.claims), " ".join(each.covers), each.question) for each in found]
    print_table(("STUDY", "CLAIMS", "ROWS", "QUESTION"), rows)


@study.command()
@click.argument("name", metavar="STUDY")
@click.option("--sweep", is_flag=True, help="Print its sweep file, to begin one of your own.")
@json_option
def show(name: str, sweep: bool, as_json: bool) -> None:
    """Show a STUDY: its question, its claims and where they stand written."""
    from orchestrator.study.catalogue import find_study

    found = find_study(name)
    if sweep:
        click.echo("---\n".join(found.sweeps()), nl=False)
    elif as_json:
        print_json(found.model_dump(mode="json"))
    else:
        click.echo(f"{found.name}: {found.title} ({', '.join(found.covers)})")
        click.echo(f"{found.question}\n{found.caution}\n")
        rows = [
            (claim.text, claim.theirs, claim.seen_on, found.source_of(claim))
            for claim in found.claims
        ]
        print_table(("CLAIM", "THEIRS", "SEEN ON", "SOURCE"), rows)


@dataclass(frozen=True)
class Place:
    """Where a study is carried out."""

    lab: Path | None
    virtual: bool
    native: bool
    speed: float
    folder: Path | None

    @property
    def private(self) -> bool:
        """Whether a lab is brought up for it, and taken down."""
        return self.virtual or self.native


_output_option = click.option("-o", "--output", default="", help="File for the page.")
_external_option = click.option(
    "--external",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    help="A foreign engine's manifest, for emdl-library.",
)


@study.command()
@click.argument("name", metavar="STUDY")
@click.option(
    "--lab",
    type=click.Path(file_okay=False, path_type=Path),
    default=None,
    envvar="FARM_LAB",
    help="The folder of the lab that is up (default: lab).",
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
    from orchestrator.study.catalogue import find_study

    found = find_study(name)
    if virtual and native:
        raise click.UsageError("simulated phones would disturb a native one; say one of the two")
    place = Place(lab, virtual, native, speed, folder)
    if found.kernels and lab is None and not place.private:
        return _finish(found, _on_kernels(found), output, as_json)
    if native and not found.sweeps(native=True):
        from orchestrator.exits import NotNow

        raise NotNow(
            f"{name} has no sweep for this host as a phone: it asks for clocks, heat, energy or "
            "several phones; say --virtual, or --lab with phones"
        )
    return _on_phones(found, place, external, output, as_json)


@study.command()
@click.argument("name", metavar="STUDY")
@lab_option
@_external_option
@_output_option
@json_option
def answer(name: str, lab_folder: Path, external: Path | None, output: str, as_json: bool) -> int:
    """Answer a STUDY from what a lab has stored, also if it is down, or imported from another."""
    from orchestrator.analysis.refusals import NothingMatches
    from orchestrator.study.catalogue import find_study
    from orchestrator.studying import gather, stored_ids

    found = find_study(name)
    db = open_store(read_lab(lab_folder))
    texts = [*found.sweeps(), *found.sweeps(native=True)]
    texts, fetch = with_external(texts, external)
    sweeps = stored_ids(texts, db, fetch)
    if not sweeps:
        raise NothingMatches(f"the lab in {lab_folder} has never run {name}")
    return _finish(found, gather(db, sweeps, {}), output, as_json, (db, sweeps))


def _on_kernels(found: "Study") -> "Evidence":
    """Let the OpenCL harness answer, on the device that it would choose."""
    from kernels.harness.cli import choose
    from orchestrator.study.kernels import observe, steps_of

    chosen = choose(None)
    with click.progressbar(length=steps_of(found), label=found.name, file=sys.stderr) as bar:
        return observe(found, chosen, lambda: bar.update(1))


def _on_phones(
    found: "Study", place: Place, external: Path | None, output: str, as_json: bool
) -> int:
    from orchestrator.studying import failures, gather, submit_all

    texts, fetch = with_external(found.sweeps(place.native), external)
    with _lab(found, place) as (db, broker, intact, root):
        keep_beside(external, root)
        sweeps, left_out = submit_all(texts, db, broker, fetch)
        _follow(db, broker, sweeps, intact, quietly=as_json)
        evidence = gather(db, sweeps, left_out)
        output = output or str(root / f"{found.name}.html" if place.private else "")
        failed = failures(db, sweeps)
        code = _finish(found, evidence, output, as_json, (db, sweeps))
    if failed:
        from orchestrator.exits import FAILURES

        click.echo(f"{failed} runs failed; 'farm sweep show' of that lab says why", err=True)
        return FAILURES
    return code


Up = tuple["Database", "Broker", Callable[[], bool], Path]


@contextmanager
def _lab(found: "Study", place: Place) -> Iterator[Up]:
    """The lab that is up, or one that is brought up and taken down."""
    if not place.private:
        lab = read_lab(place.lab or Path("lab"))
        broker = open_broker(lab)
        yield open_store(lab), broker, lambda: True, lab.root
        return
    from orchestrator.lab.children import stop_on_signals
    from orchestrator.lab.demo import demo_lab
    from orchestrator.lab.virtual import NATIVE, PROFILES
    from workloads.lab import Lab

    stop_on_signals()
    for variable in ("FARM_BROKER", "FARM_STORE", "FARM_LAB"):
        os.environ.pop(variable, None)  # a lab of its own, whatever its user works with
    kind = "native" if place.native else "simulated"
    stamp = f"{datetime.now().astimezone():%Y%m%d-%H%M%S}"
    folder = place.folder or Path(f"{found.name}-{kind}-{stamp}")
    phones = NATIVE if place.native else found.phones or PROFILES
    speed = 1.0 if place.native else place.speed
    began = time.monotonic()

    def say(text: str) -> None:
        click.echo(f"[{time.monotonic() - began:4.1f} s] {text}", err=True)

    with demo_lab(Lab.read(folder, {}), speed, say, phones) as up:
        yield up.db, up.broker, up.intact, folder


def _follow(
    db: "Database",
    broker: "Broker",
    sweeps: Sequence[str],
    intact: Callable[[], bool],
    quietly: bool,
) -> None:
    from orchestrator.commands.hands import Hands
    from orchestrator.commands.watch import read_filter
    from orchestrator.studying import wait_for
    from orchestrator.tui.follow import Wish, follow

    if quietly:
        wait_for(sweeps, db, intact)
        return
    for sweep in sweeps:
        follow(
            *(db, broker, Wish(sweep, "study")),
            lambda view: intact() and view.sweeps[0].finished,
            read_filter,
            Hands(db, broker),
        )


def _finish(
    found: "Study",
    evidence: "Evidence",
    output: str,
    as_json: bool,
    stored: "tuple[Database, Sequence[str]] | None" = None,
) -> int:
    """Print the table and write the page."""
    from orchestrator.analysis.refusals import NothingMatches
    from orchestrator.study.answers import answer as answers_of

    lines = answers_of(found, evidence)
    if not any(line.found for line in lines):
        whys = "; ".join(list(dict.fromkeys(line.why for line in lines))[:3])
        raise NothingMatches(f"{found.name}: nothing could be observed: {whys}")
    page = _write_page(found, lines, output, evidence.kernels, stored)
    if as_json:
        told = [line.as_json(found) for line in lines]
        print_json({"study": found.name, "source": found.source, "page": str(page), "lines": told})
    else:
        _print(found, lines, evidence.kernels)
        click.echo(str(page))
    return 0


def _print(found: "Study", lines: "Sequence[Line]", kernels: bool) -> None:
    from orchestrator.study.answers import HEADINGS, notes

    click.echo(f"\n{found.title}. {found.question}")
    rows = [line.cells for line in lines]
    print_table(HEADINGS, _once(rows) if sys.stdout.isatty() else rows)
    for note in notes(found, lines, kernels):
        click.echo(note)


def _once(rows: Sequence[Sequence[str]]) -> list[Sequence[str]]:
    """Say a claim once, before the phones that it was put to: people read downwards."""
    before = [(), *rows[:-1]]
    return [
        ("", "", *row[2:]) if row[:2] == above[:2] else row
        for above, row in zip(before, rows, strict=True)
    ]


def _write_page(
    found: "Study",
    lines: "Sequence[Line]",
    output: str,
    kernels: bool,
    stored: "tuple[Database, Sequence[str]] | None",
) -> Path:
    from orchestrator.commands.report import told_runs
    from orchestrator.export.report.page import render_page
    from orchestrator.export.report.study import study_section
    from orchestrator.study.answers import simulated

    path = Path(output or f"{found.name}.html")
    if simulated(lines) and ".simulated" not in path.name:
        path = path.with_name(f"{path.stem}.simulated{path.suffix}")
    runs, told = told_runs(*stored) if stored else ([], [])
    page = render_page(found.title, runs, told, first=study_section(found, lines, kernels))
    try:
        path.write_text(page, encoding="utf-8")
    except OSError as error:
        raise Refused(f"{path} cannot be written: {error.strerror}") from error
    return path


def with_external(
    texts: Sequence[str], manifest: Path | None
) -> tuple[list[str], Callable[[str], str]]:
    """Sweeps with a foreign engine in its place, or without that place."""
    place = ', "external:engine"'
    if manifest is None:
        from orchestrator.plan.cases import fetch_nothing

        return [text.replace(place, "") for text in texts], fetch_nothing
    if not any(place in text for text in texts):
        raise Refused("this study has no place for a foreign engine; emdl-library has")
    return list(texts), lambda _: manifest.read_text(encoding="utf-8")


def keep_beside(manifest: Path | None, root: Path) -> None:
    """Bring what lies beside a manifest to the lab; agents look there by digest."""
    if manifest is None:
        return
    from orchestrator.commands.workload import keep_file

    shelf = read_lab(root).files_folder
    for file in manifest.parent.iterdir():
        if file.is_file() and file != manifest:
            keep_file(file, shelf)
