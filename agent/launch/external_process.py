"""A foreign program on the phone: its files by digest, launched and watched like the runner.

It knows nothing of our contract. A script of ours says hello and its exit for it, the runner's
`sample` reads the nodes beside it, and its numbers are read from what it printed; what comes out is
the Output of a run like any other.
"""

import shlex
from collections.abc import Callable, Iterator
from contextlib import suppress
from hashlib import file_digest
from pathlib import Path
from typing import Any

from pydantic import Field

from agent.control.guard import LANE_DIR, lane_file
from agent.deadline import Deadline
from agent.phone.nodes import first_number
from agent.phone.phone import HOME, Answer, Command, Phone
from agent.run.lines import WINDOWS_MAX, Count, Done, Line, Output, Window, out_of_turn, read_line
from agent.run.reading import read_apart
from agent.run.runner import Ask, Progress, watch
from workloads.external import PRINTED_BYTES_MAX, ForeignFile, Manifest, fill
from workloads.fault import BadOutput, FarmError, Refused, RunnerFailed, ShellFailed
from workloads.printed import Numbers, Steps
from workloads.text import safe_text

WORK = "work"  # the folder of a foreign program within the lane (kernels/runner/runner.h)
WORK_DIR = lane_file(WORK)
FILES_DIR = f"{HOME}/files"
FILE_BYTES_MAX = 2 * 1024**3
SLOWEST_PUSH_BYTES_PER_S = 4 * 1024 * 1024
WRITTEN_BLOCKS_MAX = 65536  # of 512 bytes: a bound for what the program writes into one file
SAMPLER_SLACK_S = 60.0
CLOCK_SLACK_NS = 20_000_000  # /proc/uptime counts in 10 ms, twice


class Script(Line):
    """Who speaks for the program."""

    pid: int = Field(ge=2, le=2**22)


class Exit(Line):
    """The script's last word: how the program ended, and when."""

    status: int = Field(ge=0, le=255)
    t_ns: Count


class ForeignOutput(Output):
    """What our script says beside a foreign program: hello for it, who speaks, and its exit."""

    def __init__(self, case: str) -> None:
        super().__init__(case)
        self.script: Script | None = None
        self.exit: Exit | None = None

    @property
    def speaker(self) -> int | None:
        """The script: it has the last word, when the program is gone already."""
        return self.script.pid if self.script else None

    @property
    def ended(self) -> bool:
        """Whether the program has."""
        return self.exit is not None

    def _take_after_hello(self, kind: object, said: dict[str, Any]) -> None:
        match kind:
            case "script" if self.script is None:
                self.script = read_line(Script, said)
            case "exit":
                self.exit = read_line(Exit, said)
            case _:
                raise out_of_turn(kind)


def manifest_of(ask: Ask) -> Manifest:
    """The manifest of a case that has one."""
    assert ask.case.manifest is not None
    return ask.case.manifest


def install_program(phone: Phone, ask: Ask, shelf: Path) -> None:
    """Put the program's files, our script and the list of sampled nodes on the phone."""
    manifest = manifest_of(ask)
    found = [(file, _on_host(file, shelf)) for file in manifest.files]  # all, before any is pushed
    for file, path in found:
        _push_once(phone, file, path)
    links = [
        Command(["ln", "-s", f"{FILES_DIR}/{file.sha256}", f"{WORK_DIR}/{file.name}"])
        for file in manifest.files
    ]
    steps = [Command(["rm", "-rf", WORK_DIR]), Command(["mkdir", "-p", WORK_DIR]), *links]
    for answer in phone.batch(steps):
        if answer.status != 0:
            raise ShellFailed(f"{WORK_DIR} cannot be prepared: {safe_text(answer.text)}")
    phone.push(script(ask).encode(), lane_file("plan"))
    phone.push("".join(f"{path}\n" for path in ask.nodes).encode(), lane_file("nodes"))


def _on_host(file: ForeignFile, shelf: Path) -> Path:
    path = shelf / file.sha256
    try:
        size = path.stat().st_size
        with path.open("rb") as stream:
            digest = file_digest(stream, "sha256").hexdigest()
    except OSError:
        raise Refused(
            f"{file.name} is not on this host: there is no {shelf.name}/{file.sha256[:12]}..."
            " in its lab; bring it there with 'farm workload keep'."
        ) from None
    if digest != file.sha256:
        raise Refused(f"{path.name[:12]}... in {shelf.name} is not the file of that digest.")
    if size > FILE_BYTES_MAX:
        raise Refused(f"{file.name} has {size} bytes; at most {FILE_BYTES_MAX} are pushed.")
    return path


def _push_once(phone: Phone, file: ForeignFile, path: Path) -> None:
    there = f"{FILES_DIR}/{file.sha256}"
    patience = Deadline.after(60 + path.stat().st_size / SLOWEST_PUSH_BYTES_PER_S)
    known = phone.shell(["sha256sum", there], patience)
    if known.status != 0 or known.text.split(" ")[0] != file.sha256:
        phone.push(path.read_bytes(), there, mode=0o755, deadline=patience)


def script(ask: Ask) -> str:
    """The script that starts the program and speaks for it.

    hello names the program's own pid, so that the dead-man ends the program; the script ends by
    itself then. Times are joined as text: the shell of a phone counts in 32 bits.
    """
    manifest = manifest_of(ask)
    exports = [
        f"export {name}={_quoted(ask, text)}" for name, text in sorted(manifest.environment.items())
    ]
    hello = (
        r"{\"line\":\"hello\",\"contract\":1,\"pid\":$!,\"case\":\""
        + ask.case.digest
        + r"\",\"mask\":\"$mask\",\"threads\":"
        + f"{ask.threads}"
        + r",\"t_ns\":${up%.*}${up#*.}0000000}"
    )
    bye = r"{\"line\":\"exit\",\"status\":$status,\"t_ns\":${up%.*}${up#*.}0000000}"
    lines = [
        "lane=${0%/*}",
        f'cd "$lane/{WORK}" || exit 126',
        f"ulimit -f {WRITTEN_BLOCKS_MAX}",
        *exports,
        "mask=$(grep Cpus_allowed: /proc/$$/status | sed 's/.*[[:space:]]//; s/,//g; s/^0*//')",
        "read -r up rest </proc/uptime",
        " ".join(_quoted(ask, word) for word in manifest.command)
        + ' >"$lane/said" 2>"$lane/complained" </dev/null &',
        f'echo "{hello}" >"$lane/out.jsonl"',
        r'echo "{\"line\":\"script\",\"pid\":$$}" >>"$lane/out.jsonl"',
        "wait $!",
        "status=$?",
        "read -r up rest </proc/uptime",
        f'echo "{bye}" >>"$lane/out.jsonl"',
    ]
    return "".join(f"{line}\n" for line in lines)


def _quoted(ask: Ask, word: str) -> str:
    """A word of the manifest for the shell, its holes filled; files lie beside the script.

    No word holds a zero byte, so that it can stand around the names of files meanwhile.
    """
    numbers = {name: str(value) for name, value in values_of(ask).items()}
    files = {file.name: f"\0{file.name}\0" for file in manifest_of(ask).files}
    pieces = fill(word, numbers | files).split("\0")
    shown = [
        f'"$lane"/{WORK}/{piece}' if index % 2 else shlex.quote(piece)
        for index, piece in enumerate(pieces)
        if index % 2 or piece or len(pieces) == 1
    ]
    return "".join(shown)


def values_of(ask: Ask) -> dict[str, int]:
    """The numbers that a manifest may name: the case's parameters, and what the launch asks."""
    launch = ask.launch
    said = {
        "threads": ask.threads,
        "warmup": launch.warmup,
        "steps": launch.steps,
        "seconds": -int(-launch.seconds // 1),
        "max_seconds": -int(-launch.max_seconds // 1),
    }
    return said | ask.case.parameters


def launch_program(phone: Phone, ask: Ask, before: Command) -> tuple[Answer, int | None]:
    """Take a last look, start the sampler beside the measured cores, then the program."""
    words = ["setsid", ask.runner, "sample", LANE_DIR, "--period-ms", str(ask.period_ms)]
    words += ["--seconds", f"{ask.limit_s + SAMPLER_SLACK_S:g}"]
    elsewhere = _other_cores(phone, ask)
    if elsewhere:
        words = ["taskset", f"{elsewhere:x}", *words]
    sampler = Command(words, into="/dev/null", detached=True)
    start = ["taskset", f"{ask.cores.mask:x}", "setsid", "sh", lane_file("plan")]
    program = Command(start, into=lane_file("err"), detached=True)
    look, _, started = phone.batch([before, sampler, program])
    return look, first_number(started.text)


def _other_cores(phone: Phone, ask: Ask) -> int:
    everyone = sum(1 << cpu for cluster in phone.known.clusters for cpu in cluster.cpus)
    return everyone & ~ask.cores.mask


def watch_program(
    phone: Phone,
    ask: Ask,
    pid: int | None,
    boot_id: str | None,
    sleep: Callable[[float], None],
    progress: Callable[[Progress], None],
) -> Output:
    """Follow the program to its end, and read its numbers."""
    output = ForeignOutput(ask.case.digest)
    try:
        watch(phone, ask, pid, boot_id, sleep, progress, output)
    finally:
        with suppress(FarmError):
            end_program(phone)
    assert output.exit is not None
    out, err = (_printed(phone, name) for name in ("said", "complained"))
    name = manifest_of(ask).name
    if output.exit.status != 0:
        last = safe_text((err.strip() or out.strip() or "nothing").splitlines()[-1], 200)
        raise RunnerFailed(f"{name} ended with status {output.exit.status} and said: {last}")
    numbers = read_apart(manifest_of(ask), values_of(ask), out, err)
    _complete(output, numbers, name)
    return output


def end_program(phone: Phone) -> None:
    """End what is left: the sampler always, the program and its script where they did not end."""
    words = (f"sample {LANE_DIR}", f"{WORK_DIR}/", f"sh {lane_file('plan')}")
    phone.batch([Command(["pkill", "-9", "-f", each]) for each in words], Deadline.after(5))


def _printed(phone: Phone, name: str) -> str:
    size = first_number(phone.shell(["wc", "-c", lane_file(name)]).text) or 0
    if size > PRINTED_BYTES_MAX:
        raise BadOutput(f"The program printed {size} bytes; {PRINTED_BYTES_MAX} are read.")
    return phone.pull(lane_file(name), PRINTED_BYTES_MAX + 1024).decode(errors="replace")


def _complete(output: ForeignOutput, numbers: Numbers, name: str) -> None:
    """Make windows of steps, laid end to end so that the last ends with the program.

    A program says how long its steps took, not when: what comes first is loading and warming up.
    """
    assert output.hello is not None
    assert output.exit is not None
    lasted_ns = output.exit.t_ns - output.hello.t_ns
    if numbers.ns > lasted_ns + CLOCK_SLACK_NS:
        told_s, lasted_s = numbers.ns / 1e9, lasted_ns / 1e9
        raise BadOutput(f"{name} tells of {told_s:.2f} s of steps and ran for {lasted_s:.2f} s.")
    output.windows = list(windows(numbers.steps, output.exit.t_ns - numbers.ns))
    losses = numbers.losses
    output.done = Done(
        steps=output.steps,
        ns=numbers.ns,
        t_ns=output.exit.t_ns,
        peak_rss_kb=numbers.peak_rss_kb,
        loss_first=losses[0] if losses else None,
        loss_last=losses[-1] if losses else None,
        parameters_changed=bool(losses) and losses[-1] != losses[0],
    )


def windows(steps: tuple[Steps, ...], t_ns: int) -> Iterator[Window]:
    """Steps as windows from a moment on; neighbours share one where there are too many."""
    together = -(-len(steps) // WINDOWS_MAX)
    first = 0
    for at in range(0, len(steps), together):
        group = steps[at : at + together]
        window = Window(
            first=first,
            n=sum(each.n for each in group),
            t_ns=max(0, t_ns),
            ns=sum(each.ns for each in group),
            ns_min=min(each.ns_min for each in group),
            ns_max=max(each.ns_max for each in group),
        )
        yield window
        first += window.n
        t_ns += window.ns
