"""The phone's runner keeps the contract of kernels/runner/runner.h, in phone time."""

import asyncio
import json
from itertools import pairwise
from typing import Any

import pytest

from agent.virtual.program_lookup import ProgramLookup
from agent.virtual.shell.byte_streams import BufferedSource, BytePipe
from agent.virtual.shell.command_call import StdStreams
from agent.virtual.shell.interpreter import Shell
from agent.virtual.virtual_phone import VirtualPhone
from tests.virtual.adb_host import AdbPhone
from tests.virtual.conftest import JournalReader, StartPhone
from tests.virtual.sample_plans import HOME, RUNNER, a_plan

Line = dict[str, Any]
BIG = "/sys/devices/system/cpu/cpufreq/policy4"


@pytest.fixture
def ready(start_phone: StartPhone) -> AdbPhone:
    """A phone with a runner, a plan and a folder."""
    return make_ready(start_phone())


def make_ready(phone: AdbPhone, plan: bytes = a_plan()) -> AdbPhone:
    phone.put(f"{HOME}/runner", RUNNER, 0o755)
    phone.put(f"{HOME}/plan", plan)
    phone.out(f"mkdir -p {HOME}/dir")
    return phone


def lines(phone: AdbPhone, name: str = "out.jsonl") -> list[Line]:
    return [json.loads(line) for line in phone.out(f"cat {HOME}/dir/{name}").splitlines()]


def run(phone: AdbPhone, options: str = "", mask: str = "f0") -> int:
    return phone.run(f"cd {HOME}; taskset {mask} ./runner run plan dir {options}").status


def start(phone: AdbPhone, options: str = "") -> int:
    """Start a detached run and wait for its hello."""
    command = f"cd {HOME}; setsid taskset f0 ./runner run plan dir {options}"
    pid = int(phone.out(f"{command} >/dev/null 2>&1 </dev/null & echo $!"))
    phone.sleep_until(
        lambda: phone.run(f"grep -q hello {HOME}/dir/out.jsonl").status == 0,
        "it says hello",
        step_s=0.1,
    )
    return pid


def test_info_has_the_source_simulated(ready: AdbPhone) -> None:
    info = json.loads(ready.out(f"{HOME}/runner info"))
    simulated = {"source": "simulated", "model": "extrapolated"}
    assert tuple(info[key] for key in ("line", "contract", "abi", "backends")) == (
        "info",
        1,
        "arm64-v8a",
        ["cpu", "opencl"],
    )
    # the phone was fitted with one engine only, so info, which holds for any engine, claims no
    # error
    assert info["provenance"] == dict.fromkeys(("time", "clock", "heat", "energy"), simulated)


def test_a_run_prints_hello_windows_and_done(ready: AdbPhone) -> None:
    assert run(ready, "--warmup 2 --steps 40 --seconds 3") == 0
    hello, memory, *windows, done = lines(ready)
    assert {key: value for key, value in memory.items() if value} == {
        "line": "memory",
        "parameter": 8 * 512**2,
        "activation": 4 * 512**2,
    }
    assert tuple(hello[key] for key in ("line", "contract", "case", "mask", "threads")) == (
        "hello",
        1,
        "case-1",
        "f0",
        4,
    )
    assert {window["line"] for window in windows} == {"window"}
    assert windows[0]["first"] == 0
    for window, following in pairwise(windows):
        assert window["first"] + window["n"] == following["first"]
        assert window["t_ns"] + window["ns"] == following["t_ns"]
    for window in windows:
        mean = window["ns"] / window["n"]
        assert window["ns_min"] <= mean <= window["ns_max"]
        assert window["phases_ns"] == [0, window["ns"], 0, 0]
    assert done["line"] == "done"
    assert sum(window["n"] for window in windows) == done["steps"]
    assert sum(window["ns"] for window in windows) == done["ns"]
    assert 3e9 <= done["ns"] < 3.1e9
    assert (
        done["loss_first"],
        done["loss_last"],
        done["parameters_changed"],
    ) == (None, None, True)


def test_a_run_reaches_steps_and_seconds_and_ends_at_max_seconds(ready: AdbPhone) -> None:
    assert run(ready, "--steps 1000 --seconds 0.1") == 0
    assert lines(ready)[-1]["steps"] == 1000
    assert run(ready, "--steps 1000000 --max-seconds 2") == 0
    assert 2e9 <= lines(ready)[-1]["ns"] < 2.1e9


def test_a_step_longer_than_the_window_is_its_own_window(start_phone: StartPhone) -> None:
    phone = make_ready(start_phone(), a_plan(size=4096))
    assert run(phone, "--warmup 1 --steps 4") == 0
    windows = lines(phone)[2:-1]
    assert [window["n"] for window in windows] == [1, 1, 1, 1]
    assert all(window["ns"] == window["ns_min"] == window["ns_max"] for window in windows)


def test_a_long_run_fits_in_the_permitted_windows(ready: AdbPhone) -> None:
    assert run(ready, "--seconds 300 --max-seconds 300 --window-ms 1") == 0
    assert 3900 < len(lines(ready)) - 3 <= 4096


def test_step_times_scale_with_clock_and_cores(ready: AdbPhone) -> None:
    def step_ms() -> float:
        done = lines(ready)[-1]
        return float(done["ns"]) / float(done["steps"]) / 1e6

    run(ready, "--seconds 2")
    fast = step_ms()
    assert fast == pytest.approx(2.12, rel=0.05)  # 127 GFLOP/s on four big cores
    ready.root(
        f"echo 1209600 > {BIG}/scaling_max_freq; "
        "echo 1209600 > /sys/devices/system/cpu/cpufreq/policy7/scaling_max_freq"
    )
    run(ready, "--seconds 2")
    slow = step_ms()
    assert 1.9 < slow / fast < 2.4
    run(ready, "--seconds 2", mask="0f")
    assert step_ms() > 2.5 * fast
    assert lines(ready)[0]["mask"] == "f"


def test_repeats_differ_a_little_and_the_same_seed_repeats_them(start_phone: StartPhone) -> None:
    def means() -> list[float]:
        phone = make_ready(start_phone())
        step_means = []
        for _ in range(3):
            run(phone, "--steps 100")
            done = lines(phone)[-1]
            step_means.append(done["ns"] / done["steps"])
        return step_means

    first, second = means(), means()
    assert first == pytest.approx(second, rel=1e-6)
    assert len(set(first)) == 3
    assert max(first) / min(first) < 1.05


def test_nodes_are_sampled_during_the_run(ready: AdbPhone) -> None:
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
    assert opening == {"line": "nodes", "paths": nodes}
    moments = [reading["t_ns"] for reading in readings]
    assert all(abs(later - sooner - 100_000_000) <= 1 for sooner, later in pairwise(moments))
    assert 50 <= len(readings) <= 52
    values = readings[-1]["v"]
    assert isinstance(values, list)
    assert values[1:] == [2419200, "Discharging", None, None]
    assert values[0] > 30_000


def test_phases_and_traces_add_up_to_a_step(start_phone: StartPhone) -> None:
    count = {"kind": "matmul", "flops": 10**8, "read_bytes": 10**6, "write_bytes": 10**6}
    names = ("fc.forward", "fc.input_gradient", "fc.update")
    ops = [{"name": name, **count} for name in names]
    ops[2]["kind"] = "update"
    phone = make_ready(start_phone(), a_plan(ops=ops, training=True))
    assert run(phone, "--seconds 2 --trace-steps 3 --data nowhere") == 0
    records = lines(phone)
    windows = [line for line in records if line["line"] == "window"]
    for window in windows:
        assert sum(window["phases_ns"]) == window["ns"]
        assert all(window["phases_ns"][1:])
    traces = [line for line in records if line["line"] == "trace"]
    assert len(traces) == 3
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
    assert [trace["first"] for trace in traces] == [0, 2000, 4000]
    assert sum(len(trace["ends_ns"]) for trace in traces) == 4500
    for trace, following in pairwise(traces):
        assert trace["t_ns"] + trace["ends_ns"][-1] == following["t_ns"]


def test_marked_nodes_are_read_as_the_contract_says(ready: AdbPhone) -> None:
    nodes = "/proc/stat\tcores\n/proc/meminfo\twhole\n/nowhere\tcores\n"
    ready.put(f"{HOME}/dir/nodes", nodes.encode())
    assert run(ready, "--seconds 4 --period-ms 1") == 0
    opening, *readings = lines(ready, "readings.jsonl")
    assert opening["paths"] == ["/proc/stat", "/proc/meminfo", "/nowhere"]
    assert readings[1]["t_ns"] - readings[0]["t_ns"] == pytest.approx(5e6, abs=1)  # 5 ms at least
    cores, memory, nowhere = readings[-1]["v"]
    assert [word.split(":")[0] for word in cores.split()] == [str(cpu) for cpu in range(8)]
    before = dict(word.split(":") for word in readings[0]["v"][0].split())
    after = dict(word.split(":") for word in cores.split())
    busy, total = (
        int(b) - int(a)
        for a, b in zip(*(ticks["4"].split("/") for ticks in (before, after)), strict=True)
    )
    assert 390 < total < 420  # ticks of 10 ms
    assert 0.9 < busy / total <= 1
    assert memory.startswith("MemTotal:")
    assert ";MemAvailable:" in memory
    assert nowhere is None
    sampler = lines(ready)[-2]
    assert (sampler["line"], sampler["readings"]) == ("sampler", len(readings))


def test_sample_ends_by_itself(ready: AdbPhone) -> None:
    ready.put(f"{HOME}/dir/nodes", b"/proc/loadavg\n/sys/class/thermal/thermal_zone6/temp\n")
    before = ready.uptime()
    result = ready.run(f"{HOME}/runner sample {HOME}/dir --seconds 10 --period-ms 500")
    assert (result.status, json.loads(result.out)["line"]) == (0, "sampler")
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
        ("run dsp dir", 4, "unsupported"),
        ("run huge dir", 5, "out_of_memory"),
        ("dump plan dir", 4, "unsupported"),
        ("run plan nowhere", 8, "io"),
        ("sample dir", 8, "io"),
    ],
)
def test_every_fault_has_its_status_and_its_code(
    ready: AdbPhone, arguments: str, status: int, code: str
) -> None:
    ready.put(f"{HOME}/torn", a_plan()[:100])
    ready.put(f"{HOME}/junk", b"MZ\0\1\2")
    ready.put(f"{HOME}/dsp", a_plan(backend="dsp"))
    ready.put(f"{HOME}/huge", a_plan(activation_bytes=6 * 1024**3))
    result = ready.run(f"cd {HOME}; ./runner {arguments}")
    fault = json.loads(result.out)
    assert (result.status, fault["line"], fault["code"]) == (status, "fault", code)
    assert fault["text"]
    if status in (3, 4, 5) and arguments.startswith("run"):
        assert lines(ready)[-1] == fault


def test_sigterm_stops_at_a_step_boundary(ready: AdbPhone, journal_events: JournalReader) -> None:
    pid = start(ready, "--seconds 100000 --max-seconds 100000")
    ready.out("sleep 1")
    ready.out(f"kill {pid}")
    ready.sleep_until(lambda: ready.run(f"kill -0 {pid}").status == 1, "it ended")
    hello, _, *windows, fault = lines(ready)
    assert hello["pid"] == pid
    assert windows
    assert (fault["line"], fault["code"]) == ("fault", "stopped")
    (started,), (stopped,) = journal_events("run_start"), journal_events("run_stop")
    assert tuple(started[key] for key in ("pid", "mask", "case")) == (pid, "f0", "case-1")
    assert (stopped["pid"], stopped["reason"]) == (pid, "stopped")


def test_sigkill_leaves_a_file_without_a_final_record(ready: AdbPhone) -> None:
    pid = start(ready, "--seconds 100000 --max-seconds 100000")
    ready.sleep_until(lambda: "window" in ready.out(f"tail -n 1 {HOME}/dir/out.jsonl"), "it works")
    ready.out(f"kill -9 {pid}")
    before = ready.out(f"cat {HOME}/dir/out.jsonl")
    assert "window" in before.splitlines()[-1]
    ready.out("sleep 5")
    assert ready.out(f"cat {HOME}/dir/out.jsonl") == before
    assert ready.out("cat /proc/loadavg").split()[0] == "0.00"


def test_a_run_is_a_process_with_threads_on_its_cores(ready: AdbPhone) -> None:
    ready.put(f"{HOME}/dir/nodes", b"/proc/uptime\n")
    pid = start(ready, "--seconds 100000 --max-seconds 100000")
    status = ready.out(f"cat /proc/{pid}/status")
    assert "Cpus_allowed:\t80\n" in status  # the first thread has the fastest core
    assert "Cpus_allowed_list:\t7" in status
    lists = ready.out(f"grep -h Cpus_allowed_list /proc/{pid}/task/*/status").split()[1::2]
    # the sampler runs on the other cores
    assert sorted(lists) == ["0-3", "4", "5", "6", "7"]
    assert ready.out("pgrep -x runner") == f"{pid}"
    assert ready.out("cat /proc/loadavg").split()[0] == "4.00"
    assert ready.out(f"cat /proc/{pid}/comm") == "runner"
    ready.out(f"kill -9 {pid}")
    assert not ready.run(f"ls /proc/{pid}").out


def task_masks(phone: AdbPhone, pid: int) -> dict[int, str]:
    """Return the cores of each thread of a process."""
    words = phone.out(f"grep -h -E '^(Pid|Cpus_allowed_list):' /proc/{pid}/task/*/status").split()
    return dict(zip(map(int, words[1::4]), words[3::4], strict=True))


def last_masks(phone: AdbPhone) -> str:
    """Return what the sampler saw last of the masks."""
    return json.loads(phone.out(f"tail -n 1 {HOME}/dir/readings.jsonl"))["v"][0]


def test_single_threads_are_moved_and_counted(ready: AdbPhone) -> None:
    ready.put(f"{HOME}/dir/nodes", b"/proc/self/task\tmasks\n")
    pid = start(ready, "--seconds 100000 --max-seconds 100000")
    ready.sleep_until(lambda: last_masks(ready) == "4 0 f0 0", "all threads are on their cores")
    first, second, *_ = task_masks(ready, pid)
    assert f"pid {second}'s new affinity mask: 80" in ready.out(f"taskset -p 80 {second}")
    assert task_masks(ready, pid)[second] == "7"
    ready.sleep_until(
        lambda: last_masks(ready) == "4 0 e0 1", "one thread shares the core of another"
    )
    ready.out(f"taskset -ap f {first}")
    assert {*task_masks(ready, pid).values()} == {"0-3"}
    ready.sleep_until(lambda: last_masks(ready) == "4 f f 4", "all threads are elsewhere")
    assert ready.run("taskset -p 1 99999").status != 0
    ready.out(f"kill -9 {pid}")


def test_a_thread_whose_core_goes_offline_may_use_all_cores_for_ever(ready: AdbPhone) -> None:
    core = "/sys/devices/system/cpu/cpu5/online"
    pid = start(ready, "--seconds 100000 --max-seconds 100000")
    before = task_masks(ready, pid)
    ready.out(f"su -c 'echo 0 >{core}'")
    (moved,) = (tid for tid, cores in before.items() if cores == "5")
    assert task_masks(ready, pid) == {**before, moved: "0-7"}
    ready.out(f"su -c 'echo 1 >{core}'")
    assert task_masks(ready, pid)[moved] == "0-7"
    ready.out(f"kill -9 {pid}")


def test_a_run_uses_memory(ready: AdbPhone) -> None:
    def available() -> int:
        return int(ready.out("grep MemAvailable /proc/meminfo").split()[1])

    ready.put(f"{HOME}/plan", a_plan(parameter_bytes=1024**3))
    before = available()
    pid = start(ready, "--seconds 100000 --max-seconds 100000")
    assert before - available() == pytest.approx(1024 * 1024, rel=0.01)
    ready.out(f"kill -9 {pid}")
    assert available() == before


@pytest.mark.parametrize(
    ("content", "mode", "status", "text"),
    [
        (b"\x7fELF\x02\x01\x01" + bytes(64), 0o755, 126, "not executable: 64-bit ELF file"),
        (RUNNER, 0o644, 126, "can't execute: Permission denied"),
        (b"#!/system/bin/sh\necho ran $1\nexit 3\n", 0o755, 3, ""),
    ],
)
def test_other_pushed_files(
    phone: AdbPhone, content: bytes, mode: int, status: int, text: str
) -> None:
    phone.put(f"{HOME}/other", content, mode)
    result = phone.run(f"{HOME}/other arg")
    assert result.status == status
    assert text in result.err
    assert result.out == ("ran arg\n" if status == 3 else "")


def test_the_sdcard_does_not_execute(phone: AdbPhone) -> None:
    phone.put("/sdcard/runner", RUNNER, 0o755)
    assert phone.run("/sdcard/runner info").status == 126


def test_a_full_disk_is_the_fault_io(still_phone: VirtualPhone) -> None:
    """A run that can no longer write ends with its status, and not with half a line."""
    still_phone.tree.write(f"{HOME}/runner", RUNNER, mode=0o755)
    still_phone.tree.write(f"{HOME}/plan", a_plan())
    still_phone.tree.write(f"{HOME}/dir/nodes", b"/proc/uptime\n")
    still_phone.tree.capacity_bytes = still_phone.tree.used_bytes + 3000

    async def until_it_ends() -> int | None:
        shell = Shell(still_phone, still_phone.processes.spawn(None, ["sh"], 0), ProgramLookup())
        await shell.run_text(
            f"cd {HOME}; ./runner run plan dir --seconds 60 &",
            StdStreams(BufferedSource(), BytePipe(), BytePipe()),
        )
        started = still_phone.processes.find(shell.last_background_pid or 0)
        assert started is not None
        for _ in range(100):
            await asyncio.sleep(0)
            still_phone.clock.advance(1)
        return started.status

    assert asyncio.run(until_it_ends()) == 8
    assert still_phone.tree.read(f"{HOME}/dir/out.jsonl").endswith(b"}\n")
    with pytest.raises(OSError, match="No space left"):
        still_phone.tree.write(f"{HOME}/more", bytes(4000))


def test_a_stopped_run_continues_after_sigcont(start_phone: StartPhone) -> None:
    phone = start_phone()
    phone.put(f"{HOME}/runner", RUNNER, 0o755)
    phone.put(f"{HOME}/plan", a_plan())
    phone.out(f"mkdir {HOME}/stopped")
    pid = phone.out(
        f"cd {HOME}; setsid taskset f0 ./runner run plan stopped --seconds 60 --max-seconds 900 "
        ">/dev/null 2>&1 </dev/null & echo $!"
    )
    out = f"{HOME}/stopped/out.jsonl"
    phone.sleep_until(lambda: "window" in phone.run(f"cat {out}").out, "it works")
    phone.out(f"kill -STOP {pid}")
    before = phone.out(f"wc -l < {out}")
    assert phone.out("cut -d' ' -f1 /proc/loadavg | cut -d. -f1") == "0"
    phone.out(f"kill {pid}; sleep 60")
    assert phone.out(f"wc -l < {out}") == before
    phone.out(f"kill -CONT {pid}")
    phone.sleep_until(
        lambda: "stopped by SIGTERM" in phone.out(f"tail -n 1 {out}"), "the signal waited too"
    )
    longest = phone.out(f"tail -n 2 {out} | head -n 1 | sed 's/.*\"ns\":\\([0-9]*\\).*/\\1/'")
    assert int(longest) > 60e9
