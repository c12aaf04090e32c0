"""Commands that show and control processes: top, free, pgrep, pkill, renice, time, timeout."""

import asyncio
import re
import signal
from contextlib import suppress
from zlib import crc32

from agent.virtual.commands.command_options import split_options
from agent.virtual.commands.process_commands import USERS, signal_number
from agent.virtual.process_table import Process
from agent.virtual.shell.command_call import CommandCall, CommandFunction, by_name, run_as_process
from agent.virtual.shell.word_expansion import evaluate_arithmetic


def top(call: CommandCall) -> int:
    """Print one snapshot whatever was asked, because tools use `top -n 1`."""
    options, _ = split_options(call.argv[1:], valued="nmdopsuk")
    table = call.phone.processes.all()
    memory = call.phone.profile.memory
    available_kb = call.phone.mem_available_kb()
    busy_cores = sum(len(load.shares) for load in call.phone.soc.loads)
    cores = call.phone.profile.cores
    running = sum(process.state == "R" for process in table)
    call.print(
        f"Tasks: {len(table)} total, {running} running, {len(table) - running} sleeping, "
        f"0 stopped, 0 zombie\n"
        f"  Mem: {memory.total_kb}K total, {memory.total_kb - available_kb}K used, "
        f"{available_kb}K free\n"
        f" Swap: {memory.swap_kb}K total, 0K used, {memory.swap_kb}K free\n"
        f"{cores * 100}%cpu {busy_cores * 100}%user 0%nice 0%sys "
        f"{(cores - busy_cores) * 100}%idle 0%iow\n"
        "  PID USER         PR  NI VIRT  RES  S[%CPU] %MEM     TIME+ ARGS\n"
    )
    rows = sorted(table, key=lambda process: process.state != "R")
    for process in rows[: int(options.get("m") or 40)]:
        cpu_percent = 100.0 * (1 + len(process.threads)) if process.state == "R" else 0.0
        memory_percent = 100.0 * process.rss_kb / memory.total_kb
        call.print(
            f"{process.pid:>5} {USERS.get(process.uid, str(process.uid)):<12} "
            f"{20 + process.nice:>2} {process.nice:>3} {process.rss_kb + 9000}K {process.rss_kb}K "
            f"{process.state} {cpu_percent:>5.1f} {memory_percent:>5.1f} {process.cpu_s():>9.2f} "
            f"{' '.join(process.argv)}\n"
        )
    return 0


def free(call: CommandCall) -> int:
    options, _ = split_options(call.argv[1:])
    memory = call.phone.profile.memory
    available_kb = call.phone.mem_available_kb()
    unit = 1 << 20 if "m" in options else 1 << 10 if "k" in options else 1
    rows = {
        "Mem:": (memory.total_kb, memory.total_kb - available_kb, available_kb),
        "Swap:": (memory.swap_kb, 0, memory.swap_kb),
    }
    call.print(f"{'':<6}{'total':>16}{'used':>16}{'free':>16}\n")
    for name, figures in rows.items():
        call.print(f"{name:<6}" + "".join(f"{kb * 1024 // unit:>16}" for kb in figures) + "\n")
    return 0


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


def renice(call: CommandCall) -> int:
    options, words = split_options(call.argv[1:], valued="n")
    for word in words:
        process = call.phone.processes.find(int(word)) if word.isdigit() else None
        if process is None:
            return call.fail(f"setpriority {word}: No such process")
        if call.uid not in (0, process.uid):
            return call.fail(f"setpriority {word}: Permission denied")
        process.nice = max(min(process.nice + int(options.get("n") or 0), 19), -20)
    return 0


async def time_command(call: CommandCall) -> int:
    started_at = call.phone.model_clock.catch_up()
    status = await call.shell.invoke(call.argv[1:], call.streams) if len(call.argv) > 1 else 0
    elapsed_s = call.phone.model_clock.catch_up() - started_at
    real = f"{elapsed_s // 60:>4.0f}m{elapsed_s % 60:05.2f}s real"
    report = f"{real}     0m00.00s user     0m00.00s system\n"
    call.streams.stderr.write(report.encode())
    return status


async def timeout(call: CommandCall) -> int:
    """Handle timeout [-s SIGNAL] [-k S] SECONDS COMMAND..."""
    _, words = split_options(call.argv[1:], valued="sk")
    seconds = float(words[0].rstrip("s"))

    async def body(process: Process) -> int:
        process.awaiting_exec = True
        command_task = asyncio.ensure_future(call.shell.invoke(words[1:], call.streams, process))
        timer_task = asyncio.ensure_future(call.phone.model_clock.sleep(seconds))
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


async def usleep(call: CommandCall) -> int:
    await call.phone.model_clock.sleep(int(call.argv[1]) / 1e6)
    return 0


async def run_ignoring_options(call: CommandCall) -> int:
    """Handle chrt and ionice: run the command that follows, ignore the rest."""
    _, words = split_options(call.argv[1:], valued="ncpt")
    while words and re.fullmatch(r"\d+", words[0]):
        words.pop(0)
    return await call.shell.invoke(words, call.streams, call.process) if words else 0


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


def vmstat(call: CommandCall) -> int:
    call.print("procs -----------memory---------- ---swap-- -----io---- -system-- ----cpu----\n")
    call.print(" r  b   swpd   free   buff  cache   si   so    bi    bo   in   cs us sy id wa\n")
    running = sum(load.threads for load in call.phone.soc.loads)
    available_kb = call.phone.mem_available_kb()
    figures = (
        f"{running:>2}  0      0 {available_kb:>6}      0      0    0    0     0     0    0    0"
    )
    call.print(f"{figures}  0  0 99  0\n")
    return 0


MONITOR_COMMANDS: dict[str, CommandFunction] = {
    **by_name(
        expr, free, hostid, hostname, nproc, pgrep, pkill, renice, timeout, top, usleep, vmstat
    ),
    "chrt": run_ignoring_options,
    "ionice": run_ignoring_options,
    "time": time_command,
}
