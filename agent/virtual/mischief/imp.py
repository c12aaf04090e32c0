"""An imp sits on one phone: it waits for its moments, makes trouble, and takes it back.

Every start and stop is in the phone's journal; the imp sees the phone only through that journal
and a few seams, and a phone without mischief has no imp.
"""

import asyncio
import random
from collections.abc import Awaitable
from dataclasses import dataclass, field

from agent.virtual.mischief.effect import BadMischief, Effect, Victim
from agent.virtual.mischief.kinds import make
from agent.virtual.mischief.script import Plan, Trigger
from agent.virtual.shell.call import Call, Program
from agent.virtual.timeline import Event

_SHORT_RUN_S = 0.5  # a warm-up of somebody, not the run that is meant
_OWN_EVENTS = ("mischief_start", "mischief_stop", "mischief_failed")


@dataclass(eq=False, slots=True)
class Prank:
    """One plan on this phone: what it waits for, and what is at work."""

    number: int
    plan: Plan
    trigger: Trigger | None
    dice: random.Random
    state: str = "armed"  # armed, waiting, active, over
    seen: int = 0
    fired: int = 0
    effect: Effect | None = None
    timers: list[Event | asyncio.TimerHandle] = field(default_factory=list)

    @property
    def of_a_run(self) -> bool:
        return self.trigger is not None and self.trigger.run_share is not None

    def forget_timers(self) -> None:
        for timer in self.timers:
            if isinstance(timer, Event):
                timer.drop()
            else:
                timer.cancel()
        self.timers.clear()


class Imp:
    """The mischief of one phone."""

    def __init__(self, victim: Victim) -> None:
        self._victim = victim
        self._pranks: dict[int, Prank] = {}
        victim.phone.mischief = self
        victim.phone.journal.listener = self._heard
        victim.door.wire = victim.wire

    # -- what it is told

    def add(self, number: int, plan: Plan, dice: random.Random) -> None:
        """Take on a plan: wait for its trigger, or begin."""
        prank = Prank(number, plan, plan.trigger, dice)
        self._pranks[number] = prank
        if prank.trigger is None:
            self._get_ready(prank)

    def clear(self, number: int | None = None) -> int:
        """Stop and forget one prank, or all; say how many there were."""
        chosen = [prank for prank in self._pranks.values() if number in (None, prank.number)]
        for prank in reversed(chosen):  # what lies on top goes first
            prank.forget_timers()
            self._stop(prank, "cleared")
            del self._pranks[prank.number]
        return len(chosen)

    def describe(self) -> list[dict[str, object]]:
        """All pranks, as the control socket tells them."""
        return [
            {
                "id": prank.number,
                "phone": self._victim.phone.serial,
                "kind": prank.plan.kind,
                "state": prank.state,
                "at": prank.plan.at,
                "fired": prank.fired,
                "options": dict(prank.plan.options),
            }
            for prank in self._pranks.values()
        ]

    # -- seams of the phone

    def allows_service(self, name: str) -> bool:
        return not any(refuses(name) for refuses in self._victim.refusals)

    def around(self, program: Program) -> Program:
        """A command, seen by those who wait for it and changed by those who are at work."""

        def run(call: Call) -> int | Awaitable[int]:
            self._heard("command", {"argv": " ".join(call.argv)})
            for twist in self._victim.twists:
                if twist.matches(call):
                    return twist.run(call, program)
            return program(call)

        return run

    def _heard(self, event: str, facts: dict[str, object]) -> None:
        if event in _OWN_EVENTS:
            return
        for prank in list(self._pranks.values()):
            if prank.state == "active" and prank.effect is not None:
                prank.effect.heard(self._victim, event, facts)
            elif prank.state == "armed" and prank.trigger is not None:
                self._weigh(prank, prank.trigger, event, facts)
            elif prank.state == "waiting" and event == "run_stop" and prank.of_a_run:
                prank.forget_timers()  # that run ended before its share was reached
                prank.state = "armed"

    # -- moments

    def _weigh(self, prank: Prank, trigger: Trigger, event: str, facts: dict[str, object]) -> None:
        if not trigger.matches(event, facts):
            return
        if trigger.run_share is not None and float(str(facts["expected_s"])) < _SHORT_RUN_S:
            return
        prank.seen += 1
        if prank.seen < trigger.nth:
            return
        prank.seen = 0
        if trigger.run_share is not None:
            self._get_ready(prank, trigger.run_share * float(str(facts["expected_s"])))
        else:
            self._get_ready(prank)

    def _get_ready(self, prank: Prank, extra_s: float = 0.0) -> None:
        """The trigger has come: begin, now or after the delay that was asked for."""
        plan, dice = prank.plan, prank.dice
        if plan.chance < 1.0 and dice.random() >= plan.chance:
            prank.state = "armed" if prank.trigger is not None else "over"
            return
        prank.state = "waiting"
        delay_s = extra_s + plan.after_s + (dice.random() * plan.jitter_s if plan.jitter_s else 0.0)
        if plan.after_host_s:
            loop = asyncio.get_running_loop()
            prank.timers.append(loop.call_later(plan.after_host_s, self._after, prank, delay_s))
        else:
            self._after(prank, delay_s)

    def _after(self, prank: Prank, delay_s: float) -> None:
        effect = make(prank.plan.kind, dict(prank.plan.options))
        if delay_s > 0 or not effect.abrupt:
            timeline = self._victim.phone.timeline
            when = timeline.now + delay_s
            prank.timers.append(timeline.at(when, lambda: self._start(prank, effect), prompt=True))
        else:
            self._start(prank, effect)

    def _start(self, prank: Prank, effect: Effect) -> None:
        prank.forget_timers()
        prank.state, prank.effect = "active", effect
        prank.fired += 1
        effect.ended = lambda: self._stop(prank, "over")
        self._note("mischief_start", prank, options=dict(prank.plan.options))
        try:
            effect.start(self._victim)
        except (BadMischief, OSError) as error:
            self._note("mischief_failed", prank, why=str(error))
            prank.state, prank.effect = "over", None
            return
        if prank.effect is not effect:
            return  # over already
        if not effect.lasting:
            self._stop(prank, "done")
        else:
            self._plan_end(prank)

    def _plan_end(self, prank: Prank) -> None:
        plan, timeline = prank.plan, self._victim.phone.timeline
        if plan.for_s is not None:
            when = timeline.now + plan.for_s
            prank.timers.append(timeline.at(when, lambda: self._stop(prank, "time"), prompt=True))
        if plan.for_host_s is not None:
            loop = asyncio.get_running_loop()
            prank.timers.append(loop.call_later(plan.for_host_s, self._stop, prank, "time"))

    def _stop(self, prank: Prank, why: str) -> None:
        effect, prank.effect = prank.effect, None
        if effect is None:
            return
        prank.forget_timers()
        again = prank.trigger is not None and (
            prank.plan.times == 0 or prank.fired < prank.plan.times
        )
        prank.state = "armed" if again and why != "cleared" else "over"
        effect.stop(self._victim)
        self._note("mischief_stop", prank, why=why)

    def _note(self, event: str, prank: Prank, **facts: object) -> None:
        self._victim.phone.journal.write(event, id=prank.number, kind=prank.plan.kind, **facts)
