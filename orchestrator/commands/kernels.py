"""`farm kernels`: the harness's commands, and tuning on a phone of the lab."""

from pathlib import Path
from typing import Any

import click

from kernels.harness import cli as harness
from orchestrator.commands.common import lab_option, open_store, read_lab
from orchestrator.commands.exit_codes import FAILURES
from workloads.protocol.faults import InvalidRequest
from workloads.protocol.messages import CommandKind
from workloads.text import safe_text

TUNING_S = 300.0
_TUNED = "tuned"


@click.group()
def kernels() -> None:
    """Check, time and tune the OpenCL kernels on this computer, or on a phone."""


for _command in harness.kernels.commands.values():
    kernels.add_command(_command)


@click.option("--phone", "serial", metavar="PHONE", help="Tune this phone of the lab.")
@lab_option
@click.pass_context
def _tune(ctx: click.Context, /, serial: str | None, lab_folder: Path, **words: Any) -> int:
    """Find the fastest matmul variant and parameters per size, and cache them.

    \b
    Examples:
      farm kernels tune --sizes 64,256
      farm kernels tune --phone PHONE --output phone.tuned
    """
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
    from orchestrator.store.results import telemetry_blob

    wanted = tuple(harness.read_sizes(sizes))
    if len(wanted) > 16 or max(wanted) > 4096:
        raise InvalidRequest("--sizes: on a phone at most 16 of them, up to 4096")
    answer = ask_agent(serial, lab_folder, CommandKind.TUNE, wanted, TUNING_S)
    click.echo(safe_text(answer.text, 600), err=not answer.succeeded)
    if not answer.succeeded or answer.file is None:
        return FAILURES
    content = telemetry_blob(open_store(read_lab(lab_folder)), answer.file)
    if content is None:
        raise InvalidRequest(f"the tuning file of {serial} did not arrive whole; ask again")
    path = output or lab_folder / _TUNED / f"{answer.file[:16]}.tuned"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    click.echo(f"kept in {path}")
    return 0
