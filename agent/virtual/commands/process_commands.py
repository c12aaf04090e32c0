"""Commands for processes: sleep, taskset, setsid, sh, su, ps, pgrep, pkill and kill."""

import re
import signal

from agent.virtual.commands.command_options import split_options
from agent.virtual.process_table import Process
from agent.virtual.shell.command_call import (
    CommandCall,
    by_name,
    decode,
    encode,
    run_as_process,
)

USERS = {0: "root", 1000: "system", 2000: "shell"}
_UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


async def sleep(call: CommandCall) -> int:
    total = 0.0
    for word in call.argv[1:]:
        match = re.fullmatch(r"(\d+(?:\.\d+)?|\.\d+)([smhd]?)", word)
        if match is None:
            return call.fail(f"Unknown suffix '{word}'")
        total += float(match[1]) * _UNITS[match[2]]
    if len(call.argv) < 2:
        return call.fail("Needs 1 argument")

    async def body(process: Process) -> int:
        await call.phone.clock.sleep(total)
        return 0

    return await run_as_process(call, call.argv, body)


async def taskset(call: CommandCall) -> int:
    """Handle taskset MASK COMMAND.. and -p [MASK] TID, or -ap [MASK] PID for all its threads.

    toybox wants the mask in hex without 0x.
    """
    options, rest = split_options(call.argv[1:])
    if not rest:
        return call.fail("Needs 1 argument")
    try:
        mask = int(rest[0], 16) & call.phone.processes.all_cores
    except ValueError:
        return call.fail(f"bad mask '{rest[0]}'")
    if "p" in options:
        return _taskset_threads(call, rest, all_threads="a" in options)
    mask &= call.phone.processes.allowed_mask(call.process)
    if mask == 0:
        return call.fail("sched_setaffinity: Invalid argument")
    if len(rest) == 1:
        return call.fail("Needs 2 arguments")

    async def body(process: Process) -> int:
        call.phone.processes.set_mask(process, mask)
        process.awaiting_exec = True
        return await call.shell.invoke(rest[1:], call.streams, process)

    return await run_as_process(call, rest, body)


def _taskset_threads(call: CommandCall, words: list[str], all_threads: bool) -> int:
    processes = call.phone.processes
    tid = int(words[-1]) if words[-1].isdigit() else 0
    process = processes.find(tid) if all_threads else processes.find_by_thread(tid)
    if process is None:
        return call.fail("sched_getaffinity: No such process")
    for thread in process.masks if all_threads else (tid,):
        call.print(f"pid {thread}'s current affinity mask: {process.masks[thread]:x}\n")
        if len(words) == 2:
            mask = int(words[0], 16) & processes.allowed_mask(process)
            if mask == 0:
                return call.fail(f"sched_setaffinity {thread}: Invalid argument")
            if call.uid not in (0, process.uid):
                return call.fail(f"sched_setaffinity {thread}: Operation not permitted")
            processes.set_mask(process, mask, thread)
            call.print(f"pid {thread}'s new affinity mask: {mask:x}\n")
    return 0


async def setsid(call: CommandCall) -> int:
    words = call.argv[1:]
    while words and words[0] in ("-d", "-w", "-c"):
        words.pop(0)
    if not words:
        return call.fail("Needs 1 argument")

    async def body(process: Process) -> int:
        process.session = process.pid
        process.awaiting_exec = True
        return await call.shell.invoke(words, call.streams, process)

    return await run_as_process(call, words, body)


async def sh(call: CommandCall) -> int:
    """Handle sh, sh -c TEXT [NAME ARG..] and sh FILE [ARG..]."""
    options, rest = split_options(call.argv[1:], valued="c")

    async def body(process: Process) -> int:
        shell = call.shell.copy(process)
        shell.arguments = rest[1:]
        if "c" in options:
            shell.name = rest[0] if rest else call.argv[0]
            return await shell.run_text(options["c"], call.streams)
        if rest:
            content = call.phone.tree.read(rest[0], call.uid, call.cwd)
            if b"farmhand-runner" in content:
                process.awaiting_exec = True
                return await shell.invoke([*rest], call.streams, process)
            shell.name = rest[0]
            return await shell.run_text(decode(content), call.streams)
        shell.name = call.argv[0]
        return await shell.run_lines(call.streams.stdin, call.streams)

    return await run_as_process(call, call.argv, body)


async def su(call: CommandCall) -> int:
    """Handle su, su -c TEXT and su 0 COMMAND..: becomes root without a prompt, as Magisk does once
    root is granted.
    """
    if call.phone.refuses_root:
        return call.fail("Permission denied", 13)
    words = call.argv[1:]
    uid = 0
    if words and words[0] in ("0", "root", "2000", "shell"):
        uid = 2000 if words.pop(0) in ("2000", "shell") else 0
    text: str | None = None
    if words and words[0] in ("-c", "--command"):
        text = " ".join(words[1:])
        words = []

    async def body(process: Process) -> int:
        shell = call.shell.copy(process)
        shell.variables["USER"] = USERS[uid]
        shell.name = "/system/bin/sh" if text is not None or words else "sh"
        if text is not None:
            return await shell.run_text(text, call.streams)
        if words:
            process.awaiting_exec = True
            return await shell.invoke(words, call.streams, process)
        return await shell.run_lines(call.streams.stdin, call.streams)

    return await run_as_process(call, ["su"] if text is None else ["sh", "-c", text], body, uid)


def ps(call: CommandCall) -> int:
    options, rest = split_options(call.argv[1:], valued="opu")
    fields = options["o"].lower().split(",") if "o" in options else []
    fields = fields or ["user", "pid", "ppid", "vsz", "rss", "wchan", "addr", "s", "name"]
    pids = {int(word) for word in options.get("p", "").split(",") if word.isdigit()}
    shows_all = bool({"A", "e"} & set(options)) or call.uid == 0 or bool(pids)
    call.print(" ".join(field.upper() for field in fields) + "\n")
    for process in call.phone.processes.all():
        if (pids and process.pid not in pids) or (not shows_all and process.uid != call.uid):
            continue
        facts = {
            "user": USERS.get(process.uid, str(process.uid)),
            "uid": str(process.uid),
            "time+": f"{int(process.cpu_s() // 60)}:{process.cpu_s() % 60:05.2f}",
            "pid": str(process.pid),
            "ppid": str(process.parent),
            "vsz": str(process.rss_kb + 9000),
            "rss": str(process.rss_kb),
            "wchan": "0",
            "addr": "0",
            "tid": str(process.pid),
            "ni": "0",
            "s": process.state,
            "stat": process.state,
            "name": process.argv[0] if process.argv else "",
            "comm": process.name,
            "args": " ".join(process.argv),
            "cmd": " ".join(process.argv),
        }
        call.print(" ".join(facts.get(field, "-") for field in fields) + "\n")
    return 0 if not rest else 1


def kill(call: CommandCall) -> int:
    words = call.argv[1:]
    signal_value = int(signal.SIGTERM)
    if words and words[0] == "-l":
        call.print(" ".join(item.name.removeprefix("SIG") for item in signal.Signals) + "\n")
        return 0
    if words[:1] == ["-s"] and len(words) > 1:
        words = [f"-{words[1]}", *words[2:]]
    if words and re.fullmatch(r"-[A-Za-z0-9]+", words[0]):
        parsed = signal_number(words[0][1:])
        if parsed is None:
            return _fail_as_shell(call, f"{words[0]}: bad signal")
        signal_value, words = parsed, words[1:]
    if words[:1] == ["--"]:
        words = words[1:]
    status = 0
    for word in words:
        status = _kill_one(call, word, signal_value) or status
    return status


def _kill_one(call: CommandCall, word: str, signal_value: int) -> int:
    if not re.fullmatch(r"-?\d+", word):
        return _fail_as_shell(call, f"{word}: arguments must be jobs or process IDs")
    table = call.phone.processes
    if word.startswith("-"):
        targets = [process for process in table.all() if process.session == -int(word)]
    else:
        target = table.find(int(word))
        targets = [target] if target else []
    if not targets:
        return _fail_as_shell(call, f"{word}: No such process")
    for process in targets:
        if call.uid not in (0, process.uid):
            return _fail_as_shell(call, f"{word}: Operation not permitted")
        table.kill(process, signal_value)
    return 0


def signal_number(word: str) -> int | None:
    if word.isdigit():
        return int(word)
    name = "SIG" + word.upper().removeprefix("SIG")
    return int(signal.Signals[name]) if name in signal.Signals.__members__ else None


def _fail_as_shell(call: CommandCall, text: str) -> int:
    """Print an error in the shell's name, because kill is a built-in of the shell."""
    call.streams.stderr.write(encode(f"{call.shell.name}: kill: {text}\n"))
    return 1


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


PROCESS_COMMANDS = by_name(kill, pgrep, pkill, ps, setsid, sh, sleep, su, taskset)
