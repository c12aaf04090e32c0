"""Operators' changes of sweeps (`farm sweep pause`, `remove`, `pin` and so on), and `farm audit`.

Every change prints what it changed and how to undo it, and is recorded in the audit log.
"""

from pathlib import Path

import click

from orchestrator.commands.common import (
    change_options,
    confirm,
    connect,
    json_option,
    lab_option,
    print_change,
    print_items,
    reason_option,
    yes_option,
)
from orchestrator.commands.completion import complete_sweep
from workloads.cli_options import value_option
from workloads.text import safe_text

_SWEEP = click.argument("name", metavar="SWEEP", shell_complete=complete_sweep)


@click.command()
@_SWEEP
@reason_option
@change_options
def pause(name: str, reason: str, dry_run: bool, lab_folder: Path) -> None:
    """Start no more runs of a SWEEP; running ones finish.

    Example: farm sweep pause smoke --why "the room is too warm"
    """
    from orchestrator.app.control_sweeps import pause_sweep

    print_change(pause_sweep(connect(lab_folder), name, reason, dry_run))


@click.command()
@_SWEEP
@change_options
def resume(name: str, dry_run: bool, lab_folder: Path) -> None:
    """Continue a paused or cancelled SWEEP.

    Example: farm sweep resume smoke
    """
    from orchestrator.app.control_sweeps import resume_sweep

    print_change(resume_sweep(connect(lab_folder), name, dry_run))


@click.command()
@_SWEEP
@yes_option
@change_options
def cancel(name: str, yes: bool, dry_run: bool, lab_folder: Path) -> None:
    """Stop a SWEEP; its results are kept.

    Queued runs are dropped and running ones are stopped.

    Example: farm sweep cancel smoke --yes
    """
    from orchestrator.app.control_sweeps import cancel_sweep

    confirm(f"Cancel {name}? Running runs are stopped", yes or dry_run)
    print_change(cancel_sweep(connect(lab_folder), name, dry_run))


@click.command()
@_SWEEP
@change_options
def retry(name: str, dry_run: bool, lab_folder: Path) -> None:
    """Queue the failed and blocked runs of a SWEEP again.

    Example: farm sweep retry smoke --dry-run
    """
    from orchestrator.app.control_sweeps import retry_sweep

    print_change(retry_sweep(connect(lab_folder), name, dry_run))


@click.command()
@_SWEEP
@click.argument("priority", type=click.IntRange(0, 100))
@change_options
def priority(name: str, priority: int, dry_run: bool, lab_folder: Path) -> None:
    """Set the PRIORITY (0 to 100) of a SWEEP.

    A sweep with a higher priority gets a larger share of the lab.

    Example: farm sweep priority smoke 70
    """
    from orchestrator.app.control_sweeps import set_sweep_priority

    print_change(set_sweep_priority(connect(lab_folder), name, priority, dry_run))


@click.command()
@click.argument("target", metavar="[SWEEP|PHONE|HOST]", required=False)
@value_option(
    "--limit", type=click.IntRange(1, 10_000), default=30, help="Maximum number of entries."
)
@lab_option
@json_option
def audit(target: str | None, limit: int, lab_folder: Path, as_json: bool) -> int:
    """List operators' changes, newest first.

    Each entry has the command that undoes it.

    Example: farm audit smoke
    """
    from orchestrator.app.control_sweeps import list_audit

    entries = list_audit(connect(lab_folder), target, limit)
    rows = [
        (
            f"{entry.occurred_at:%Y-%m-%d %H:%M:%S}",
            *(entry.actor, entry.action, entry.target, entry.undo or "-"),
            entry.after.get("reason") or "-",
        )
        for entry in entries
    ]
    about = f" of {safe_text(target)}" if target else ""
    headings = ("TIME (UTC)", "WHO", "ACTION", "TARGET", "UNDO", "REASON")
    return print_items(entries, as_json, headings, rows, f"no change{about} is recorded")


@click.command()
@_SWEEP
@yes_option
@change_options
def remove(name: str, yes: bool, dry_run: bool, lab_folder: Path) -> None:
    """Remove a SWEEP that has ended, with all its results.

    This cannot be undone; 'farm export --format bundle' writes a copy.

    Example: farm sweep remove smoke --dry-run
    """
    from orchestrator.app.maintain_store import remove_sweep

    confirm(f"Remove {name} and all its results?", yes or dry_run)
    print_change(remove_sweep(connect(lab_folder), name, dry_run))


@click.command()
@_SWEEP
@change_options
def pin(name: str, dry_run: bool, lab_folder: Path) -> None:
    """Protect a SWEEP from pruning and removal.

    Example: farm sweep pin smoke
    """
    from orchestrator.app.maintain_store import pin_sweep

    print_change(pin_sweep(connect(lab_folder), name, dry_run))


@click.command()
@_SWEEP
@change_options
def unpin(name: str, dry_run: bool, lab_folder: Path) -> None:
    """End the protection of a SWEEP.

    Example: farm sweep unpin smoke
    """
    from orchestrator.app.maintain_store import unpin_sweep

    print_change(unpin_sweep(connect(lab_folder), name, dry_run))


CONTROL_COMMANDS = (pause, resume, cancel, retry, priority, remove, pin, unpin)
