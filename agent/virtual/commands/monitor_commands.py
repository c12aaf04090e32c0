"""Commands that watch and steer processes: top, free, pgrep, pkill, renice, time, timeout."""

import asyncio
import re
import signal
from contextlib import suppress
from zlib import crc32

from agent.virtual.commands.options import split_options
from agent.virtual.commands.processes import USERS, signal_number
from agent.virtual.processes import Process
from agent.virtual.shell.call import Call, Program, occupy
from agent.virtual.shell.expansion import arithmetic


def top(call: Call) -> int:
    """One look, whatever was asked: `top -n 1` is what tools say."""
    options, _ = split_options(call.argv[1:], valued="nmdopsuk")
    table = call.phone.processes.all()
    memory = call.phone.profile.memory
    free = call.phone.free_kb()
    busy = sum(len(load.shares) for load in call.phone.soc.loads)
    cores = call.phone.profile.cores
    running = sum(process.state == "R" for process in table)
    call.say(
        f"Tasks: {len(table)} total, {running} running, {len(table) - running} sleeping, "
        f"0 stopped, 0 zombie\n"
        f"  Mem: {memory.total_kb}K total, {memory.total_kb - free}K used, {free}K free\n"
        f" Swap: {memory.swap_kb}K total, 0K used, {memory.swap_kb}K free\n"
        f"{cores * 100}%cpu {busy * 100}%user 0%nice 0%sys {(cores - busy) * 100}%idle 0%iow\n"
        "  PID USER         PR  NI VIRT  RES  S[%CPU] %MEM     TIME+ ARGS\n"
    )
    rows = sorted(table, key=lambda process: process.state != "R")
    for process in rows[: int(options.get("m") or 40)]:
        share = 100.0 * (1 + len(process.threads)) if process.state == "R" else 0.0
        part = 100.0 * process.rss_kb / memory.total_kb
        call.say(
            f"{process.pid:>5} {USERS.get(process.uid, str(process.uid)):<12} "
            f"{20 + process.nice:>2} {process.nice:>3} {process.rss_kb + 9000}K {process.rss_kb}K "
            f"{process.state} {share:>5.1f} {part:>5.1f} {process.cpu_s():>9.2f} "
            f"{' '.join(process.argv)}\n"
        )
    return 0


def free(call: Call) -> int:
    options, _ = split_options(call.argv[1:])
    memory = call.phone.profile.memory
    left = call.phone.free_kb()
    unit = 1 << 20 if "m" in options else 1 << 10 if "k" in options else 1
    rows = {
        "Mem:": (memory.total_kb, memory.total_kb - left, left),
        "Swap:": (memory.swap_kb, 0, memory.swap_kb),
    }
    call.say(f"{'':<6}{'total':>16}{'used':>16}{'free':>16}\n")
    for name, figures in rows.items():
        call.say(f"{name:<6}" + "".join(f"{kb * 1024 // unit:>16}" for kb in figures) + "\n")
    return 0


def pgrep(call: Call) -> int:
    found = _matching(call, split_options(call.argv[1:], valued="uPst"))
    options, _ = split_options(call.argv[1:], valued="uPst")
    for process in found:
        call.say(f"{process.pid} {process.name}\n" if "l" in options else f"{process.pid}\n")
    return int(not found)


def pkill(call: Call) -> int:
    words = call.argv[1:]
    number: int | None = int(signal.SIGTERM)
    if words and re.fullmatch(r"-[A-Z0-9]+", words[0]):
        number = signal_number(words.pop(0)[1:])
    if number is None:
        return call.complain("bad signal")
    found = _matching(call, split_options(words, valued="uPstl"))
    for process in found:
        if call.uid in (0, process.uid):
            call.phone.processes.kill(process, number)
    return int(not found)


def _matching(call: Call, asked: tuple[dict[str, str], list[str]]) -> list[Process]:
    options, words = asked
    shape = re.compile(words[0] if words else "")
    found = []
    for process in call.phone.processes.all():
        text = " ".join(process.argv) if "f" in options else process.name
        hit = shape.fullmatch(text) if "x" in options else shape.search(text)
        if hit and process is not call.process and process.pid > 1:
            found.append(process)
    return found


def renice(call: Call) -> int:
    options, words = split_options(call.argv[1:], valued="n")
    for word in words:
        process = call.phone.processes.find(int(word)) if word.isdigit() else None
        if process is None:
            return call.complain(f"setpriority {word}: No such process")
        if call.uid not in (0, process.uid):
            return call.complain(f"setpriority {word}: Permission denied")
        process.nice = max(min(process.nice + int(options.get("n") or 0), 19), -20)
    return 0


async def time_command(call: Call) -> int:
    began = call.phone.timeline.catch_up()
    status = await call.shell.invoke(call.argv[1:], call.streams) if len(call.argv) > 1 else 0
    took = call.phone.timeline.catch_up() - began
    told = f"{took // 60:>4.0f}m{took % 60:05.2f}s real     0m00.00s user     0m00.00s system\n"
    call.streams.stderr.write(told.encode())
    return status


async def timeout(call: Call) -> int:
    """timeout [-s SIGNAL] [-k S] SECONDS COMMAND.."""
    _, words = split_options(call.argv[1:], valued="sk")
    seconds = float(words[0].rstrip("s"))

    async def body(process: Process) -> int:
        process.vacant = True
        work = asyncio.ensure_future(call.shell.invoke(words[1:], call.streams, process))
        clock = asyncio.ensure_future(call.phone.timeline.sleep(seconds))
        try:
            await asyncio.wait([work, clock], return_when=asyncio.FIRST_COMPLETED)
            return work.result() if work.done() else 124
        finally:
            for task in (work, clock):
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task

    return await occupy(call, words[1:], body)


def nproc(call: Call) -> int:
    call.say(f"{len(call.phone.soc.online())}\n")
    return 0


async def usleep(call: Call) -> int:
    await call.phone.timeline.sleep(int(call.argv[1]) / 1e6)
    return 0


async def skip_words(call: Call) -> int:
    """chrt, ionice and the like: the command that follows runs as ever."""
    _, words = split_options(call.argv[1:], valued="ncpt")
    while words and re.fullmatch(r"\d+", words[0]):
        words.pop(0)
    return await call.shell.invoke(words, call.streams, call.process) if words else 0


def hostname(call: Call) -> int:
    call.say("localhost\n")
    return 0


def hostid(call: Call) -> int:
    call.say(f"{crc32(call.phone.serial.encode()):08x}\n")
    return 0


def expr(call: Call) -> int:
    value = arithmetic(" ".join(call.argv[1:]), {})
    call.say(f"{value}\n")
    return int(value == 0)


def vmstat(call: Call) -> int:
    call.say("procs -----------memory---------- ---swap-- -----io---- -system-- ----cpu----\n")
    call.say(" r  b   swpd   free   buff  cache   si   so    bi    bo   in   cs us sy id wa\n")
    running = sum(load.threads for load in call.phone.soc.loads)
    left = call.phone.free_kb()
    figures = f"{running:>2}  0      0 {left:>6}      0      0    0    0     0     0    0    0"
    call.say(f"{figures}  0  0 99  0\n")
    return 0


MONITORS: dict[str, Program] = {
    "chrt": skip_words,
    "expr": expr,
    "free": free,
    "hostid": hostid,
    "hostname": hostname,
    "ionice": skip_words,
    "nproc": nproc,
    "pgrep": pgrep,
    "pkill": pkill,
    "renice": renice,
    "time": time_command,
    "timeout": timeout,
    "top": top,
    "usleep": usleep,
    "vmstat": vmstat,
}
