"""Commands that find and end processes, and the few others that agents and devlib use."""

import asyncio
import re
import signal
from contextlib import suppress
from zlib import crc32

from agent.virtual.commands.command_options import split_options
from agent.virtual.commands.process_commands import signal_number
from agent.virtual.process_table import Process
from agent.virtual.shell.command_call import CommandCall, by_name, run_as_process
from agent.virtual.shell.word_expansion import evaluate_arithmetic


def pgrep(call: CommandCall) -> int:
    processes = _matching_processes(call, split_options(call.argv[1:], valued="uPst"))
    options, _ = split_options(call.argv[1:], valued="uPst")
    for process in processes:
        call.print(f"{process.pid} {process.name}\n" if "l" in options else f"{process.pid}\n")
    return int(not processes)


def pkill(call: CommandCall) -> int:
    words = call.argv[1:]
    number: int | None = int(signal.SIGTERM)
    if words and re.fullmatch(r"-[A-Z0-9]+", words[0]):
        number = signal_number(words.pop(0)[1:])
    if number is None:
        return call.fail("bad signal")
    processes = _matching_processes(call, split_options(words, valued="uPstl"))
    for process in processes:
        if call.uid in (0, process.uid):
            call.phone.processes.kill(process, number)
    return int(not processes)


def _matching_processes(
    call: CommandCall, arguments: tuple[dict[str, str], list[str]]
) -> list[Process]:
    options, words = arguments
    pattern = re.compile(words[0] if words else "")
    processes = []
    for process in call.phone.processes.all():
        text = " ".join(process.argv) if "f" in options else process.name
        match = pattern.fullmatch(text) if "x" in options else pattern.search(text)
        if match and process is not call.process and process.pid > 1:
            processes.append(process)
    return processes


async def timeout(call: CommandCall) -> int:
    """Handle timeout [-s SIGNAL] [-k S] SECONDS COMMAND..."""
    _, words = split_options(call.argv[1:], valued="sk")
    seconds = float(words[0].rstrip("s"))

    async def body(process: Process) -> int:
        process.awaiting_exec = True
        command_task = asyncio.ensure_future(call.shell.invoke(words[1:], call.streams, process))
        timer_task = asyncio.ensure_future(call.phone.clock.sleep(seconds))
        try:
            await asyncio.wait([command_task, timer_task], return_when=asyncio.FIRST_COMPLETED)
            return command_task.result() if command_task.done() else 124
        finally:
            for task in (command_task, timer_task):
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task

    return await run_as_process(call, words[1:], body)


def nproc(call: CommandCall) -> int:
    call.print(f"{len(call.phone.soc.online_cpus())}\n")
    return 0


def hostname(call: CommandCall) -> int:
    call.print("localhost\n")
    return 0


def hostid(call: CommandCall) -> int:
    call.print(f"{crc32(call.phone.serial.encode()):08x}\n")
    return 0


def expr(call: CommandCall) -> int:
    value = evaluate_arithmetic(" ".join(call.argv[1:]), {})
    call.print(f"{value}\n")
    return int(value == 0)


MONITOR_COMMANDS = by_name(expr, hostid, hostname, nproc, pgrep, pkill, timeout)
