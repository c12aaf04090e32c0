"""`farm logs`: the logs of the services on this host, and what they say about a trial."""

import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from orchestrator.commands.common import connect, lab_option, read_lab
from workloads.cli_options import value_option
from workloads.protocol.faults import InvalidRequest
from workloads.text import safe_text

POLL_INTERVAL_S = 0.25
TAIL_BYTES = 1 << 20  # of each file, of which the last lines are shown
LINE_MAX = 2000
TRIAL_PREFIX = "tr-"


@click.command()
@click.argument("name", metavar="[SERVICE|TRIAL]", default="")
@click.option("-f", "--follow", is_flag=True, help="Print new lines until Ctrl-C.")
@value_option(
    "-n",
    "--lines",
    type=click.IntRange(0, 100_000),
    default=50,
    help="Number of last lines of each file.",
)
@lab_option
def logs(name: str, follow: bool, lines: int, lab_folder: Path) -> None:
    """Print the logs of all services on this host, of one SERVICE, or about a TRIAL.

    Services are broker, scheduler, ingest, api, agent and up. For a trial, the stages of
    its attempts are printed first.

    \b
    Examples:
      farm logs scheduler -f
      farm logs tr-7e318dc5
    """
    is_trial = name.startswith(TRIAL_PREFIX)
    if is_trial:
        from orchestrator.commands.trial import print_attempts

        print_attempts(connect(lab_folder), name)
    lab = read_lab(lab_folder)
    files = find_logs(lab.log_file("any").parent, "" if is_trial else name)
    if not files and is_trial:
        return
    if not files:
        raise InvalidRequest(f"there is no log in {lab.root}; start the lab with: farm up")
    tails = [LogTail(file, lines) for file in files]
    wanted = name if is_trial else ""
    while True:
        for tail in tails:
            prefix = f"{tail.file.stem}: " if len(tails) > 1 else ""
            for line in tail.read():
                if wanted in line:
                    click.echo(f"{prefix}{safe_text(line, LINE_MAX)}")
        if not follow:
            return
        time.sleep(POLL_INTERVAL_S)


def find_logs(folder: Path, service: str) -> Sequence[Path]:
    """Return the log files of a lab, or those of a service: `agent` is every agent."""
    files = sorted(folder.glob("*.log")) if folder.is_dir() else []
    if not service or not files:
        return files
    chosen = [file for file in files if file.stem == service]
    chosen = chosen or [file for file in files if file.stem.startswith(f"{service}-")]
    if not chosen:
        known = ", ".join(file.stem for file in files)
        raise InvalidRequest(f"there is no log of '{safe_text(service, 60)}'; choose from {known}")
    return chosen


class LogTail:
    """The last lines of a file, and then those that are added; also after it was replaced."""

    def __init__(self, file: Path, lines: int) -> None:
        self.file = file
        self._lines: int | None = lines
        self._inode = self._offset = 0
        self._rest = b""

    def read(self) -> Iterator[str]:
        """Yield the complete lines since the last call; at first, the last lines."""
        try:
            with self.file.open("rb") as stream:
                status = self.file.stat()
                if status.st_ino != self._inode or status.st_size < self._offset:
                    self._inode, self._offset, self._rest = status.st_ino, 0, b""
                if self._lines is not None:
                    self._offset = max(0, status.st_size - TAIL_BYTES)
                stream.seek(self._offset)
                content = stream.read(TAIL_BYTES)
        except FileNotFoundError:
            return
        self._offset += len(content)
        *lines, self._rest = (self._rest + content).split(b"\n")
        if self._lines is not None:
            lines = lines[-self._lines :] if self._lines else []
            self._lines = None
        yield from (line.decode(errors="replace") for line in lines)
