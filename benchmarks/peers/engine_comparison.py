"""Taking turns: who measures, for how long, on how quiet a machine, and what may be believed."""

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
from workloads.lowering import body_of
from workloads.noun import digest_of
from workloads.work import Step

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
CACHE = ROOT / ".cache"
PACKAGES = ("numpy", "torch==2.13.0", "MNN==3.6.1")
QUIET_SHARE = 0.15  # of the processors, busy with something else
LOOK_S = 0.3
FEW = 2  # steps of a launch that tells what a launch costs besides


class Dishonest(Exception):
    """An engine whose times are worth nothing: it does not train, or trains something else."""


class Engine(Protocol):
    """Somebody who takes turns."""

    name: str

    def turn(self, seconds: float) -> list[int]:
        """Work for so long, and answer the time of each step in ns."""

    def close(self) -> None:
        """Leave."""


def plan_of(step: Step, threads: int, reuse: bool = True) -> bytes:
    """The plan of any step, also of one that is in no catalogue."""
    case = digest_of([op.model_dump() for op in step.work.ops])
    named = {"case": case, "workload": "benchmark", "backend": "cpu"}
    return plan_bytes(step.work, body_of(step, reuse), named, threads)


class Ours:
    """The runner, launched anew for every turn; its own clock tells the times."""

    name = "ours"

    def __init__(self, runner: Path, step: Step, threads: int, cpu: bool = False) -> None:
        self._runner = runner
        self._cpu = cpu
        self._besides: tuple[int, int] | None = None  # processor time of a launch of few steps
        self._training = step.work.training
        self._parameters = step.work.parameters
        self._folder = tempfile.TemporaryDirectory(prefix="farm-bench-")
        self._plan = Path(self._folder.name) / "plan"
        self._plan.write_bytes(plan_of(step, threads))

    def turn(self, seconds: float) -> list[int]:
        """One launch; where processor time counts, less what a launch costs besides."""
        if not self._cpu:
            self._launch(3, seconds)
            return self._times()
        if self._besides is None:
            # The least of three: too little would flatter us, too much cannot be the least.
            self._besides = min((self._launch(FEW, 0.0), len(self._times())) for _ in range(3))
        few_ns, few = self._besides
        more = max(6, min(20_000, round(seconds * 1e9 / min(self._times()))))
        all_ns = self._launch(few + more, 0.0)
        return [max(1, (all_ns - few_ns) // (len(self._times()) - few))]

    def _launch(self, steps: int, seconds: float) -> int:
        """Run so many steps; answer the processor time that it took, in ns."""
        words = [str(self._runner), "run", str(self._plan), self._folder.name]
        words += ["--warmup", "1", "--steps", str(steps), "--seconds", f"{seconds:g}"]
        longest = 600.0 if self._cpu else max(30.0, 4 * seconds)
        words += ["--max-seconds", f"{longest:g}", "--window-ms", "1"]
        with subprocess.Popen(words, stdout=subprocess.DEVNULL) as process:
            _, status, used = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        # What the system does for it is to give it memory, all before the first step.
        return round(used.ru_utime * 1e9)

    def _times(self) -> list[int]:
        said = (Path(self._folder.name) / "out.jsonl").read_text().splitlines()
        lines = [json.loads(line) for line in said]
        done = lines[-1]
        if done["line"] != "done":
            raise Dishonest(f"ours: {done.get('text', done)}")
        if self._training:
            self._check(done)
        windows = [line for line in lines if line["line"] == "window"]
        # A window tells its steps' shortest and their sum; the others share what is left.
        times = []
        for line in windows:
            rest = line["n"] - 1
            times.append(line["ns_min"])
            times += [round((line["ns"] - line["ns_min"]) / rest)] * rest if rest else []
        return times

    def _check(self, done: dict[str, Any]) -> None:
        if not done["loss_last"] < done["loss_first"] and done["steps"] > 20:
            raise Dishonest(f"ours: the loss went {done['loss_first']} -> {done['loss_last']}")
        if done["moved"] != done["learned"] or done["parameters"] != self._parameters:
            raise Dishonest(f"ours: {done['moved']} of {done['learned']} tensors moved")

    def close(self) -> None:
        """Leave nothing."""
        self._folder.cleanup()


class PeerProcess:
    """Another engine in a process of its own, which waits between its turns."""

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
            [str(python), str(HERE / f"{name}_peer.py")],
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
                # Threads that spin while they wait would take the core from whose turn it is.
                "OMP_WAIT_POLICY": "PASSIVE",
                "KMP_BLOCKTIME": "0",
            },
        )
        self._say(description)

    def _say(self, content: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(content) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise Dishonest(f"{self.name}: it died") from None

    def ask(self, what: dict[str, Any]) -> dict[str, Any]:
        """One turn, with everything that is told of it."""
        self._say(what)
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("turn "):
                answer: dict[str, Any] = json.loads(line[5:])
                return answer
        raise Dishonest(f"{self.name}: it died (exit status {self._process.wait()})")

    def turn(self, seconds: float) -> list[int]:
        """One turn."""
        answer = self.ask({"seconds": seconds})
        if "losses" in answer:
            self._check(answer)
        times: list[int] = answer["times_ns"]
        return times

    def _check(self, answer: dict[str, Any]) -> None:
        wanted = self._description["parameters"]
        if answer["parameters"] != wanted:
            raise Dishonest(f"{self.name}: {answer['parameters']} parameters, not {wanted}")
        if answer["moved"] != answer["tensors"]:
            text = f"{answer['moved']} of {answer['tensors']} tensors learn anything"
            raise Dishonest(f"{self.name}: {text}")

    def prove(self, steps_max: int = 100) -> None:
        """Train one batch until its loss has fallen; an engine that cannot does not count."""
        answer = self.ask({"prove": steps_max})
        self._check(answer)
        losses = answer["losses"]
        if len(losses) >= steps_max:
            text = f"in {len(losses)} steps the loss went {losses[0]:.3f} -> {losses[-1]:.3f}"
            raise Dishonest(f"{self.name}: {text}")

    def close(self) -> None:
        """End it."""
        self._process.kill()
        self._process.wait()


@dataclass
class Standing:
    """What an engine did in all its turns."""

    turns: list[list[int]] = field(default_factory=list)
    busy: list[float] = field(default_factory=list)

    @property
    def best_ms(self) -> float:
        """The fastest step."""
        return min(min(turn) for turn in self.turns) / 1e6

    @property
    def middle_ms(self) -> float:
        """The median step of the quietest turn, by the machine's own account."""
        medians = [sorted(turn)[len(turn) // 2] for turn in self.turns]
        return min(medians) / 1e6


def take_turns(
    engines: Sequence[Engine], rounds: int, seconds: float, patience_s: float
) -> dict[str, Standing]:
    """Every engine once a round, each time in another order, on as quiet a machine as there is."""
    standings = {engine.name: Standing() for engine in engines}
    for number in range(rounds):
        order = [*engines[number % len(engines) :], *engines[: number % len(engines)]]
        for engine in order:
            busy = wait_for_quiet(patience_s)
            standings[engine.name].turns.append(engine.turn(seconds))
            standings[engine.name].busy.append(busy)
    return standings


def wait_for_quiet(patience_s: float) -> float:
    """Wait until the processors are free, or patience ends; answer which share was taken."""
    until = time.monotonic() + patience_s
    while True:
        share = busy_share(LOOK_S)
        if share <= QUIET_SHARE or time.monotonic() > until:
            return share


def busy_share(seconds: float) -> float:
    """The share of all processors that somebody else is using right now."""
    before = _ticks()
    time.sleep(seconds)
    after = _ticks()
    total = after[1] - before[1]
    return (after[0] - before[0]) / total if total else 0.0


def _ticks() -> tuple[int, int]:
    words = [int(word) for word in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    idle = words[3] + words[4]
    return sum(words) - idle, sum(words)


def load() -> str:
    """The load average, for the record."""
    return Path("/proc/loadavg").read_text().rsplit(" ", 2)[0]


def geometric_mean(values: Sequence[float]) -> float:
    """The mean of ratios."""
    return exp(sum(map(log, values)) / len(values))


def read_words(parser: argparse.ArgumentParser, seconds: float) -> argparse.Namespace:
    """Read what was asked on the command line, with what every contest can be asked."""
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=seconds, help="of each turn, at least")
    parser.add_argument("--patience", type=float, default=10.0, help="seconds to wait for quiet")
    parser.add_argument("--cpu", action="store_true", help="processor time: for a busy machine")
    parser.add_argument("--peers", type=Path, help=f"a Python that has {', '.join(PACKAGES)}")
    parser.add_argument("--install", action="store_true", help="make that Python in .cache")
    parser.add_argument("--runner", type=Path, help="another build of the runner")
    parser.add_argument("--json", type=Path, help="write all figures there as well")
    asked = parser.parse_args()
    asked.peers = peers_python(asked.peers, asked.install)
    asked.runner = our_runner(asked.runner)
    return asked


def peers_python(asked: Path | None, install: bool) -> Path:
    """The Python that has the peers: as asked, or one in the checkout's cache."""
    python = asked or CACHE / "peers" / "bin" / "python"
    if not python.exists() and install:
        subprocess.run([sys.executable, "-m", "venv", str(CACHE / "peers")], check=True)
        subprocess.run([str(python), "-m", "pip", "install", *PACKAGES], check=True)
    if not python.exists():
        packages = " ".join(PACKAGES)
        raise SystemExit(
            f"{python} is missing; --install makes it, or --peers names one with {packages}"
        )
    return python


def our_runner(asked: Path | None) -> Path:
    """The runner that is shipped for this computer, or another."""
    runner = asked or ROOT / "kernels" / "bin" / "runner-x86_64"
    if not runner.exists():
        raise SystemExit(f"{runner} is missing; build it with 'python -m kernels.build'")
    return runner
