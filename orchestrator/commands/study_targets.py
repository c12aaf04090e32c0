"""Where a study is carried out: a lab that is up, one for the occasion, or kernels alone."""

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

from orchestrator.commands.common import open_broker, open_store, read_lab
from workloads.protocol.faults import InvalidRequest

if TYPE_CHECKING:
    from orchestrator.dispatch.central_broker import CentralBroker
    from orchestrator.store.database import Database
    from orchestrator.study.evidence import StudyEvidence
    from orchestrator.study.study_catalogue import Study


@dataclass(frozen=True)
class StudyTarget:
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


def on_kernels(found: "Study") -> "StudyEvidence":
    """Let the OpenCL harness answer, on the device that it would choose."""
    from kernels.harness.cli import choose
    from orchestrator.study.kernel_evidence import collect_kernel_evidence, count_steps

    chosen = choose(None)
    with click.progressbar(length=count_steps(found), label=found.name, file=sys.stderr) as bar:
        return collect_kernel_evidence(found, chosen, lambda: bar.update(1))


@dataclass(frozen=True)
class StoredTarget:
    """What a lab has of a study once its runs are in."""

    db: "Database"
    sweeps: tuple[str, ...]
    evidence: "StudyEvidence"
    root: Path


@contextmanager
def on_phones(
    found: "Study", place: StudyTarget, external: Path | None, quietly: bool
) -> Iterator[StoredTarget]:
    """Have a lab run a study's sweeps, and follow them to their end."""
    from orchestrator.app.run_study import gather_evidence, submit_studies

    texts, fetch = with_external(found.sweeps(place.native), external)
    with _lab(found, place) as (db, broker, intact, root):
        keep_beside(external, root)
        sweeps, left_out = submit_studies(texts, db, broker, fetch)
        _follow(db, broker, sweeps, intact, quietly)
        yield StoredTarget(db, tuple(sweeps), gather_evidence(db, sweeps, left_out), root)


Up = tuple["Database", "CentralBroker", Callable[[], bool], Path]


@contextmanager
def _lab(found: "Study", place: StudyTarget) -> Iterator[Up]:
    """The lab that is up, or one that is brought up and taken down."""
    if not place.private:
        lab = read_lab(place.lab or Path(os.environ.get("FARM_LAB") or "lab"))
        broker = open_broker(lab)
        yield open_store(lab), broker, lambda: True, lab.root
        return
    from orchestrator.supervisor.demo_lab import demo_lab
    from orchestrator.supervisor.process import stop_on_signals
    from orchestrator.supervisor.virtual_phones import NATIVE, PROFILES
    from workloads.lab_settings import Lab

    stop_on_signals()
    for variable in ("FARM_BROKER", "FARM_STORE", "FARM_LAB"):
        os.environ.pop(variable, None)  # a lab of its own, whatever its user works with
    kind = "native" if place.native else "simulated"
    stamp = f"{datetime.now().astimezone():%Y%m%d-%H%M%S}"
    folder = place.folder or Path(f"{found.name}-{kind}-{stamp}")
    phones = NATIVE if place.native else found.virtual_phones or PROFILES
    speed = 1.0 if place.native else place.speed
    began = time.monotonic()

    def say(text: str) -> None:
        click.echo(f"[{time.monotonic() - began:4.1f} s] {text}", err=True)

    with demo_lab(Lab.read(folder, {}), speed, say, phones) as up:
        yield up.db, up.broker, up.intact, folder


def _follow(
    db: "Database",
    broker: "CentralBroker",
    sweeps: Sequence[str],
    intact: Callable[[], bool],
    quietly: bool,
) -> None:
    from orchestrator.app.run_study import wait_for
    from orchestrator.commands.tui_actions import ActionHandler
    from orchestrator.commands.watch import read_filter
    from orchestrator.tui.watch_loop import WatchOptions, run_watch

    if quietly:
        wait_for(sweeps, db, intact)
        return
    for sweep in sweeps:
        run_watch(
            *(db, broker, WatchOptions(sweep, "study")),
            lambda view: intact() and view.sweeps[0].finished,
            read_filter,
            ActionHandler(db, broker),
        )


def with_external(
    texts: Sequence[str], manifest: Path | None
) -> tuple[list[str], Callable[[str], str]]:
    """Sweeps with a foreign engine in its place, or without that place."""
    place = ', "external:engine"'
    if manifest is None:
        from orchestrator.sweepfile.workload_reader import fetch_no_file

        return [text.replace(place, "") for text in texts], fetch_no_file
    if not any(place in text for text in texts):
        raise InvalidRequest("this study has no place for a foreign engine; emdl-library has")
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
