"""What the farm itself costs a job: from the job to its report, less the run and the canary.

    python -m benchmarks.lane_overhead [--peers PYTHON]

On an idle, cool, virtual phone that is quiet already, under a condition that pins nothing: every
millisecond left is ours. What of it was spent waiting for the phone's answers is told apart: the
virtual phone's shell is no part of the farm. adb services are counted by the phone's own journal.

With --peers, the Python of an environment that has devlib and wlauto does the same work on the same
phone in the same run: plan brought, heat and clocks looked at, the runner started on its cores,
what it wrote fetched, clocks looked at again. Neither has a fence, a journal, a dead-man, a look at
quietness, a sampler, a verdict or a spool.
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

from agent.control.cooldown import glance
from agent.control.quiet import settings_for
from agent.deadline import Deadline
from agent.desk import Desk
from agent.lane import attempt
from agent.phone.adb import AdbServer, find_adb
from agent.phone.link import MIB, Link, Reply
from agent.phone.phone import HOME, Command, Phone
from agent.phone.probe import probe
from agent.spool import Spool
from kernels.manifest import runner_for
from workloads.catalogue import bind, lower
from workloads.condition import Condition
from workloads.messages import Job, RunId

ROUNDS = 15
SPEED = 100.0
# Ten minutes of rest by the phone's clock: what the job before has heated is physics, not overhead.
REST_LOOKS, LOOK_S = 60, 10.0
NOT_OURS = ("run", "canary", "canary_after")  # what was asked for, and its witness
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
    """One adb server, one phone behind it in a process of its own, and a folder."""

    folder: Path
    server: AdbServer
    address: str
    journal: Path

    def services(self, since_s: float, until_s: float) -> int:
        """How many services were opened on the phone between two moments, as its journal has it."""
        entries = map(json.loads, self.journal.read_text().splitlines())
        opened = (each["host_ns"] / 1e9 for each in entries if each["event"] == "open")
        return sum(since_s <= at <= until_s for at in opened)


class TimedLink(Link):
    """A link that knows how often and how long it waited for its phone, outside run and canary."""

    stage = staticmethod(lambda: "")
    trips = 0
    waited_s = 0.0

    def exchange(
        self, lines: Sequence[str], deadline: Deadline, limit: int = MIB
    ) -> tuple[Reply, ...]:
        """Exchange, and note how long it took."""
        began = time.perf_counter()
        try:
            return super().exchange(lines, deadline, limit)
        finally:
            if self.stage() not in NOT_OURS:
                self.trips += 1
                self.waited_s += time.perf_counter() - began


def start_phone(folder: Path) -> tuple[subprocess.Popen[bytes], str, Path]:
    """One virtual phone in a process of its own, and its journal."""
    ready = folder / "ready.json"
    words = [sys.executable, "-m", "agent.virtual", "up", "meizu-16t", "--speed", str(SPEED)]
    words += ["--ready-file", str(ready), "--journal", str(folder / "journal")]
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    until = time.monotonic() + 30
    while not ready.exists():
        assert time.monotonic() < until, "the virtual phone did not start"
        time.sleep(0.05)
    (told,) = json.loads(ready.read_text())
    return process, str(told["address"]), folder / "journal" / f"{told['serial']}.jsonl"


def make_quiet(phone: Phone) -> None:
    """Bring the phone into the state that every job asks for, for good."""
    steps = [setting.put() for setting in settings_for(phone.address)]
    steps += [Command(["dumpsys", "deviceidle", "disable"])]
    steps += [Command(["cmd", "netpolicy", "set", "restrict-background", "true"])]
    steps += [Command(["setprop", "pm.dexopt.disable_bg_dexopt", "true"])]
    phone.batch(steps)
    switch = phone.known.charging
    if switch is not None:
        phone.write_node(switch.path, switch.off)


def a_job(serial: str, fence: int) -> Job:
    """A job that asks for nothing to be changed."""
    return Job(
        run=RunId(trial="tr-" + "0" * 16, repeat=0, attempt=fence),
        phone=serial,
        fence=fence,
        lease_s=60,
        case=bind("mlp-4", {}),
        condition=Condition(freq="free", cores="big4"),
    )


@dataclass(frozen=True)
class Cost:
    """What one job cost beside its run."""

    ms: float
    phone_ms: float  # of it spent waiting for the phone
    trips: int
    services: int
    stages_ms: dict[str, float]


def one_of_ours(bench: Bench, phone: Phone, desk: Desk, spool: Spool, fence: int) -> Cost:
    """One job of ours."""
    for _ in range(REST_LOOKS):  # as the roster does while a phone is idle
        glance(phone)
        time.sleep(LOOK_S / SPEED)
    link = phone.link
    assert isinstance(link, TimedLink)
    link.trips, link.waited_s = 0, 0.0
    job = a_job(phone.known.serial, fence)
    began = time.monotonic()
    spool.begin(job.run, job.model_dump_json())
    outcome = attempt(job, phone, desk)
    spool.end(job.run, [outcome.report])
    ended = time.monotonic()
    report = outcome.report
    assert report.fault is None, report.fault
    stages = {name: 1000 * took for name, took in report.stage_s.items() if name not in NOT_OURS}
    spent_s = ended - began - sum(report.stage_s[stage] for stage in NOT_OURS)
    opened = bench.services(began, ended)
    return Cost(1000 * spent_s, 1000 * link.waited_s, link.trips, opened, stages)


def ours(bench: Bench) -> None:
    """Our jobs, and where their time went."""
    link = TimedLink(bench.address, bench.server.service)
    phone = Phone(link)
    probe(phone, runner_for)
    make_quiet(phone)
    desk = Desk(host="bench", state_dir=bench.folder / "state")
    link.stage = lambda: desk.view.stage
    spool = Spool(bench.folder / "spool.db")
    one_of_ours(bench, phone, desk, spool, 1)  # the first one installs
    costs = [one_of_ours(bench, phone, desk, spool, fence) for fence in range(2, 2 + ROUNDS)]
    spool.close()
    phone.close()
    told("farmhand", [cost.ms for cost in costs], [cost.services for cost in costs])
    told("  the phone", [cost.phone_ms for cost in costs])
    told("  the rest", [cost.ms - cost.phone_ms for cost in costs])
    trips = statistics.median(cost.trips for cost in costs)
    middle = {
        name: statistics.median(cost.stages_ms[name] for cost in costs)
        for name in costs[0].stages_ms
    }
    shown = ", ".join(f"{name} {ms:.1f}" for name, ms in middle.items() if ms >= 0.1)
    print(f"  {trips:.0f} round trips; by stage: {shown}")


def theirs(bench: Bench, python: str) -> None:
    """The same work by devlib, and by Workload Automation."""
    plan = bench.folder / "plan"
    plan.write_bytes(lower(bind("mlp-4", {}), 4))
    runner = f"{HOME}/{runner_for('arm64-v8a').file_name}"
    # Both speak by the adb program: the same one, to the same server. devlib also asks for aapt,
    # which looks into packages; there are none here, so an empty one will do.
    tools = bench.folder / "tools"
    tools.mkdir()
    (tools / "aapt").write_text("#!/bin/sh\nexit 0\n")
    (tools / "aapt").chmod(0o755)
    places = (str(find_adb(private=True).parent), str(tools), os.environ["PATH"])
    env = {
        **os.environ,
        "PATH": os.pathsep.join(places),
        "ANDROID_ADB_SERVER_PORT": str(bench.server.port),
        "PYTHONPATH": str(PEERS),
        "PEER_PLAN": str(plan),
        "PEER_RUNNER": runner,
        "PEER_MOMENTS": str(bench.folder / "moments"),
        "WA_USER_DIRECTORY": str(bench.folder / "wa"),
    }
    script = str(PEERS / "lane_devlib.py")
    said = run_peer([python, script, bench.address, str(plan), runner, str(ROUNDS)], env)
    jobs = [[float(word) for word in line.split()] for line in said.splitlines()]
    tell_peer(bench, "devlib", jobs)

    plugins = bench.folder / "wa" / "plugins"
    plugins.mkdir(parents=True)
    shutil.copy(PEERS / "lane_wa.py", plugins)
    agenda = bench.folder / "agenda.yaml"
    agenda.write_text(AGENDA.format(address=bench.address, rounds=ROUNDS + 1))
    wa = str(Path(python).parent / "wa")
    run_peer([wa, "run", str(agenda), "-f", "-d", str(bench.folder / "wa-out")], env)
    lines = (bench.folder / "moments").read_text().splitlines()
    begun = [[float(word) for word in line.split()] for line in lines]
    tell_peer(bench, "wlauto", [[*job, following[0]] for job, following in pairwise(begun)])


def run_peer(words: list[str], env: dict[str, str]) -> str:
    """Let a peer do its jobs; what it printed."""
    done = subprocess.run(words, capture_output=True, text=True, timeout=300, check=False, env=env)
    if done.returncode != 0:
        raise SystemExit(f"{words[0]} failed: {(done.stderr or done.stdout).strip()[-400:]}")
    return done.stdout


def tell_peer(bench: Bench, name: str, jobs: list[list[float]]) -> None:
    """A peer's line, by the four moments of its jobs."""
    times = [1000 * (end - begin - (ran - started)) for begin, started, ran, end in jobs]
    told(name, times, [bench.services(job[0], job[3]) for job in jobs])


def told(name: str, times: list[float], services: list[int] | None = None) -> None:
    """One line."""
    low, middle, high = min(times), statistics.median(times), max(times)
    more = f"  {statistics.median(services):.0f} adb services" if services else ""
    print(f"{name:12} min {low:7.1f} ms   median {middle:7.1f} ms   max {high:7.1f} ms{more}")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--peers", help="a python that has devlib and wlauto")
    wanted = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, AdbServer(Path(name) / "adb") as server:
        process, address, journal = start_phone(Path(name))
        try:
            assert server.connect(address, Deadline.after(10)) == "device"
            bench = Bench(Path(name), server, address, journal)
            ours(bench)
            if wanted.peers:
                theirs(bench, wanted.peers)
        finally:
            process.kill()


if __name__ == "__main__":
    main()
