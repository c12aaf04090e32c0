"""The on-phone watchdog: `runner watchdog` restores the phone when the agent's heartbeat stops.

This is the dead-man's switch of a lane. It also ends a run that exceeds the temperature limits
below, whatever the vendor's own trip points are.
"""

import time

from agent.phone.kernel_nodes import first_number
from agent.phone.phone_driver import Phone
from agent.phone.phone_paths import (
    CHANGED_NODES,
    CHANGED_SETTINGS,
    HEARTBEAT,
    HEARTBEAT_TIMEOUT,
    LANE_DIR,
    NODE_LIST,
    OUTPUT,
    PROGRAM_STDERR,
    PROGRAM_STDOUT,
    RAIL_LOG,
    READINGS,
    RESTORED_MARK,
    RUNNER_STDERR,
    TEMP_LIMITS,
    UPTIME,
    lane_file,
)
from agent.phone.phone_waits import HEARTBEAT_COMMAND
from agent.phone.shell_command import ShellCommand
from agent.phone.thermal_zones import ZonePlace, zone_place
from agent.phone.thermalservice import is_thermalservice
from agent.restore.fence import fenced_command, raise_if_overtaken
from workloads.protocol.faults import PhoneTrouble, ShellFailed
from workloads.protocol.phone_facts import PhoneFacts
from workloads.text import safe_text

# Above these a run is stopped to protect silicon, glass that is touched, and the lithium cell.
CPU_LIMIT_C, SKIN_LIMIT_C, BATTERY_LIMIT_C = 102.0, 58.0, 52.0  # guard: temp-limits
# The plan stays: it is pushed again only if the next run needs another one.
_FILES_OF_A_RUN = (
    *(CHANGED_NODES, RESTORED_MARK, CHANGED_SETTINGS, TEMP_LIMITS, HEARTBEAT_TIMEOUT, HEARTBEAT),
    *(NODE_LIST, OUTPUT, READINGS, RAIL_LOG, RUNNER_STDERR, PROGRAM_STDOUT, PROGRAM_STDERR),
)


def _reset_lane_commands(facts: PhoneFacts, timeout_s: int) -> list[ShellCommand]:
    """Commands that leave the lane's folder with an empty list of changes and a heartbeat."""
    limits = ["printf", "%s\\n", *temp_limit_lines(facts)]
    return [
        ShellCommand(["mkdir", "-p", LANE_DIR]),
        ShellCommand(["rm", "-f", *(lane_file(name) for name in _FILES_OF_A_RUN)]),
        HEARTBEAT_COMMAND,
        ShellCommand(limits, into=lane_file(TEMP_LIMITS)),
        ShellCommand(["echo", str(timeout_s)], into=lane_file(HEARTBEAT_TIMEOUT)),
        ShellCommand(["true"], into=lane_file(CHANGED_NODES)),
    ]


def temp_limit_lines(facts: PhoneFacts) -> list[str]:
    """One line per thermal zone that has a limit: its path, and the limit in its own unit."""
    zones = {zone.path: zone for zone in (*facts.zones, *facts.cpu_zones)}
    if facts.body_zone is not None:
        zones[facts.body_zone.path] = facts.body_zone
    cpu_paths = {zone.path for zone in facts.cpu_zones}
    lines = []
    for path, zone in zones.items():
        limit_c = CPU_LIMIT_C if path in cpu_paths else _body_limit_c(zone.type)
        if limit_c is not None and not is_thermalservice(path):
            lines.append(f"{path}\t{round(limit_c / zone.scale)}")
    return lines


def _body_limit_c(zone_type: str) -> float | None:
    """The limit of skin and battery; chargers, modems and amplifiers may be hotter."""
    return {ZonePlace.BATTERY: BATTERY_LIMIT_C, ZonePlace.SKIN: SKIN_LIMIT_C}.get(
        zone_place(zone_type) or ZonePlace.DIE
    )


def heartbeat_timed_out(phone: Phone) -> bool:
    """Whether the watchdog acted because of a missing heartbeat; otherwise it was too hot."""
    paths = (UPTIME, lane_file(HEARTBEAT), lane_file(HEARTBEAT_TIMEOUT))
    nodes = phone.read_nodes(paths)
    now, heartbeat, timeout_s = (first_number(nodes.get(path, "")) for path in paths)
    if now is None or heartbeat is None or timeout_s is None:
        return True
    return now - heartbeat >= timeout_s


class Watchdog:
    """The watchdog of one lane. It is started before anything is changed."""

    def __init__(
        self, phone: Phone, runner: str, fence: int, timeout_s: float | None = None
    ) -> None:
        self._phone = phone
        self._runner = runner
        self._fence = fence
        self._timeout_s = phone.timeouts.watchdog_timeout_s if timeout_s is None else timeout_s
        self._heartbeat_at = time.monotonic()
        self._pid: int | None = None

    def start(self) -> None:
        """Start it detached in a clean lane; it exits when the list of changes is deleted."""
        timeout_s = max(1, round(self._timeout_s))
        words = ["setsid", self._runner, "watchdog", LANE_DIR]
        words += ["--timeout-s", str(timeout_s)]  # guard: watchdog-timeout
        watchdog = ShellCommand(words, into="/dev/null", detached=True)
        # That of an earlier lane ends within a second, and would take our list for its own.
        kill = ShellCommand(["pkill", "-f", f"watchdog {LANE_DIR}"])
        reset = _reset_lane_commands(self._phone.facts, timeout_s)
        _, *prepared, started = self._phone.shell_batch([kill, *reset, watchdog])
        for result in prepared:
            if result.status != 0:
                raise ShellFailed(f"{LANE_DIR} cannot be prepared: {safe_text(result.text)}")
        self._pid = first_number(started.text)

    def check(self) -> None:
        """Fail if another lane holds the phone, or the watchdog does not run.

        Without both nothing may be changed or started.
        """
        alive = fenced_command(self._fence, ["kill", "-0", str(self._pid)])
        result = self._phone.shell_batch([alive])[0]
        raise_if_overtaken(result, self._fence)
        if self._pid is None or result.status != 0:  # guard: no-change-without-watchdog
            raise PhoneTrouble("the on-phone watchdog is not running; no setting was changed")

    def send_heartbeat(self) -> None:
        """Renew the heartbeat, at most four times per timeout."""
        if time.monotonic() - self._heartbeat_at >= self._timeout_s / 4:
            self._phone.shell_batch([HEARTBEAT_COMMAND])
            self._heartbeat_at = time.monotonic()
