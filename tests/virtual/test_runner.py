"""The phone's runner keeps the contract of kernels/runner/runner.h, in the phone's own time."""

import asyncio
import json
from itertools import pairwise
from typing import Any

import pytest

from agent.virtual.phone import Phone
from agent.virtual.programs import PhonePrograms
from agent.virtual.shell.call import Streams
from agent.virtual.shell.interpreter import Shell
from agent.virtual.shell.streams import Bytes, Pipe
from tests.virtual.conftest import StartPhone, Witness
from tests.virtual.host import PhoneAt, until
from tests.virtual.plans import HOME, RUNNER, a_plan

Line = dict[str, Any]
BIG = "/sys/devices/system/cpu/cpufreq/policy4"


@pytest.fixture
def ready(start_phone: StartPhone) -> PhoneAt:
    """A phone with the runner, a plan and a folder."""
    return make_ready(start_phone())


def make_ready(phone: PhoneAt, plan: bytes = a_plan()) -> PhoneAt:
    phone.put(f"{HOME}/runner", RUNNER, 0o755)
    phone.put(f"{HOME}/plan", plan)
    phone.out(f"mkdir -p {HOME}/dir")
    return phone


def lines(phone: PhoneAt, name: str = "out.jsonl") -> list[Line]:
    return [json.loads(line) for line in phone.out(f"cat {HOME}/dir/{name}").splitlines()]


def run(phone: PhoneAt, options: str = "", mask: str = "f0") -> int:
    return phone.run(f"cd {HOME}; taskset {mask} ./runner run plan dir {options}").status


def start(phone: PhoneAt, options: str = "") -> int:
    """Start a detached run and wait for its hello."""
    command = f"cd {HOME}; setsid taskset f0 ./runner run plan dir {options}"
    pid = int(phone.out(f"{command} >/dev/null 2>&1 </dev/null & echo $!"))
    until(lambda: phone.run(f"grep -q hello {HOME}/dir/out.jsonl").status == 0, "it says hello")
    return pid


def test_info_says_that_everything_is_simulated(ready: PhoneAt) -> None:
    info = json.loads(ready.out(f"{HOME}/runner info"))
    simulated = {"source": "simulated", "model": "extrapolated"}
    assert ("info", 1, "arm64-v8a", ["cpu"]) == tuple(
        info[key] for key in ("line", "contract", "abi", "backends")
    )
    # fitted with one engine only: for whatever may be run, info promises no more than this
    assert dict.fromkeys(("time", "clock", "heat", "energy"), simulated) == info["provenance"]


def test_a_run_says_hello_then_windows_then_done(ready: PhoneAt) -> None:
    assert run(ready, "--warmup 2 --steps 40 --seconds 3") == 0
    hello, memory, *windows, done = lines(ready)
    assert {"line": "memory", "parameter": 8 * 512**2, "activation": 4 * 512**2} == {
        key: value for key, value in memory.items() if value
    }
    assert ("hello", 1, "case-1", "f0", 4) == tuple(
        hello[key] for key in ("line", "contract", "case", "mask", "threads")
    )
    assert {"window"} == {window["line"] for window in windows}
    assert windows[0]["first"] == 0
    for window, following in pairwise(windows):
        assert window["first"] + window["n"] == following["first"]
        assert window["t_ns"] + window["ns"] == following["t_ns"]
    for window in windows:
        mean = window["ns"] / window["n"]
        assert window["ns_min"] <= mean <= window["ns_max"]
        assert [0, window["ns"], 0, 0] == window["phases_ns"]
    assert "done" == done["line"]
    assert sum(window["n"] for window in windows) == done["steps"]
    assert sum(window["ns"] for window in windows) == done["ns"]
    assert 3e9 <= done["ns"] < 3.1e9
    assert (None, None, True) == (
        done["loss_first"],
        done["loss_last"],
        done["parameters_changed"],
    )


def test_steps_and_seconds_are_both_reached_and_max_seconds_ends_it(ready: PhoneAt) -> None:
    assert run(ready, "--steps 1000 --seconds 0.1") == 0
    assert 1000 == lines(ready)[-1]["steps"]
    assert run(ready, "--steps 1000000 --max-seconds 2") == 0
    assert 2e9 <= lines(ready)[-1]["ns"] < 2.1e9


def test_a_step_longer_than_the_window_is_a_window_of_its_own(start_phone: StartPhone) -> None:
    phone = make_ready(start_phone(), a_plan(size=4096))
    assert run(phone, "--warmup 1 --steps 4") == 0
    windows = lines(phone)[2:-1]
    assert [1, 1, 1, 1] == [window["n"] for window in windows]
    assert all(window["ns"] == window["ns_min"] == window["ns_max"] for window in windows)


def test_a_long_run_fits_in_the_permitted_windows(ready: PhoneAt) -> None:
    assert run(ready, "--seconds 300 --max-seconds 300 --window-ms 1") == 0
    assert 3900 < len(lines(ready)) - 3 <= 4096


def test_times_follow_the_clock_and_the_cores(ready: PhoneAt) -> None:
    def step_ms() -> float:
        done = lines(ready)[-1]
        return float(done["ns"]) / float(done["steps"]) / 1e6

    run(ready, "--seconds 2")
    fast = step_ms()
    assert fast == pytest.approx(2.33, rel=0.05)  # 115 GFLOP/s on four big cores
    ready.root(
        f"echo 1209600 > {BIG}/scaling_max_freq; "
        "echo 1209600 > /sys/devices/system/cpu/cpufreq/policy7/scaling_max_freq"
    )
    run(ready, "--seconds 2")
    slow = step_ms()
    assert 1.9 < slow / fast < 2.4
    run(ready, "--seconds 2", mask="0f")
    assert step_ms() > 2.5 * fast
    assert "f" == lines(ready)[0]["mask"]


def test_repeats_differ_a_little_and_the_same_seed_repeats_them(start_phone: StartPhone) -> None:
    def means() -> list[float]:
        phone = make_ready(start_phone())
        found = []
        for _ in range(3):
            run(phone, "--steps 100")
            done = lines(phone)[-1]
            found.append(done["ns"] / done["steps"])
        return found

    first, second = means(), means()
    assert first == pytest.approx(second, rel=1e-6)
    assert len(set(first)) == 3
    assert max(first) / min(first) < 1.05


def test_nodes_are_sampled_beside_the_work(ready: PhoneAt) -> None:
    nodes = [
        "/sys/class/thermal/thermal_zone6/temp",
        f"{BIG}/scaling_cur_freq",
        "/sys/class/power_supply/battery/status",
        "/nowhere",
        f"{BIG}/cpuinfo_cur_freq",  # root only
    ]
    ready.put(f"{HOME}/dir/nodes", "\n".join(nodes).encode())
    assert run(ready, "--seconds 5 --period-ms 100") == 0
    opening, *readings = lines(ready, "readings.jsonl")
    assert {"line": "nodes", "paths": nodes} == opening
    moments = [reading["t_ns"] for reading in readings]
    assert all(abs(later - sooner - 100_000_000) <= 1 for sooner, later in pairwise(moments))
    assert 50 <= len(readings) <= 52
    values = readings[-1]["v"]
    assert isinstance(values, list)
    assert [2419200, "Discharging", None, None] == values[1:]
    assert values[0] > 30_000


def test_phases_and_traces_tell_the_parts_of_a_step(start_phone: StartPhone) -> None:
    count = {"kind": "matmul", "flops": 10**8, "read_bytes": 10**6, "write_bytes": 10**6}
    names = ("fc.forward", "fc.input_gradient", "fc.update")
    ops = [{"name": name, **count} for name in names]
    ops[2]["kind"] = "update"
    phone = make_ready(start_phone(), a_plan(ops=ops, training=True))
    assert run(phone, "--seconds 2 --trace-steps 3 --data nowhere") == 0
    said = lines(phone)
    windows = [line for line in said if line["line"] == "window"]
    for window in windows:
        assert window["ns"] == sum(window["phases_ns"])
        assert all(window["phases_ns"][1:])
    traces = [line for line in said if line["line"] == "trace"]
    assert 3 == len(traces)
    steps = sum(window["n"] for window in windows)
    assert 0 == traces[0]["step"] < traces[1]["step"] < traces[2]["step"] < steps
    for trace in traces:
        first, second, third = trace["ends_ns"]
        assert 0 < first < second < third
        home = next(w for w in windows if 0 <= trace["step"] - w["first"] < w["n"])
        assert home["t_ns"] <= trace["t_ns"]
        assert third == pytest.approx(home["ns"] / home["n"], rel=1e-6)


def test_a_step_of_many_operations_is_traced_in_several_lines(start_phone: StartPhone) -> None:
    count = {"kind": "elementwise", "flops": 9, "read_bytes": 9, "write_bytes": 9}
    ops = [{"name": f"op{number}", **count} for number in range(4500)]
    phone = make_ready(start_phone(), a_plan(ops=ops))
    assert run(phone, "--steps 1 --trace-steps 1") == 0
    raw = phone.out(f"cat {HOME}/dir/out.jsonl").splitlines()
    assert max(map(len, raw)) < 65536
    traces = [line for line in map(json.loads, raw) if line["line"] == "trace"]
    assert [0, 2000, 4000] == [trace["first"] for trace in traces]
    assert 4500 == sum(len(trace["ends_ns"]) for trace in traces)
    for trace, following in pairwise(traces):
        assert trace["t_ns"] + trace["ends_ns"][-1] == following["t_ns"]


def test_marked_nodes_are_read_as_the_contract_says(ready: PhoneAt) -> None:
    nodes = "/proc/stat\tcores\n/proc/meminfo\twhole\n/nowhere\tcores\n"
    ready.put(f"{HOME}/dir/nodes", nodes.encode())
    assert run(ready, "--seconds 4 --period-ms 1") == 0
    opening, *readings = lines(ready, "readings.jsonl")
    assert ["/proc/stat", "/proc/meminfo", "/nowhere"] == opening["paths"]
    assert readings[1]["t_ns"] - readings[0]["t_ns"] == pytest.approx(10e6, abs=1)  # 10 ms at least
    cores, memory, nowhere = readings[-1]["v"]
    assert [str(cpu) for cpu in range(8)] == [word.split(":")[0] for word in cores.split()]
    before = dict(word.split(":") for word in readings[0]["v"][0].split())
    after = dict(word.split(":") for word in cores.split())
    busy, total = (
        int(b) - int(a)
        for a, b in zip(*(each["4"].split("/") for each in (before, after)), strict=True)
    )
    assert 390 < total < 420  # ticks of 10 ms
    assert 0.9 < busy / total <= 1
    assert memory.startswith("MemTotal:")
    assert ";MemAvailable:" in memory
    assert nowhere is None
    sampler = lines(ready)[-2]
    assert ("sampler", len(readings)) == (sampler["line"], sampler["readings"])


def test_sample_ends_by_itself(ready: PhoneAt) -> None:
    ready.put(f"{HOME}/dir/nodes", b"/proc/loadavg\n/sys/class/thermal/thermal_zone6/temp\n")
    before = ready.uptime()
    said = ready.run(f"{HOME}/runner sample {HOME}/dir --seconds 10 --period-ms 500")
    assert (0, "sampler") == (said.status, json.loads(said.out)["line"])
    assert 10 <= ready.uptime() - before < 20
    readings = lines(ready, "readings.jsonl")[1:]
    assert 20 <= len(readings) <= 21
    assert all(isinstance(reading["v"][0], str) for reading in readings)


@pytest.mark.parametrize(
    ("arguments", "status", "code"),
    [
        ("", 2, "usage"),
        ("dance", 2, "usage"),
        ("run plan", 2, "usage"),
        ("run plan dir --speed 3", 2, "usage"),
        ("run plan dir --steps many", 2, "usage"),
        ("run none dir", 3, "bad_plan"),
        ("run torn dir", 3, "bad_plan"),
        ("run junk dir", 3, "bad_plan"),
        ("run gpu dir", 4, "unsupported"),
        ("run huge dir", 5, "out_of_memory"),
        ("dump plan dir", 4, "unsupported"),
        ("run plan nowhere", 8, "io"),
        ("sample dir", 8, "io"),
    ],
)
def test_every_fault_has_its_status_and_its_code(
    ready: PhoneAt, arguments: str, status: int, code: str
) -> None:
    ready.put(f"{HOME}/torn", a_plan()[:100])
    ready.put(f"{HOME}/junk", b"MZ\0\1\2")
    ready.put(f"{HOME}/gpu", a_plan(backend="opencl"))
    ready.put(f"{HOME}/huge", a_plan(activation_bytes=6 * 1024**3))
    said = ready.run(f"cd {HOME}; ./runner {arguments}")
    fault = json.loads(said.out)
    assert (status, "fault", code) == (said.status, fault["line"], fault["code"])
    assert fault["text"]
    if status in (3, 4, 5) and arguments.startswith("run"):
        assert fault == lines(ready)[-1]


def test_sigterm_stops_at_a_step_boundary(ready: PhoneAt, witness: Witness) -> None:
    pid = start(ready, "--seconds 100000 --max-seconds 100000")
    ready.out("sleep 1")
    ready.out(f"kill {pid}")
    until(lambda: ready.run(f"kill -0 {pid}").status == 1, "it ended")
    hello, _, *windows, fault = lines(ready)
    assert pid == hello["pid"]
    assert windows
    assert ("fault", "stopped") == (fault["line"], fault["code"])
    (started,), (stopped,) = witness("run_start"), witness("run_stop")
    assert (pid, "f0", "case-1") == tuple(started[key] for key in ("pid", "mask", "case"))
    assert (pid, "stopped") == (stopped["pid"], stopped["why"])


def test_sigkill_leaves_a_dead_runners_file(ready: PhoneAt) -> None:
    pid = start(ready, "--seconds 100000 --max-seconds 100000")
    until(lambda: "window" in ready.out(f"tail -n 1 {HOME}/dir/out.jsonl"), "it works")
    ready.out(f"kill -9 {pid}")
    before = ready.out(f"cat {HOME}/dir/out.jsonl")
    assert "window" in before.splitlines()[-1]
    ready.out("sleep 5")
    assert before == ready.out(f"cat {HOME}/dir/out.jsonl")
    assert "0.00" == ready.out("cat /proc/loadavg").split()[0]


def test_a_run_is_a_process_with_threads_on_its_cores(ready: PhoneAt) -> None:
    ready.put(f"{HOME}/dir/nodes", b"/proc/uptime\n")
    pid = start(ready, "--seconds 100000 --max-seconds 100000")
    status = ready.out(f"cat /proc/{pid}/status")
    assert "Cpus_allowed:\tf0\n" in status
    assert "Cpus_allowed_list:\t4-7" in status
    lists = ready.out(f"grep -h Cpus_allowed_list /proc/{pid}/task/*/status").split()[1::2]
    assert ["0-3", "4-7", "4-7", "4-7", "4-7"] == sorted(lists)  # the sampler sits elsewhere
    assert f"{pid}" == ready.out("pidof runner")
    assert "4.00" == ready.out("cat /proc/loadavg").split()[0]
    assert "runner" == ready.out(f"cat /proc/{pid}/comm")
    ready.out(f"kill -9 {pid}")
    assert not ready.run(f"ls /proc/{pid}").out


def test_memory_is_taken_while_it_runs(ready: PhoneAt) -> None:
    def available() -> int:
        return int(ready.out("grep MemAvailable /proc/meminfo").split()[1])

    ready.put(f"{HOME}/plan", a_plan(parameter_bytes=1024**3))
    before = available()
    pid = start(ready, "--seconds 100000 --max-seconds 100000")
    assert before - available() == pytest.approx(1024 * 1024, rel=0.01)
    ready.out(f"kill -9 {pid}")
    assert before == available()


@pytest.mark.parametrize(
    ("content", "mode", "status", "text"),
    [
        (b"\x7fELF\x02\x01\x01" + bytes(64), 0o755, 126, "not executable: 64-bit ELF file"),
        (RUNNER, 0o644, 126, "can't execute: Permission denied"),
        (b"#!/system/bin/sh\necho ran $1\nexit 3\n", 0o755, 3, ""),
    ],
)
def test_other_pushed_files(
    phone: PhoneAt, content: bytes, mode: int, status: int, text: str
) -> None:
    phone.put(f"{HOME}/other", content, mode)
    said = phone.run(f"{HOME}/other arg")
    assert status == said.status
    assert text in said.err
    assert ("ran arg\n" if status == 3 else "") == said.out


def test_the_sdcard_does_not_execute(phone: PhoneAt) -> None:
    phone.put("/sdcard/runner", RUNNER, 0o755)
    assert phone.run("/sdcard/runner info").status == 126


def test_a_full_phone_is_the_fault_io(still_phone: Phone) -> None:
    """A run that can no longer write ends with its status, not with half a line."""
    still_phone.tree.write(f"{HOME}/runner", RUNNER, mode=0o755)
    still_phone.tree.write(f"{HOME}/plan", a_plan())
    still_phone.tree.write(f"{HOME}/dir/nodes", b"/proc/uptime\n")
    still_phone.tree.capacity = still_phone.tree.used + 3000

    async def until_it_ends() -> int | None:
        shell = Shell(still_phone, still_phone.processes.spawn(None, ["sh"], 0), PhonePrograms())
        await shell.run_text(
            f"cd {HOME}; ./runner run plan dir --seconds 60 &", Streams(Bytes(), Pipe(), Pipe())
        )
        started = still_phone.processes.find(shell.background or 0)
        assert started is not None
        for _ in range(100):
            await asyncio.sleep(0)
            still_phone.timeline.advance(1)
        return started.status

    assert 8 == asyncio.run(until_it_ends())
    assert still_phone.tree.read(f"{HOME}/dir/out.jsonl").endswith(b"}\n")
    with pytest.raises(OSError, match="No space left"):
        still_phone.tree.write(f"{HOME}/more", bytes(4000))


def test_a_stopped_run_waits_and_goes_on_where_it_was(start_phone: StartPhone) -> None:
    phone = start_phone(speed=100.0)
    phone.put(f"{HOME}/runner", RUNNER, 0o755)
    phone.put(f"{HOME}/plan", a_plan())
    phone.out(f"mkdir {HOME}/stopped")
    pid = phone.out(
        f"cd {HOME}; setsid taskset f0 ./runner run plan stopped --seconds 60 --max-seconds 900 "
        ">/dev/null 2>&1 </dev/null & echo $!"
    )
    out = f"{HOME}/stopped/out.jsonl"
    until(lambda: "window" in phone.run(f"cat {out}").out, "it works")
    phone.out(f"kill -STOP {pid}")
    before = phone.out(f"wc -l < {out}")
    assert "0" == phone.out("cut -d' ' -f1 /proc/loadavg | cut -d. -f1")
    phone.out(f"kill {pid}; sleep 60")
    assert before == phone.out(f"wc -l < {out}")
    phone.out(f"kill -CONT {pid}")
    until(lambda: "stopped by SIGTERM" in phone.out(f"tail -n 1 {out}"), "the signal waited too")
    longest = phone.out(f"tail -n 2 {out} | head -n 1 | sed 's/.*\"ns\":\\([0-9]*\\).*/\\1/'")
    assert int(longest) > 60e9
