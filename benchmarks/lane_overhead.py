"""What the farm itself costs a job: from the job to its report, less the run and the canary.

    python -m benchmarks.lane_overhead [--devlib PYTHON]

On an idle, cool, virtual phone that is quiet already, under a condition that pins nothing: every
millisecond left is ours. adb services are counted at the door. With --devlib, the Python of an
environment that has devlib does the same work on the same phone, in turns: push plan and program,
look at heat and clocks, run the program on its cores, fetch what it wrote, look again.
"""

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from agent.control.cooldown import glance
from agent.control.quiet import settings_for
from agent.deadline import Deadline
from agent.lane import Desk, attempt
from agent.phone.adb import AdbServer, find_adb
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
OURS = ("run", "canary", "canary_after")  # not overhead: what was asked for, and its witness


class CountingServer(AdbServer):
    """An adb server that counts the services of phones that are opened through it."""

    opened = 0

    def service(self, address: str, name: str, deadline: Deadline) -> socket.socket:
        """Open a service, and count it."""
        self.opened += 1
        return super().service(address, name, deadline)


def start_phone(folder: Path) -> tuple[subprocess.Popen[bytes], str]:
    """One virtual phone in a process of its own."""
    ready = folder / "ready.json"
    words = [sys.executable, "-m", "agent.virtual", "up", "meizu-16t", "--speed", str(SPEED)]
    words += ["--ready-file", str(ready), "--port-base", "0"]
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    until = time.monotonic() + 30
    while not ready.exists():
        assert time.monotonic() < until, "the virtual phone did not start"
        time.sleep(0.05)
    (told,) = json.loads(ready.read_text())
    return process, str(told["address"])


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


def ours(server: CountingServer, phone: Phone, desk: Desk, spool: Spool, fence: int) -> float:
    """One job of ours; its overhead in ms."""
    for _ in range(REST_LOOKS):  # as the roster does while a phone is idle
        glance(phone)
        time.sleep(LOOK_S / SPEED)
    server.opened = 0
    job = a_job(phone.known.serial, fence)
    began = time.perf_counter()
    spool.begin(job.run, job.model_dump_json())
    outcome = attempt(job, phone, desk)
    spool.end(job.run, [outcome.report])
    took = time.perf_counter() - began
    report = outcome.report
    assert report.fault is None, report.fault
    return 1000 * (took - sum(report.stage_s.get(stage, 0.0) for stage in OURS))


DEVLIB = """
import logging, sys, time, json
logging.disable(logging.CRITICAL)
from devlib import AndroidTarget
address, plan, runner, rounds = sys.argv[1:]
target = AndroidTarget(connection_settings={"device": address}, load_default_modules=False,
                       connect=False)
target.connect(timeout=60, check_boot_completed=False)
for _ in range(int(rounds)):
    began = time.perf_counter()
    target.push(plan, "/data/local/tmp/devlib-plan")
    target.execute("mkdir -p /data/local/tmp/devlib-out")
    for zone in range(4, 8):
        target.execute(f"cat /sys/class/thermal/thermal_zone{zone}/temp")
    for policy in (4, 7):
        target.execute(f"cat /sys/devices/system/cpu/cpufreq/policy{policy}/stats/time_in_state")
    start = time.perf_counter()
    target.execute(f"taskset f0 {runner} run /data/local/tmp/devlib-plan "
                   "/data/local/tmp/devlib-out --seconds 8", timeout=60)
    run = time.perf_counter() - start
    target.pull("/data/local/tmp/devlib-out/out.jsonl", plan + ".out")
    for policy in (4, 7):
        target.execute(f"cat /sys/devices/system/cpu/cpufreq/policy{policy}/stats/time_in_state")
    print(1000 * (time.perf_counter() - began - run), flush=True)
"""


def devlib(python: str, server: AdbServer, phone: Phone, folder: Path) -> list[float]:
    """The same work by devlib; its overhead a job in ms."""
    plan = folder / "plan"
    plan.write_bytes(lower(bind("mlp-4", {}), 4))
    runner = f"{HOME}/{runner_for(phone.known.abi).file_name}"
    words = [python, "-c", DEVLIB, phone.address, str(plan), runner, str(ROUNDS)]
    # devlib speaks by the adb program: the same one, to the same server. It also asks for aapt,
    # which looks into packages; there are none here, so an empty one will do.
    tools = folder / "tools"
    tools.mkdir()
    (tools / "aapt").write_text("#!/bin/sh\nexit 0\n")
    (tools / "aapt").chmod(0o755)
    places = (str(find_adb(private=True).parent), str(tools), os.environ["PATH"])
    path = os.pathsep.join(places)
    env = {**os.environ, "PATH": path, "ANDROID_ADB_SERVER_PORT": str(server.port)}
    done = subprocess.run(words, capture_output=True, text=True, timeout=300, check=False, env=env)
    if done.returncode != 0:
        print("devlib failed:", done.stderr.strip().splitlines()[-1:])
        return []
    return [float(line) for line in done.stdout.split()]


def told(name: str, times: list[float], more: str = "") -> None:
    """One line."""
    low, middle, high = min(times), statistics.median(times), max(times)
    print(f"{name:10} min {low:7.1f} ms   median {middle:7.1f} ms   max {high:7.1f} ms  {more}")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--devlib", help="a python that has devlib")
    wanted = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, CountingServer(Path(name) / "adb") as server:
        folder = Path(name)
        process, address = start_phone(folder)
        try:
            assert server.connect(address, Deadline.after(10)) == "device"
            phone = Phone(server.open(address))
            probe(phone, runner_for)
            make_quiet(phone)
            desk = Desk(host="bench", state_dir=folder / "state")
            spool = Spool(folder / "spool.db")
            ours(server, phone, desk, spool, 1)  # the first one installs
            times, counts = [], []
            for fence in range(2, 2 + ROUNDS):
                times.append(ours(server, phone, desk, spool, fence))
                counts.append(server.opened)
            told("farmhand", times, f"{statistics.median(counts):.0f} adb services")
            if wanted.devlib:
                theirs = devlib(wanted.devlib, server, phone, folder)
                if theirs:
                    told("devlib", theirs)
            spool.close()
            phone.close()
        finally:
            process.kill()


if __name__ == "__main__":
    main()
