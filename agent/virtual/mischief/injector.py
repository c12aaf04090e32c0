"""The fault injector of one phone: waits for triggers, starts faults and stops them again.

Every start and stop is in the phone's journal. The injector observes the phone only through that
journal and a few hooks; a phone without mischief has no injector and runs at full speed.
"""

import asyncio
import random
from collections.abc import Awaitable
from dataclasses import dataclass, field
from enum import StrEnum

from agent.virtual.event_journal import JournalEvent
from agent.virtual.mischief.fault_registry import make_fault
from agent.virtual.mischief.fault_type import FaultType, InjectionTarget, InvalidMischief
from agent.virtual.mischief.mischief_script import COMMAND, MischiefPlan, Trigger
from agent.virtual.phone_clock import ScheduledAction
from agent.virtual.shell.command_call import CommandCall, CommandFunction

# A shorter run is a canary around the run that run@X% means.
_SHORT_RUN_S = 0.5
_MISCHIEF_EVENTS = (
    JournalEvent.MISCHIEF_START,
    JournalEvent.MISCHIEF_STOP,
    JournalEvent.MISCHIEF_ERROR,
)


class FaultState(StrEnum):
    """How far a planned fault is."""

    ARMED = "armed"  # waits for its trigger
    WAITING = "waiting"  # was triggered, waits for its delay
    ACTIVE = "active"
    DONE = "done"


class StopReason(StrEnum):
    """Why a fault stopped."""

    CLEARED = "cleared"  # on request
    FINISHED = "finished"  # by itself
    ONE_SHOT = "one_shot"  # a fault without a duration
    EXPIRED = "expired"  # its duration passed


@dataclass(eq=False, slots=True)
class ArmedFault:
    """One plan on this phone, with its state."""

    number: int
    plan: MischiefPlan
    trigger: Trigger | None
    rng: random.Random
    state: FaultState = FaultState.ARMED
    trigger_count: int = 0
    start_count: int = 0
    active_fault: FaultType | None = None
    until: Trigger | None = None
    timers: list[ScheduledAction | asyncio.TimerHandle] = field(default_factory=list)
    lets_pass: bool = False  # an outage with an end: no host can wait for it on the phone

    @property
    def waits_for_run_share(self) -> bool:
        return self.trigger is not None and self.trigger.run_share is not None

    def cancel_timers(self) -> None:
        for timer in self.timers:
            timer.cancel()
        self.timers.clear()


class PhoneInjector:
    """Injects faults into one phone."""

    def __init__(self, target: InjectionTarget) -> None:
        self._target = target
        self._armed_faults: dict[int, ArmedFault] = {}
        target.phone.mischief = self
        target.phone.journal.listener = self._on_event
        target.server.wire_hook = target.wire

    # -- requests

    def add(self, number: int, plan: MischiefPlan, rng: random.Random) -> None:
        """Arm a fault; without a trigger, start it."""
        armed_fault = ArmedFault(number, plan, plan.trigger, rng, until=plan.until)
        self._armed_faults[number] = armed_fault
        if armed_fault.trigger is None:
            self._schedule_start(armed_fault)

    def clear(self, number: int | None = None) -> int:
        """Stop and forget one fault, or all; return how many there were."""
        faults = [each for each in self._armed_faults.values() if number in (None, each.number)]
        # The last one may have changed what an earlier one changed.
        for armed_fault in reversed(faults):
            armed_fault.cancel_timers()
            self._stop(armed_fault, StopReason.CLEARED)
            del self._armed_faults[armed_fault.number]
        return len(faults)

    # -- hooks of the phone

    def allows_service(self, name: str) -> bool:
        return not any(refuses(name) for refuses in self._target.service_filters)

    def wrap_program(self, program: CommandFunction) -> CommandFunction:
        """Let a command trigger faults, and let active output faults change it."""

        def run(call: CommandCall) -> int | Awaitable[int]:
            self._on_event(COMMAND, {"argv": " ".join(call.argv)})
            for output_fault in self._target.output_faults:
                if output_fault.matches(call):
                    return output_fault.run(call, program)
            return program(call)

        return run

    def _on_event(self, event: str, facts: dict[str, object]) -> None:
        if event in _MISCHIEF_EVENTS:
            return
        for armed_fault in list(self._armed_faults.values()):
            if armed_fault.until is not None and armed_fault.until.matches(event, facts):
                self._end(armed_fault)
            elif armed_fault.state is FaultState.ACTIVE and armed_fault.active_fault is not None:
                armed_fault.active_fault.observe(self._target, event, facts)
            elif armed_fault.state is FaultState.ARMED and armed_fault.trigger is not None:
                self._check_trigger(armed_fault, armed_fault.trigger, event, facts)
            elif (
                armed_fault.state is FaultState.WAITING
                and event == JournalEvent.RUN_STOP
                and armed_fault.waits_for_run_share
            ):
                armed_fault.cancel_timers()  # the run ended before its share was reached
                armed_fault.state = FaultState.ARMED

    # -- triggers, starts and stops

    def _check_trigger(
        self, armed_fault: ArmedFault, trigger: Trigger, event: str, facts: dict[str, object]
    ) -> None:
        if not trigger.matches(event, facts):
            return
        if trigger.run_share is not None and float(str(facts["expected_s"])) < _SHORT_RUN_S:
            return
        armed_fault.trigger_count += 1
        if armed_fault.trigger_count < trigger.nth:
            return
        armed_fault.trigger_count = 0
        if trigger.run_share is not None:
            self._schedule_start(armed_fault, trigger.run_share * float(str(facts["expected_s"])))
        else:
            self._schedule_start(armed_fault)

    def _schedule_start(self, armed_fault: ArmedFault, extra_s: float = 0.0) -> None:
        """Start a triggered fault, now or after its delay."""
        plan, rng = armed_fault.plan, armed_fault.rng
        if plan.chance < 1.0 and rng.random() >= plan.chance:
            armed_fault.state = (
                FaultState.ARMED if armed_fault.trigger is not None else FaultState.DONE
            )
            return
        armed_fault.state = FaultState.WAITING
        delay_s = extra_s + plan.after_s + (rng.random() * plan.jitter_s if plan.jitter_s else 0.0)
        if plan.after_host_s:
            loop = asyncio.get_running_loop()
            armed_fault.timers.append(
                loop.call_later(plan.after_host_s, self._start_after, armed_fault, delay_s)
            )
        else:
            self._start_after(armed_fault, delay_s)

    def _start_after(self, armed_fault: ArmedFault, delay_s: float) -> None:
        fault = make_fault(armed_fault.plan.kind, dict(armed_fault.plan.options))
        if delay_s > 0 or not fault.starts_inside_trigger:
            clock = self._target.phone.clock
            when = clock.now + delay_s
            armed_fault.timers.append(
                clock.schedule(when, lambda: self._start(armed_fault, fault), wakes_host=True)
            )
        else:
            self._start(armed_fault, fault)

    def _start(self, armed_fault: ArmedFault, fault: FaultType) -> None:
        armed_fault.cancel_timers()
        armed_fault.state, armed_fault.active_fault = FaultState.ACTIVE, fault
        armed_fault.start_count += 1
        fault.report_end = lambda: self._stop(armed_fault, StopReason.FINISHED)
        self._journal(
            JournalEvent.MISCHIEF_START, armed_fault, options=dict(armed_fault.plan.options)
        )
        try:
            fault.start(self._target)
        except (InvalidMischief, OSError) as error:
            self._journal(JournalEvent.MISCHIEF_ERROR, armed_fault, reason=str(error))
            armed_fault.state, armed_fault.active_fault = FaultState.DONE, None
            return
        if armed_fault.active_fault is not fault:
            return  # it has stopped already
        if not fault.is_lasting:
            self._stop(armed_fault, StopReason.ONE_SHOT)
        else:
            self._schedule_stop(armed_fault)

    def _schedule_stop(self, armed_fault: ArmedFault) -> None:
        plan, clock = armed_fault.plan, self._target.phone.clock
        if plan.for_s is not None:
            when = clock.now + plan.for_s
            if armed_fault.active_fault is not None and armed_fault.active_fault.is_outage:
                clock.let_pass()
                armed_fault.lets_pass = True
            armed_fault.timers.append(
                clock.schedule(
                    when, lambda: self._stop(armed_fault, StopReason.EXPIRED), wakes_host=True
                )
            )
        if plan.for_host_s is not None:
            loop = asyncio.get_running_loop()
            armed_fault.timers.append(
                loop.call_later(plan.for_host_s, self._stop, armed_fault, StopReason.EXPIRED)
            )

    def _stop(self, armed_fault: ArmedFault, reason: StopReason) -> None:
        fault, armed_fault.active_fault = armed_fault.active_fault, None
        if fault is None:
            return
        armed_fault.cancel_timers()
        if armed_fault.lets_pass:
            self._target.phone.clock.stop_passing()
            armed_fault.lets_pass = False
        may_start_again = armed_fault.trigger is not None and (
            armed_fault.plan.times == 0 or armed_fault.start_count < armed_fault.plan.times
        )
        is_rearmed = may_start_again and reason is not StopReason.CLEARED
        armed_fault.state = FaultState.ARMED if is_rearmed else FaultState.DONE
        fault.stop(self._target)
        self._journal(JournalEvent.MISCHIEF_STOP, armed_fault, reason=reason)
        plan = armed_fault.plan
        if plan.every_s and plan.for_s is not None and reason is StopReason.EXPIRED:
            armed_fault.state = FaultState.WAITING
            self._start_after(armed_fault, plan.every_s - plan.for_s)

    def _end(self, armed_fault: ArmedFault) -> None:
        """Stop a fault, or one that waits to start again, because of the event in `until`."""
        if armed_fault.start_count == 0:
            return
        armed_fault.cancel_timers()
        self._stop(armed_fault, StopReason.FINISHED)
        armed_fault.state = FaultState.DONE

    def _journal(self, event: JournalEvent, armed_fault: ArmedFault, **facts: object) -> None:
        self._target.phone.journal.write(
            event, id=armed_fault.number, kind=armed_fault.plan.kind, **facts
        )
