"""The event loop of virtual phones: it pauses a phone's clock while a process of the phone runs.

A process is a task, and asyncio continues a task with `call_soon`. The clock is paused from the
moment such a callback is queued until it has run. A process therefore resumes at exactly the time
that it waited for, and what it computes takes no phone time, however slow the host is.
"""

import asyncio
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar, copy_context
from typing import TypeVar, TypeVarTuple

from agent.virtual.phone_clock import IS_ATTACHED, PhoneClock

_Args = TypeVarTuple("_Args")
_Result = TypeVar("_Result")

# The clock of the phone whose process runs; tasks inherit it from the task that creates them.
_PROCESS_CLOCK: ContextVar[PhoneClock | None] = ContextVar("process_clock", default=None)


class PhoneLoop(asyncio.SelectorEventLoop):
    """An event loop that knows which callbacks belong to a phone's processes."""

    def call_soon(
        self,
        callback: Callable[[*_Args], object],
        *args: *_Args,
        context: Context | None = None,
    ) -> asyncio.Handle:
        clock = _PROCESS_CLOCK.get() if context is None else context.get(_PROCESS_CLOCK)
        if clock is None:
            return super().call_soon(callback, *args, context=context)

        def run_callback() -> None:
            try:
                callback(*args)
            finally:
                clock.resume()

        handle = super().call_soon(run_callback, context=context)
        clock.pause()
        return handle


def process_context(clock: PhoneClock) -> Context:
    """Return a context for the tasks of an attached service of a phone."""
    context = copy_context()
    context.run(_PROCESS_CLOCK.set, clock)
    context.run(IS_ATTACHED.set, True)
    return context


def background_context() -> Context:
    """Return a context for a process that runs beside the one that starts it."""
    context = copy_context()
    context.run(IS_ATTACHED.set, False)
    return context


def run_phones(main: Coroutine[object, object, _Result]) -> _Result:
    """Run a coroutine that serves phones, as `asyncio.run` does."""
    with asyncio.Runner(loop_factory=PhoneLoop) as runner:
        return runner.run(main)
