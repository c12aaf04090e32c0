"""`runner run`: simulated steps at the speed that the model allows, reported in windows.

If the speed changes during a step, the rest of the step runs at the new speed; no step is lost or
counted twice.
"""

import asyncio
import signal
from contextlib import suppress
from functools import reduce
from math import ceil
from operator import or_

import numpy as np

from agent.virtual.event_journal import JournalEvent
from agent.virtual.phone_clock import ScheduledAction
from agent.virtual.physics.idle_background import IdleBackground
from agent.virtual.physics.memory_pressure import (
    MemoryPressure,
    PressureOutcome,
    assess_memory,
    peak_memory_kb,
)
from agent.virtual.physics.op_power import StepPower
from agent.virtual.physics.step_timing import ComputeSpeed, StepTiming
from agent.virtual.physics.thread_placement import CoreLoad
from agent.virtual.process_table import Process
from agent.virtual.runner.node_sampler import NodeSampler
from agent.virtual.runner.plan_header import PlanHeader
from agent.virtual.runner.run_preparation import PausableDelay, PreparedRun, RunPreparation
from agent.virtual.runner.run_records import (
    ClosedWindow,
    JsonlFile,
    StepShares,
    WindowWriter,
    done_record,
    hello_record,
)
from agent.virtual.runner.runner_contract import RunnerExit, RunnerFailure, RunSettings
from agent.virtual.runner.step_noise import StepNoise
from agent.virtual.runner.virtual_checkpoint import VirtualCheckpoint
from agent.virtual.virtual_phone import VirtualPhone

_KILLED_AFTER_S = 2.5  # memory and swap fill up before the kernel kills the largest process


class SimulatedRun:
    """One run from hello to done or fault; `outcome` becomes the exit status."""

    def __init__(
        self,
        phone: VirtualPhone,
        process: Process,
        plan: PlanHeader,
        settings: RunSettings,
        output: JsonlFile,
        preparation: RunPreparation,
    ) -> None:
        self.phone = phone
        self.process = process
        self.workers: list[int] = []  # its threads besides the first
        self.mask = process.mask  # before it pins its threads
        self.plan = plan
        self.settings = settings
        self._preparation = preparation
        self._prepared: PreparedRun | None = None  # None: before the first step
        self.outcome: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.sampler: NodeSampler | None = None
        self._output = output
        self._window_s = settings.window_s
        threads = plan.threads if plan.backend == "cpu" else 1
        self._load = CoreLoad(self.mask, threads, plan.engine, self._on_speed_change)
        self._load.lead_s = self._lead_s
        process.cpu_s, process.cycles = self._cpu_s, lambda: self._load.use.cycles
        process.first_thread_s = self._first_thread_s
        level = phone.noise.level(phone.soc.is_pinned(self.mask))
        self._noise = StepNoise(phone.rng_for_run(plan.digest), level)
        self._background: IdleBackground | None = None
        if phone.unrest.background:
            rng = phone.rng_for_run(f"background {plan.digest}")
            self._background = IdleBackground(phone.soc, rng)
        self._is_warmup = settings.warmup > 0
        self._stop_requested = False
        self._is_paused = False
        self._paused_at = 0.0
        self._longest_pause_s = 0.0  # within this window
        self._windows = WindowWriter(output, settings)
        self.checkpoint: VirtualCheckpoint | None = None
        self._window_count = 0
        self._measuring_since = 0.0
        self._step_s = 1.0  # at the present speed, without the noise of the window
        self._step_s_range = (1.0, 1.0)  # within this window
        self._progress = 0.0  # steps of this window, with a fraction
        self._progress_at = 0.0  # when progress was last updated
        self._window_steps = 1  # steps after which the window closes
        self._window_end = 0.0  # when that will be
        self._window_opened = 0.0
        self._window_opened_ns = 0
        self._window_event: ScheduledAction | None = None
        self._kill_event: ScheduledAction | None = None
        self._first_step: PausableDelay | None = None  # while kernels are built
        self._pressure = MemoryPressure(PressureOutcome.FITS)
        self._speed: ComputeSpeed | None = None
        self._timing: StepTiming | None = None
        self._shares: StepShares | None = None  # at the present speed
        self._op_power: StepPower | None = None

    # -- called by the runner program

    def start(self) -> None:
        """Allocate memory, write hello, and start the work."""
        self._allocate()
        self.process.state = "R"
        self._output.write(
            hello_record(
                self.phone, self.process.pid, self.mask, self.plan, self._preparation.gpu_settings
            )
        )
        prepared = self._preparation.prepare()
        if prepared.seconds == 0:
            self._start_steps(prepared)
            return

        def start_steps() -> None:
            self._first_step = None
            try:
                self._start_steps(prepared)
            except RunnerFailure as failure:
                self.fail(failure)

        self._first_step = PausableDelay(self.phone.clock, prepared.seconds, start_steps)
        self._first_step.start()
        self.phone.soc.attach(self._load)  # building kernels and copying keep the cores busy

    def _start_steps(self, prepared: PreparedRun) -> None:
        if self._stop_requested:
            raise RunnerFailure(RunnerExit.STOPPED, "stopped by SIGTERM before the first step")
        for record in prepared.records:
            self._output.write(record)
        if self.checkpoint and (before := self.checkpoint.read()):
            self._windows.steps, self._windows.ns, record = before
            self._is_warmup = False
            self._output.write(record)
        self._progress_at = self.phone.clock.now
        self._measuring_since = self._progress_at - self._windows.ns / 1e9
        self._prepared = prepared
        if prepared.uses_gpu:
            self._load.gpu_busy = 1.0
            self.phone.opencl.runs[self] = self._lose_device
        if self._load in self.phone.soc.loads:
            self.phone.soc.change(lambda: None)
        else:
            self.phone.soc.attach(self._load)
        self._open_window()
        self._schedule_window_end()
        if self._background is not None:
            self._background.start()
        self.phone.current_op = self.current_op
        settings = self.settings
        steps_s = (settings.warmup + settings.steps) * self._step_s
        self.phone.journal.write(
            JournalEvent.RUN_START,
            case=self.plan.case,
            mask=f"{self.mask:x}",
            pid=self.process.pid,
            threads=self.plan.threads,
            expected_s=round(min(max(steps_s, settings.seconds), settings.max_seconds), 3),
        )

    def current_op(self) -> str:
        """Return the name of the operation that is executed now; empty while a batch is loaded."""
        shares = self._current_shares()
        steps = self._steps_at(self.phone.clock.now)
        fraction = (steps % 1.0 - shares.load) / max(1.0 - shares.load, 1e-9)
        if fraction < 0:
            return ""
        index = int(np.searchsorted(np.cumsum(shares.ops), fraction))
        return self.plan.ops[min(index, len(self.plan.ops) - 1)].name

    def request_stop(self) -> None:
        """Stop at the end of the current step, as SIGTERM asks for."""
        if not self._stop_requested:
            self._stop_requested = True
            if self._prepared is not None:
                self._update_progress()
                self._schedule_window_end()

    def pin_threads(self) -> None:
        """Pin each thread to one core, the first thread to the fastest."""
        cores = self.phone.soc.fastest_cores(self.mask)
        for number, tid in enumerate((self.process.pid, *self.workers)):
            self.phone.processes.pin_thread(self.process, tid, cores[number % len(cores)])

    def follow_masks(self) -> None:
        """Let the work follow its threads, which were moved to other cores."""
        masks = self.process.masks
        used = reduce(or_, (masks[tid] for tid in (self.process.pid, *self.workers)))
        self.phone.soc.change(lambda: setattr(self._load, "mask", used))

    def pause(self, stop: bool) -> None:
        """Handle SIGSTOP and SIGCONT: the current step waits and its cores are free."""
        # Stopped before there was any work, or after its end.
        if stop == self._is_paused or self.outcome.done():
            return
        self._is_paused = stop
        if not stop:
            self._progress_at = now = self.phone.clock.now
            self._longest_pause_s = max(self._longest_pause_s, now - self._paused_at)
            self.phone.soc.attach(self._load)
            if self._first_step is not None:
                self._first_step.start()
            if self.sampler is not None:
                self.sampler.sample()
            return
        self._paused_at = self.phone.clock.now
        if self._first_step is not None:
            self._first_step.stop()
        else:
            self._update_progress()
        self._cancel_window_event()
        if self.sampler is not None:
            self.sampler.stop()
        self.phone.soc.detach(self._load)

    def fail(self, failure: RunnerFailure) -> None:
        """End with a fault as the last line, if it can still be written."""
        if not self.outcome.done():
            self.release(failure.exit_code.name.lower())
            # If writing failed, the fault cannot be written either.
            with suppress(RunnerFailure):
                self._output.write(failure.record())
            self.outcome.set_result(int(failure.exit_code))

    def release(self, reason: str = "killed") -> None:
        """Release cores and memory; nothing is written afterwards."""
        is_running = self._load in self.phone.soc.loads or self._window_event is not None
        if self._prepared is not None and (self._is_paused or is_running):
            self._is_paused = False
            self.phone.journal.write(JournalEvent.RUN_STOP, pid=self.process.pid, reason=reason)
        if self._first_step is not None:
            self._first_step.stop()
        self._cancel_window_event()
        self.phone.opencl.runs.pop(self, None)
        if self._kill_event is not None:
            self._kill_event.cancel()
        if self.sampler is not None:
            self.sampler.stop()
        self.phone.current_op = str
        self.phone.soc.detach(self._load)
        if self._background is not None:  # last: its end changes the speed of what still runs
            self._background.stop()

    # -- memory and speed

    def _allocate(self) -> None:
        plan, available_kb = self.plan, self.phone.mem_available_kb()
        needed_kb = peak_memory_kb(
            plan.engine, plan.ops, plan.parameter_bytes, plan.activation_bytes
        )
        self._pressure = assess_memory(
            self.phone.profile.memory, available_kb, needed_kb, plan.engine.allocates_upfront
        )
        if self._pressure.outcome is PressureOutcome.NEVER_STARTS:
            text = f"needs {needed_kb} kB of {available_kb} kB; use a smaller batch"
            raise RunnerFailure(RunnerExit.OUT_OF_MEMORY, text)
        if self._pressure.outcome is PressureOutcome.KILLED:
            when = self.phone.clock.now + _KILLED_AFTER_S
            self._kill_event = self.phone.clock.schedule(when, self._kill_for_memory)
        self.process.rss_kb = min(needed_kb, available_kb)
        if self._pressure.outcome is PressureOutcome.SWAPS:
            self.process.swapped_kb = self._pressure.swapped_kb

    def _kill_for_memory(self) -> None:
        self.phone.note_low_memory_kill(self.process)
        self.phone.processes.kill(self.process, signal.SIGKILL)

    def _cpu_s(self) -> float:
        self.phone.soc.update_counters()
        return self._load.use.cpu_s

    def _first_thread_s(self) -> tuple[float, float]:
        self.phone.soc.update_counters()
        return self._load.use.first_cpu_s, self._load.use.first_waited_s

    def _lose_device(self) -> None:
        text = "clFinish failed with OpenCL error -36: the device was lost"
        self.fail(RunnerFailure(RunnerExit.DEVICE, text))

    def _on_speed_change(self, speed: ComputeSpeed) -> None:
        if self._prepared is None:
            return
        self._update_progress()
        timing = self._prepared.model.time(speed)
        if self._prepared.read_s:
            timing = timing.after_reading(self._prepared.read_s)
        self._speed, self._shares, self._op_power = speed, None, None
        if self._pressure.extra_s:
            timing = timing.slowed_down(1.0 + self._pressure.extra_s / timing.seconds)
        self._timing = timing
        self._load.apply_timing(timing)
        self._step_s = timing.seconds * self._noise.run_factor
        self._step_s_range = (
            min(self._step_s_range[0], self._step_s),
            max(self._step_s_range[1], self._step_s),
        )
        self._schedule_window_end()

    def _lead_s(self, part: str, moment: float) -> float:
        """Return the seconds by which the energy of a part of the chip is ahead of its mean."""
        if self._timing is None:
            return 0.0
        if self._op_power is None:
            assert self._prepared is not None
            assert self._speed is not None
            shares = self._current_shares()
            time_shares = np.concatenate([[shares.load], (1.0 - shares.load) * shares.ops])
            self._op_power = StepPower(time_shares, self._prepared.model.drawn(self._speed))
        return self._noisy_step_s() * self._op_power.lead(part, self._steps_at(moment))

    # -- windows

    def _noisy_step_s(self) -> float:
        return self._step_s * self._noise.window_factor

    def _steps_at(self, moment: float) -> float:
        """Return how many steps of this window are done at a moment, with a fraction."""
        return self._progress + (moment - self._progress_at) / self._noisy_step_s()

    def _update_progress(self) -> None:
        """Advance the progress to now."""
        now = self.phone.clock.now
        self._progress = self._steps_at(now)
        self._progress_at = now

    def _cancel_window_event(self) -> None:
        if self._window_event is not None:
            self._window_event.cancel()
            self._window_event = None

    def _schedule_window_end(self) -> None:
        self._cancel_window_event()
        self._choose_window_end()
        self._window_event = self.phone.clock.schedule(self._window_end, self._close_windows)

    def _choose_window_end(self) -> None:
        """Decide at which step boundary this window closes, and when that is."""
        step_s = self._noisy_step_s()
        next_boundary = int(self._progress + 1e-9) + 1
        if self._stop_requested:
            self._window_steps = next_boundary
        elif self._is_warmup:
            self._window_steps = self.settings.warmup
        else:
            steps = ceil(self._progress + self._remaining_window_s() / step_s - 1e-9)
            self._window_steps = max(next_boundary, steps)
        self._window_end = self._progress_at + (self._window_steps - self._progress) * step_s

    def _remaining_window_s(self) -> float:
        """Return how long this window may stay open: until it is full or enough is measured."""
        settings = self.settings
        missing_steps = settings.steps - self._windows.steps - self._progress
        enough_s = max(
            missing_steps * self._noisy_step_s(),
            self._measuring_since + settings.seconds - self._progress_at,
        )
        latest_s = self._measuring_since + settings.max_seconds - self._progress_at
        return min(self._window_opened + self._window_s - self._progress_at, enough_s, latest_s)

    def _open_window(self) -> None:
        self._window_opened = self._progress_at = self.phone.clock.now
        self._window_opened_ns = self.phone.uptime_ns()
        self._progress = self._longest_pause_s = 0.0
        self._step_s_range = (self._step_s, self._step_s)
        expected_steps = max(1.0, self._window_s / self._step_s)
        self._noise.draw_window(expected_steps, self._step_s, self._is_warmup)

    def _close_windows(self) -> None:
        """Close this window, and the next ones as long as nothing else is due in between."""
        self._window_event = None
        while self._close_window():
            self._open_window()
            self._choose_window_end()
            if not self.phone.clock.try_jump_to(self._window_end):
                self._window_event = self.phone.clock.schedule(
                    self._window_end, self._close_windows
                )
                return

    def _close_window(self) -> bool:
        """Write what was measured; return whether the run continues."""
        try:
            if self._is_warmup:
                self._is_warmup = False
                self._measuring_since = self.phone.clock.now
            else:
                self._write_window()
            if self._stop_requested:
                raise RunnerFailure(RunnerExit.STOPPED, "stopped by SIGTERM at a step boundary")
            if self._has_measured_enough():
                self._finish()
                return False
        except RunnerFailure as failure:
            self.fail(failure)
            return False
        return True

    def _has_measured_enough(self) -> bool:
        elapsed_s = self.phone.clock.now - self._measuring_since + 1e-9
        settings = self.settings
        if self._windows.steps == 0:
            return False
        return elapsed_s >= settings.max_seconds or (
            self._windows.steps >= settings.steps and elapsed_s >= settings.seconds
        )

    # -- output

    def _write_window(self) -> None:
        claims = self.phone.claims
        steps = max(round(claims.step_factor * self._window_steps), 1)
        opened_ns, now_ns = self._window_opened_ns, self.phone.uptime_ns()
        if claims.tick_ns:
            opened_ns, now_ns = (
                ns // claims.tick_ns * claims.tick_ns for ns in (opened_ns, now_ns)
            )
        length_ns = max(round(claims.time_share * (now_ns - opened_ns)), steps)
        extremes = self._step_extremes(steps, length_ns / steps)
        window = ClosedWindow(steps, opened_ns, length_ns, *extremes)
        self._window_count += 1
        if not claims.drop_every or self._window_count % claims.drop_every:
            self._windows.write(window, self._current_shares(), self._step_s)
        if self.checkpoint:
            record = self.checkpoint.write_if_due(self._windows.steps, self._windows.ns)
            if record is not None:
                self._output.write(record)

    def _step_extremes(self, steps: int, mean_ns: float) -> tuple[int, int]:
        """Return the expected fastest and slowest of some steps with normal noise."""
        if steps == 1:
            return round(mean_ns), round(mean_ns)
        spread = self._noise.expected_extreme(steps)
        factor = self._noise.usual_factor
        fastest = min(mean_ns, self._step_s_range[0] * 1e9 * factor) * (1 - spread)
        slowest = self._step_s_range[1] * 1e9 * factor
        slowest *= 1 + spread + self._noise.interruption_steps
        return round(fastest), round(max(mean_ns, slowest + self._longest_pause_s * 1e9))

    def _current_shares(self) -> StepShares:
        """Return the shares of phases and operations in a step, computed once per speed."""
        if self._shares is None:
            assert self._speed is not None
            assert self._timing is not None
            assert self._prepared is not None
            op_shares = self._prepared.model.op_shares(self._speed)
            self._shares = StepShares.of(self.plan, self._timing, op_shares)
        return self._shares

    def _finish(self) -> None:
        if self.sampler is not None:
            self._output.write(self.sampler.cost_record())
        if self._prepared and self._prepared.uses_gpu and self.phone.opencl.computes_nonsense:
            text = f"the loss is not finite after {self._windows.steps} steps"
            raise RunnerFailure(RunnerExit.WRONG_ANSWER, text)
        now_ns, peak_rss_kb = self.phone.uptime_ns(), self.process.rss_kb
        loss = self.phone.claims.loss
        record = done_record(self._windows.steps, self._windows.ns, now_ns, peak_rss_kb, loss)
        self._output.write(record)
        self.phone.note_finished_run(self.plan.digest)
        self.release("done")
        self.outcome.set_result(int(RunnerExit.DONE))
