"""`run`: steps at the pace the silicon allows, told in windows.

A step in progress when the pace changes goes on at the new pace; no step is lost or counted twice.
"""

import asyncio
import signal
from contextlib import suppress
from math import ceil, log, sqrt

from agent.virtual.phone import Phone
from agent.virtual.physics.memory import Pressure, needs_kb, pressure
from agent.virtual.physics.placement import Load
from agent.virtual.physics.roofline import Array, Op, OpTable, Pace, op_shares, step_cost
from agent.virtual.processes import Process
from agent.virtual.runner.contract import CONTRACT, Exit, RunnerFault, RunSettings
from agent.virtual.runner.lines import Lines
from agent.virtual.runner.plan import Plan
from agent.virtual.runner.sampler import Sampler
from agent.virtual.timeline import Event
from agent.virtual.twin.provenance import provenance_of

# Noise of a single step and of a whole run, with clocks pinned and free: at the low end of what
# phones show (0.5-7 % and 2-16 %). A late step is followed by an early one (lag-1 correlations of
# phones lie between -0.7 and 0.15), the first steps are slower, neighbouring windows drift
# together, and now and then something else on the phone takes a core for a moment.
_STEP_NOISE, _FREE_STEP_NOISE = 0.01, 0.025
_RUN_OFFSET, _FREE_RUN_OFFSET = 0.005, 0.008
_REBOUND = 0.3
_FIRST_STEPS = 0.3
_DRIFT, _DRIFT_KEPT = 0.0015, 0.95
_HICCUP_CHANCE, _HICCUP_STEPS = 0.004, 0.2
_TRACE_OPS_MAX = 2000  # a line; the contract's 64 KiB hold more
_KILLED_AFTER_S = 2.5  # pages fill up, swap fills up, then the kernel looks for the largest


class Work:
    """One run from hello to done or fault; `outcome` becomes the exit status."""

    def __init__(
        self, phone: Phone, process: Process, plan: Plan, settings: RunSettings, lines: Lines
    ) -> None:
        self.phone = phone
        self.process = process
        self.plan = plan
        self.settings = settings
        self.outcome: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.sampler: Sampler | None = None
        self._lines = lines
        self._window_s = settings.window_s
        self._table = OpTable(plan.ops, plan.engine)
        self._load = Load(process.mask, plan.threads, plan.engine, self._change_pace)
        process.cpu_s = self._cpu_s
        self._random = phone.dice_for_run()
        pinned = phone.soc.pinned(process.mask)
        self._step_noise = _STEP_NOISE if pinned else _FREE_STEP_NOISE
        offset = _RUN_OFFSET if pinned else _FREE_RUN_OFFSET
        self._offset = 1.0 + self._random.gauss(0.0, offset)
        self._warming = settings.warmup > 0
        self._stopping = False
        self._measured = 0  # steps in closed windows
        self._measured_ns = 0
        self._began = 0.0  # when measuring began
        self._step_s = 1.0  # at the present pace
        self._noise = 1.0  # of this window
        self._drift = 0.0
        self._late = 0.0  # of the window before
        self._hiccup = 0.0
        self._progress = 0.0  # steps of this window, with a fraction
        self._target = 1  # steps after which it closes
        self._due = 0.0  # when that will be
        self._opened = 0.0
        self._opened_ns = 0
        self._looked = 0.0  # when progress was last brought forward
        self._step_span = (1.0, 1.0)
        self._event: Event | None = None
        self._killing: Event | None = None
        self._paused = False
        self._pressure = Pressure("fits")
        self._pace: Pace | None = None
        self._shares: Array | None = None  # of a step, by operation, at the present pace
        self._phase_shares = (0.0, 0.0)  # backward and update; forward is the rest
        self._traced = 0

    # -- from outside

    def begin(self) -> None:
        """Take memory, say hello, start working."""
        plan, free_kb = self.plan, self.phone.free_kb()
        needed_kb = needs_kb(plan.engine, plan.ops, plan.parameter_bytes, plan.activation_bytes)
        self._pressure = pressure(
            self.phone.profile.memory, free_kb, needed_kb, plan.engine.takes_all_first
        )
        if self._pressure.outcome == "never starts":
            text = f"needs {needed_kb} kB of {free_kb} kB; use a smaller batch"
            raise RunnerFault(Exit.OUT_OF_MEMORY, text)
        if self._pressure.outcome == "killed":
            when = self.phone.timeline.now + _KILLED_AFTER_S
            self._killing = self.phone.timeline.at(when, self._be_killed)
        self.process.rss_kb = min(needed_kb, free_kb)
        if self._pressure.outcome == "swaps":
            self.process.swapped_kb = self._pressure.swapped_kb
        self.process.state = "R"
        self._lines.say(
            {
                "line": "hello",
                "contract": CONTRACT,
                "pid": self.process.pid,
                "case": self.plan.case,
                "mask": f"{self.process.mask:x}",
                "threads": self.plan.threads,
                "t_ns": self.phone.uptime_ns(),
                "provenance": provenance_of(self.phone.profile, plan.engine),
            }
        )
        self._lines.say({"line": "memory", **plan.memory})
        self._looked = self._began = self.phone.timeline.now
        self.phone.soc.attach(self._load)
        self._open_window()
        self._aim()
        settings = self.settings
        steps_s = (settings.warmup + settings.steps) * self._step_s
        self.phone.journal.write(
            "run_start",
            case=self.plan.case,
            mask=f"{self.process.mask:x}",
            pid=self.process.pid,
            threads=self.plan.threads,
            expected_s=round(min(max(steps_s, settings.seconds), settings.max_seconds), 3),
        )

    def _cpu_s(self) -> float:
        self.phone.soc.count()
        return self._load.cpu_s

    def stop_soon(self) -> None:
        """SIGTERM: finish the step in hand, then stop."""
        if not self._stopping:
            self._stopping = True
            self._look()
            self._aim()

    def set_mask(self, mask: int) -> None:
        """The affinity changed under the run."""
        self.phone.soc.change(lambda: setattr(self._load, "mask", mask))

    def pause(self, stop: bool) -> None:
        """SIGSTOP and SIGCONT: the step in hand waits, and the cores are somebody else's."""
        if stop == self._paused:  # stopped before there was any work to stop
            return
        self._paused = stop
        if not stop:
            self._looked = self.phone.timeline.now
            self.phone.soc.attach(self._load)
            if self.sampler is not None:
                self.sampler.look()
            return
        self._look()
        if self._event is not None:
            self._event.drop()
            self._event = None
        if self.sampler is not None:
            self.sampler.stop()
        self.phone.soc.detach(self._load)

    def fail(self, fault: RunnerFault) -> None:
        """End with a fault as the last line, where it can still be written."""
        if not self.outcome.done():
            self.release(fault.exit_code.name.lower())
            # A folder that failed us cannot hear of it either.
            with suppress(RunnerFault):
                self._lines.say(fault.line())
            self.outcome.set_result(int(fault.exit_code))

    def release(self, why: str = "killed") -> None:
        """Give cores and memory back; nothing is said from here on."""
        if self._paused or self._load in self.phone.soc.loads or self._event is not None:
            self._paused = False
            self.phone.journal.write("run_stop", pid=self.process.pid, why=why)
        if self._event is not None:
            self._event.drop()
            self._event = None
        if self._killing is not None:
            self._killing.drop()
        if self.sampler is not None:
            self.sampler.stop()
        self.phone.soc.detach(self._load)

    # -- the work

    def _be_killed(self) -> None:
        self.phone.journal.write("low_memory_kill", pid=self.process.pid)
        self.phone.processes.kill(self.process, signal.SIGKILL)

    def _change_pace(self, pace: Pace) -> None:
        self._look()
        cost = step_cost(self._table, pace)
        self._pace, self._shares = pace, None
        if self._pressure.extra_s:
            cost = cost.slower(1.0 + self._pressure.extra_s / cost.seconds)
        self._load.take(cost)
        self._step_s = cost.seconds * self._offset
        self._step_span = (
            min(self._step_span[0], self._step_s),
            max(self._step_span[1], self._step_s),
        )
        self._aim()

    def _look(self) -> None:
        """Bring progress forward to now."""
        now = self.phone.timeline.now
        self._progress += (now - self._looked) / (self._step_s * self._noise)
        self._looked = now

    def _aim(self) -> None:
        """Plan the end of this window."""
        if self._event is not None:
            self._event.drop()
        self._choose_end()
        self._event = self.phone.timeline.at(self._due, self._close_windows)

    def _choose_end(self) -> None:
        """Work out at which step boundary this window closes, and when that is."""
        step_s = self._step_s * self._noise
        boundary = int(self._progress + 1e-9) + 1
        if self._stopping:
            self._target = boundary
        elif self._warming:
            self._target = self.settings.warmup
        else:
            self._target = max(boundary, ceil(self._progress + self._room_s() / step_s - 1e-9))
        self._due = self._looked + (self._target - self._progress) * step_s

    def _room_s(self) -> float:
        """How long this window may stay open: until it is full, or enough was measured."""
        settings = self.settings
        step_s = self._step_s * self._noise
        missing = settings.steps - self._measured - self._progress
        enough = max(missing * step_s, self._began + settings.seconds - self._looked)
        latest = self._began + settings.max_seconds - self._looked
        return min(self._opened + self._window_s - self._looked, enough, latest)

    def _open_window(self) -> None:
        self._opened = self._looked = self.phone.timeline.now
        self._opened_ns = self.phone.uptime_ns()
        self._progress = 0.0
        self._step_span = (self._step_s, self._step_s)
        guess = max(1.0, self._window_s / self._step_s)
        dice = self._random
        self._drift = self._drift * _DRIFT_KEPT + dice.gauss(0.0, _DRIFT)
        self._hiccup = _HICCUP_STEPS if dice.random() < _HICCUP_CHANCE else 0.0
        fresh = dice.gauss(0.0, self._step_noise) / sqrt(guess)
        self._late = fresh - _REBOUND * self._late
        first = _FIRST_STEPS if self._warming else 0.0
        self._noise = 1.0 + self._drift + self._late + self._hiccup / guess + first

    def _close_windows(self) -> None:
        """Close this window, and those after it for as long as nothing else happens."""
        self._event = None
        while self._close_window():
            self._open_window()
            self._choose_end()
            if not self.phone.timeline.reach(self._due):
                self._event = self.phone.timeline.at(self._due, self._close_windows)
                return

    def _close_window(self) -> bool:
        """Say what was measured; whether the work goes on."""
        try:
            if self._warming:
                self._warming = False
                self._began = self.phone.timeline.now
            else:
                self._say_window()
            if self._stopping:
                raise RunnerFault(Exit.STOPPED, "stopped by SIGTERM at a step boundary")
            if self._is_enough():
                self._finish()
                return False
        except RunnerFault as fault:
            self.fail(fault)
            return False
        return True

    def _say_window(self) -> None:
        count = self._target
        end_ns = self.phone.uptime_ns()
        length = end_ns - self._opened_ns
        mean = length / count
        # The expected extremes of so many steps with normal noise around their pace.
        reach = self._step_noise * sqrt(2 * log(count)) if count > 1 else 0.0
        low = min(mean, self._step_span[0] * 1e9 * self._noise) * (1 - reach)
        high = max(mean, self._step_span[1] * 1e9 * self._noise) * (1 + reach + self._hiccup)
        low, high = (length, length) if count == 1 else (round(low), round(high))
        shares = self._op_shares()
        backward, update = (int(length * share) for share in self._phase_shares)
        # Written out: thousands of these are said in a long run.
        self._lines.say_text(
            f'{{"line":"window","first":{self._measured},"n":{count},"t_ns":{self._opened_ns},'
            f'"ns":{length},"ns_min":{low},"ns_max":{high},'
            f'"phases_ns":[0,{length - backward - update},{backward},{update}]}}'
        )
        self._trace_steps(shares, count, mean)
        self._measured += count
        self._measured_ns += length

    def _op_shares(self) -> Array:
        """Which share of a step each operation takes, worked out once a pace."""
        if self._shares is None:
            assert self._pace is not None
            self._shares = op_shares(self._table, self._pace)
            phases = [_phase(op) for op in self.plan.ops]
            self._phase_shares = (
                sum(share for share, at in zip(self._shares, phases, strict=True) if at == 1),
                sum(share for share, at in zip(self._shares, phases, strict=True) if at == 2),
            )
        return self._shares

    def _trace_steps(self, shares: Array, count: int, step_ns: float) -> None:
        """Say when the operations of this window's chosen steps ended."""
        settings = self.settings
        while self._traced < settings.trace_steps:
            expected_s = min(settings.seconds, settings.max_seconds)
            expected = max(settings.steps, int(expected_s / self._step_s))
            apart = max(1, expected // settings.trace_steps)
            step = self._traced * apart
            if step >= self._measured + count:
                return
            ahead = max(step - self._measured, 0)
            began = self._opened_ns + round(ahead * step_ns)
            self._say_trace(self._measured + ahead, began, shares * step_ns)
            self._traced += 1

    def _say_trace(self, step: int, began_ns: int, op_ns: Array) -> None:
        for first in range(0, len(op_ns), _TRACE_OPS_MAX):
            ends = op_ns[first : first + _TRACE_OPS_MAX].cumsum().round().astype(int).tolist()
            self._lines.say(
                {"line": "trace", "step": step, "t_ns": began_ns, "first": first, "ends_ns": ends}
            )
            began_ns += ends[-1]

    def _is_enough(self) -> bool:
        elapsed = self.phone.timeline.now - self._began + 1e-9
        settings = self.settings
        if self._measured == 0:
            return False
        return elapsed >= settings.max_seconds or (
            self._measured >= settings.steps and elapsed >= settings.seconds
        )

    def _finish(self) -> None:
        if self.sampler is not None:
            self._lines.say(self.sampler.cost())
        self._lines.say(
            {
                "line": "done",
                "steps": self._measured,
                "ns": self._measured_ns,
                "t_ns": self.phone.uptime_ns(),
                "peak_rss_kb": self.process.rss_kb,
                # A phone that computes nothing has no loss to show, and has counted nothing.
                "loss_first": None,
                "loss_last": None,
                "parameters_changed": True,
                "parameters": None,
                "macs": None,
                "learned": None,
                "moved": None,
                "fallbacks": 0,
                "answer_error": None,
            }
        )
        self.release("done")
        self.outcome.set_result(int(Exit.DONE))


def _phase(op: Op) -> int:
    """0 forward, 1 backward, 2 update: as whoever lowered the plan names its operations."""
    if op.kind == "update":
        return 2
    return 1 if "gradient" in op.name else 0
