"""`farm`: the command line. One table of commands, each loaded when it is called."""

import importlib
import sys
from typing import NoReturn

import click
from click.exceptions import NoSuchCommand

# name -> (where it lives, what it does); some live in other rooms, and the two tables here are the
# only place where the middle names those.
COMMANDS: dict[str, tuple[str, str]] = {
    "demo": ("orchestrator.commands.demo:demo", "Run a whole lab of virtual phones, once."),
    "up": ("orchestrator.commands.up:up", "Run a lab on this host and keep it running."),
    "init": ("orchestrator.commands.init:init", "Make a lab folder with settings and examples."),
    "doctor": ("orchestrator.commands.doctor:doctor", "Look over everything a lab needs."),
    "sweep": ("orchestrator.commands.sweep:sweep", "Plan, submit, show and steer sweeps."),
    "watch": ("orchestrator.commands.watch:watch", "Follow the lab, or one sweep, live."),
    "status": ("orchestrator.commands.status:status", "Say how the lab is, in one screen."),
    "workload": ("orchestrator.commands.workload:workload", "List what can be run."),
    "metrics": ("orchestrator.commands.metrics:metrics", "Show every figure and its formula."),
    "phone": ("orchestrator.commands.phone:phone", "List phones, check, tag and reserve them."),
    "trial": ("orchestrator.commands.trial:trial", "Show single trials, and what became of them."),
    "compare": ("orchestrator.commands.compare:compare", "Say which side is faster, and how sure."),
    "trends": (
        "orchestrator.commands.trends:trends",
        "Say which phone has changed, and when.",
    ),
    "report": ("orchestrator.commands.report:report", "Write a page that shows what a sweep says."),
    "export": ("orchestrator.commands.export:export", "Write a sweep's figures to a file."),
    "import": ("orchestrator.commands.bundle:import_", "Read a published bundle into the lab."),
    "select": ("orchestrator.commands.select:select", "Choose phones for federated training."),
    "study": ("orchestrator.commands.study:study", "Ask again what three studies asked."),
    "audit": (
        "orchestrator.commands.sweep_control:audit",
        "List who decided what, and how to undo it.",
    ),
    "agent": (
        "orchestrator.commands.agents:agent",
        "Run the agent of a host; list and drain them.",
    ),
    "virtual": ("agent.virtual.cli:virtual", "Run virtual phones."),
    "kernels": ("orchestrator.commands.kernels:kernels", "Check, time, tune OpenCL kernels."),
    "config": ("orchestrator.commands.config:config", "Show settings and where they come from."),
    "completion": ("orchestrator.commands.completion:completion", "Set up the shell's completion."),
    "help": (
        "orchestrator.commands.help_topics:topics",
        "Explain exit codes, sweep files, selectors.",
    ),
    "service": ("orchestrator.commands.service:service", "Run one service of the middle."),
    "test": ("orchestrator.commands.dev:test", "Run the test suite."),
    "check": ("orchestrator.commands.dev:check", "Check formatting, lint and types."),
    "docs": ("orchestrator.commands.dev:docs", "Regenerate the reference pages."),
}


# groups that have commands in another room as well
BESIDE = {"agent": "agent.cli:agent"}


class _Table(click.Group):
    """A group whose commands are imported only when they are called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        command = _load(COMMANDS[name][0])
        if name in BESIDE and isinstance(command, click.Group):
            beside = _load(BESIDE[name])
            assert isinstance(beside, click.Group)
            for verb, other in beside.commands.items():
                command.add_command(other, verb)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except NoSuchCommand as error:  # click knows only what is loaded, and so suggests nothing
            raise NoSuchCommand(error.command_name, possibilities=COMMANDS, ctx=ctx) from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


def _load(place: str) -> click.Command:
    module, attribute = place.split(":")
    command: click.Command = getattr(importlib.import_module(module), attribute)
    return command


@click.command(cls=_Table, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="farmhand", prog_name="farm")
def farm() -> None:
    """Farmhand measures DNN training on a lab of phones.

    Start with 'farm demo'. Exit codes: 0 done, 1 a bug, 2 wrong usage, 3 a file is invalid,
    4 a service cannot be reached, 5 finished with failures, 6 nothing matches, 7 refused,
    8 timed out, 9 'compare --fail-on' or 'trends --fail-on' tripped, 130 interrupted.
    """


def main() -> NoReturn:
    """Run the command line; a user's mistake or bad luck is one sentence, never a traceback."""
    try:
        code = farm.main(prog_name="farm", standalone_mode=False)
    except SystemExit as left:
        # Our codes are answered, not raised: a 1 is click's, when whoever read the pipe has left.
        sys.exit(0 if left.code == 1 else left.code)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        click.echo("interrupted", err=True)
        sys.exit(130)
    except Exception as error:  # noqa: BLE001 - the last door before the user's screen
        sys.exit(_explain(error))
    sys.exit(code if isinstance(code, int) else 0)


def _explain(error: Exception) -> int:
    """Say what went wrong in one sentence, and with which exit code to leave."""
    import tempfile
    import traceback

    from workloads.protocol.faults import FarmError
    from workloads.text import safe_text

    if isinstance(error, FarmError):
        from orchestrator.commands.exit_codes import exit_code

        click.echo(f"farm: {safe_text(error, limit=2000, lines=True)}", err=True)
        return exit_code(error)
    with tempfile.NamedTemporaryFile("w", prefix="farm-bug-", suffix=".txt", delete=False) as file:
        traceback.print_exception(error, file=file)
    text = safe_text(error, limit=300)
    click.echo(f"farm: this is a bug: {type(error).__name__}: {text} (see {file.name})", err=True)
    return 1
