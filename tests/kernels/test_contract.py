"""The contract of kernels/runner/runner.h, for the real runner and for the virtual phone's.

Every test runs twice: with the binary for this computer, and on a virtual phone.
"""

import json
import os
import re
import signal
import subprocess
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import pairwise
from pathlib import Path, PurePosixPath
from typing import Any, Protocol

import pytest

from agent.collect.cpu_usage import CYCLES, CYCLES_MARK, FIRST_THREAD, OWN_STAT, TICKS_MARK
from agent.collect.readings import parse_readings
from agent.collect.runner_output import RunnerOutput
from agent.collect.thread_affinity import (
    MASKS_MARK,
    TASKS,
    moved_threads,
    parse_thread_affinity,
    stray_threads,
)
from agent.virtual.fleet_server import FleetConfig
from kernels.runner_builds import runner_for
from tests.agent.observations import PROBE
from tests.busy_computer import needs_two_cores, needs_x86
from tests.kernels.plans import CASE, a_plan, perceptron
from tests.virtual.adb_host import AdbPhone, CommandResult, adb_host, wait_until
from tests.virtual.running_fleet import serve_fleet_in_thread
from workloads.run_options import RUN_OPTIONS

Line = dict[str, Any]
KERNELS = Path(__file__).parents[2] / "kernels"
CONTRACT, ENGINE = KERNELS / "runner" / "runner.h", KERNELS / "engine"
HOME = "/data/local/tmp"


class RunnerHome(Protocol):
    """A place with a shell, a runner named ./runner, and a working folder."""

    home: str
    unit_s: float  # seconds of this place's clock per second of the tests
    long_s: int  # a run of this many seconds does not end during a test

    def put(self, name: str, content: bytes, mode: int = 0o644) -> None: ...
    def sh(self, command: str) -> CommandResult: ...
    def start(self, command: str) -> Callable[[], int | None]: ...


class ThisComputer:
    """This computer, in a temporary folder."""

    unit_s = 0.2
    long_s = 60

    def __init__(self, home: Path) -> None:
        self.home = str(home)
        self._started: list[subprocess.Popen[bytes]] = []
        self.put("runner", runner_for("x86_64").content, 0o755)

    def put(self, name: str, content: bytes, mode: int = 0o644) -> None:
        path = Path(self.home, name)
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)
        path.chmod(mode)

    def sh(self, command: str) -> CommandResult:
        done = subprocess.run(
            ["/bin/sh", "-c", command],
            cwd=self.home,
            env={**os.environ, "FARM_OPENCL": "/nowhere"},
            capture_output=True,
            check=False,
            timeout=600,
        )
        return CommandResult(done.returncode, done.stdout.decode(), done.stderr.decode())

    def start(self, command: str) -> Callable[[], int | None]:
        self._started.append(subprocess.Popen(command.split(" "), cwd=self.home))
        return self._started[-1].poll

    def close(self) -> None:
        """End all started processes."""
        for process in self._started:
            process.kill()
            process.wait()


class VirtualPhone:
    """A virtual phone."""

    unit_s = 1.0
    long_s = 100_000

    def __init__(self, phone: AdbPhone, home: str) -> None:
        self._phone = phone
        self.home = home
        phone.run(f"mkdir -p {home}")
        self.put("runner", runner_for("arm64-v8a").content, 0o755)

    def put(self, name: str, content: bytes, mode: int = 0o644) -> None:
        self.sh(f"mkdir -p {PurePosixPath(name).parent}")
        self._phone.put(f"{self.home}/{name}", content, mode)

    def sh(self, command: str) -> CommandResult:
        return self._phone.run(f"cd {self.home}; {command}")

    def start(self, command: str) -> Callable[[], int | None]:
        """Start a detached command, which writes its exit status to a file."""
        self.sh("rm -f status")
        self.sh(f"setsid sh -c '{command}; echo $? > status' >/dev/null 2>&1 </dev/null &")

        def status() -> int | None:
            result = self.sh("cat status").out.strip()
            return int(result) if result else None

        return status


@pytest.fixture(scope="module")
def phone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AdbPhone]:
    with (
        adb_host(tmp_path_factory.mktemp("adb")) as host,
        serve_fleet_in_thread(FleetConfig(("meizu-16t:no_opencl",), speed=100.0)) as (
            _,
            (address,),
        ),
    ):
        host.adb("connect", address.address)
        yield AdbPhone(host, address.address)
        host.adb("disconnect", address.address)


@pytest.fixture(params=[pytest.param("real", marks=needs_x86), "virtual"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[RunnerHome]:
    if request.param == "real":
        with closing(ThisComputer(tmp_path)) as computer:
            yield computer
    else:
        phone = request.getfixturevalue("phone")
        yield VirtualPhone(phone, f"{HOME}/{uuid.uuid4().hex[:8]}")


@pytest.fixture
def ready(place: RunnerHome) -> RunnerHome:
    """Return a place with a plan and a folder."""
    place.put("plan", perceptron())
    place.sh("mkdir dir")
    return place


def lines(place: RunnerHome, name: str = "out.jsonl") -> list[Line]:
    return [json.loads(line) for line in place.sh(f"cat dir/{name}").out.splitlines()]


def start_long(place: RunnerHome, before: str = "", options: str = "") -> Callable[[], int | None]:
    """Start a run that does not end by itself."""
    limits = f"--seconds {place.long_s} --max-seconds {place.long_s} {options}".rstrip()
    poll = place.start(f"{before}./runner run plan dir {limits}")
    wait_until(lambda: "window" in place.sh("cat dir/out.jsonl").out, "it works")
    return poll


def kinds(records: list[Line]) -> list[str]:
    """Return the kinds of records, without consecutive repetitions."""
    names = [record["line"] for record in records]
    return [name for n, name in enumerate(names) if n == 0 or names[n - 1] != name]


def test_the_contract_lists_every_exit_status() -> None:
    """The table in runner.h is what strangers implement; the enum is what the C sources use."""
    listed = re.findall(r"^ \*   (\d+) +(?:\(none\)|\w+) ", CONTRACT.read_text(), re.MULTILINE)
    defined = re.findall(r"STATUS_\w+ = (\d+)", (ENGINE / "status.h").read_text())
    assert defined == listed


def test_info_has_the_version_and_the_sources(ready: RunnerHome) -> None:
    result = ready.sh("./runner info")
    info = json.loads(result.out)
    assert result.status == 0
    assert tuple(info[key] for key in ("line", "contract", "runner", "backends", "opencl")) == (
        "info",
        1,
        "farmhand 0.1.0",
        ["cpu"],
        [],
    )
    assert info["abi"] in {"x86_64", "arm64-v8a"}
    assert all(isinstance(feature, str) for feature in info["features"])
    assert {"time", "clock", "heat", "energy"} == info["provenance"].keys()
    assert info["provenance"]["time"]["source"] in {"host", "simulated"}


def test_a_run_prints_its_records_in_order_and_the_agent_parses_them(ready: RunnerHome) -> None:
    ready.put("dir/nodes", b"/proc/uptime\n")
    assert ready.sh("./runner run plan dir --warmup 2 --steps 40").status == 0
    records = lines(ready)
    assert kinds(records) == ["hello", "memory", "window", "sampler", "done"]
    output = RunnerOutput(CASE)
    output.feed(ready.sh("cat dir/out.jsonl").out.encode())
    assert output.done is not None
    assert 40 == output.steps == output.done.steps


def test_hello_has_the_affinity_mask(ready: RunnerHome) -> None:
    assert ready.sh("taskset 1 ./runner run plan dir --steps 5").status == 0
    hello = lines(ready)[0]
    assert tuple(hello[key] for key in ("line", "contract", "case", "mask", "threads")) == (
        "hello",
        1,
        CASE,
        "1",
        1,
    )
    assert hello["pid"] > 1
    assert hello["t_ns"] > 0


def test_memory_is_reported_by_kind(ready: RunnerHome) -> None:
    ready.sh("./runner run plan dir --steps 1")
    memory = lines(ready)[1]
    names = {"parameter", "gradient", "state", "activation", "input", "workspace", "dataset"}
    assert names | {"line"} == memory.keys()
    assert all(isinstance(memory[name], int) for name in names)


def test_windows_have_every_step_once_and_consistent_times(ready: RunnerHome) -> None:
    assert ready.sh(f"./runner run plan dir --steps 1 --seconds {ready.unit_s}").status == 0
    records = lines(ready)
    windows = [line for line in records if line["line"] == "window"]
    done = records[-1]
    assert windows[0]["first"] == 0
    for window, following in pairwise(windows):
        assert window["first"] + window["n"] == following["first"]
        assert window["t_ns"] + window["ns"] <= following["t_ns"]
    for window in windows:
        assert window["ns_min"] * window["n"] <= window["ns"] <= window["ns_max"] * window["n"]
        assert 0 <= window["ns"] - sum(window["phases_ns"]) <= 1000 * window["n"]
    assert sum(window["n"] for window in windows) == done["steps"]
    assert sum(window["ns"] for window in windows) == done["ns"]
    assert ready.unit_s * 0.99e9 <= done["ns"] < ready.unit_s * 3e9


def test_max_seconds_ends_a_run(ready: RunnerHome) -> None:
    limit = ready.unit_s
    assert ready.sh(f"./runner run plan dir --steps 900000000 --max-seconds {limit}").status == 0
    done = lines(ready)[-1]
    assert 0.5e9 * limit <= done["ns"] < 3e9 * limit


def test_a_long_run_fits_in_the_permitted_windows(ready: RunnerHome) -> None:
    limits = f"--seconds {ready.unit_s} --max-seconds {ready.unit_s}"
    assert ready.sh(f"./runner run plan dir {limits} --window-ms 0 --trace-steps 5").status == 0
    windows = [line for line in lines(ready) if line["line"] == "window"]
    assert 5 < len(windows) <= 4096


def test_done_has_the_values_for_the_verdict(ready: RunnerHome) -> None:
    assert ready.sh("./runner run plan dir --steps 30").status == 0
    done = lines(ready)[-1]
    names = {"steps", "ns", "t_ns", "peak_rss_kb", "loss_first", "loss_last", "parameters_changed"}
    names |= {"parameters", "macs", "learned", "moved", "fallbacks", "answer_error"}
    names |= {"first_step_ns", "waited_ns"}
    assert names | {"line"} == done.keys()
    assert tuple(done[key] for key in ("parameters_changed", "fallbacks", "answer_error")) == (
        True,
        0,
        None,
    )


def test_traced_steps_are_spread_and_have_every_operation(ready: RunnerHome) -> None:
    assert ready.sh("./runner run plan dir --steps 40 --trace-steps 4").status == 0
    records = lines(ready)
    traces = [line for line in records if line["line"] == "trace"]
    assert [trace["step"] for trace in traces] == [0, 10, 20, 30]
    for trace in traces:
        assert (trace["first"], len(trace["ends_ns"])) == (0, 10)
        assert sorted(trace["ends_ns"]) == trace["ends_ns"]
        assert trace["ends_ns"][0] >= 0
        windows = [w for w in records if w["line"] == "window" and w["first"] <= trace["step"]]
        assert windows[-1]["first"] + windows[-1]["n"] > trace["step"]
        assert trace["t_ns"] >= windows[-1]["t_ns"]


def test_nodes_are_sampled_during_a_run(ready: RunnerHome) -> None:
    table = b"1 2\n30 4\n"
    stat = (
        b"cpu  9 9 9 9 9 9 9 9 0 0\ncpu0 1 2 3 4 5 6 7 8 1 0\ncpu7 10 0 0 90 0 0 0 0 0 0\nintr 5\n"
    )
    rows = {"MemTotal": 9, "MemFree": 1, "MemAvailable": 12345, "SwapTotal": 0, "SwapFree": 77}
    meminfo = "".join(f"{name + ':':<16}{kb:>8} kB\n" for name, kb in rows.items()).encode()
    ready.put("number", b"-42\nmore\n")
    ready.put("text", b" Not charging \n")
    ready.put("table", table)
    ready.put("stat", stat)
    ready.put("ticks", b"7 (a (odd) name) R 1 1 1 0 -1 0 0 0 0 0 30 12 5 5 20\n")
    ready.put("meminfo", meminfo)
    marks = {"number": "", "text": "", "nowhere": "", "table": "\twhole", "stat": "\tcores"}
    marks |= {"ticks": "\tticks", "meminfo": "\tmemory"}
    listed = "".join(f"{ready.home}/{name}{mark}\n" for name, mark in marks.items())
    ready.put("dir/nodes", listed.encode())
    seconds = 2 * ready.unit_s
    period_ms = round(ready.unit_s * 100)
    words = f"--steps 1 --seconds {seconds} --period-ms {period_ms}"
    assert ready.sh(f"./runner run plan dir {words}").status == 0
    opening, *readings = lines(ready, "readings.jsonl")
    assert [f"{ready.home}/{name}" for name in marks] == opening["paths"]
    cores = "0:27/36 7:10/100"
    for reading in readings:
        values = [-42, "Not charging", None, "1 2;30 4", cores, 42, "9 12345 0 77"]
        assert values == reading["v"]
    assert 8 <= len(readings) <= 24
    moments = [reading["t_ns"] for reading in readings]
    assert all(sooner < later for sooner, later in pairwise(moments))
    # A late reading is not made up for, and there are never more readings than requested.
    assert moments[-1] - moments[0] >= (len(readings) - 1.5) * period_ms * 1e6
    sampler = next(line for line in lines(ready) if line["line"] == "sampler")
    assert len(readings) == sampler["readings"]
    assert 0 <= sampler["late_p50_ns"] <= sampler["late_p99_ns"]
    parsed = parse_readings(ready.sh("cat dir/readings.jsonl").out.encode())
    assert [-42] * len(readings) == parsed.numbers(f"{ready.home}/number")


def test_content_of_another_form_is_null(ready: RunnerHome) -> None:
    ready.put("text", b"7 (short) 1 2\n")
    forms = ("ticks", "memory")
    listed = "".join(f"{ready.home}/text\t{form}\n" for form in forms)
    ready.put("dir/nodes", listed.encode())
    words = f"--seconds {ready.unit_s / 10} --period-ms {round(50 * ready.unit_s)}"
    assert ready.sh(f"./runner sample dir {words}").status == 0
    assert lines(ready, "readings.jsonl")[-1]["v"] == [None, None]


def test_cycles_rise_with_the_work_where_they_are_counted(ready: RunnerHome) -> None:
    """Where the kernel does not allow it, such as here for the shell's user, they are null."""
    ready.put("dir/nodes", b"/proc/self\tcycles\n")
    words = f"--steps 1 --seconds {2 * ready.unit_s} --period-ms {round(100 * ready.unit_s)}"
    assert ready.sh(f"./runner run plan dir {words}").status == 0
    _, *readings = lines(ready, "readings.jsonl")
    counted = [list(map(int, value.split("/"))) for (value,) in (r["v"] for r in readings) if value]
    for (cycles, ns), (later, later_ns) in pairwise(counted):
        assert 0 <= later - cycles <= 10 * (later_ns - ns)


# What the agent reads of the runner's process, and how it samples it.
OWN_NODES = {OWN_STAT: TICKS_MARK, TASKS: MASKS_MARK, CYCLES: CYCLES_MARK, FIRST_THREAD: ""}


def test_the_nodes_of_the_process_that_the_agent_samples_are_compared_here() -> None:
    """A node that only one of the two runners shows as phones do makes good runs void."""
    sampled = {node for node in PROBE.sampled_nodes if node.startswith("/proc/self")}
    assert {f"{path}{mark}" for path, mark in OWN_NODES.items()} == sampled


@needs_two_cores
@pytest.mark.parametrize(
    ("cores", "threads", "masks", "pins"),
    [
        ("1", 1, "1 1 1 0", [1]),
        ("3", 2, "2 0 3 0", [1, 2]),
        ("3", 1, "1 1 1 0", [1]),  # fewer threads than cores
        ("3", 3, "3 0 3 0", [1, 2, 1]),  # more
    ],
)
def test_each_thread_is_pinned_to_one_core(
    ready: RunnerHome, cores: str, threads: int, masks: str, pins: list[int]
) -> None:
    """Both runners show the same in every node of the process that the agent reads."""
    ready.put("plan", perceptron(threads=threads))
    ready.put("dir/nodes", "".join(f"{path}{OWN_NODES[path]}\n" for path in OWN_NODES).encode())
    pid = start_long(ready, f"taskset {cores} ", f"--period-ms {round(50 * ready.unit_s)}")
    wait_until(lambda: len(ready.sh("cat dir/readings.jsonl").out.splitlines()) > 8, "it samples")
    hello = lines(ready)[0]
    assert (hello["mask"], hello["threads"]) == (cores, threads)
    readings = parse_readings(ready.sh("cat dir/readings.jsonl").out.encode())
    assert set(readings.column(TASKS)) == {masks}
    assert moved_threads(readings, int(cores, 16), threads) is None
    for path in (OWN_STAT, FIRST_THREAD):  # processor time, of the process and of its first thread
        texts = [str(value).split() for value in readings.column(path)]
        assert {len(words) for words in texts} == {1 if path == OWN_STAT else 3}
        assert int(texts[0][0]) <= int(texts[-1][0])
    show = "for f in /proc/PID/task/*/status /proc/PID/sched; do echo @$f; cat $f; done"
    shown = ready.sh(show.replace("PID", str(hello["pid"]))).out
    affinity = parse_thread_affinity(
        {path: text for path, _, text in (part.partition("\n") for part in shown.split("@")[1:])}
    )
    assert affinity.clamp_max in {None, 1024}  # a kernel without clamps shows none
    *own, _ = sorted(affinity.masks)  # the sampler starts last
    assert [affinity.masks[tid] for tid in own] == pins
    assert not stray_threads(affinity, int(cores, 16))
    cgroup = ready.sh(f"cat /proc/{hello['pid']}/cgroup").out
    assert all(re.fullmatch(r"\d+:[^:]*:/.*", line) for line in cgroup.splitlines())
    ready.sh(f"kill -9 {hello['pid']}")
    wait_until(lambda: pid() is not None, "it ended")


def test_sample_ends_by_itself_and_appends(ready: RunnerHome) -> None:
    ready.put("dir/nodes", b"/proc/uptime\n")
    words = f"./runner sample dir --seconds {ready.unit_s} --period-ms {round(50 * ready.unit_s)}"
    for _ in range(2):
        result = ready.sh(words)
        assert (result.status, json.loads(result.out)["line"]) == (0, "sampler")
    assert kinds(lines(ready, "readings.jsonl")) == ["nodes", "reading", "nodes", "reading"]
    assert 20 <= len(lines(ready, "readings.jsonl")) <= 44


@pytest.mark.parametrize(
    ("arguments", "status", "code"),
    [
        ("", 2, "usage"),
        ("dance", 2, "usage"),
        ("run plan", 2, "usage"),
        ("run plan dir --speed 3", 2, "usage"),
        ("run plan dir --steps many", 2, "usage"),
        ("run plan dir --steps", 2, "usage"),
        ("run plan dir --steps -1", 2, "usage"),
        ("run plan dir --kernels", 2, "usage"),
        ("run plan dir --kernel fastest", 2, "usage"),
        ("run plan dir --kernel direct", 2, "usage"),
        ("run plan dir --feed buffered", 2, "usage"),
        ("run plan dir --input disk", 2, "usage"),
        ("run plan dir --submit all", 2, "usage"),
        ("run plan dir --feed preloaded --input storage", 2, "usage"),
        ("info please", 2, "usage"),
        ("run none dir", 3, "bad_plan"),
        ("run torn dir", 3, "bad_plan"),
        ("run junk dir", 3, "bad_plan"),
        ("run gpu dir", 4, "unsupported"),
        ("run gpu dir --kernels . --fallback cpu", 4, "unsupported"),
        ("run plan nowhere", 8, "io"),
        ("sample dir", 8, "io"),
        ("watchdog nowhere", 8, "io"),
        ("wait", 2, "usage"),
        ("wait it", 2, "usage"),
        ("wait 0", 2, "usage"),
        ("wait -1", 2, "usage"),
        ("wait 1.5", 2, "usage"),
        ("wait 1000000000", 2, "usage"),
        ("wait 1 2", 2, "usage"),
        ("wait 1 --seconds", 2, "usage"),
        ("wait 1 --seconds -1", 2, "usage"),
        ("wait 1 --timeout-s 1", 2, "usage"),
    ],
)
def test_every_fault_has_its_status_and_its_code(
    ready: RunnerHome, arguments: str, status: int, code: str
) -> None:
    body = perceptron().partition(b"farmhand-body")[2].decode()
    ready.put("torn", perceptron()[:100])
    ready.put("junk", b"MZ\0\1\2")
    gpu = f"farmhand-body{body}".replace("backend cpu", "backend opencl")
    ready.put("gpu", a_plan(gpu, backend="opencl"))
    result = ready.sh(f"./runner {arguments}")
    fault = json.loads(result.out)
    assert (status, "fault", code) == (result.status, fault["line"], fault["code"])
    assert fault["text"]
    if status in (3, 4):
        assert fault == lines(ready)[-1]


def test_info_lists_the_names_that_options_take(ready: RunnerHome) -> None:
    info = json.loads(ready.sh("./runner info").out)
    assert tuple(info["kernels"]) == RUN_OPTIONS["kernel"].choices
    assert tuple(info["feeds"]) == RUN_OPTIONS["feed"].choices
    assert tuple(info["inputs"]) == RUN_OPTIONS["input"].choices
    assert info["submissions"] == ["step", "launch", "recorded"]


def test_options_of_opencl_do_not_change_a_plan_for_the_cpu(ready: RunnerHome) -> None:
    assert ready.sh("./runner run plan dir --steps 5 --kernel naive --feed copied").status == 0
    assert kinds(lines(ready)) == ["hello", "memory", "window", "done"]


def test_batches_from_storage_are_announced_and_leave_nothing_behind(ready: RunnerHome) -> None:
    assert ready.sh("./runner run plan dir --steps 20 --input storage").status == 0
    records = lines(ready)
    assert kinds(records) == ["hello", "memory", "input", "window", "done"]
    assert records[2]["source"] == "storage"
    assert isinstance(records[2]["direct"], bool)
    assert isinstance(records[2]["batch_bytes"], int)
    assert ready.sh("ls dir").out.split() == ["out.jsonl"]
    assert ready.sh("./runner run plan dir --steps 20 --input memory").status == 0
    assert "input" not in kinds(lines(ready))


def test_sigterm_stops_at_a_step_boundary(ready: RunnerHome) -> None:
    poll = start_long(ready)
    ready.sh(f"kill -{int(signal.SIGTERM)} {lines(ready)[0]['pid']}")
    wait_until(lambda: poll() is not None, "it ended")
    records = lines(ready)
    assert poll() == 7
    assert kinds(records) == ["hello", "memory", "window", "fault"]
    assert records[-1]["code"] == "stopped"


def guarded(place: RunnerHome, words: str = "--timeout-s 2") -> Callable[[], int | None]:
    """Start a watchdog for two changed nodes."""
    place.put("one", b"changed\n", 0o666)
    place.put("two", b"changed\n", 0o666)
    # The same node twice: only the reverse order restores its first value.
    listed = [("one", "first"), ("two", "old"), ("nowhere", "1"), ("one", "later")]
    restore = "".join(f"{place.home}/{name}\t{value}\n" for name, value in listed)
    place.put("dir/restore", restore.encode())
    place.put("dir/heartbeat", b"1.0 1.0\n")
    return place.start(f"./runner watchdog dir {words}")


def test_the_watchdog_ends_the_run_and_restores_without_heartbeats(
    ready: RunnerHome,
) -> None:
    run = start_long(ready)
    pid = lines(ready)[0]["pid"]
    watchdog = guarded(ready)
    wait_until(lambda: watchdog() is not None, "the watchdog acted")
    assert watchdog() == 10
    assert (ready.sh("cat one").out, ready.sh("cat two").out) == ("first\n", "old\n")
    assert ready.sh("test -e dir/restored && test ! -e dir/restore").status == 0
    wait_until(lambda: run() is not None, "the run is gone")
    assert ready.sh(f"kill -0 {pid}").status != 0
    assert lines(ready)[-1]["line"] not in {"done", "fault"}


def test_the_watchdog_ends_the_run_and_restores_at_a_temperature_limit(ready: RunnerHome) -> None:
    ready.put("temp", b"91000\n")
    ready.put("dir/temp_limits", f"{ready.home}/temp\t90000\n".encode())
    watchdog = guarded(ready, "--timeout-s 1000")
    wait_until(lambda: watchdog() is not None, "the watchdog acted")
    assert (watchdog(), ready.sh("cat one").out) == (10, "first\n")


def test_the_watchdog_ends_when_its_list_is_removed(ready: RunnerHome) -> None:
    ready.put("temp", b"90000\n")  # at its limit, not above
    ready.put("dir/temp_limits", f"{ready.home}/temp\t90000\n".encode())
    watchdog = guarded(ready, "--timeout-s 1000")
    assert watchdog() is None
    ready.sh("rm dir/restore")
    wait_until(lambda: watchdog() is not None, "the watchdog left")
    assert (watchdog(), ready.sh("cat one").out) == (0, "changed\n")


def test_wait_ends_with_the_process(ready: RunnerHome) -> None:
    run = start_long(ready)
    pid = lines(ready)[0]["pid"]
    kill = f"{{ sleep 0.3; : > killed; kill -9 {pid}; }} >/dev/null 2>&1 &"
    wait = f"./runner wait {pid} --seconds {ready.long_s * 1000}"
    assert ready.sh(f"rm -f killed; {kill} {wait} && ls killed").out == "killed\n"
    wait_until(lambda: run() is not None, "the run has ended")
    assert run() in {-signal.SIGKILL, 128 + signal.SIGKILL}


def test_wait_ends_after_its_seconds(ready: RunnerHome) -> None:
    look = "cut -d ' ' -f 1 /proc/uptime"
    result = ready.sh(f"{look}; ./runner wait $$ --seconds {ready.unit_s}; echo $?; {look}")
    before, status, after = result.out.split()
    assert status == "0"
    assert float(after) - float(before) >= ready.unit_s - 0.01  # uptime has two decimals


def test_wait_ends_at_once_without_the_process(ready: RunnerHome) -> None:
    result = ready.sh("./runner wait 999999999 --seconds 999999999")
    assert (result.status, result.out) == (0, "")


def test_sigterm_ends_the_wait(ready: RunnerHome) -> None:
    command = "./runner wait 1 --seconds 999999999 & sleep 0.3; kill $!; wait $!; echo $?"
    assert ready.sh(command).out == f"{128 + signal.SIGTERM}\n"
