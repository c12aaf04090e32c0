"""The dead-man: the runner's `guard`, which puts the phone back when the agent falls silent."""

import time

from agent.phone.nodes import first_number
from agent.phone.phone import HOME, UPTIME, Command, Phone
from workloads.fault import PhoneTrouble, ShellFailed
from workloads.text import safe_text

LANE_DIR = f"{HOME}/lane"
SILENCE_S = 60.0  # of host time; the phone counts it on its own clock
_FILES = (
    "restore",
    "restored",
    "settings",
    "alive",
    "plan",
    "nodes",
    "out.jsonl",
    "readings.jsonl",
    "err",
    "said",
    "complained",
)


def lane_file(name: str) -> str:
    """A file of the lane on the phone."""
    return f"{LANE_DIR}/{name}"


def prepare_lane_dir(phone: Phone) -> None:
    """Leave the lane's folder with an empty list of changes and a sign of life, nothing else."""
    steps = [
        Command(["mkdir", "-p", LANE_DIR]),
        Command(["rm", "-f", *(lane_file(name) for name in _FILES)]),
        Command(["cat", UPTIME], into=lane_file("alive")),
        Command(["true"], into=lane_file("restore")),
    ]
    for answer in phone.batch(steps):
        if answer.status != 0:
            raise ShellFailed(f"{LANE_DIR} cannot be prepared: {safe_text(answer.text)}")


class Guard:
    """The dead-man of one run. Started before anything is changed; fed while the lane lives."""

    def __init__(self, phone: Phone, runner: str, silence_s: float = SILENCE_S) -> None:
        self._phone = phone
        self._runner = runner
        self._silence_s = silence_s
        self._fed_at = time.monotonic()
        self._pid: int | None = None

    def start(self) -> None:
        """Start it detached; it ends by itself when the list of changes is gone."""
        silence = max(1, round(self._silence_s * max(1.0, self._phone.clock.value)))
        words = ["setsid", self._runner, "guard", LANE_DIR, "--silence-s", str(silence)]
        started = self._phone.batch([Command(words, into="/dev/null", detached=True)])[0]
        self._pid = first_number(started.text)

    def check(self) -> None:
        """Fail when the dead-man is not there: without it nothing may be changed."""
        if self._pid is None or self._phone.shell(["kill", "-0", str(self._pid)]).status != 0:
            raise PhoneTrouble("The phone's dead-man did not stay; nothing was changed.")

    def feed(self) -> None:
        """Show life, as often as needed and no more."""
        if time.monotonic() - self._fed_at >= self._silence_s / 4:
            self._phone.batch([Command(["cat", UPTIME], into=lane_file("alive"))])
            self._fed_at = time.monotonic()
