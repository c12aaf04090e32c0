"""`farm`: the command line. One table of commands; each is imported when it is called."""

import importlib
import io
import os
import signal
import sys
from typing import NoReturn

import click
from click.exceptions import NoSuchCommand

from workloads.command_output import as_typed, command_name, say

# Groups of the help, each with its commands: name -> (module:attribute, summary). Some commands are
# in other packages; this table is the only place of the orchestrator that names them.
GROUPS: dict[str, dict[str, tuple[str, str]]] = {
    "Start": {
        "demo": ("orchestrator.commands.demo:demo", "Run a lab of virtual phones, once."),
        "up": ("orchestrator.commands.up:up", "Run a lab on this host."),
        "down": ("orchestrator.commands.up:down", "Stop the lab on this host."),
        "status": ("orchestrator.commands.status:status", "Show the state of the lab."),
        "watch": ("orchestrator.commands.watch:watch", "Follow the lab, or one sweep, live."),
        "doctor": ("orchestrator.commands.doctor:doctor", "Check the requirements of a lab."),
        "logs": ("orchestrator.commands.logs:logs", "Show the logs of services and trials."),
    },
    "Measure": {
        "sweep": ("orchestrator.commands.sweep:sweep", "Plan, submit, show and control sweeps."),
        "trial": ("orchestrator.commands.trial:trial", "List and show trials."),
        "workload": ("orchestrator.commands.workload:workload", "List, size and add workloads."),
        "study": ("orchestrator.commands.study:study", "Reproduce published studies."),
    },
    "Results": {
        "compare": (
            "orchestrator.commands.compare:compare",
            "Compare two sides, or all sweeps over time.",
        ),
        "report": ("orchestrator.commands.report:report", "Write the report page of a sweep."),
        "export": ("orchestrator.commands.export:export", "Write a sweep's results to a file."),
        "import": ("orchestrator.commands.bundle:import_", "Import a published bundle."),
        "select": ("orchestrator.commands.select:select", "Choose phones for federated training."),
    },
    "Lab": {
        "phone": ("orchestrator.commands.phone:phone", "List, check, tag and reserve phones."),
        "host": ("orchestrator.commands.hosts:host", "List, add, drain and revoke hosts."),
        "lab": ("orchestrator.commands.lab:lab", "Set up a lab: settings, access, notices."),
        "store": (
            "orchestrator.commands.maintenance:store",
            "Back up, restore, migrate and prune.",
        ),
        "service": ("orchestrator.commands.service:service", "Run one service or agent."),
    },
    "Tools": {
        "virtual": ("agent.virtual.cli:virtual", "Run virtual phones."),
        "kernels": ("orchestrator.commands.kernels:kernels", "Check, time, tune OpenCL kernels."),
        "help": ("orchestrator.commands.help_topics:topics", "Explain files, metrics, completion."),
    },
}
# Tools for developers of the farm: they work in a checkout, and the help does not list them.
DEVELOP = {
    "test": "orchestrator.commands.dev:test",
    "check": "orchestrator.commands.dev:check",
    "docs": "orchestrator.commands.dev:docs",
}
TROUBLE, INVALID_FILE = 4, 3  # exit codes
COMMANDS = {name: entry for group in GROUPS.values() for name, entry in group.items()}
# groups that have commands in another package as well
EXTENSIONS = {
    "service": "agent.cli:service",
    "host": "agent.join_cli:host",
    "phone": "agent.try_cli:phone",
}


class _LazyGroup(click.Group):
    """A group whose commands are imported only when they are called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name in DEVELOP:
            return _load(DEVELOP[name])
        if name not in COMMANDS:
            return None
        command = _load(COMMANDS[name][0])
        if name in EXTENSIONS and isinstance(command, click.Group):
            extension = _load(EXTENSIONS[name])
            assert isinstance(extension, click.Group)
            for verb, other in extension.commands.items():
                command.add_command(other, verb)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        _refuse_old_name(args)
        try:
            return super().resolve_command(ctx, args)
        except NoSuchCommand as error:  # click suggests only loaded commands
            raise NoSuchCommand(error.command_name, possibilities=COMMANDS, ctx=ctx) from None

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands only: with the options, the help would not fit on one screen."""
        self.format_commands(ctx, formatter)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        width = max(map(len, COMMANDS))  # the same in every group
        for title, commands in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl(
                    [(f"{name:<{width}}", summary) for name, (_, summary) in commands.items()]
                )


def _refuse_old_name(args: list[str]) -> None:
    """Say the new name of a command that had another one; no old name is a command of today."""
    from orchestrator.commands.old_names import NEW_NAMES

    for count in (3, 2, 1):
        new = NEW_NAMES.get(" ".join(args[:count])) if len(args) >= count else None
        if new:
            raise click.UsageError(f"'farm {' '.join(args[:count])}' is now 'farm {new}'.")


def _load(path: str) -> click.Command:
    module, attribute = path.split(":")
    command: click.Command = getattr(importlib.import_module(module), attribute)
    _name_commands_as_typed(command)
    return command


def _name_commands_as_typed(command: click.Command) -> None:
    """Let the help of a command, and of all below it, name commands as the reader types them."""
    command.help = as_typed(command.help or "") or None
    for option in command.params:
        if isinstance(option, click.Option):
            option.help = as_typed(option.help or "") or None
    for inner in command.commands.values() if isinstance(command, click.Group) else ():
        _name_commands_as_typed(inner)


@click.command(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="farmhand", prog_name="farm")
def farm() -> None:
    """Farmhand measures DNN training on a lab of phones. Start with 'farm demo'.

    'farm COMMAND --help' explains a command, 'farm help exit-codes' the exit codes.
    """


def main() -> NoReturn:
    """Run the command line; print every error as one sentence, never as a traceback."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # its encoding may lack a character
            stream.reconfigure(errors="replace")
    try:
        farm.help = as_typed(farm.help or "")
        code = farm.main(prog_name=command_name(), standalone_mode=False)
    except SystemExit as ended:
        # Our commands return their codes; click raises 1 when the reader of a pipe has closed it.
        sys.exit(0 if ended.code == 1 else ended.code)
    except click.ClickException as error:
        shown = io.StringIO()
        error.show(shown)
        say(shown.getvalue().rstrip("\n"), err=True)
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        click.echo("interrupted", err=True)
        sys.exit(130)
    except Exception as error:  # noqa: BLE001 - the user sees one sentence
        sys.exit(_explain(error))
    _finish_output()
    sys.exit(code if isinstance(code, int) else 0)


def _finish_output() -> None:
    """Write what is still buffered; a full disk is an error, a closed pipe is none."""
    try:
        sys.stdout.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):
            sys.exit(_explain(error))


def _explain(error: Exception) -> int:
    """Print what went wrong in one sentence, and return the exit code."""
    import tempfile
    import traceback

    from workloads.protocol.faults import FarmError
    from workloads.text import safe_text

    if isinstance(error, FarmError):
        from orchestrator.commands.exit_codes import exit_code

        click.echo(f"farm: {as_typed(safe_text(error, limit=2000, lines=True))}", err=True)
        return exit_code(error)
    if isinstance(error, OSError) and error.strerror:
        place = f": {safe_text(error.filename)}" if error.filename else ""
        click.echo(f"farm: {error.strerror.lower()}{place}", err=True)
        return TROUBLE
    if isinstance(error, RecursionError):
        click.echo("farm: the input is nested too deeply; simplify it", err=True)
        return INVALID_FILE
    with tempfile.NamedTemporaryFile("w", prefix="farm-bug-", suffix=".txt", delete=False) as file:
        traceback.print_exception(error, file=file)
    text = safe_text(error, limit=300)
    click.echo(f"farm: this is a bug: {type(error).__name__}: {text} (see {file.name})", err=True)
    return 1
