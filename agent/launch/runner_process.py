"""The runner process on a phone: start it detached, follow it with few bounded reads, stop it.

It survives the loss of the link: a cable that is back within half a minute does not cost the run.
"""

from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from typing import NamedTuple, NoReturn

from agent.collect.cpu_usage import MEMINFO
from agent.collect.live_status import LIVE_SAMPLE_COMMAND, LiveSample, parse_live_sample
from agent.collect.process_memory import low_memory_kill
from agent.collect.runner_output import FaultRecord, RunnerOutput
from agent.deadline import Deadline
from agent.launch.launch_spec import LaunchSpec
from agent.launch.memory_fit import check_fits, was_out_of_memory
from agent.phone.kernel_nodes import first_number
from agent.phone.phone_driver import Phone
from agent.phone.phone_paths import (
    BOOT_ID,
    LANE_DIR,
    NODE_LIST,
    OUTPUT,
    PLAN,
    READINGS,
    RESTORED_MARK,
    RUNNER_STDERR,
    UPTIME,
    lane_file,
)
from agent.phone.phone_waits import PIECE_MAX_S, RECONNECT_PAUSE_S, PhoneWaits
from agent.phone.shell_command import (
    ShellCommand,
    ShellResult,
    parse_complete_nodes,
    read_nodes_command,
)
from agent.phone.shell_link import LINK_LOST, MIB
from agent.restore.watchdog import heartbeat_timed_out
from workloads.catalogue import Case, lower
from workloads.protocol.base import digest_of_bytes
from workloads.protocol.faults import (
    DiesLater,
    FarmError,
    Interrupted,
    InvalidRequest,
    Killed,
    NeverStarts,
    PhoneTrouble,
    ProcessesKilled,
    Restarted,
    RunnerFailed,
    ShellFailed,
    TooHot,
    TrainingKilled,
)
from workloads.text import safe_text

POLL_EVERY_S = 5.0  # polling disturbs the run: about twenty polls per run, and none in a short one
POLLS_PER_RUN = 20
FIRST_POLL_S = 0.25  # by then it has written its first record
UNKNOWN_PID = 2**22  # of no process: waiting for it ends at once

CHECKPOINT_FAULT = "bad_checkpoint"
DEVICE_FAULT = "device"
_FAULT_CLASSES: dict[str, type[FarmError]] = {
    "unsupported": InvalidRequest,
    "no_runner": InvalidRequest,
    "stopped": Interrupted,
    "io": PhoneTrouble,
    "out_of_memory": NeverStarts,
    DEVICE_FAULT: NeverStarts,
}


class RunProgress(NamedTuple):
    """How far a run is: elapsed share, seconds left, steps, and the latest sampler values."""

    share: float
    remaining_s: float
    steps: int
    live: LiveSample


def write_plan(phone: Phone, spec: LaunchSpec, allow_oversize: bool = False) -> None:
    """Put the plan and the list of sampled nodes on the phone; check first that the plan fits."""
    plan = _plan_of(spec.case.model_dump_json(), spec.threads)
    # A short list goes through the open shell: a push would open another adb service.
    words = ["printf", "%s\\n", *spec.nodes] if spec.nodes else ["true"]
    node_list = ShellCommand(words, into=lane_file(NODE_LIST))
    digest = phone.digest_command(lane_file(PLAN))
    written, memory, present = phone.shell_batch([node_list, read_nodes_command([MEMINFO]), digest])
    if written.status != 0:
        raise ShellFailed(f"{lane_file(NODE_LIST)} cannot be written: {safe_text(written.text)}")
    if not allow_oversize:
        check_fits(plan, parse_complete_nodes(memory.text).get(MEMINFO, ""))
    if not phone.has_printed_digest(present, digest_of_bytes(plan), lambda: plan):
        phone.push(plan, lane_file(PLAN))


@lru_cache(maxsize=8)
def _plan_of(case: str, threads: int) -> bytes:
    """The plan of a case; cached, because the runs of a trial use the same one."""
    return lower(Case.model_validate_json(case), threads)


def launch_runner(
    phone: Phone, spec: LaunchSpec, snapshot: ShellCommand
) -> tuple[ShellResult, int | None]:
    """Take a last snapshot and start the runner in one round trip; return snapshot and pid."""
    before, started = phone.shell_batch([snapshot, spec.command()])
    return before, first_number(started.text)


def watch_runner(
    phone: Phone,
    spec: LaunchSpec,
    pid: int | None,
    boot_id: str | None,
    waits: PhoneWaits,
    on_progress: Callable[[RunProgress], None],
    output: RunnerOutput | None = None,
) -> RunnerOutput:
    """Follow the runner to its final record, and return all its records.

    `waits` raises if the run is cancelled; then the runner is stopped.
    """
    output = output or RunnerOutput(spec.case.digest)
    watcher = _RunWatcher(phone, spec, pid, boot_id, output, waits)
    try:
        while not watcher.poll():
            on_progress(watcher.progress)
    except LINK_LOST:
        raise
    except BaseException:
        with suppress(FarmError):
            stop_runner(phone, spec.runner, watcher.pid)
        raise
    if output.fault is not None:
        if output.fault.code == CHECKPOINT_FAULT and spec.checkpoint:
            phone.shell(["rm", "-rf", spec.checkpoint])
            why = safe_text(output.fault.text.partition(";")[0], 200)
            raise PhoneTrouble(f"{why}; it was removed, and the next attempt begins at step 0")
        raise_runner_fault(output.fault, has_measured=bool(output.windows))
    return output


def raise_runner_fault(fault: FaultRecord, has_measured: bool = False) -> NoReturn:
    """Raise the error for a fault record; a code outside the contract is the runner's fault.

    A GPU that has computed some steps and then fails is the phone's fault, and may work again; one
    that never started will fail again: its compiler rejects a kernel.
    """
    kind = _FAULT_CLASSES.get(fault.code, RunnerFailed)
    if fault.code == DEVICE_FAULT and has_measured:
        kind = PhoneTrouble
    raise kind(f"{safe_text(fault.code, 40)}: {safe_text(fault.text, 400)}")


def wait_command(runner: str, pid: int, seconds: float) -> ShellCommand:
    """The command that waits for the end of a process, at most so long."""
    return ShellCommand([runner, "wait", str(pid), "--seconds", f"{seconds:.3f}"])


def stop_runner(phone: Phone, runner: str, pid: int | None) -> None:
    """Stop the runner with SIGTERM, and with SIGKILL if it does not exit."""
    if pid is not None:
        wait = wait_command(runner, pid, phone.timeouts.runner_stop_timeout_s)
        phone.shell_batch([ShellCommand(["kill", str(pid)]), wait])
        if phone.shell(["kill", "-0", str(pid)]).status == 0:
            phone.shell(["kill", "-9", str(pid)])


class _RunWatcher:
    """The state of following one run."""

    def __init__(
        self,
        phone: Phone,
        spec: LaunchSpec,
        pid: int | None,
        boot_id: str | None,
        output: RunnerOutput,
        waits: PhoneWaits,
    ) -> None:
        self.pid = pid
        self._phone = phone
        self._spec = spec
        self._output = output
        self._waits = waits
        self._timeouts = phone.timeouts
        self._launched_s: float | None = None  # by the phone's clock
        self._limit_s = spec.limit_s
        # The phone's clock decides; the host's is for a phone whose clock has stopped.
        self._backstop = Deadline.after(3 * self._limit_s + 60)
        self._reconnect_deadline: Deadline | None = None
        self._elapsed_s = 0.0
        self._boot_id = boot_id
        self._live = LiveSample()
        self._kill_text = ""

    @property
    def progress(self) -> RunProgress:
        """How far the run is, as far as that is known."""
        requested_s = max(self._spec.launch.seconds, 1.0)
        remaining_s = max(requested_s - self._elapsed_s, 0.0)
        share = min(1.0, self._elapsed_s / requested_s)
        return RunProgress(share, remaining_s, self._output.steps, self._live)

    @property
    def pause_s(self) -> float:
        """How long to wait for the end of the run before the next poll."""
        if self._output.hello is None:
            return FIRST_POLL_S
        interval_s = max(self._spec.launch.seconds / POLLS_PER_RUN, POLL_EVERY_S)
        return min(interval_s, PIECE_MAX_S)

    def poll(self) -> bool:
        """Wait for the end, and read new records; return whether the final record is here."""
        try:
            ended = self._poll()
        except LINK_LOST:
            tolerance_s = self._timeouts.reconnect_timeout_s
            self._reconnect_deadline = self._reconnect_deadline or Deadline.after(tolerance_s)
            if self._reconnect_deadline.expired:
                raise
            self._waits.cancellation.pause(RECONNECT_PAUSE_S)
            return False
        self._reconnect_deadline = None
        return ended

    def _poll(self) -> bool:
        self.pid = self._output.writer_pid or self.pid
        # The process is checked first: if it exits in between, its final record is there already.
        alive = ShellCommand(["kill", "-0", str(self.pid or 0)])
        new_output = ["tail", "-c", f"+{self._output.bytes_read + 1}", lane_file(OUTPUT)]
        wait = wait_command(self._spec.runner, self.pid or UNKNOWN_PID, self.pause_s)
        commands = [wait, alive, read_nodes_command([UPTIME, BOOT_ID]), ShellCommand(new_output)]
        commands.append(LIVE_SAMPLE_COMMAND)
        _, *replies = self._waits.run_piece(commands, self.pause_s, limit=2 * MIB)
        nodes = parse_complete_nodes(replies[1].output.decode(errors="replace"))
        uptime_s = self._phone.parse_uptime(nodes.get(UPTIME, ""))
        self._launched_s = uptime_s if self._launched_s is None else self._launched_s
        self._check_boot(nodes.get(BOOT_ID, ""))
        if replies[2].status == 0:
            self._output.feed(replies[2].output)
        self._live = parse_live_sample(replies[3].output, self._spec.nodes, self._phone.facts)
        if self._output.hello is not None:
            self._elapsed_s = uptime_s - self._output.hello.t_ns / 1e9
        if not self._output.ended:
            self._check_alive(replies[0].status == 0, uptime_s - self._launched_s)
        return self._output.ended

    def _check_boot(self, boot_id: str) -> None:
        if self._boot_id not in {None, boot_id}:  # guard: restart-noticed
            raise Restarted
        self._boot_id = boot_id

    def _check_alive(self, alive: bool, since_launch_s: float) -> None:
        if not alive:
            self._raise_cause_of_exit()
        if self._output.hello is None and since_launch_s > self._timeouts.runner_start_timeout_s:
            raise NeverStarts(f"the runner did not start: {self._stderr_tail()}")
        if self._elapsed_s > self._limit_s or self._backstop.expired:
            raise RunnerFailed(f"the runner did not finish within {self._limit_s:.0f} s")

    def _raise_cause_of_exit(self) -> NoReturn:
        if self._phone.shell(["test", "-e", lane_file(RESTORED_MARK)]).status == 0:
            if not heartbeat_timed_out(self._phone):
                raise TooHot("temperature limit exceeded; the on-phone watchdog stopped the run")
            timeout_s = self._timeouts.watchdog_timeout_s
            raise PhoneTrouble(
                f"no agent heartbeat for {timeout_s:g} s; the on-phone watchdog stopped the run"
            )
        self._check_disk()
        kind = self._kind_of_exit()
        if self._spec.checkpoint and (
            issubclass(kind, Killed | DiesLater) or self._has_checkpoint(self._spec.checkpoint)
        ):
            raise TrainingKilled(f"the training was killed at step {self._output.steps_end}")
        # The watchdog does not end with a runner that crashes.
        watchdog = self._phone.shell(["pgrep", "-f", f"watchdog {LANE_DIR}"])
        if kind is not Killed and watchdog.status == 1:  # guard: adbd-kills-children
            raise ProcessesKilled
        if self._kill_text:
            why = safe_text(self._kill_text, 240)
            raise kind(f"Android's low-memory killer ended the runner: {why}; use a smaller batch")
        raise kind(f"the runner exited without a final record: {self._stderr_tail()}")

    def _has_checkpoint(self, path: str) -> bool:
        """Whether this run has trained before, so that it can start."""
        return self._phone.shell(["test", "-e", path]).status == 0

    def _kind_of_exit(self) -> type[FarmError]:
        """Why the runner exited: out of memory, before the first step, or in the middle."""
        last = self._phone.shell(["tail", "-c", "4096", lane_file(READINGS)])
        self._kill_text = low_memory_kill(self._phone, self.pid)
        if self._kill_text or (last.status == 0 and was_out_of_memory(last.text)):
            return Killed
        return DiesLater if self._output.windows else NeverStarts

    def _check_disk(self) -> None:
        """Fail if the phone's disk is full: then the runner could not write why it exited."""
        scratch = lane_file("scratch")
        copy = ShellCommand(["cat", lane_file(PLAN)], into=scratch)
        copied, _ = self._phone.shell_batch([copy, ShellCommand(["rm", "-f", scratch])])
        if copied.status != 0:
            raise PhoneTrouble(
                "the runner exited without a final record: no file can be written on the phone"
            )

    def _stderr_tail(self) -> str:
        tail = self._phone.shell(["tail", "-c", "400", lane_file(RUNNER_STDERR)])
        empty = tail.status != 0 or not tail.text.strip()
        return "stderr is empty" if empty else safe_text(tail.text)
