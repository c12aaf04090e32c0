"""Where a study runs: in the running lab or in a temporary one."""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from orchestrator.app.app_errors import InvalidState
from orchestrator.commands.common import connect, forget_other_labs
from workloads.protocol.faults import InvalidRequest

if TYPE_CHECKING:
    from orchestrator.app.lab_connection import LabConnection
    from orchestrator.app.plan_sweep import FetchFile
    from orchestrator.app.run_study import Study, StudyAnswer

EXTERNAL_ENGINE = ', "external:engine"'  # the place of another engine in a study's sweep


@dataclass(frozen=True)
class StudyTarget:
    """Where a study runs."""

    lab: Path | None
    virtual: bool
    native: bool
    speed: float
    folder: Path | None

    @property
    def temporary(self) -> bool:
        """Whether a lab is started for the study and stopped afterwards."""
        return self.virtual or self.native

    def folder_of(self, study: "Study") -> Path:
        """Return the folder of a temporary lab."""
        kind = "native" if self.native else "simulated"
        stamp = f"{datetime.now().astimezone():%Y%m%d-%H%M%S}"
        return self.folder or Path(f"{study.name}-{kind}-{stamp}")


@dataclass(frozen=True)
class StoredStudy:
    """The results of a study in a lab."""

    lab: "LabConnection"
    sweeps: tuple[str, ...]
    skipped: dict[str, str]  # phones, with the reason
    waiting: tuple[str, ...] = ()  # what only a person can do to continue

    def answer(self, study: "Study") -> "StudyAnswer":
        """Compare the claims of the study with the results."""
        from orchestrator.app.run_study import answer_stored_study

        answer = answer_stored_study(self.lab, study.name, self.sweeps, self.skipped)
        return replace(answer, waiting=self.waiting)


def answer_on_target(study: "Study", target: StudyTarget, external: Path | None) -> "StudyAnswer":
    """Run one study without a live view, and answer its claims."""
    used = external if any(EXTERNAL_ENGINE in text for text in study.sweeps()) else None
    folder = target.folder / study.name if target.folder else None
    with run_on_phones(study, replace(target, folder=folder), used, quiet=True) as stored:
        return stored.answer(study)


@contextmanager
def run_on_phones(
    study: "Study", target: StudyTarget, external: Path | None, quiet: bool
) -> Iterator[StoredStudy]:
    """Run the sweeps of a study in a lab, and follow them to their end."""
    from orchestrator.app.run_study import submit_study

    texts, fetch = with_external(study.sweeps(target.native), external)
    if target.native and not texts:
        raise InvalidState(
            f"{study.name} cannot run on this computer: it needs several phones, or conditions "
            "that a computer does not have; use --virtual, or --lab with phones"
        )
    with _open_lab(study, target) as (lab, keep_up):
        add_files_beside(external, lab)
        sweeps, skipped = submit_study(lab, texts, fetch)
        texts = [_follow(lab, sweep, keep_up, quiet) for sweep in sweeps]
        waiting = tuple(dict.fromkeys(filter(None, texts)))
        for text in waiting:
            click.echo(f"{text}, and run the study again", err=True)
        yield StoredStudy(lab, tuple(sweeps), skipped, waiting)


KeepUp = Callable[[], bool]


@contextmanager
def _open_lab(study: "Study", target: StudyTarget) -> "Iterator[tuple[LabConnection, KeepUp]]":
    """Connect to the running lab, or start a temporary one."""
    if not target.temporary:
        lab = connect(target.lab or Path(os.environ.get("FARM_LAB") or "lab"))
        lab.check()
        yield lab, lambda: True
        return
    from orchestrator.commands.progress import timed_report
    from orchestrator.supervisor.demo_lab import demo_lab
    from orchestrator.supervisor.process import stop_on_signals
    from orchestrator.supervisor.virtual_phones import NATIVE, PROFILES
    from workloads.lab.settings import Lab

    stop_on_signals()
    forget_other_labs()
    if target.native:
        os.environ.setdefault("FARM_OPENCL", "pocl")  # the device of NAME.native-opencl.yaml
    folder = target.folder_of(study)
    phones = NATIVE if target.native else study.virtual_phones or PROFILES
    speed = 1.0 if target.native else target.speed
    with demo_lab(Lab.read(folder, {}), speed, timed_report(), phones) as up:
        yield up.connection, up.keep_up


def _follow(lab: "LabConnection", sweep: str, keep_up: KeepUp, quiet: bool) -> str:
    """Follow a sweep to its end; return what only a person can do to continue it."""
    from orchestrator.app.run_study import wait_for_sweep
    from orchestrator.app.screen.waiting_sweep import SweepWait, find_obstacles, obstacle_text
    from orchestrator.tui.watch_loop import WatchOptions, run_watch

    if quiet:
        return wait_for_sweep(lab, sweep, keep_up, lambda text: click.echo(text, err=True))
    wait = SweepWait()
    view = run_watch(
        lab,
        WatchOptions(sweep, "study"),
        lambda view: keep_up() and (view.sweeps[0].finished or wait.is_stuck(view)),
    )
    return obstacle_text(find_obstacles(view)) if wait.is_stuck(view) else ""


def with_external(texts: Sequence[str], manifest: Path | None) -> "tuple[list[str], FetchFile]":
    """Return the sweeps of a study with or without another engine, and how to read its manifest."""
    from orchestrator.app.external_engines import check_study_manifest
    from orchestrator.app.plan_sweep import fetch_no_file

    ours = [text.replace(EXTERNAL_ENGINE, "") for text in texts]
    if manifest is None:
        return ours, fetch_no_file
    if not any(EXTERNAL_ENGINE in text for text in texts):
        raise InvalidRequest("this study does not compare engines; use emdl-library")
    text = _read_text(manifest)
    check_study_manifest(text, manifest.name, ours)
    return list(texts), lambda _: text


def add_files_beside(manifest: Path | None, lab: "LabConnection") -> None:
    """Copy the manifest's files that lie beside it into the lab, where agents find them."""
    if manifest is None:
        return
    from orchestrator.app.external_engines import check_manifest
    from orchestrator.commands.workload_files import add_to_lab

    for file in check_manifest(_read_text(manifest), manifest.name).files:
        if (manifest.parent / file.name).is_file():
            add_to_lab(lab, manifest.parent / file.name)


def _read_text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise InvalidRequest(f"{file} cannot be read: {why}") from error
