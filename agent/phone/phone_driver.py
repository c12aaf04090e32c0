"""Phone: shell commands, kernel nodes and files of one phone; the rest of the agent uses only this.

It also carries what is known about the phone: the facts of its probe, its clock, how it cools, and
the memory that survives the agent.
"""

import math
import re
import secrets
import shlex
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from hashlib import sha1, sha256
from pathlib import PurePosixPath

from agent.deadline import Deadline
from agent.phone.battery_wear import GAP_MAX_S, with_hours
from agent.phone.canary_reference import CanaryReference
from agent.phone.phone_memory import CoolingHistory, PhoneMemory, RestTemps
from agent.phone.phone_paths import BOOT_ID, UPTIME
from agent.phone.shell_command import (
    ShellCommand,
    ShellResult,
    parse_complete_nodes,
    read_nodes_command,
)
from agent.phone.shell_link import MIB, ShellLink, ShellReply
from agent.timeouts import DEFAULT_TIMEOUTS, Timeouts
from workloads.protocol.faults import PhoneTrouble, ShellFailed
from workloads.protocol.phone_facts import Commission, FuelGauge, PhoneFacts
from workloads.text import safe_text

UPTIME_MAX_S = 1e10
WORK_RUNS_KEPT = 12
_PATTERN = re.compile(r"/(sys|proc|dev/cpuset)/[A-Za-z0-9_./*-]+")
_DAMAGED = 76
SHA256_TOOL, SHA1_TOOL = "sha256sum", "sha1sum"  # Android 6 and 7 have only the second one
# A pushed part file gets its final name only if it arrived complete.
_ADOPT_PART = (
    'sum=$("$5" "$0") || exit 1; [ "${sum%% *}" = "$4" ] || exit ' + str(_DAMAGED) + "; "
    'mkdir -p "$2" && chmod "$3" "$0" && mv -f "$0" "$1"'
)


class Phone:
    """One phone behind adb. Calls from several threads take turns."""

    def __init__(self, link: ShellLink, timeouts: Timeouts = DEFAULT_TIMEOUTS) -> None:
        self.link = link
        self.timeouts = timeouts
        self.cooling = CoolingHistory()
        self.digest_tool = SHA256_TOOL
        # (uptime, power nodes) at each snapshot while the phone waited for the present run
        self.idle_samples: list[tuple[float, dict[str, str]]] = []
        self._facts: PhoneFacts | None = None
        self._memory = PhoneMemory()
        self._battery_seen_s: float | None = None
        self._boot_nodes: tuple[str, dict[str, str]] | None = None

    @property
    def address(self) -> str:
        """How adb reaches the phone; never its identity."""
        return self.link.address

    @property
    def clock_s(self) -> float | None:
        """The phone's own clock at the end of the last exchange; None before the first one."""
        return self.link.clock_s

    @property
    def is_probed(self) -> bool:
        """Whether its facts are known."""
        return self._facts is not None

    @property
    def facts(self) -> PhoneFacts:
        """What the probe found out; the phone has to be probed before."""
        assert self._facts is not None, f"{self.address} was not probed"
        return self._facts

    @facts.setter
    def facts(self, facts: PhoneFacts) -> None:
        self._facts = facts

    @property
    def memory(self) -> PhoneMemory:
        """Everything about this phone that survives the agent."""
        return self._memory.model_copy(update={"cooling": self.cooling.posterior})

    @memory.setter
    def memory(self, memory: PhoneMemory) -> None:
        self._memory = memory
        self.cooling.posterior = memory.cooling
        self._show_battery_hours()

    def remember_power(self, gauge: FuelGauge | None, idle_w: float | None, meter: str) -> None:
        """Keep the calibration of the fuel gauge, and the idle power with its meter."""
        changes = {"gauge": gauge, "idle_w": idle_w, "idle_meter": meter}
        self._memory = self._memory.model_copy(update=changes)
        self.facts = self.facts.model_copy(update={"gauge": gauge})

    def remember_rest(self, rest: RestTemps) -> None:
        """Keep the temperatures at rest. What was seen in passing yields to what is cooler."""
        known = self._memory.rest
        if known is not None and not rest.waited:
            known_c, now_c = (each.hottest_c or each.battery_c for each in (known, rest))
            if known.waited or (known_c is not None and now_c is not None and now_c >= known_c):
                return
        self._memory = self._memory.model_copy(update={"rest": rest})

    def remember_canary(self, key: str, reference: CanaryReference) -> None:
        """Keep how long a canary takes with these cores and clocks."""
        references = {**self._memory.canaries, key: reference}
        self._memory = self._memory.model_copy(update={"canaries": references})

    def forget_new_canaries(self, known: Collection[str]) -> None:
        """Forget what was learned since only these references were known."""
        canaries = self._memory.canaries
        kept = {key: reference for key, reference in canaries.items() if key in known}
        self._memory = self._memory.model_copy(update={"canaries": kept})

    def remember_commission(self, commission: Commission) -> None:
        """Keep when the phone was commissioned, and with which canaries."""
        self._memory = self._memory.model_copy(update={"commission": commission})
        self.facts = self.facts.model_copy(update={"commission": commission})

    def watch_battery(self, t_s: float, level_pct: int) -> None:
        """Count the time since the last reading of the battery; long gaps were not watched."""
        seen_s, self._battery_seen_s = self._battery_seen_s, t_s
        if self._memory.battery.since is None:
            since = {"since": datetime.now(UTC).date()}
            battery = self._memory.battery.model_copy(update=since)
            self._memory = self._memory.model_copy(update={"battery": battery})
            self._show_battery_hours()
        if seen_s is None or not 0 <= t_s - seen_s <= GAP_MAX_S:
            return
        hours = self._memory.battery.after(t_s - seen_s, level_pct)
        self._memory = self._memory.model_copy(update={"battery": hours})
        self._show_battery_hours()

    def _show_battery_hours(self) -> None:
        if self._facts is not None and self._facts.battery is not None:
            battery = with_hours(self._facts.battery, self._memory.battery)
            if battery != self._facts.battery:
                self._facts = self._facts.model_copy(update={"battery": battery})

    def remember_limits(self, limits_khz: Mapping[int, tuple[int, int]]) -> None:
        """Keep the highest limits of the CPU clocks that this phone has shown."""
        known = self._memory.limits_khz
        highest = {
            policy: max(high, known.get(policy, 0)) for policy, (_, high) in limits_khz.items()
        }
        self._memory = self._memory.model_copy(update={"limits_khz": {**known, **highest}})

    def remember_unrest(self, clocks: str, unrest: float | None) -> None:
        """Keep how much the steps of the last runs changed, by held and free clocks."""
        if unrest is not None:
            known = self._memory.unrest
            recent = (*known.get(clocks, ()), unrest)[-WORK_RUNS_KEPT:]
            self._memory = self._memory.model_copy(update={"unrest": {**known, clocks: recent}})

    def remember_core_flops(self, core_flops: float) -> None:
        """Keep the most that a core has computed per second: evidence of what is possible."""
        if core_flops > (self._memory.core_flops or 0.0):
            self._memory = self._memory.model_copy(update={"core_flops": core_flops})

    def remember_temp_step(self, step_c: float | None) -> None:
        """Keep the smallest change that the CPU thermometer has shown."""
        if step_c is not None and step_c < (self._memory.temp_step_c or math.inf):
            self._memory = self._memory.model_copy(update={"temp_step_c": step_c})

    def shell(self, words: Sequence[str], deadline: Deadline | None = None) -> ShellResult:
        """Run one command."""
        return self.shell_batch([ShellCommand(words)], deadline)[0]

    def shell_checked(self, words: Sequence[str], deadline: Deadline | None = None) -> str:
        """Run one command that has to succeed, and return its output."""
        result = self.shell(words, deadline)
        if result.status != 0:
            output = safe_text(result.text) or f"status {result.status}"
            raise ShellFailed(f"{self.address}: `{safe_text(shlex.join(words), 80)}`: {output}")
        return result.text

    def shell_batch(
        self, commands: Sequence[ShellCommand], deadline: Deadline | None = None
    ) -> list[ShellResult]:
        """Run commands one after the other in one round trip."""
        replies = self.shell_batch_raw(commands, deadline)
        return [
            ShellResult(reply.status, reply.output.decode(errors="replace")) for reply in replies
        ]

    def shell_batch_raw(
        self, commands: Sequence[ShellCommand], deadline: Deadline | None = None, limit: int = MIB
    ) -> tuple[ShellReply, ...]:
        """Run commands in one round trip, and return their output as bytes.

        Without a deadline every command has its own: on slow phones each call of Android's
        framework takes seconds.
        """
        lines = [command.line() for command in commands]
        each_s = None if deadline else self.timeouts.command_timeout_s
        return self.link.exchange(lines, deadline or self._command_deadline(), limit, each_s)

    def sleep(self, seconds: float) -> None:
        """Wait a moment, by the phone's clock."""
        self.shell(["sleep", f"{seconds:g}"])

    def read_nodes(self, paths: Iterable[str], deadline: Deadline | None = None) -> dict[str, str]:
        """Read kernel nodes in one round trip; nodes that cannot be read are left out."""
        wanted = list(paths)
        output = self.shell_batch([read_nodes_command(wanted)], deadline)[0].text
        nodes = parse_complete_nodes(output)
        return {path: nodes[path] for path in wanted if path in nodes}

    def find_nodes(
        self, patterns: Iterable[str], deadline: Deadline | None = None
    ) -> dict[str, str]:
        """Read every kernel node whose path matches a pattern with stars, in one round trip."""
        wanted = dict.fromkeys(patterns)  # a pattern that is given twice would print twice
        for pattern in wanted:
            if _PATTERN.fullmatch(pattern) is None:
                raise PhoneTrouble(f"'{safe_text(pattern)}' is not a pattern of kernel nodes")
        line = f'grep -s "" /dev/null {" ".join(wanted)} {UPTIME} </dev/null'
        reply = self.link.exchange([line], deadline or self._command_deadline())[0]
        nodes = parse_complete_nodes(reply.output.decode(errors="replace"))
        del nodes[UPTIME]
        return nodes

    def find_boot_nodes(self, patterns: Iterable[str], boot_id: str) -> dict[str, str]:
        """Find nodes that the kernel creates at boot and never changes: read once per boot."""
        if self._boot_nodes is None or self._boot_nodes[0] != boot_id:
            self._boot_nodes = (boot_id, self.find_nodes(patterns))
        return self._boot_nodes[1]

    def push(
        self, content: bytes, path: str, mode: int = 0o644, deadline: Deadline | None = None
    ) -> None:
        """Put a file on the phone: complete and checked under its name, or not at all."""
        deadline = deadline or Deadline.after(self.timeouts.transfer_timeout_s)
        # adb writes as its own user, so the part goes where that user may write; root moves it.
        part = f"/data/local/tmp/farmhand-{secrets.token_hex(4)}.part"
        self.link.send_file(content, part, mode, deadline)
        folder, digest = str(PurePosixPath(path).parent), self._digest_of(content)
        words = ["sh", "-c", _ADOPT_PART, part, path, folder, f"{mode:o}", digest]
        words.append(self.digest_tool)
        commands = [ShellCommand(words), ShellCommand(["rm", "-f", part])]
        adopted, _ = self.shell_batch(commands, deadline)
        if adopted.status == _DAMAGED:
            raise PhoneTrouble(f"{path} arrived damaged on {self.address}")
        if adopted.status != 0:
            raise ShellFailed(f"{path} on {self.address}: {safe_text(adopted.text)}")

    def find_digest_tool(self, deadline: Deadline | None = None) -> None:
        """Find out with which command this phone computes the digests of its files."""
        for tool in (SHA256_TOOL, SHA1_TOOL):
            if self.shell([tool, "/dev/null"], deadline).status == 0:
                self.digest_tool = tool
                return
        raise ShellFailed(
            f"{self.address} has neither {SHA256_TOOL} nor {SHA1_TOOL}; it needs Android 6 or newer"
        )

    def digest_command(self, *paths: str) -> ShellCommand:
        """The command that prints one line per file with the file's digest."""
        return ShellCommand([self.digest_tool, *paths])

    def has_printed_digest(
        self, result: ShellResult, sha256_digest: str, content: Callable[[], bytes]
    ) -> bool:
        """Whether digest_command found this content; `content` is read only for older phones."""
        is_sha256 = self.digest_tool == SHA256_TOOL
        digest = sha256_digest if is_sha256 else self._digest_of(content())
        return digest in {line.split(" ")[0] for line in result.text.splitlines()}

    def _digest_of(self, content: bytes) -> str:
        if self.digest_tool == SHA256_TOOL:
            return sha256(content).hexdigest()
        return sha1(content, usedforsecurity=False).hexdigest()  # against damage, not attacks

    def pull(self, path: str, limit: int) -> bytes:
        """Fetch a file of at most that many bytes."""
        deadline = Deadline.after(self.timeouts.transfer_timeout_s)
        reply = self.shell_batch_raw([ShellCommand(["cat", path])], deadline, limit)[0]
        if reply.status != 0:
            output = safe_text(reply.output[:400].decode(errors="replace"))
            raise ShellFailed(f"{path} cannot be fetched from {self.address}: {output}")
        return reply.output

    def uptime_s(self, deadline: Deadline | None = None) -> float:
        """Read the phone's own clock, the time axis of everything physical."""
        return self.parse_uptime(self.read_nodes([UPTIME], deadline).get(UPTIME, ""))

    def parse_uptime(self, text: str) -> float:
        """Parse the text of /proc/uptime, which came with other nodes."""
        try:
            uptime = float(text.split(maxsplit=1)[0])
        except (IndexError, ValueError):
            uptime = -1.0
        if not 0 <= uptime < UPTIME_MAX_S:  # nan and inf fail this too
            raise PhoneTrouble(f"{self.address} gives no valid uptime")
        return uptime

    def boot_id(self, deadline: Deadline | None = None) -> str:
        """Read the id of the present boot: it changes exactly when the phone restarts."""
        return safe_text(self.read_nodes([BOOT_ID], deadline).get(BOOT_ID, ""), 64)

    def move_to(self, address: str) -> None:
        """Reach the phone by another address, with the next command."""
        if address != self.link.address:
            self.link.close()
            self.link.address = address

    def close(self) -> None:
        """Close the link; the next command opens it again."""
        self.link.close()

    def _command_deadline(self) -> Deadline:
        return Deadline.after(self.timeouts.command_timeout_s)
