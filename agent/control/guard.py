"""The dead-man: the runner's `guard`, which puts the phone back when the agent falls silent.

It also ends a run that gets hotter than any phone should, whatever the vendor's own trips say.
"""

import time

from agent.control.fence import fenced, refuse_newer
from agent.phone.framework import is_framework
from agent.phone.nodes import first_number
from agent.phone.phone import HOME, UPTIME, Command, Phone
from workloads.fault import PhoneTrouble, ShellFailed
from workloads.phone import PhoneFacts
from workloads.text import safe_text

LANE_DIR = f"{HOME}/lane"
SILENCE_S = 60.0  # of host time; the phone counts it on its own clock
# Above these nothing is measured, it is saved: silicon, glass that is touched, a lithium cell.
CPU_CEILING_C, SKIN_CEILING_C, BATTERY_CEILING_C = 102.0, 58.0, 52.0
_FILES = (
    "restore",
    "restored",
    "settings",
    "ceiling",
    "silence",
    "alive",
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


def _fresh_lane(facts: PhoneFacts, silence: int) -> list[Command]:
    """Leave the lane's folder with an empty list of changes and a sign of life.

    The plan of the run before may stay: it is pushed again only if another one is asked for.
    """
    return [
        Command(["mkdir", "-p", LANE_DIR]),
        Command(["rm", "-f", *(lane_file(name) for name in _FILES)]),
        Command(["cat", UPTIME], into=lane_file("alive")),
        Command(["printf", "%s\\n", *ceiling_lines(facts)], into=lane_file("ceiling")),
        Command(["echo", str(silence)], into=lane_file("silence")),
        Command(["true"], into=lane_file("restore")),
    ]


def ceiling_lines(facts: PhoneFacts) -> list[str]:
    """The nodes that may not rise above a limit, each in its own unit."""
    zones = {zone.path: zone for zone in (*facts.zones, *facts.cpu_zones)}
    if facts.slow_zone is not None:
        zones[facts.slow_zone.path] = facts.slow_zone
    cpu = {zone.path for zone in facts.cpu_zones}
    lines = []
    for path, zone in zones.items():
        limit_c = CPU_CEILING_C if path in cpu else _body_ceiling_c(zone.type)
        if limit_c is not None and not is_framework(path):
            lines.append(f"{path}\t{round(limit_c / zone.scale)}")
    return lines


def _body_ceiling_c(kind: str) -> float | None:
    """Chargers, modems and amplifiers may be hotter than skin and cell; they are not ours."""
    name = kind.lower()
    if name in {"battery", "batt", "batt_therm", "battery_therm"}:
        return BATTERY_CEILING_C
    return SKIN_CEILING_C if "skin" in name else None


def was_silent(phone: Phone) -> bool:
    """Whether the dead-man acted because nobody fed it; else it was the heat."""
    paths = (UPTIME, lane_file("alive"), lane_file("silence"))
    nodes = phone.read_nodes(paths)
    now, fed, silence = (first_number(nodes.get(path, "")) for path in paths)
    return now is None or fed is None or silence is None or now - fed >= silence


class Guard:
    """The dead-man of one run. Started before anything is changed; fed while the lane lives."""

    def __init__(self, phone: Phone, runner: str, fence: int, silence_s: float = SILENCE_S) -> None:
        self._phone = phone
        self._runner = runner
        self._fence = fence
        self._silence_s = silence_s
        self._fed_at = time.monotonic()
        self._pid: int | None = None

    def start(self) -> None:
        """Start it detached in a fresh lane; it ends by itself when the list of changes is gone."""
        silence = max(1, round(self._silence_s * max(1.0, self._phone.clock.value)))
        words = ["setsid", self._runner, "guard", LANE_DIR, "--silence-s", str(silence)]
        guard = Command(words, into="/dev/null", detached=True)
        *prepared, started = self._phone.batch([*_fresh_lane(self._phone.known, silence), guard])
        for answer in prepared:
            if answer.status != 0:
                raise ShellFailed(f"{LANE_DIR} cannot be prepared: {safe_text(answer.text)}")
        self._pid = first_number(started.text)

    def check(self) -> None:
        """Fail when the phone is another's by now, or the dead-man is not there.

        Without both nothing may be changed or started.
        """
        answer = self._phone.batch([fenced(self._fence, ["kill", "-0", str(self._pid)])])[0]
        refuse_newer(answer, self._fence)
        if self._pid is None or answer.status != 0:
            raise PhoneTrouble("The phone's dead-man did not stay; nothing was changed.")

    def feed(self) -> None:
        """Show life, as often as needed and no more."""
        if time.monotonic() - self._fed_at >= self._silence_s / 4:
            self._phone.batch([Command(["cat", UPTIME], into=lane_file("alive"))])
            self._fed_at = time.monotonic()
