"""Time engines in turns on one machine, and reject times of an engine that does not train."""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import exp, log
from pathlib import Path
from typing import Any, Protocol

from workloads.catalogue import plan_bytes
from workloads.lowering import lower_step
from workloads.protocol.base import digest_of
from workloads.step_cost import Step

ROOT = Path(__file__).resolve().parents[2]
PEERS_FOLDER = Path(__file__).resolve().parent
CACHE = ROOT / ".cache"
PACKAGES = ("numpy", "torch==2.13.0", "MNN==3.6.1")
QUIET_SHARE = 0.15  # of all processors, used by other processes
BUSY_SAMPLE_S = 0.3
OVERHEAD_STEPS = 2  # steps of the short launch that measures the overhead of a launch


class InvalidEngine(Exception):
    """An engine whose times do not count: it does not train, or trains another network."""


class Engine(Protocol):
    """Something whose training steps are timed in turns."""

    name: str

    def turn(self, seconds: float) -> list[int]:
        """Run steps for at least `seconds` and return the time of each step in ns."""

    def close(self) -> None:
        """Release everything."""


def make_plan(step: Step, threads: int, reuse: bool = True) -> bytes:
    """Return the plan of any step, whether or not it is in the catalogue."""
    case = digest_of([op.model_dump() for op in step.cost.ops])
    header = {"case": case, "workload": "benchmark", "backend": "cpu"}
    return plan_bytes(step.cost, lower_step(step, reuse), header, threads)


class RunnerEngine:
    """Our runner, launched once per turn; step times come from its own clock."""

    name = "ours"

    def __init__(self, runner: Path, step: Step, threads: int, cpu: bool = False) -> None:
        self._runner = runner
        self._cpu = cpu
        self._overhead: tuple[int, int] | None = None  # CPU time and steps of a short launch
        self._training = step.cost.training
        self._parameters = step.cost.parameters
        self._folder = tempfile.TemporaryDirectory(prefix="farm-bench-")
        self._plan = Path(self._folder.name) / "plan"
        self._plan.write_bytes(make_plan(step, threads))

    def turn(self, seconds: float) -> list[int]:
        """Launch the runner once; CPU times exclude the overhead of a launch."""
        if not self._cpu:
            self._launch(3, seconds)
            return self._step_times()
        if self._overhead is None:
            # The minimum of three: an overhead that is too large would make our times too short.
            self._overhead = min(
                (self._launch(OVERHEAD_STEPS, 0.0), len(self._step_times())) for _ in range(3)
            )
        short_ns, short_steps = self._overhead
        more_steps = max(6, min(20_000, round(seconds * 1e9 / min(self._step_times()))))
        total_ns = self._launch(short_steps + more_steps, 0.0)
        return [max(1, (total_ns - short_ns) // (len(self._step_times()) - short_steps))]

    def _launch(self, steps: int, seconds: float) -> int:
        """Run at least `steps` steps and return the CPU time in ns."""
        command = [str(self._runner), "run", str(self._plan), self._folder.name]
        command += ["--warmup", "1", "--steps", str(steps), "--seconds", f"{seconds:g}"]
        max_seconds = 600.0 if self._cpu else max(30.0, 4 * seconds)
        command += ["--max-seconds", f"{max_seconds:g}", "--window-ms", "1"]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        # System time is not counted: it maps memory, and all of that precedes the first step.
        return round(usage.ru_utime * 1e9)

    def _step_times(self) -> list[int]:
        output = (Path(self._folder.name) / "out.jsonl").read_text().splitlines()
        records = [json.loads(line) for line in output]
        done = records[-1]
        if done["line"] != "done":
            raise InvalidEngine(f"ours: {done.get('text', done)}")
        if self._training:
            self._check(done)
        # A window contains the sum and the minimum of its step times. The steps other than the
        # fastest one get equal parts of the remaining time.
        times = []
        for window in (record for record in records if record["line"] == "window"):
            rest = window["n"] - 1
            times.append(window["ns_min"])
            times += [round((window["ns"] - window["ns_min"]) / rest)] * rest if rest else []
        return times

    def _check(self, done: dict[str, Any]) -> None:
        if not done["loss_last"] < done["loss_first"] and done["steps"] > 20:
            raise InvalidEngine(f"ours: the loss went {done['loss_first']} -> {done['loss_last']}")
        if done["moved"] != done["learned"] or done["parameters"] != self._parameters:
            raise InvalidEngine(f"ours: {done['moved']} of {done['learned']} tensors changed")

    def close(self) -> None:
        """Delete the plan and the output."""
        self._folder.cleanup()


class PeerProcess:
    """Another engine in its own process, which is idle between its turns."""

    def __init__(
        self,
        name: str,
        python: Path,
        description: dict[str, Any],
        threads: int,
        cpu: bool = False,
        exact: bool = False,
    ) -> None:
        self.name = name
        self._description = description
        self._process = subprocess.Popen(
            [str(python), str(PEERS_FOLDER / f"{name}_peer.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=os.environ
            | {
                "PEER_THREADS": str(threads),
                "PEER_EXACT": "1" if exact else "0",
                "PEER_CLOCK": "cpu" if cpu else "wall",
                "OMP_NUM_THREADS": str(threads),
                "OPENBLAS_NUM_THREADS": str(threads),
                # Threads that spin while they wait would take a core from the other engines.
                "OMP_WAIT_POLICY": "PASSIVE",
                "KMP_BLOCKTIME": "0",
            },
        )
        self._send(description)

    def _send(self, content: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(content) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise InvalidEngine(f"{self.name}: the process died") from None

    def request(self, request: dict[str, Any]) -> dict[str, Any]:
        """Send one request and return the complete answer."""
        self._send(request)
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("turn "):
                answer: dict[str, Any] = json.loads(line[5:])
                return answer
        status = self._process.wait()
        raise InvalidEngine(f"{self.name}: the process died with exit status {status}")

    def turn(self, seconds: float) -> list[int]:
        """Run steps for at least `seconds` and return the time of each step in ns."""
        answer = self.request({"seconds": seconds})
        if "losses" in answer:
            self._check(answer)
        times: list[int] = answer["times_ns"]
        return times

    def _check(self, answer: dict[str, Any]) -> None:
        expected = self._description["parameters"]
        if answer["parameters"] != expected:
            raise InvalidEngine(f"{self.name}: {answer['parameters']} parameters, not {expected}")
        if answer["moved"] != answer["tensors"]:
            text = f"{answer['moved']} of {answer['tensors']} tensors changed"
            raise InvalidEngine(f"{self.name}: {text}")

    def prove_training(self, steps_max: int = 100) -> None:
        """Train one batch until its loss falls; raise InvalidEngine if it does not."""
        answer = self.request({"prove": steps_max})
        self._check(answer)
        losses = answer["losses"]
        if len(losses) >= steps_max:
            text = f"in {len(losses)} steps the loss went {losses[0]:.3f} -> {losses[-1]:.3f}"
            raise InvalidEngine(f"{self.name}: {text}")

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()


@dataclass
class EngineTimes:
    """The step times of an engine in ns, and the share of busy processors before each turn."""

    turns: list[list[int]] = field(default_factory=list)
    busy: list[float] = field(default_factory=list)

    @property
    def fastest_ms(self) -> float:
        """The fastest step of all turns."""
        return min(min(turn) for turn in self.turns) / 1e6

    @property
    def median_ms(self) -> float:
        """The median step of the turn with the lowest median."""
        medians = [sorted(turn)[len(turn) // 2] for turn in self.turns]
        return min(medians) / 1e6


def time_engines(
    engines: Sequence[Engine], rounds: int, seconds: float, patience_s: float
) -> dict[str, EngineTimes]:
    """Give every engine one turn per round, in rotating order, each when the machine is quiet."""
    times = {engine.name: EngineTimes() for engine in engines}
    for number in range(rounds):
        first = number % len(engines)
        for engine in [*engines[first:], *engines[:first]]:
            busy = wait_for_quiet(patience_s)
            times[engine.name].turns.append(engine.turn(seconds))
            times[engine.name].busy.append(busy)
    return times


def wait_for_quiet(patience_s: float) -> float:
    """Wait until the processors are idle, at most `patience_s`; return the share that is busy."""
    deadline = time.monotonic() + patience_s
    while True:
        share = busy_share(BUSY_SAMPLE_S)
        if share <= QUIET_SHARE or time.monotonic() > deadline:
            return share


def busy_share(seconds: float) -> float:
    """Return the share of all processors that was busy during the next `seconds`."""
    busy_before, total_before = _read_ticks()
    time.sleep(seconds)
    busy_after, total_after = _read_ticks()
    total = total_after - total_before
    return (busy_after - busy_before) / total if total else 0.0


def _read_ticks() -> tuple[int, int]:
    """Return the busy and the total ticks of all processors since boot."""
    line = Path("/proc/stat").read_text().split("\n", 1)[0]
    ticks = [int(column) for column in line.split()[1:9]]
    idle = ticks[3] + ticks[4]
    return sum(ticks) - idle, sum(ticks)


def load_average() -> str:
    """Return the load averages over 1, 5 and 15 minutes."""
    return Path("/proc/loadavg").read_text().rsplit(" ", 2)[0]


def geometric_mean(values: Sequence[float]) -> float:
    """Return the geometric mean, the mean for ratios."""
    return exp(sum(map(log, values)) / len(values))


def parse_options(parser: argparse.ArgumentParser, seconds: float) -> argparse.Namespace:
    """Add the options that all comparisons share, and parse the command line."""
    parser.add_argument("--rounds", type=int, default=5, help="turns per engine")
    parser.add_argument("--seconds", type=float, default=seconds, help="minimum length of a turn")
    parser.add_argument(
        "--patience", type=float, default=10.0, help="seconds to wait for a quiet machine"
    )
    parser.add_argument("--cpu", action="store_true", help="compare CPU time: for a busy machine")
    parser.add_argument("--peers", type=Path, help=f"a Python with {', '.join(PACKAGES)}")
    parser.add_argument("--install", action="store_true", help="create that Python in .cache")
    parser.add_argument("--runner", type=Path, help="another build of the runner")
    parser.add_argument("--json", type=Path, help="also write all figures to this file")
    options = parser.parse_args()
    options.peers = find_peers_python(options.peers, options.install)
    options.runner = find_runner(options.runner)
    return options


def find_peers_python(chosen: Path | None, install: bool) -> Path:
    """Return the Python that has the peers: the chosen one, or the one in .cache."""
    python = chosen or CACHE / "peers" / "bin" / "python"
    if not python.exists() and install:
        subprocess.run([sys.executable, "-m", "venv", str(CACHE / "peers")], check=True)
        subprocess.run([str(python), "-m", "pip", "install", *PACKAGES], check=True)
    if not python.exists():
        packages = " ".join(PACKAGES)
        raise SystemExit(
            f"{python} is missing; create it with --install, or name a Python with {packages}"
            " with --peers"
        )
    return python


def find_runner(chosen: Path | None) -> Path:
    """Return the chosen runner, or the one that is shipped for this computer."""
    runner = chosen or ROOT / "kernels" / "bin" / "runner-x86_64"
    if not runner.exists():
        raise SystemExit(f"{runner} is missing; build it with 'python -m kernels.build'")
    return runner
