"""An external program on the phone: its files by digest, started and followed like the runner.

The program knows nothing of the runner's contract. A script of Farmhand writes the hello and exit
records for it, `runner sample` samples the nodes beside it, and its figures are parsed from what it
printed; the result is the RunnerOutput of a run like any other.
"""

import shlex
from collections.abc import Callable, Iterator
from contextlib import suppress
from hashlib import file_digest
from pathlib import Path
from typing import Any

from pydantic import Field

from agent.collect.runner_output import (
    WINDOWS_MAX,
    Count,
    DoneRecord,
    RunnerOutput,
    RunnerRecord,
    StepWindow,
    parse_record,
    unexpected_record,
)
from agent.deadline import Deadline
from agent.launch.launch_spec import LaunchSpec
from agent.launch.parse_in_subprocess import read_in_subprocess
from agent.launch.runner_process import RunProgress, watch_runner
from agent.phone.kernel_nodes import first_number
from agent.phone.phone_driver import Phone
from agent.phone.phone_paths import (
    HOME,
    LANE_DIR,
    NODE_LIST,
    OUTPUT,
    PLAN,
    PROGRAM_DIR,
    PROGRAM_STDERR,
    PROGRAM_STDOUT,
    RUNNER_STDERR,
    lane_file,
)
from agent.phone.phone_waits import PhoneWaits
from agent.phone.shell_command import ShellCommand, ShellResult
from workloads.external_program import PRINTED_BYTES_MAX, Manifest, ProgramFile, fill_placeholders
from workloads.program_output import ProgramFigures, StepGroup
from workloads.protocol.faults import (
    BadOutput,
    FarmError,
    InvalidRequest,
    RunnerFailed,
    ShellFailed,
)
from workloads.text import safe_text

FILES_DIR = f"{HOME}/files"
FILE_BYTES_MAX = 2 * 1024**3
SLOWEST_PUSH_BYTES_PER_S = 4 * 1024 * 1024
WRITTEN_BLOCKS_MAX = 65536  # of 512 bytes: the limit for each file that the program writes
SAMPLER_MARGIN_S = 60.0
NOT_EXECUTABLE, NOT_FOUND, SIGNAL_BASE = 126, 127, 128  # exit statuses of a POSIX shell
CLOCK_TOLERANCE_NS = 20_000_000  # /proc/uptime counts in 10 ms, and it is read twice


class ScriptRecord(RunnerRecord):
    """The pid of the script that writes the records."""

    pid: int = Field(ge=2, le=2**22)


class ExitRecord(RunnerRecord):
    """The script's final record: the program's exit status, and when it exited."""

    status: int = Field(ge=0, le=255)
    t_ns: Count


class ExternalOutput(RunnerOutput):
    """The records that our script writes for an external program."""

    def __init__(self, case: str) -> None:
        super().__init__(case)
        self.script: ScriptRecord | None = None
        self.exit: ExitRecord | None = None

    @property
    def writer_pid(self) -> int | None:
        """The script: it writes the final record after the program has exited."""
        return self.script.pid if self.script else None

    @property
    def ended(self) -> bool:
        """Whether the program has exited."""
        return self.exit is not None

    def _take_after_hello(self, kind: object, members: dict[str, Any]) -> None:
        match kind:
            case "script" if self.script is None:
                self.script = parse_record(ScriptRecord, members)
            case "exit":
                self.exit = parse_record(ExitRecord, members)
            case _:
                raise unexpected_record(kind)


def manifest_of(spec: LaunchSpec) -> Manifest:
    """The manifest of a case that has one."""
    assert spec.case.manifest is not None
    return spec.case.manifest


def install_program(phone: Phone, spec: LaunchSpec, files_dir: Path) -> None:
    """Put the program's files, our script and the list of sampled nodes on the phone."""
    manifest = manifest_of(spec)
    # All files are checked before the first one is pushed.
    host_files = [(file, _find_on_host(file, files_dir)) for file in manifest.files]
    for file, host_path in host_files:
        _push_once(phone, file, host_path)
    program_dir = lane_file(PROGRAM_DIR)
    commands = [
        ShellCommand(["rm", "-rf", program_dir]),
        ShellCommand(["mkdir", "-p", program_dir]),
    ]
    commands += [
        ShellCommand(["ln", "-s", f"{FILES_DIR}/{file.sha256}", f"{program_dir}/{file.name}"])
        for file in manifest.files
    ]
    for result in phone.shell_batch(commands):
        if result.status != 0:
            raise ShellFailed(f"{program_dir} cannot be prepared: {safe_text(result.text)}")
    phone.push(launch_script(spec).encode(), lane_file(PLAN))
    phone.push("".join(f"{path}\n" for path in spec.nodes).encode(), lane_file(NODE_LIST))


def _find_on_host(file: ProgramFile, files_dir: Path) -> Path:
    path = files_dir / file.sha256
    try:
        size = path.stat().st_size
        with path.open("rb") as stream:
            digest = file_digest(stream, "sha256").hexdigest()
    except OSError:
        raise InvalidRequest(
            f"{file.name} is not on this host: its lab has no "
            f"{files_dir.name}/{file.sha256[:12]}...; add it with 'farm workload add'"
        ) from None
    if digest != file.sha256:
        raise InvalidRequest(
            f"{files_dir.name}/{path.name[:12]}... is damaged (its SHA-256 is not its name); "
            "add it again"
        )
    if size > FILE_BYTES_MAX:
        raise InvalidRequest(
            f"{file.name} has {size} bytes, at most {FILE_BYTES_MAX} can be pushed; make it smaller"
        )
    return path


def _push_once(phone: Phone, file: ProgramFile, host_path: Path) -> None:
    path = f"{FILES_DIR}/{file.sha256}"
    size = host_path.stat().st_size
    limit_s = phone.timeouts.transfer_timeout_s + size / SLOWEST_PUSH_BYTES_PER_S
    deadline = Deadline.after(limit_s)
    installed = phone.shell_batch([phone.digest_command(path)], deadline)[0]
    if not phone.has_printed_digest(installed, file.sha256, host_path.read_bytes):
        phone.push(host_path.read_bytes(), path, mode=0o755, deadline=deadline)


def launch_script(spec: LaunchSpec) -> str:
    """The script that starts the program and writes its records.

    The hello record has the program's own pid, so that the watchdog kills the program; the script
    then exits by itself. Times are joined as text: a phone's shell computes with 32 bits.
    """
    manifest = manifest_of(spec)
    exports = [
        f"export {name}={_quoted(spec, text)}"
        for name, text in sorted(manifest.environment.items())
    ]
    hello = (
        r"{\"line\":\"hello\",\"contract\":1,\"pid\":$!,\"case\":\""
        + spec.case.digest
        + r"\",\"mask\":\"$mask\",\"threads\":"
        + f"{spec.threads}"
        + r",\"t_ns\":${up%.*}${up#*.}0000000}"
    )
    bye = r"{\"line\":\"exit\",\"status\":$status,\"t_ns\":${up%.*}${up#*.}0000000}"
    lines = [
        "lane=${0%/*}",
        f'cd "$lane/{PROGRAM_DIR}" || exit 126',
        f"ulimit -f {WRITTEN_BLOCKS_MAX}",
        *exports,
        "mask=$(grep Cpus_allowed: /proc/$$/status | sed 's/.*[[:space:]]//; s/,//g; s/^0*//')",
        "read -r up rest </proc/uptime",
        " ".join(_quoted(spec, word) for word in manifest.command)
        + f' >"$lane/{PROGRAM_STDOUT}" 2>"$lane/{PROGRAM_STDERR}" </dev/null &',
        f'echo "{hello}" >"$lane/{OUTPUT}"',
        rf'echo "{{\"line\":\"script\",\"pid\":$$}}" >>"$lane/{OUTPUT}"',
        "wait $!",
        "status=$?",
        "read -r up rest </proc/uptime",
        f'echo "{bye}" >>"$lane/{OUTPUT}"',
    ]
    return "".join(f"{line}\n" for line in lines)


def _quoted(spec: LaunchSpec, word: str) -> str:
    """A word of the manifest for the shell, with its placeholders filled.

    Files are in the folder beside the script. No word contains a zero byte, so zero bytes mark the
    names of files until the rest is quoted.
    """
    numbers = {name: str(value) for name, value in manifest_values(spec).items()}
    files = {file.name: f"\0{file.name}\0" for file in manifest_of(spec).files}
    pieces = fill_placeholders(word, numbers | files).split("\0")
    quoted = [
        f'"$lane"/{PROGRAM_DIR}/{piece}' if index % 2 else shlex.quote(piece)
        for index, piece in enumerate(pieces)
        if index % 2 or piece or len(pieces) == 1
    ]
    return "".join(quoted)


def manifest_values(spec: LaunchSpec) -> dict[str, int]:
    """The numbers that a manifest may name: the case's parameters, and those of the launch."""
    launch = spec.launch
    values = {
        "threads": spec.threads,
        "warmup": launch.warmup,
        "steps": launch.steps,
        "seconds": -int(-launch.seconds // 1),
        "max_seconds": -int(-launch.max_seconds // 1),
    }
    return values | spec.case.parameters


def launch_program(
    phone: Phone, spec: LaunchSpec, snapshot: ShellCommand
) -> tuple[ShellResult, int | None]:
    """Take a last snapshot, start the sampler beside the measured cores, then the program."""
    words = ["setsid", spec.runner, "sample", LANE_DIR, "--period-ms", str(spec.period_ms)]
    words += ["--seconds", f"{spec.limit_s + SAMPLER_MARGIN_S:g}"]
    other_cores = _other_cores_mask(phone, spec)
    if other_cores:
        words = ["taskset", f"{other_cores:x}", *words]
    sampler = ShellCommand(words, into="/dev/null", detached=True)
    start = ["taskset", f"{spec.cores.mask:x}", "setsid", "sh", lane_file(PLAN)]
    program = ShellCommand(start, into=lane_file(RUNNER_STDERR), detached=True)
    before, _, started = phone.shell_batch([snapshot, sampler, program])
    return before, first_number(started.text)


def _other_cores_mask(phone: Phone, spec: LaunchSpec) -> int:
    all_cores = sum(1 << cpu for cluster in phone.facts.clusters for cpu in cluster.cpus)
    return all_cores & ~spec.cores.mask


def watch_program(
    phone: Phone,
    spec: LaunchSpec,
    pid: int | None,
    boot_id: str | None,
    waits: PhoneWaits,
    on_progress: Callable[[RunProgress], None],
) -> RunnerOutput:
    """Follow the program to its exit, and parse its figures."""
    output = ExternalOutput(spec.case.digest)
    try:
        watch_runner(phone, spec, pid, boot_id, waits, on_progress, output)
    finally:
        with suppress(FarmError):
            kill_program(phone)
    assert output.exit is not None
    manifest = manifest_of(spec)
    out, err = (_fetch_printed(phone, name) for name in (PROGRAM_STDOUT, PROGRAM_STDERR))
    if output.exit.status != 0:
        last = safe_text((err.strip() or out.strip() or "nothing").splitlines()[-1], 200)
        raise RunnerFailed(f"{manifest.name} {_exit_text(output.exit.status)}; it printed: {last}")
    limit_s = phone.timeouts.output_parse_timeout_s
    figures = read_in_subprocess(manifest, manifest_values(spec), out, err, limit_s)
    _complete(output, figures, manifest.name)
    return output


def _exit_text(status: int) -> str:
    """What the status of a failed program means in a shell."""
    if status == NOT_FOUND:
        return "or what it calls was not found; install it, or correct 'command' of the manifest"
    if status == NOT_EXECUTABLE:
        return "or what it calls may not be executed by the phone's user; change its permissions"
    if status > SIGNAL_BASE:
        return f"was killed by signal {status - SIGNAL_BASE}"
    return f"exited with {status}"


def kill_program(phone: Phone) -> None:
    """Kill what is left: always the sampler; the program and its script if they still run."""
    patterns = (f"sample {LANE_DIR}", f"{lane_file(PROGRAM_DIR)}/", f"sh {lane_file(PLAN)}")
    commands = [ShellCommand(["pkill", "-9", "-f", pattern]) for pattern in patterns]
    phone.shell_batch(commands, Deadline.after(phone.timeouts.program_cleanup_timeout_s))


def _fetch_printed(phone: Phone, name: str) -> str:
    size = first_number(phone.shell(["wc", "-c", lane_file(name)]).text) or 0
    if size > PRINTED_BYTES_MAX:
        raise BadOutput(f"the program printed {size} bytes; at most {PRINTED_BYTES_MAX} are read")
    return phone.pull(lane_file(name), PRINTED_BYTES_MAX + 1024).decode(errors="replace")


def _complete(output: ExternalOutput, figures: ProgramFigures, name: str) -> None:
    """Turn steps into windows without gaps, so that the last one ends with the program.

    A program prints how long its steps took, not when: it loads and warms up before them.
    """
    assert output.hello is not None
    assert output.exit is not None
    lifetime_ns = output.exit.t_ns - output.hello.t_ns
    if figures.ns > lifetime_ns + CLOCK_TOLERANCE_NS:
        raise BadOutput(
            f"{name} printed {figures.ns / 1e9:.2f} s of steps but ran for "
            f"{lifetime_ns / 1e9:.2f} s"
        )
    output.windows = list(windows_from_steps(figures.steps, output.exit.t_ns - figures.ns))
    losses = figures.losses
    output.done = DoneRecord(
        steps=output.steps,
        ns=figures.ns,
        t_ns=output.exit.t_ns,
        peak_rss_kb=figures.peak_rss_kb,
        loss_first=losses[0] if losses else None,
        loss_last=losses[-1] if losses else None,
        parameters_changed=bool(losses) and losses[-1] != losses[0],
    )


def windows_from_steps(steps: tuple[StepGroup, ...], t_ns: int) -> Iterator[StepWindow]:
    """Windows of steps from a moment on; neighbours share a window if there are too many."""
    groups_per_window = -(-len(steps) // WINDOWS_MAX)
    first = 0
    for start in range(0, len(steps), groups_per_window):
        groups = steps[start : start + groups_per_window]
        window = StepWindow(
            first=first,
            n=sum(group.n for group in groups),
            t_ns=max(0, t_ns),
            ns=sum(group.ns for group in groups),
            ns_min=min(group.ns_min for group in groups),
            ns_max=max(group.ns_max for group in groups),
        )
        yield window
        first += window.n
        t_ns += window.ns
