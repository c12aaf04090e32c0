"""The runner on the phone: launched detached, watched by few bounded reads, ended when it must.

It outlives the link: a cable that is back within half a minute costs nothing but that.
"""

import math
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple, NoReturn

from agent.control.guard import LANE_DIR, lane_file, was_silent
from agent.deadline import Deadline
from agent.phone.link import LINK_LOST, MIB, Reply
from agent.phone.nodes import first_number
from agent.phone.phone import BOOT_ID, UPTIME, Answer, Command, Phone, reading, whole_nodes
from agent.run.activity import MEMINFO
from agent.run.fit import check_fits, was_starved
from agent.run.lines import Output, RunnerFault
from agent.run.pulse import PULSE, Pulse, feel
from workloads.catalogue import Case, lower, threads_of
from workloads.condition import Launch
from workloads.fault import (
    DiesLater,
    FarmError,
    Interrupted,
    Killed,
    NeverStarts,
    PhoneTrouble,
    Refused,
    Restarted,
    RunnerFailed,
    ShellFailed,
    TooHot,
)
from workloads.noun import digest_of_bytes
from workloads.phone import CoreSet
from workloads.text import safe_text

POLL_MIN_S, POLL_MAX_S = 0.05, 5.0
FIRST_LOOK_S = 0.05
LOOK_APART_S = 5.0  # of the phone's clock
HELLO_S = 20.0
PATIENCE_S = 30.0
CALL_S = 10.0
STOP_S = 1.0
SHORT_RUN_S = 60.0
SHORT_HZ, LONG_HZ = 10, 1
READINGS_MAX = 6000  # of one run: what a phone's small link brings in within seconds
TRACE_STEPS = 5  # their stamps are in their time, so few

_BLAME: dict[str, type[FarmError]] = {
    "unsupported": Refused,
    "no_runner": Refused,
    "stopped": Interrupted,
    "io": PhoneTrouble,
    "out_of_memory": NeverStarts,
}


class Progress(NamedTuple):
    """How far a run is: the share that has passed, host seconds left, steps, and its pulse."""

    share: float
    left_s: float
    steps: int
    pulse: Pulse


@dataclass(frozen=True)
class Ask:
    """One launch: which runner, which case, on which cores, for how long, sampling which nodes."""

    runner: str
    case: Case
    cores: CoreSet
    launch: Launch
    nodes: Sequence[str]
    data: str | None = None  # where its data file lies on the phone
    kernels: str | None = None  # where its OpenCL kernels lie
    tuned: str | None = None  # the numbers that were found for them on this phone
    sample_hz: int | None = None  # None: by the length of the run

    @property
    def threads(self) -> int:
        """As many as the workload wants: one a core, unless it says otherwise."""
        return threads_of(self.case, len(self.cores.cpus))

    @property
    def period_ms(self) -> int:
        """How often nodes are sampled: as asked, but less often where it goes on for long."""
        launch = self.launch
        usual_hz = SHORT_HZ if launch.seconds <= SHORT_RUN_S else LONG_HZ
        least_ms = 1000 * launch.max_seconds / READINGS_MAX
        return math.ceil(max(1000 / (self.sample_hz or usual_hz), least_ms))

    @property
    def limit_s(self) -> float:
        """After how many of the phone's seconds it is ended; a foreign program names its own."""
        manifest = self.case.manifest
        asked_s = self.launch.max_seconds
        return 2 * asked_s + 300 if manifest is None else max(manifest.seconds_max, asked_s)

    def command(self) -> Command:
        """The launch itself. toybox's taskset wants a bare hex mask, and applies it before exec."""
        launch = self.launch
        words = ["taskset", f"{self.cores.mask:x}", "setsid", self.runner]
        words += ["run", lane_file("plan"), LANE_DIR]
        words += ["--data", self.data] if self.data else []
        words += ["--kernels", self.kernels] if self.kernels else []
        words += ["--tuned", self.tuned] if self.tuned else []
        words += ["--warmup", str(launch.warmup), "--steps", str(launch.steps)]
        words += ["--seconds", f"{launch.seconds:g}", "--max-seconds", f"{launch.max_seconds:g}"]
        words += ["--window-ms", str(launch.window_ms), "--period-ms", str(self.period_ms)]
        words += ["--trace-steps", str(TRACE_STEPS)]
        return Command(words, into=lane_file("err"), detached=True)


def write_plan(phone: Phone, ask: Ask, dare: bool = False) -> None:
    """Put the plan and the list of sampled nodes on the phone; who dares, tries what won't fit."""
    plan = _plan_of(ask.case.model_dump_json(), ask.threads)
    # A short list goes through the open shell: a push would open a service of its own.
    words = ["printf", "%s\\n", *ask.nodes] if ask.nodes else ["true"]
    listed = Command(words, into=lane_file("nodes"))
    known = Command(["sha256sum", lane_file("plan")])
    said, memory, there = phone.batch([listed, reading([MEMINFO]), known])
    if said.status != 0:
        raise ShellFailed(f"{lane_file('nodes')} cannot be written: {safe_text(said.text)}")
    if not dare:
        check_fits(plan, whole_nodes(memory.text).get(MEMINFO, ""))
    if there.text.split(" ")[0] != digest_of_bytes(plan):
        phone.push(plan, lane_file("plan"))


@lru_cache(maxsize=8)
def _plan_of(case: str, threads: int) -> bytes:
    """The plan of a case; repeats of a trial ask for it again and again."""
    return lower(Case.model_validate_json(case), threads)


def launch(phone: Phone, ask: Ask, before: Command) -> tuple[Answer, int | None]:
    """Take a last look at the phone and start the runner: one round trip; answer look and pid."""
    look, started = phone.batch([before, ask.command()])
    return look, first_number(started.text)


def watch(
    phone: Phone,
    ask: Ask,
    pid: int | None,
    boot_id: str | None,
    sleep: Callable[[float], None],
    progress: Callable[[Progress], None],
    output: Output | None = None,
) -> Output:
    """Follow the runner to its last word, and answer all that it said.

    `sleep` sleeps host seconds and raises when the run is cancelled; the runner is ended then.
    """
    output = output or Output(ask.case.digest)
    watcher = _Watcher(phone, ask, pid, boot_id, output)
    try:
        sleep(FIRST_LOOK_S)
        while not watcher.look():
            progress(watcher.progress)
            sleep(watcher.pause_s)
    except LINK_LOST:
        raise
    except BaseException:
        with suppress(FarmError):
            stop_runner(phone, watcher.pid)
        raise
    if output.fault is not None:
        blame(output.fault)
    return output


def blame(fault: RunnerFault) -> NoReturn:
    """Raise what a fault line means; what the contract does not know is the runner's fault."""
    text = safe_text(fault.text, 400)
    raise _BLAME.get(fault.code, RunnerFailed)(f"{safe_text(fault.code, 40)}: {text}")


def stop_runner(phone: Phone, pid: int | None) -> None:
    """End the runner: politely, then for good."""
    if pid is not None:
        phone.shell(["kill", str(pid)])
        gone = Deadline.after(STOP_S)
        while phone.shell(["kill", "-0", str(pid)]).status == 0:
            if gone.expired:
                phone.shell(["kill", "-9", str(pid)])
                return
            time.sleep(POLL_MIN_S)


class _Watcher:
    """What the watching loop has to remember."""

    def __init__(
        self, phone: Phone, ask: Ask, pid: int | None, boot_id: str | None, output: Output
    ) -> None:
        self.pid = pid
        self._phone = phone
        self._ask = ask
        self._output = output
        self._started = Deadline.after(HELLO_S)
        self._limit_s = ask.limit_s
        # The phone's clock decides; ours is for a phone whose clock stands still.
        self._backstop = Deadline.after(3 * self._limit_s / phone.clock.value + 60)
        self._patience: Deadline | None = None
        self._elapsed_s = 0.0
        self._late_looks = 0
        self._boot_id = boot_id
        self._pulse = Pulse()

    @property
    def progress(self) -> Progress:
        """How far the run is, as far as that can be known."""
        asked_s = max(self._ask.launch.seconds, 1.0)
        left_s = max(asked_s - self._elapsed_s, 0.0) / self._phone.clock.value
        share = min(1.0, self._elapsed_s / asked_s)
        return Progress(share, left_s, self._output.steps, self._pulse)

    @property
    def pause_s(self) -> float:
        """Host seconds until the next look: the expected end, then ever more patient."""
        if self._output.hello is None:
            return POLL_MIN_S
        asked_s = self._ask.launch.seconds
        if self._elapsed_s < asked_s:
            # Looking disturbs: some twenty times a run, and not at all in a short one.
            phone_s = min(asked_s - self._elapsed_s, max(asked_s / 20, LOOK_APART_S))
            return min(phone_s / self._phone.clock.value + 0.02, POLL_MAX_S)
        self._late_looks += 1
        return min(POLL_MIN_S * 1.3**self._late_looks, POLL_MAX_S)

    def look(self) -> bool:
        """Read what is new; say whether the runner has said its last word."""
        try:
            ended = self._look()
        except LINK_LOST:
            self._patience = self._patience or Deadline.after(PATIENCE_S)
            if self._patience.expired:
                raise
            return False
        self._patience = None
        return ended

    def _look(self) -> bool:
        self.pid = self._output.speaker or self.pid
        # Alive is asked first: a runner that ends in between has then left its last word.
        signal_0 = Command(["kill", "-0", str(self.pid or 0)])
        commands = [signal_0, reading([UPTIME, BOOT_ID]), _tail(self._output), PULSE]
        answers = self._phone.exchange(commands, Deadline.after(CALL_S), limit=2 * MIB)
        nodes = whole_nodes(answers[1].output.decode(errors="replace"))
        uptime_s = self._phone.note_uptime(nodes.get(UPTIME, ""))
        self._check_boot(nodes.get(BOOT_ID, ""))
        self._feed(answers[2])
        self._pulse = feel(answers[3].output, self._ask.nodes, self._phone.known)
        if self._output.hello is not None:
            self._elapsed_s = uptime_s - self._output.hello.t_ns / 1e9
        if not self._output.ended:
            self._check_alive(alive=answers[0].status == 0)
        return self._output.ended

    def _check_boot(self, boot_id: str) -> None:
        if self._boot_id not in {None, boot_id}:
            raise Restarted
        self._boot_id = boot_id

    def _feed(self, tail: Reply) -> None:
        if tail.status == 0:
            self._output.feed(tail.output)

    def _check_alive(self, alive: bool) -> None:
        if not alive:
            if self._phone.shell(["test", "-e", lane_file("restored")]).status == 0:
                if not was_silent(self._phone):
                    raise TooHot("The phone passed its ceiling of heat and ended the run itself.")
                raise PhoneTrouble("We were not heard for so long that the phone ended the run.")
            self._check_disk()
            raise self._death()(f"The runner ended without a word: {self._last_words()}")
        if self._output.hello is None and self._started.expired:
            raise NeverStarts(f"The runner did not start: {self._last_words()}")
        if self._elapsed_s > self._limit_s or self._backstop.expired:
            raise RunnerFailed(f"The runner did not end within {self._limit_s:.0f} s.")

    def _death(self) -> type[FarmError]:
        """What a silent end was: for want of memory, before the first step, or in the middle."""
        last = self._phone.shell(["tail", "-c", "4096", lane_file("readings.jsonl")])
        if last.status == 0 and was_starved(last.text):
            return Killed
        return DiesLater if self._output.windows else NeverStarts

    def _check_disk(self) -> None:
        """A full phone silences its runner; who cannot write cannot say why."""
        spare = lane_file("spare")
        copied, _ = self._phone.batch(
            [Command(["cat", lane_file("plan")], into=spare), Command(["rm", "-f", spare])]
        )
        if copied.status != 0:
            raise PhoneTrouble("The runner ended without a word: the phone takes no more files.")

    def _last_words(self) -> str:
        said = self._phone.shell(["tail", "-c", "400", lane_file("err")])
        return (
            safe_text(said.text) if said.status == 0 and said.text.strip() else "it left no trace"
        )


def _tail(output: Output) -> Command:
    return Command(["tail", "-c", f"+{output.bytes_read + 1}", lane_file("out.jsonl")])
