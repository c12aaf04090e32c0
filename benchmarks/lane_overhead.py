"""The cost of a job besides its run: from the job to its report, without run and canary.

    python -m benchmarks.lane_overhead [--peers PYTHON]

The virtual phone is idle, cool and quiesced already, and the condition pins nothing, so that every
millisecond left is overhead of the agent. The time spent waiting for the phone is shown separately,
because the virtual phone's shell is not part of the agent. adb services are counted by the phone's
own journal.

With --peers, the Python of an environment that has devlib and wlauto does the same work on the same
phone in the same run: push the plan, read temperature and clocks, start the runner on its cores,
fetch its output, read the clocks again. Neither has a fence, a journal, a watchdog, a check of the
phone's settings, a sampler, a verdict or a spool.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from agent.deadline import Deadline
from agent.lane import run_attempt
from agent.lane_context import LaneContext
from agent.phone.adb import AdbServer, find_adb
from agent.phone.phone_driver import Phone
from agent.phone.phone_paths import HOME
from agent.phone.phone_snapshot import take_snapshot
from agent.phone.probe import probe
from agent.phone.shell_command import ShellCommand, write_node_command
from agent.phone.shell_link import MIB, ShellLink, ShellReply
from agent.prepare.quiesce import quiet_settings
from agent.spool import Spool
from kernels.runner_builds import runner_for
from workloads.catalogue import bind, lower
from workloads.protocol.condition import Condition
from workloads.protocol.messages import Job, RunId
from workloads.protocol.stage import Stage

ROUNDS = 15
SPEED = 100.0
# Ten minutes of rest by the phone's clock: cooling after the previous job is not overhead.
REST_SNAPSHOTS, SNAPSHOT_S = 60, 10.0
NOT_OVERHEAD = (
    Stage.RUN,
    Stage.CANARY_BEFORE,
    Stage.CANARY_AFTER,
)
PEERS = Path(__file__).parent / "peers"

AGENDA = """
config:
  device: generic_android
  device_config: {{device: '{address}', load_default_modules: false, modules: [],
                   disable_selinux: false}}
  iterations: {rounds}
  augmentations: ['~~']
  reboot_policy: never
workloads: [{{name: farmrun}}]
"""


@dataclass
class Bench:
    """One adb server, one virtual phone in another process, and a folder."""

    folder: Path
    server: AdbServer
    address: str
    journal: Path

    def services(self, since_s: float, until_s: float) -> int:
        """Count the services opened on the phone between two times, by its journal."""
        entries = map(json.loads, self.journal.read_text().splitlines())
        opened = (entry["host_ns"] / 1e9 for entry in entries if entry["event"] == "adb_service")
        return sum(since_s <= opened_s <= until_s for opened_s in opened)


class TimedLink(ShellLink):
    """A link that measures its round trips and how long they take, outside run and canary."""

    stage = staticmethod(lambda: "")
    trips = 0
    waited_s = 0.0

    def exchange(
        self,
        lines: Sequence[str],
        deadline: Deadline,
        limit: int = MIB,
        each_s: float | None = None,
    ) -> tuple[ShellReply, ...]:
        """Exchange lines, and add the time."""
        started = time.perf_counter()
        try:
            return super().exchange(lines, deadline, limit, each_s)
        finally:
            if self.stage() not in NOT_OVERHEAD:
                self.trips += 1
                self.waited_s += time.perf_counter() - started


def start_phone(folder: Path) -> tuple[subprocess.Popen[bytes], str, Path]:
    """Start one virtual phone in another process; return its address and its journal."""
    ready = folder / "ready.json"
    words = [sys.executable, "-m", "agent.virtual", "up", "meizu-16t", "--speed", str(SPEED)]
    words += ["--ready-file", str(ready), "--journal", str(folder / "journal")]
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    until = time.monotonic() + 30
    while not ready.exists():
        assert time.monotonic() < until, "the virtual phone did not start"
        time.sleep(0.05)
    (phone,) = json.loads(ready.read_text())
    return process, str(phone["address"]), folder / "journal" / f"{phone['serial']}.jsonl"


def quiesce_permanently(phone: Phone) -> None:
    """Bring the phone into the state that every job requests, and leave it there."""
    steps = [setting.put_command() for setting in quiet_settings(phone.address)]
    steps += [ShellCommand(["dumpsys", "deviceidle", "disable"])]
    steps += [ShellCommand(["cmd", "netpolicy", "set", "restrict-background", "true"])]
    steps += [ShellCommand(["setprop", "pm.dexopt.disable_bg_dexopt", "true"])]
    phone.shell_batch(steps)
    switch = phone.facts.charging
    if switch is not None:
        phone.shell_batch([write_node_command(switch.path, switch.off)])


def a_job(serial: str, fence: int) -> Job:
    """Build a job that changes nothing on the phone."""
    return Job(
        run=RunId(trial="tr-" + "0" * 16, repeat=0, attempt=fence),
        phone=serial,
        fence=fence,
        lease_timeout_s=60,
        case=bind("mlp-4", {}),
        condition=Condition(freq="free", cores="big4"),
    )


@dataclass(frozen=True)
class Cost:
    """The cost of one job besides its run."""

    ms: float
    phone_ms: float  # spent waiting for the phone
    trips: int
    services: int
    stages_ms: dict[str, float]


def run_job(bench: Bench, phone: Phone, context: LaneContext, spool: Spool, fence: int) -> Cost:
    """Run one job and measure its cost."""
    for _ in range(REST_SNAPSHOTS):  # as the phone registry does while a phone is idle
        take_snapshot(phone)
        time.sleep(SNAPSHOT_S / SPEED)
    link = phone.link
    assert isinstance(link, TimedLink)
    link.trips, link.waited_s = 0, 0.0
    job = a_job(phone.facts.serial, fence)
    started = time.monotonic()
    spool.record_start(job.run, job.model_dump_json())
    result = run_attempt(job, phone, context)
    spool.record_end(job.run, [result.report])
    ended = time.monotonic()
    report = result.report
    assert report.fault is None, report.fault
    stages = {
        str(stage): 1000 * seconds
        for stage, seconds in report.stage_seconds.items()
        if stage not in NOT_OVERHEAD
    }
    spent_s = ended - started - sum(report.stage_seconds[stage] for stage in NOT_OVERHEAD)
    opened = bench.services(started, ended)
    return Cost(1000 * spent_s, 1000 * link.waited_s, link.trips, opened, stages)


def measure_farmhand(bench: Bench) -> None:
    """Measure the agent's jobs, and print how their time was spent."""
    link = TimedLink(bench.address, bench.server.service)
    phone = Phone(link)
    probe(phone, runner_for)
    quiesce_permanently(phone)
    context = LaneContext(host="bench", state_dir=bench.folder / "state")
    link.stage = lambda: context.status.stage
    spool = Spool(bench.folder / "spool.db")
    run_job(bench, phone, context, spool, 1)  # the first job installs the runner
    costs = [run_job(bench, phone, context, spool, fence) for fence in range(2, 2 + ROUNDS)]
    spool.close()
    phone.close()
    print_times("farmhand", [cost.ms for cost in costs], [cost.services for cost in costs])
    print_times("  the phone", [cost.phone_ms for cost in costs])
    print_times("  the rest", [cost.ms - cost.phone_ms for cost in costs])
    trips = statistics.median(cost.trips for cost in costs)
    middle = {
        name: statistics.median(cost.stages_ms[name] for cost in costs)
        for name in costs[0].stages_ms
    }
    shown = ", ".join(f"{name} {ms:.1f}" for name, ms in middle.items() if ms >= 0.1)
    print(f"  {trips:.0f} round trips; by stage: {shown}")


def measure_peers(bench: Bench, python: str) -> None:
    """Measure the same work by devlib and by Workload Automation."""
    plan = bench.folder / "plan"
    plan.write_bytes(lower(bind("mlp-4", {}), 4))
    runner = f"{HOME}/{runner_for('arm64-v8a').file_name}"
    # Both use the adb program: the same one, with the same server. devlib also requires aapt, which
    # inspects packages; there are none here, so an empty program is enough.
    tools = bench.folder / "tools"
    tools.mkdir()
    (tools / "aapt").write_text("#!/bin/sh\nexit 0\n")
    (tools / "aapt").chmod(0o755)
    folders = (str(find_adb(private=True).parent), str(tools), os.environ["PATH"])
    env = {
        **os.environ,
        "PATH": os.pathsep.join(folders),
        "ANDROID_ADB_SERVER_PORT": str(bench.server.port),
        "PYTHONPATH": str(PEERS),
        "PEER_PLAN": str(plan),
        "PEER_RUNNER": runner,
        "PEER_MOMENTS": str(bench.folder / "moments"),
        "WA_USER_DIRECTORY": str(bench.folder / "wa"),
    }
    script = str(PEERS / "lane_devlib.py")
    output = run_peer([python, script, bench.address, str(plan), runner, str(ROUNDS)], env)
    jobs = [[float(word) for word in line.split()] for line in output.splitlines()]
    print_peer(bench, "devlib", jobs)

    plugins = bench.folder / "wa" / "plugins"
    plugins.mkdir(parents=True)
    shutil.copy(PEERS / "lane_wa.py", plugins)
    agenda = bench.folder / "agenda.yaml"
    agenda.write_text(AGENDA.format(address=bench.address, rounds=ROUNDS + 1))
    wa = str(Path(python).parent / "wa")
    run_peer([wa, "run", str(agenda), "-f", "-d", str(bench.folder / "wa-out")], env)
    lines = (bench.folder / "moments").read_text().splitlines()
    starts = [[float(word) for word in line.split()] for line in lines]
    print_peer(bench, "wlauto", [[*job, following[0]] for job, following in pairwise(starts)])


def run_peer(words: list[str], env: dict[str, str]) -> str:
    """Run a peer's jobs, and return what it printed."""
    done = subprocess.run(words, capture_output=True, text=True, timeout=300, check=False, env=env)
    if done.returncode != 0:
        raise SystemExit(f"{words[0]} failed: {(done.stderr or done.stdout).strip()[-400:]}")
    return done.stdout


def print_peer(bench: Bench, name: str, jobs: list[list[float]]) -> None:
    """Print a peer's line, from the four moments of its jobs."""
    times = [1000 * (end - begin - (ran - started)) for begin, started, ran, end in jobs]
    print_times(name, times, [bench.services(job[0], job[3]) for job in jobs])


def print_times(name: str, times: list[float], services: list[int] | None = None) -> None:
    """Print one line: minimum, median and maximum."""
    low, middle, high = min(times), statistics.median(times), max(times)
    suffix = f"  {statistics.median(services):.0f} adb services" if services else ""
    print(f"{name:12} min {low:7.1f} ms   median {middle:7.1f} ms   max {high:7.1f} ms{suffix}")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--peers", help="a python that has devlib and wlauto")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, AdbServer(Path(name) / "adb") as server:
        process, address, journal = start_phone(Path(name))
        try:
            assert server.connect(address, Deadline.after(10)) == "device"
            bench = Bench(Path(name), server, address, journal)
            measure_farmhand(bench)
            if options.peers:
                measure_peers(bench, options.peers)
        finally:
            process.kill()


if __name__ == "__main__":
    main()
