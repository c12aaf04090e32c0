"""`farm kernels`: the commands of the OpenCL harness, and tuning on a phone of the lab."""

from pathlib import Path
from typing import Any

import click

from kernels.harness import cli as harness
from orchestrator.commands.common import connect, lab_option
from orchestrator.commands.exit_codes import FAILURES
from workloads.command_output import show_wait
from workloads.text import safe_text

_TUNED = "tuned"


@click.group()
def kernels() -> None:
    """Check, time and tune OpenCL kernels on this computer or on a phone."""


for _command in harness.kernels.commands.values():
    kernels.add_command(_command)


@click.option("--phone", "serial", metavar="PHONE", help="Tune this phone of the lab.")
@lab_option
@click.pass_context
def _tune(ctx: click.Context, /, serial: str | None, lab_folder: Path, **options: Any) -> int:
    """Find the fastest matmul variant per size, and cache it.

    \b
    Examples:
      farm kernels tune --sizes 64,256
      farm kernels tune --phone PHONE --output phone.tuned
    """
    if serial is None:
        ctx.invoke(harness.tune, **options)
        return 0
    return tune_phone(serial, lab_folder, options["sizes"], options["output"])


_command = click.command("tune")(_tune)
_command.params = [*harness.tune.params, *_command.params]
kernels.add_command(_command)


def tune_phone(serial: str, lab_folder: Path, sizes: str, output: Path | None) -> int:
    """Have the phone's host tune it; the lab stores the file, and the host uses it for its runs."""
    from orchestrator.app import control_phones

    lab = connect(lab_folder)
    with show_wait("the phone, which tries kernels of every size"):
        outcome = control_phones.tune_phone(lab, serial, harness.read_sizes(sizes))
    click.echo(safe_text(outcome.text, 600), err=not outcome.succeeded)
    if not outcome.succeeded or outcome.file is None:
        return FAILURES
    content = control_phones.read_tuning_file(lab, outcome.file)
    path = output or lab_folder / _TUNED / f"{outcome.file[:16]}.tuned"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    click.echo(f"written to {path}")
    return 0
