"""The runner's command line: info, run, sample, guard, as kernels/runner/runner.h has them.

A fault before the first step is said on stdout as well, for whoever started us by hand.
"""

import asyncio
import signal
from collections.abc import Callable

from agent.virtual.files.nodes import Directory
from agent.virtual.files.tree import strerror
from agent.virtual.processes import Process
from agent.virtual.runner.contract import (
    CONTRACT,
    VERSION,
    Exit,
    RunnerFault,
    RunSettings,
    encode_line,
    read_options,
)
from agent.virtual.runner.guard import Guard
from agent.virtual.runner.lines import Lines
from agent.virtual.runner.plan import read_plan
from agent.virtual.runner.sampler import Sampler, has_nodes, sampler_for
from agent.virtual.runner.work import Work
from agent.virtual.shell.call import Call, occupy
from agent.virtual.twin.provenance import provenance_of

# A pushed file that holds these bytes is a runner, whatever else it is.
RUNNER_MARK = b"farmhand-runner"

# What a run is told in words; a simulated phone has no OpenCL, and says so when a plan asks for it.
_TEXTS = frozenset({"--data", "--kernels", "--tuned", "--device", "--fallback"})


async def runner(call: Call) -> int:
    """Run one verb as a process of its own."""

    async def body(process: Process) -> int:
        try:
            call.phone.timeline.catch_up()
            match call.argv[1:]:
                case ["info"]:
                    return _info(call)
                case ["run", plan, folder, *options]:
                    return await _run(call, process, plan, _absolute(call, folder), options)
                case ["sample", folder, *options]:
                    return await _sample(call, process, _absolute(call, folder), options)
                case ["guard", folder, *options]:
                    return await _guard(call, process, _absolute(call, folder), options)
                case ["dump", _, _, *_]:
                    text = "a phone that computes nothing has no tensors to dump; ask a real one"
                    raise RunnerFault(Exit.UNSUPPORTED, text)
                case _:
                    raise RunnerFault(
                        Exit.USAGE, "say info, run, sample, guard, dump; see runner.h"
                    )
        except RunnerFault as fault:
            call.say(encode_line(fault.line()) + "\n")
            return int(fault.exit_code)

    return await occupy(call, call.argv, body)


def _info(call: Call) -> int:
    line = {
        "line": "info",
        "contract": CONTRACT,
        "runner": VERSION,
        "abi": "arm64-v8a",
        "backends": ["cpu"],
        "features": ["asimd"],
        "opencl": [],
        "provenance": provenance_of(call.phone.profile, None),
    }
    call.say(encode_line(line) + "\n")
    return int(Exit.DONE)


async def _run(call: Call, process: Process, plan_path: str, folder: str, words: list[str]) -> int:
    defaults = RunSettings()
    known = {
        "--warmup": float(defaults.warmup),
        "--steps": float(defaults.steps),
        "--seconds": defaults.seconds,
        "--max-seconds": defaults.max_seconds,
        "--window-ms": defaults.window_ms,
        "--period-ms": defaults.period_ms,
        "--trace-steps": float(defaults.trace_steps),
    }
    options = read_options(words, known, _TEXTS)
    settings = RunSettings(
        int(options["--warmup"]),
        int(options["--steps"]),
        options["--seconds"],
        options["--max-seconds"],
        options["--window-ms"],
        options["--period-ms"],
        int(options["--trace-steps"]),
    )
    lines = Lines(call.phone, f"{folder}/out.jsonl", process.uid)
    try:
        return await _work(call, process, plan_path, folder, settings, lines)
    except RunnerFault as fault:
        lines.say(fault.line())
        raise


async def _work(
    call: Call,
    process: Process,
    plan_path: str,
    folder: str,
    settings: RunSettings,
    lines: Lines,
) -> int:
    try:
        content = call.phone.tree.read(plan_path, process.uid, call.cwd)
    except OSError as error:
        raise RunnerFault(Exit.BAD_PLAN, f"{plan_path}: {strerror(error)}") from None
    plan = read_plan(content)
    work = Work(call.phone, process, plan, settings, lines)
    for _ in range(plan.threads - 1):
        call.phone.processes.add_thread(process, process.mask)
    if has_nodes(call.phone, folder, process.uid):
        work.sampler = Sampler(call.phone, folder, process, settings.period_s, work.fail)
        everyone = call.phone.processes.all_cores
        call.phone.processes.add_thread(process, everyone & ~process.mask or everyone)

    def on_signal(number: int) -> bool:
        if number != signal.SIGTERM:
            return False
        work.stop_soon()
        return True

    process.on_signal = on_signal
    process.on_end = work.release
    process.on_mask = work.set_mask
    process.on_pause = work.pause
    try:
        # The first look takes host time; the work must not run away from its sampler meanwhile.
        if work.sampler is not None:
            work.sampler.start()
        work.begin()
        return await work.outcome
    finally:
        work.release()


async def _sample(call: Call, process: Process, folder: str, words: list[str]) -> int:
    options = read_options(words, {"--period-ms": 200.0, "--seconds": 60.0})
    _require_folder(call, folder)
    outcome: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def finish(status: int) -> None:
        if not outcome.done():
            sampler.stop()  # at this very moment, however late we come to look
            outcome.set_result(status)

    def on_fault(fault: RunnerFault) -> None:
        finish(int(fault.exit_code))

    period_s = RunSettings(period_ms=options["--period-ms"]).period_s
    sampler = sampler_for(call.phone, folder, process, period_s, on_fault)
    timeline = call.phone.timeline
    process.on_end = sampler.stop
    process.on_signal = lambda number: _stops(number, finish)
    end = timeline.at(timeline.now + options["--seconds"], lambda: finish(0), prompt=True)
    sampler.start()
    try:
        status = await outcome
    finally:
        end.drop()
        sampler.stop()
    if status == Exit.DONE:
        call.say(encode_line(sampler.cost()) + "\n")
    return status


async def _guard(call: Call, process: Process, folder: str, words: list[str]) -> int:
    options = read_options(words, {"--silence-s": 60.0})
    _require_folder(call, folder)
    guard = Guard(call.phone, process, folder, options["--silence-s"])
    process.on_end = guard.release
    guard.begin()
    try:
        return await guard.outcome
    finally:
        guard.release()


def _stops(number: int, finish: Callable[[int], None]) -> bool:
    """SIGTERM ends a verb without further words."""
    if number == signal.SIGTERM:
        finish(int(Exit.STOPPED))
        return True
    return False


def _require_folder(call: Call, folder: str) -> None:
    try:
        node, _ = call.phone.tree.resolve(folder, call.process.uid)
    except OSError as error:
        raise RunnerFault(Exit.IO, f"{folder}: {strerror(error)}") from None
    if not isinstance(node, Directory):
        raise RunnerFault(Exit.IO, f"{folder} is not a folder")


def _absolute(call: Call, path: str) -> str:
    return path if path.startswith("/") else f"{call.cwd.rstrip('/')}/{path}"
