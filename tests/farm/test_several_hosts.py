"""Several hosts for real: a closed lab over network namespaces, under cuts, loss and upgrades.

Judged from the journals of the virtual phones, which no part of the lab can write.
"""

import json
import os
import random
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path

import pytest

from orchestrator.dispatch.host_notices import HostProblem
from orchestrator.planning.states import ReportStatus
from orchestrator.store.sweep_queries import sweep_summaries
from tests.farm.closed_lab import (
    HOSTS,
    LEASE_S,
    ClosedFarm,
    closed_farm,
    missing_programs,
    start_centre,
)
from tests.farm.conftest import ROOT, wait_for
from tests.farm.history_check import violations
from tests.farm.lab_network import missing_rights
from workloads.protocol.faults import StoreDown

pytestmark = pytest.mark.slow
SWEEP = """\
farm: 1
name: {name}
workload: mlp-4
phones: all
matrix: {{batch_size: [32, 64]}}
conditions: {{cores: big2, freq: mid, start_temp_max_c: any}}
repeat: {repeat}
"""
PATIENCE_S = 120.0  # on a busy computer every command takes seconds
SOAK_S = float(os.environ.get("FARM_NETWORK_SOAK_S", "300"))


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClosedFarm]:
    """A closed lab that the tests share; each leaves it whole."""
    if why := missing_rights() or missing_programs():
        pytest.skip(why)
    with closed_farm(tmp_path_factory.mktemp("closed")) as farm:
        yield farm


def submit(lab: ClosedFarm, name: str, repeat: int) -> str:
    """Submit a sweep from the laptop; return its id."""
    text = SWEEP.format(name=name, repeat=repeat)
    return str(json.loads(lab.at_laptop("sweep", "submit", "-", "--json", text=text))["sweep"])


def done_runs(lab: ClosedFarm, sweep: str) -> int:
    """Count the runs that are done; none can be counted while the store is down."""
    try:
        return sweep_summaries(lab.db, sweep)[0].done
    except StoreDown:
        return 0


def wait_for_runs(lab: ClosedFarm, sweep: str, count: int) -> None:
    """Wait until some runs are done."""
    wait_for(lambda: done_runs(lab, sweep) >= count, f"{count} runs are done", PATIENCE_S)


def finish(lab: ClosedFarm, sweep: str, seconds: float = 3 * PATIENCE_S) -> None:
    """Wait for the end of a sweep, and check every invariant of its history."""
    wait_for(lambda: sweep_summaries(lab.db, sweep)[0].finished, "the sweep ends", seconds)
    wait_for(lambda: lab.idle_count() == 6, "every phone is idle", PATIENCE_S)
    wait_for(lambda: not lab.spooled_parcels(), "every parcel is confirmed", PATIENCE_S)
    deadline = time.monotonic() + PATIENCE_S
    while (found := violations(lab, sweep)) and time.monotonic() < deadline:
        time.sleep(1)  # a phone was announced again in this moment; everything else stays wrong
    assert found == []
    summary = sweep_summaries(lab.db, sweep)[0]
    assert (summary.done, summary.failed) == (summary.total, 0)


def executed(lab: ClosedFarm, since: float) -> int:
    """Count the runs that phones executed since a time, by their journals; canaries are shorter."""
    serials = {file.name for file in lab.folder.glob("host-*/journal/*")}
    starts = [line for name in serials for line in lab.journal(name, "run_start")]
    return sum(line["expected_s"] >= 0.5 and _epoch(line["wall_time"]) > since for line in starts)


def _epoch(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def stale_reports(lab: ClosedFarm, sweep: str) -> int:
    """Count the finished runs of a sweep that were thrown away."""
    query = (
        "SELECT count(*) FROM report JOIN run ON report.trial = run.trial "
        f"AND report.repeat = run.repeat WHERE run.sweep = '{sweep}' "
        f"AND report.status = '{ReportStatus.STALE}'"
    )
    with lab.db.read() as connection:
        return int(connection.exec_driver_sql(query).scalar() or 0)


def test_a_person_with_a_token_runs_a_sweep_on_hosts_with_minimal_rights(lab: ClosedFarm) -> None:
    since = time.time()
    sweep = submit(lab, "plain", 2)
    finish(lab, sweep)
    assert executed(lab, since) == sweep_summaries(lab.db, sweep)[0].total
    assert "xiaomi" in lab.at_laptop("export", "plain", "-o", "-").lower()
    # The broker denied nothing to the three agents.
    assert [entry for entry in lab.ask_broker("ACL", "LOG") if "host." in str(entry)] == []
    listed = json.loads(lab.at_centre("host", "list", "--json"))
    assert [(item["host"], item["access"]) for item in listed] == [(h, "enrolled") for h in HOSTS]
    findings = json.loads(lab.run("centre", "doctor", "--json", "--lab", lab.lab.root).stdout)
    levels = {(item["subject"], item["level"]) for item in findings}
    assert {("broker", "ok"), ("store", "ok"), ("secrets", "ok")} <= levels
    assert not [
        item for item in findings if item["level"] == "error" and "adb" not in item["subject"]
    ]


def test_a_cut_of_two_leases_costs_no_finished_run(lab: ClosedFarm) -> None:
    since = time.time()
    sweep = submit(lab, "cut", 6)
    wait_for_runs(lab, sweep, 6)
    lab.network["host-b"].is_cut = True
    wait_for(lambda: lab.spooled("host-b") > 0, "a run ended behind the cut", PATIENCE_S)
    time.sleep(2 * LEASE_S)
    lab.network["host-b"].is_cut = False
    finish(lab, sweep)
    assert stale_reports(lab, sweep) == 0
    assert executed(lab, since) == sweep_summaries(lab.db, sweep)[0].total, "a run was repeated"


def test_latency_and_loss(lab: ClosedFarm) -> None:
    ports = [lab.network["host-c"], lab.network["laptop"]]
    for port in ports:
        port.delay_s, port.loss = 0.1, 0.02  # 200 ms there and back
    try:
        seconds = {}
        sweep = submit(lab, "far", 3)
        for words in (("sweep", "list"), ("sweep", "show", "far"), ("status",), ("host", "list")):
            started = time.monotonic()
            lab.at_laptop(*words)
            seconds[" ".join(words)] = time.monotonic() - started
        finish(lab, sweep)
    finally:
        for port in ports:
            port.delay_s, port.loss = 0.0, 0.0
    assert stale_reports(lab, sweep) == 0
    print({name: round(value, 1) for name, value in seconds.items()})  # noqa: T201


def kill(lab: ClosedFarm, name: str) -> None:
    """Kill a process and all that it started."""
    process = lab.processes[name]
    os.kill(process.pid, signal.SIGKILL)
    wait_for(lambda: not process.alive, f"{name} is dead")


def restart(lab: ClosedFarm, name: str) -> None:
    """Kill a process, and start it again."""
    kill(lab, name)
    time.sleep(0.5)
    lab.processes[name].start()


def test_restarts_of_every_part(lab: ClosedFarm) -> None:
    sweep = submit(lab, "restarts", 6)
    names = ["broker", "postgres", "services-centre", "agent-host-a"]
    for count, name in enumerate(names + ["front"] * ("front" in lab.processes), start=1):
        wait_for_runs(lab, sweep, 4 * count)
        if name == "postgres":  # its children must end before it starts again
            os.kill(lab.processes[name].pid, signal.SIGINT)  # it does not wait for its clients
            wait_for(lambda: not lab.processes["postgres"].alive, "PostgreSQL has stopped")
            lab.processes[name].start()
        else:
            restart(lab, name)
    finish(lab, sweep)


def test_a_broker_that_lost_everything_gets_its_users_and_runs_back(lab: ClosedFarm) -> None:
    sweep = submit(lab, "wiped", 4)
    wait_for_runs(lab, sweep, 4)
    lab.ask_broker("ACL", "DELUSER", *(f"host.{host}" for host in HOSTS))
    lab.ask_broker("FLUSHALL")
    finish(lab, sweep)


def test_a_revoked_host_is_out_at_once_and_can_come_back(lab: ClosedFarm) -> None:
    lab.at_centre("host", "revoke", "host-c")
    wait_for(lambda: lab.idle_count() == 4, "the phones of host-c are away", PATIENCE_S)
    assert "host.host-c" not in lab.ask_broker("ACL", "USERS")
    offer = json.loads(lab.at_centre("host", "add", "host-c", "--json"))["command"].split()
    token = offer[0].removeprefix("FARM_TOKEN=")
    lab.succeed("host-c", *offer[2:], "--lab", lab.folder / "host-c", FARM_TOKEN=token)
    restart(lab, "agent-host-c")
    wait_for(lambda: lab.idle_count() == 6, "host-c is back", PATIENCE_S)


def old_version(folder: Path, protocol: int) -> Path:
    """Return a source tree of an older version, with another version of the messages or not."""
    folder.mkdir()
    for name in ("agent", "kernels", "orchestrator"):
        (folder / name).symlink_to(ROOT / name)
    skipped = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "workloads", folder / "workloads", ignore=skipped)
    messages = folder / "workloads" / "protocol" / "messages.py"
    text = messages.read_text()
    for line in ("PROTOCOL = 1 ", "version: Literal[1] = 1\n"):
        assert line in text
        text = text.replace(line, line.replace("1", str(protocol)))
    messages.write_text(text)
    info = folder / "farmhand-0.0.9.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: farmhand\nVersion: 0.0.9\n")
    return folder


def problems(lab: ClosedFarm) -> set[tuple[str, str]]:
    """Return the problems of hosts."""
    return lab.host_problems()


def test_a_rolling_upgrade_while_a_sweep_runs(lab: ClosedFarm, tmp_path: Path) -> None:
    """The centre is new; one agent is older, another one speaks an older protocol."""
    trees = {
        "host-a": old_version(tmp_path / "old", 1),
        "host-b": old_version(tmp_path / "older", 0),
    }
    for host, tree in trees.items():
        lab.processes[f"agent-{host}"].terminate()
        wait_for(lambda name=f"agent-{host}": not lab.processes[name].alive, "it has stopped", 60)
        lab.start_agent(host, tree)
    expected = {
        ("host-a", HostProblem.OTHER_SOFTWARE.value),
        ("host-b", HostProblem.OTHER_PROTOCOL.value),
    }
    wait_for(lambda: problems(lab) >= expected, "both are named", PATIENCE_S)
    sweep = submit(lab, "upgrade", 4)
    wait_for_runs(lab, sweep, 8)
    with lab.db.read() as connection:
        query = f"SELECT DISTINCT host FROM run WHERE sweep = '{sweep}' AND attempt > 0"
        assert {row.host for row in connection.exec_driver_sql(query)} == {"host-a", "host-c"}
    for host in trees:
        lab.processes[f"agent-{host}"].terminate()
        wait_for(lambda name=f"agent-{host}": not lab.processes[name].alive, "it has stopped", 60)
        lab.start_agent(host)
    finish(lab, sweep)
    assert problems(lab) & expected == set()


@pytest.fixture
def second_centre(lab: ClosedFarm) -> Iterator[None]:
    """Another computer with central services for the same broker and store."""
    copy = lab.folder / "laptop" / "centre"  # the laptop's address is free for it
    shutil.copytree(lab.lab.root, copy, ignore=shutil.ignore_patterns("run", "logs", "*.sock"))
    start_centre(lab, "laptop", copy)
    yield
    lab.processes["services-laptop"].terminate()
    wait_for(lambda: not lab.processes["services-laptop"].alive, "it has stopped", 60)
    shutil.rmtree(copy)


@pytest.mark.usefixtures("second_centre")
def test_two_centres(lab: ClosedFarm) -> None:
    since = time.time()
    sweep = submit(lab, "two-centres", 4)
    wait_for_runs(lab, sweep, 8)
    lab.network["laptop"].is_cut = True  # the second centre cannot reach store and broker
    time.sleep(LEASE_S)
    lab.network["laptop"].is_cut = False
    finish(lab, sweep)
    assert executed(lab, since) == sweep_summaries(lab.db, sweep)[0].total


def test_a_soak_with_faults_of_network_and_processes(lab: ClosedFarm, seed: int) -> None:
    draw = random.Random(seed)
    ports, injected, sweeps, runs = lab.network.ports, [], [], 0
    started = time.monotonic()

    def cut() -> None:
        port = ports[draw.choice(HOSTS)]
        port.is_cut = True
        time.sleep(draw.uniform(0.5, 3) * LEASE_S)
        port.is_cut = False

    def disturb() -> None:
        port = ports[draw.choice([*HOSTS, "centre"])]
        port.delay_s, port.loss = draw.uniform(0, 0.1), draw.uniform(0, 0.05)
        time.sleep(draw.uniform(2, 10))
        port.delay_s, port.loss = 0.0, 0.0

    def restart_one() -> None:
        restart(lab, draw.choice(["broker", "services-centre", *(f"agent-{h}" for h in HOSTS)]))

    def wipe() -> None:
        lab.ask_broker("FLUSHALL")

    faults: list[Callable[[], None]] = [cut, disturb, restart_one, wipe]
    while time.monotonic() - started < SOAK_S:
        sweep = submit(lab, f"soak-{len(sweeps)}", 20)
        sweeps.append(sweep)
        while not sweep_summaries(lab.db, sweep)[0].finished:
            time.sleep(draw.uniform(1, 5))
            fault = draw.choice(faults)
            fault()
            injected.append(fault.__name__)
        finish(lab, sweep, 600)
        runs += sweep_summaries(lab.db, sweep)[0].done
    stale = sum(stale_reports(lab, sweep) for sweep in sweeps)
    minutes = (time.monotonic() - started) / 60
    print(  # noqa: T201 - the soak's figures are its result
        f"{runs} runs in {minutes:.1f} minutes, {len(injected)} faults, {stale} reports too late"
    )
