"""`farm kernels`: the harness's commands, and tuning on a phone of the lab."""

from pathlib import Path
from typing import Any

import click

from kernels.harness import cli as harness
from orchestrator.commands.common import lab_option, open_store, read_lab
from orchestrator.exits import FAILURES
from workloads.fault import Refused
from workloads.text import safe_text

TUNING_S = 300.0
_TUNED = "tuned"


@click.group()
def kernels() -> None:
    """Check, time and tune the OpenCL kernels on this computer, or on a phone."""


for _command in harness.kernels.commands.values():
    kernels.add_command(_command)


@click.option("--phone", "serial", metavar="PHONE", help="On a phone of the lab, by its runner.")
@lab_option
@click.pass_context
def _tune(ctx: click.Context, /, serial: str | None, lab_folder: Path, **words: Any) -> int:
    """Find the fastest way and its numbers for each size, and keep them."""
    if serial is None:
        ctx.invoke(harness.tune, **words)
        return 0
    return tune_phone(serial, lab_folder, words["sizes"], words["output"])


_command = click.command("tune")(_tune)
_command.params = [*harness.tune.params, *_command.params]
kernels.add_command(_command)


def tune_phone(serial: str, lab_folder: Path, sizes: str, output: Path | None) -> int:
    """Have the phone's host tune it; the file is kept by the lab, and by the host for its runs."""
    from orchestrator.commands.phone import ask_agent
    from orchestrator.store.queries import telemetry
    from workloads.messages import FILE_MARK

    wanted = tuple(harness.read_sizes(sizes))
    if len(wanted) > 16 or max(wanted) > 4096:
        raise Refused("--sizes: on a phone at most 16 of them, up to 4096")
    good, text = ask_agent(serial, lab_folder, "tune", wanted, TUNING_S)
    said, _, digest = text.partition(FILE_MARK)
    click.echo(safe_text(said.strip(), 600), err=not good)
    if not good:
        return FAILURES
    content = telemetry(open_store(read_lab(lab_folder)), digest)
    if content is None:
        raise Refused(f"the tuning file of {serial} did not arrive whole; ask again")
    path = output or lab_folder / _TUNED / f"{digest[:16]}.tuned"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    click.echo(f"kept in {path}")
    return 0
