"""The command line of the virtual runner: the commands of kernels/runner/runner.h.

A fault before the first step is also printed to stdout, for a person who runs it by hand.
"""

import asyncio
import signal
from collections.abc import Callable

from agent.virtual.files.file_nodes import Directory
from agent.virtual.files.file_tree import error_text
from agent.virtual.physics.gpu_model import FEEDS, KERNELS
from agent.virtual.process_table import Process
from agent.virtual.runner.gpu_session import OpenCLOptions
from agent.virtual.runner.node_sampler import NodeSampler, has_node_list, make_sampler
from agent.virtual.runner.plan_header import BACKENDS, read_plan_header
from agent.virtual.runner.run_preparation import RunPreparation
from agent.virtual.runner.run_records import JsonlFile
from agent.virtual.runner.runner_contract import (
    CONTRACT,
    VERSION,
    ParsedOptions,
    RunnerExit,
    RunnerFailure,
    RunSettings,
    encode_record,
    parse_options,
)
from agent.virtual.runner.simulated_run import SimulatedRun
from agent.virtual.runner.virtual_checkpoint import VirtualCheckpoint
from agent.virtual.runner.virtual_watchdog import VirtualWatchdog
from agent.virtual.shell.command_call import CommandCall, run_as_process
from agent.virtual.twin.simulated_provenance import provenance_by_family

# A pushed file that contains these bytes is a runner, whatever else it contains.
RUNNER_MARK = b"farmhand-runner"

_INPUTS = ("memory", "storage")
_SUBMISSIONS = ("step", "launch", "recorded")
# Options of `run` with text values, and their choices.
_TEXT_OPTIONS: dict[str, tuple[str, ...]] = {
    "--data": (),  # accepted and ignored: a phone that computes nothing needs no data
    "--input": _INPUTS,
    "--checkpoint": (),
    "--kernels": (),
    "--tuned": (),
    "--fallback": ("cpu",),  # a virtual GPU lacks no operation
    "--kernel": KERNELS,
    "--feed": FEEDS,
    "--submit": _SUBMISSIONS,
}


async def run_runner(call: CommandCall) -> int:
    """Run one command of the runner as a process."""

    async def body(process: Process) -> int:
        try:
            call.phone.catch_up()
            match call.argv[1:]:
                case ["info"]:
                    return _print_info(call)
                case ["run", plan, folder, *options]:
                    return await _run_plan(call, process, plan, _absolute(call, folder), options)
                case ["sample", folder, *options]:
                    return await _run_sampler(call, process, _absolute(call, folder), options)
                case ["watchdog", folder, *options]:
                    return await _run_watchdog(call, process, _absolute(call, folder), options)
                case ["wait", pid, *options]:
                    return await _wait_for_end(call, pid, options)
                case ["dump", _, _, *_] | ["memory", _]:
                    text = "a virtual phone computes nothing; use a real phone or a computer"
                    raise RunnerFailure(RunnerExit.UNSUPPORTED, text)
                case ["tune", _, *_]:
                    text = "a virtual phone has no kernels to tune; tune a real phone"
                    raise RunnerFailure(RunnerExit.UNSUPPORTED, text)
                case _:
                    text = (
                        "use info, run, sample, watchdog, wait, dump, memory or tune; see runner.h"
                    )
                    raise RunnerFailure(RunnerExit.USAGE, text)
        except RunnerFailure as fault:
            call.print(encode_record(fault.record()) + "\n")
            return int(fault.exit_code)

    return await run_as_process(call, call.argv, body)


def _print_info(call: CommandCall) -> int:
    opencl = call.phone.opencl
    backends = BACKENDS if opencl.devices else BACKENDS[:1]
    line = {
        "line": "info",
        "contract": CONTRACT,
        "runner": VERSION,
        "abi": "arm64-v8a",
        "backends": backends,
        "features": ["asimd"],
        "opencl": [opencl.describe(device) for device in opencl.devices],
        "kernels": KERNELS,
        "feeds": FEEDS,
        "inputs": _INPUTS,
        "submissions": _SUBMISSIONS,
        # of any run: that of the backend whose error is known least
        "provenance": provenance_by_family(call.phone.profile, None, backends[-1]),
    }
    call.print(encode_record(line) + "\n")
    return int(RunnerExit.DONE)


async def _run_plan(
    call: CommandCall, process: Process, plan_path: str, folder: str, arguments: list[str]
) -> int:
    defaults = RunSettings()
    number_defaults = {
        "--warmup": float(defaults.warmup),
        "--steps": float(defaults.steps),
        "--seconds": defaults.seconds,
        "--max-seconds": defaults.max_seconds,
        "--window-ms": defaults.window_ms,
        "--period-ms": defaults.period_ms,
        "--trace-steps": float(defaults.trace_steps),
        "--device": 0.0,
        "--checkpoint-s": 30.0,
    }
    options = parse_options(arguments, number_defaults, _TEXT_OPTIONS)
    if (options.texts.get("--feed"), options.texts.get("--input")) == ("preloaded", "storage"):
        text = "--feed preloaded cannot be combined with --input storage"
        raise RunnerFailure(RunnerExit.USAGE, text)
    output = JsonlFile(call.phone, f"{folder}/out.jsonl", process.uid)
    try:
        return await _start_run(call, process, plan_path, folder, options, output)
    except RunnerFailure as fault:
        output.write(fault.record())
        raise


def _run_settings(options: ParsedOptions) -> RunSettings:
    numbers = options.numbers
    return RunSettings(
        int(numbers["--warmup"]),
        int(numbers["--steps"]),
        numbers["--seconds"],
        numbers["--max-seconds"],
        numbers["--window-ms"],
        numbers["--period-ms"],
        int(numbers["--trace-steps"]),
    )


def _opencl_options(call: CommandCall, options: ParsedOptions) -> OpenCLOptions:
    texts, defaults = options.texts, OpenCLOptions()
    kernels, tuned = (
        _absolute(call, texts[name]) if name in texts else "" for name in ("--kernels", "--tuned")
    )
    return OpenCLOptions(
        kernels,
        tuned,
        int(options.numbers["--device"]),
        texts.get("--kernel", defaults.kernel),
        texts.get("--feed", defaults.feed),
    )


async def _start_run(
    call: CommandCall,
    process: Process,
    plan_path: str,
    folder: str,
    options: ParsedOptions,
    output: JsonlFile,
) -> int:
    try:
        content = call.phone.tree.read(plan_path, process.uid, call.cwd)
    except OSError as error:
        raise RunnerFailure(RunnerExit.BAD_PLAN, f"{plan_path}: {error_text(error)}") from None
    plan = read_plan_header(content)
    settings = _run_settings(options)
    preparation = RunPreparation(
        call.phone,
        process,
        plan,
        _absolute(call, plan_path).rpartition("/")[0] or "/",
        folder,
        _opencl_options(call, options),
        reads_storage=options.texts.get("--input") == "storage",
        has_data_file="--data" in options.texts,
    )
    run = SimulatedRun(call.phone, process, plan, settings, output, preparation)
    if "--checkpoint" in options.texts:
        path, every_s = options.texts["--checkpoint"], options.numbers["--checkpoint-s"]
        identity = f"{plan.case}/{plan.backend}/{plan.threads}"
        run.checkpoint = VirtualCheckpoint(
            call.phone, process, _absolute(call, path), every_s, identity, process.mask
        )
    for _ in range(plan.threads - 1):
        run.workers.append(call.phone.processes.add_thread(process, process.mask))
    if plan.backend != "cpu":  # the thread of a driver may use any core of the run
        call.phone.processes.add_thread(process, process.mask)
    run.pin_threads()
    if has_node_list(call.phone, folder, process.uid):
        run.sampler = NodeSampler(call.phone, folder, process, settings.period_s, run.fail)
        all_cores = call.phone.processes.all_cores
        own_cores = all_cores & ~run.mask or all_cores
        run.sampler.thread = call.phone.processes.add_thread(process, own_cores)

    def on_signal(signal_number: int) -> bool:
        if signal_number != signal.SIGTERM:
            return False
        run.request_stop()
        return True

    process.on_signal = on_signal
    process.on_end = run.release
    process.on_mask_change = run.follow_masks
    process.on_pause = run.pause
    try:
        # The first sample takes host time; start it before the work, so that no window precedes it.
        if run.sampler is not None:
            run.sampler.start()
        run.start()
        with call.phone.clock.blocked():
            return await run.outcome
    finally:
        run.release()


async def _run_sampler(
    call: CommandCall, process: Process, folder: str, arguments: list[str]
) -> int:
    options = parse_options(arguments, {"--period-ms": 200.0, "--seconds": 60.0}).numbers
    _require_directory(call, folder)
    outcome: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def finish(status: int) -> None:
        if not outcome.done():
            sampler.stop()  # at this phone time, however late the host wakes up
            outcome.set_result(status)

    def on_fault(fault: RunnerFailure) -> None:
        finish(int(fault.exit_code))

    period_s = RunSettings(period_ms=options["--period-ms"]).period_s
    sampler = make_sampler(call.phone, folder, process, period_s, on_fault)
    clock = call.phone.clock
    process.on_end = sampler.stop
    process.on_signal = lambda signal_number: _handle_sigterm(signal_number, finish)
    end = clock.schedule(clock.now + options["--seconds"], lambda: finish(0), wakes_host=True)
    sampler.start()
    try:
        with clock.blocked():
            status = await outcome
    finally:
        end.cancel()
        sampler.stop()
    if status == RunnerExit.DONE:
        call.print(encode_record(sampler.cost_record()) + "\n")
    return status


async def _run_watchdog(
    call: CommandCall, process: Process, folder: str, arguments: list[str]
) -> int:
    options = parse_options(arguments, {"--timeout-s": 60.0}).numbers
    _require_directory(call, folder)
    watchdog = VirtualWatchdog(call.phone, process, folder, options["--timeout-s"])
    process.on_end = watchdog.cancel
    watchdog.start()
    try:
        with call.phone.clock.blocked():
            return await watchdog.outcome
    finally:
        watchdog.cancel()


async def _wait_for_end(call: CommandCall, pid: str, arguments: list[str]) -> int:
    """Wait until a process has ended, at most for some seconds."""
    seconds = parse_options(arguments, {"--seconds": 15.0}).numbers["--seconds"]
    if not pid.isdecimal() or not 1 <= int(pid) < 1_000_000_000:
        raise RunnerFailure(RunnerExit.USAGE, f"{pid} is not the id of a process")
    target = call.phone.processes.find(int(pid))
    ended = [target.task] if target is not None and target.task is not None else []
    if target is None:
        return int(RunnerExit.DONE)
    timer = asyncio.ensure_future(call.phone.clock.sleep(seconds))
    try:
        with call.phone.clock.blocked():
            await asyncio.wait([*ended, timer], return_when=asyncio.FIRST_COMPLETED)
    finally:
        timer.cancel()
    return int(RunnerExit.DONE)


def _handle_sigterm(signal_number: int, finish: Callable[[int], None]) -> bool:
    """End a command on SIGTERM without further output."""
    if signal_number == signal.SIGTERM:
        finish(int(RunnerExit.STOPPED))
        return True
    return False


def _require_directory(call: CommandCall, folder: str) -> None:
    try:
        node, _ = call.phone.tree.resolve(folder, call.process.uid)
    except OSError as error:
        raise RunnerFailure(RunnerExit.IO, f"{folder}: {error_text(error)}") from None
    if not isinstance(node, Directory):
        raise RunnerFailure(RunnerExit.IO, f"{folder} is not a directory")


def _absolute(call: CommandCall, path: str) -> str:
    return path if path.startswith("/") else f"{call.cwd.rstrip('/')}/{path}"
