"""Operators' changes of sweeps: `farm sweep pause`, `remove`, `keep` and so on.

Every change prints what it changed and how to undo it, and is recorded in the audit log.
"""

from pathlib import Path

import click

from orchestrator.commands.common import (
    change_options,
    confirm,
    connect,
    print_change,
    reason_option,
    yes_option,
)
from orchestrator.commands.completion import complete_sweep

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
@click.option("--off", is_flag=True, help="End the protection.")
@change_options
def keep(name: str, off: bool, dry_run: bool, lab_folder: Path) -> None:
    """Protect a SWEEP from pruning and removal.

    \b
    Examples:
      farm sweep keep smoke
      farm sweep keep smoke --off
    """
    from orchestrator.app.maintain_store import pin_sweep, unpin_sweep

    print_change((unpin_sweep if off else pin_sweep)(connect(lab_folder), name, dry_run))


CONTROL_COMMANDS = (pause, resume, cancel, retry, priority, remove, keep)
