"""Runs compound commands: groups, if, loops and case. Their redirections are applied before."""

import asyncio
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from agent.virtual.phone_clock import PhoneClock
from agent.virtual.shell import word_expansion
from agent.virtual.shell.command_call import StdStreams
from agent.virtual.shell.shell_state import LoopJump, ShellExit
from agent.virtual.shell.syntax_tree import (
    CaseCommand,
    ForCommand,
    GroupCommand,
    IfCommand,
    LoopCommand,
)

if TYPE_CHECKING:
    from agent.virtual.shell.interpreter import Shell

# So many rounds of a loop in which no command waits take this much phone time.
_ROUNDS, _ROUNDS_S = 10, 0.01


class _LoopRounds:
    """The rounds of a loop: lets other processes run after each, and phone time pass.

    The clock is paused while a process computes, so a loop that only checks a condition would
    otherwise never see the time pass.
    """

    def __init__(self, clock: PhoneClock) -> None:
        self._clock = clock
        self._started_at = clock.now
        self._without_wait = 0

    async def end_round(self) -> None:
        clock = self._clock
        has_waited = clock.now > self._started_at
        self._without_wait = 0 if has_waited else self._without_wait + 1
        if self._without_wait == _ROUNDS and clock.speed > 0:
            await clock.sleep(_ROUNDS_S)
            self._without_wait = 0
        else:
            await asyncio.sleep(0)
        self._started_at = clock.now


async def run_compound(
    shell: "Shell",
    command: GroupCommand | IfCommand | LoopCommand | ForCommand | CaseCommand,
    streams: StdStreams,
) -> int:
    match command:
        case GroupCommand():
            return await _run_group(shell, command, streams)
        case IfCommand():
            return await _run_if(shell, command, streams)
        case LoopCommand():
            return await _run_loop(shell, command, streams)
        case ForCommand():
            return await _run_for(shell, command, streams)
        case CaseCommand():
            return await _run_case(shell, command, streams)


async def _run_group(shell: "Shell", group: GroupCommand, streams: StdStreams) -> int:
    if not group.is_subshell:
        return await shell.run_list(group.body, streams)
    try:
        return await shell.copy(shell.process).run_list(group.body, streams)
    except ShellExit as exit_request:
        return exit_request.status


async def _run_if(shell: "Shell", command: IfCommand, streams: StdStreams) -> int:
    for condition, body in command.branches:
        if await shell.run_condition(condition, streams) == 0:
            return await shell.run_list(body, streams)
    shell.status = 0
    if command.otherwise is None:
        return 0
    return await shell.run_list(command.otherwise, streams)


async def _run_loop(shell: "Shell", loop: LoopCommand, streams: StdStreams) -> int:
    status = 0
    rounds = _LoopRounds(shell.phone.clock)
    while (await shell.run_condition(loop.condition, streams) == 0) != loop.is_until:
        try:
            status = await shell.run_list(loop.body, streams)
        except LoopJump as jump:
            if not jump.continues_loop():
                break
        await rounds.end_round()
    return status


async def _run_for(shell: "Shell", loop: ForCommand, streams: StdStreams) -> int:
    values: list[str] = []
    for word in loop.words:
        values += await word_expansion.expand_fields(shell, word, streams)
    status = 0
    rounds = _LoopRounds(shell.phone.clock)
    for value in values:
        shell.variables[loop.name] = value
        try:
            status = await shell.run_list(loop.body, streams)
        except LoopJump as jump:
            if not jump.continues_loop():
                break
        await rounds.end_round()
    return status


async def _run_case(shell: "Shell", case: CaseCommand, streams: StdStreams) -> int:
    subject = await word_expansion.expand_single(shell, case.subject, streams)
    for patterns, body in case.branches:
        for word in patterns:
            if fnmatchcase(subject, await word_expansion.expand_pattern(shell, word, streams)):
                return await shell.run_list(body, streams)
    return 0
