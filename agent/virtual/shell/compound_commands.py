"""Compound commands: groups, if, loops, case. Redirections are applied before they come here."""

import asyncio
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from agent.virtual.shell import expansion
from agent.virtual.shell.call import Streams
from agent.virtual.shell.grammar import Case, For, Group, If, Loop
from agent.virtual.shell.jumps import LoopJump, ShellExit

if TYPE_CHECKING:
    from agent.virtual.shell.interpreter import Shell


async def run_compound(
    shell: "Shell", command: Group | If | Loop | For | Case, streams: Streams
) -> int:
    match command:
        case Group():
            return await _group(shell, command, streams)
        case If():
            return await _if(shell, command, streams)
        case Loop():
            return await _loop(shell, command, streams)
        case For():
            return await _for(shell, command, streams)
        case Case():
            return await _case(shell, command, streams)


async def _group(shell: "Shell", group: Group, streams: Streams) -> int:
    if not group.copied:
        return await shell.run_sequence(group.body, streams)
    try:
        return await shell.copy(shell.process).run_sequence(group.body, streams)
    except ShellExit as leaving:
        return leaving.status


async def _if(shell: "Shell", command: If, streams: Streams) -> int:
    for condition, body in command.branches:
        if await shell.run_condition(condition, streams) == 0:
            return await shell.run_sequence(body, streams)
    shell.status = 0
    if command.otherwise is None:
        return 0
    return await shell.run_sequence(command.otherwise, streams)


async def _loop(shell: "Shell", loop: Loop, streams: Streams) -> int:
    status = 0
    while (await shell.run_condition(loop.condition, streams) == 0) != loop.stop_on:
        try:
            status = await shell.run_sequence(loop.body, streams)
        except LoopJump as jump:
            if not jump.stays():
                break
        # A loop that never waits must not starve the other phones.
        await asyncio.sleep(0)
    return status


async def _for(shell: "Shell", loop: For, streams: Streams) -> int:
    values: list[str] = []
    for word in loop.words:
        values += await expansion.fields(shell, word, streams)
    status = 0
    for value in values:
        shell.variables[loop.name] = value
        try:
            status = await shell.run_sequence(loop.body, streams)
        except LoopJump as jump:
            if not jump.stays():
                break
        await asyncio.sleep(0)
    return status


async def _case(shell: "Shell", case: Case, streams: Streams) -> int:
    subject = await expansion.single(shell, case.subject, streams)
    for patterns, body in case.branches:
        for word in patterns:
            if fnmatchcase(subject, await expansion.pattern(shell, word, streams)):
                return await shell.run_sequence(body, streams)
    return 0
