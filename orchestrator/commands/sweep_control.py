"""`farm sweep pause|resume|cancel|retry|priority`, `farm audit`: decisions of people.

Every change says what it changed and how to undo it, and is written down.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from orchestrator.commands.common import (
    current_user,
    dry_run_option,
    json_option,
    lab_option,
    open_broker,
    open_store,
    print_change,
    print_json,
    print_table,
    read_lab,
)
from orchestrator.commands.completion import complete_sweep
from workloads.text import safe_text

if TYPE_CHECKING:
    from orchestrator.store.database import Database
    from orchestrator.store.operator_change import Actor, OperatorChange

_SWEEP = click.argument("name", metavar="SWEEP", shell_complete=complete_sweep)
_YES = click.option("--yes", is_flag=True, help="Do not ask.")


def _decide(
    name: str,
    lab_folder: Path,
    dry_run: bool,
    deed: "Callable[[Database, str, Actor], OperatorChange]",
) -> None:
    """Find the sweep, carry the decision out, and say what came of it."""
    from orchestrator.store.operator_change import Actor
    from orchestrator.store.sweep_queries import find_sweep

    lab = read_lab(lab_folder)
    db, broker = open_store(lab), open_broker(lab)
    print_change(broker, deed(db, find_sweep(db, name).id, Actor(current_user(), dry_run)))


@click.command()
@_SWEEP
@click.option("--why", default="", help="The reason, for whoever finds it paused.")
@dry_run_option
@lab_option
def pause(name: str, why: str, dry_run: bool, lab_folder: Path) -> None:
    """Start nothing more of a SWEEP; what runs is finished."""
    from orchestrator.store import sweep_actions

    _decide(
        name, lab_folder, dry_run, lambda db, sweep, by: sweep_actions.pause(db, sweep, by, why)
    )


@click.command()
@_SWEEP
@dry_run_option
@lab_option
def resume(name: str, dry_run: bool, lab_folder: Path) -> None:
    """Let a paused or cancelled SWEEP go on."""
    from orchestrator.store import sweep_actions

    _decide(name, lab_folder, dry_run, sweep_actions.resume)


@click.command()
@_SWEEP
@_YES
@dry_run_option
@lab_option
def cancel(name: str, yes: bool, dry_run: bool, lab_folder: Path) -> None:
    """Start nothing more of a SWEEP and stop what runs; results stay."""
    from orchestrator.store import sweep_actions

    if not (yes or dry_run) and sys.stdin.isatty():
        click.confirm(f"Cancel {name}? What runs is stopped", abort=True, err=True)
    _decide(name, lab_folder, dry_run, sweep_actions.cancel)


@click.command()
@_SWEEP
@dry_run_option
@lab_option
def retry(name: str, dry_run: bool, lab_folder: Path) -> None:
    """Queue again what failed in a SWEEP, and nothing else."""
    from orchestrator.store import sweep_actions

    _decide(name, lab_folder, dry_run, sweep_actions.retry)


@click.command()
@_SWEEP
@click.argument("priority", type=click.IntRange(0, 100))
@dry_run_option
@lab_option
def priority(name: str, priority: int, dry_run: bool, lab_folder: Path) -> None:
    """Give a SWEEP a larger or smaller share of the lab."""
    from orchestrator.store import sweep_actions

    _decide(
        *(name, lab_folder, dry_run),
        lambda db, sweep, by: sweep_actions.set_priority(db, sweep, priority, by),
    )


@click.command()
@click.argument("of", metavar="[SWEEP|PHONE|HOST]", required=False)
@click.option("--limit", type=click.IntRange(1, 10_000), default=30, show_default=True)
@lab_option
@json_option
def audit(of: str | None, limit: int, lab_folder: Path, as_json: bool) -> None:
    """List who decided what, newest first."""
    from dataclasses import asdict

    from orchestrator.store.audit_log import audit_entries

    found = audit_entries(open_store(read_lab(lab_folder)), of, limit)
    if as_json:
        print_json([asdict(item) for item in found])
        return
    rows = [
        (
            f"{item.occurred_at:%Y-%m-%d %H:%M:%S}",
            *(item.actor, item.action, item.target, item.undo or "-"),
        )
        for item in found
    ]
    print_table(("AT (UTC)", "WHO", "DID", "TO", "UNDO"), rows)
    if not rows:
        click.echo(
            f"Nobody has decided anything{f' about {safe_text(of)}' if of else ''}.", err=True
        )


VERBS = (pause, resume, cancel, retry, priority)
