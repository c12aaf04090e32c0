"""OpenCL plans on a virtual phone: the runner's contract, the nodes of the GPU, and storage."""

import json
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any

import pytest

from agent.collect.runner_output import RunnerOutput
from agent.virtual.virtual_phone import VirtualPhone
from kernels.runner_builds import kernel_sources
from tests.virtual.adb_host import AdbPhone
from tests.virtual.conftest import JournalReader, StartPhone
from tests.virtual.sample_plans import HOME, RUNNER, a_plan
from workloads.catalogue import bind, lower

Line = dict[str, Any]
KGSL = "/sys/class/kgsl/kgsl-3d0"
TUNED = "farmhand-tuned 2\ndevice QUALCOMM Adreno(TM)\t{version}\t{driver}\nkernels 0\n"
VERSION, DRIVER = "OpenCL 2.0 Adreno(TM) 640", "OpenCL 2.0 QUALCOMM build: virtual"


@pytest.fixture
def ready(start_phone: StartPhone) -> AdbPhone:
    """A phone with a runner, kernels, a plan for the GPU, and a folder."""
    return make_ready(start_phone())


def make_ready(phone: AdbPhone, workload: str = "mlp-4") -> AdbPhone:
    phone.put(f"{HOME}/runner", RUNNER, 0o755)
    for name, content in kernel_sources().files.items():
        if name.startswith(("common.", "sgemm_")):
            phone.put(f"{HOME}/kernels/{name}", content)
    put_plan(phone, workload)
    phone.out(f"mkdir -p {HOME}/dir")
    return phone


def put_plan(phone: AdbPhone, workload: str, **parameters: int) -> None:
    phone.put(f"{HOME}/plan", lower(bind(workload, parameters, backend="opencl"), 1))


def run(phone: AdbPhone, options: str = "") -> list[Line]:
    """Run the plan with some options; return the records."""
    command = f"cd {HOME}; taskset f0 ./runner run plan dir --kernels kernels {options}"
    assert phone.run(command).status == 0
    raw = phone.out(f"cat {HOME}/dir/out.jsonl")
    output = RunnerOutput(json.loads(raw.splitlines()[0])["case"])
    output.feed(raw.encode())
    return [json.loads(line) for line in raw.splitlines()]


def mean_ms(records: list[Line], member: str = "ns", index: int | None = None) -> float:
    """Return the mean time per step of a member of the windows."""
    windows = [record for record in records if record["line"] == "window"]
    total = sum(w[member] if index is None else w[member][index] for w in windows)
    return float(total / sum(window["n"] for window in windows) / 1e6)


def test_info_lists_the_gpu_and_the_names_of_its_options(ready: AdbPhone) -> None:
    info = json.loads(ready.out(f"{HOME}/runner info"))
    assert info["backends"] == ["cpu", "opencl"]
    (device,) = info["opencl"]
    assert (device["device"], device["version"]) == ("QUALCOMM Adreno(TM)", VERSION)
    assert device["type"] == "gpu"
    assert device["global_bytes"] > device["max_alloc_bytes"] > device["local_bytes"] > 0
    assert all(device[name] for name in ("units", "max_group", "images", "platform", "driver"))
    assert info["kernels"] == ["naive", "vector", "tiled", "tiled_vector", "packed", "tuned"]
    assert info["feeds"] == ["copied", "mapped", "resident", "preloaded"]
    assert info["inputs"] == ["memory", "storage"]


def test_a_run_on_the_gpu_has_its_records_in_order(ready: AdbPhone) -> None:
    records = run(ready, "--steps 100 --trace-steps 3")
    kinds = [record["line"] for record in records if record["line"] != "trace"]
    assert kinds[:3] == ["hello", "memory", "device"]
    assert kinds[3:6] == ["program"] * 3  # products as they are, and with either operand transposed
    assert set(kinds[6:-1]) == {"window"}
    hello, _, device, *_, done = records
    assert (done["line"], done["fallbacks"]) == ("done", 0)
    assert device["build_ns"] > 1e8  # several programs
    assert device["copy_ns"] > 0
    assert (device["programs"] > 2, device["tuned"]) == (True, 0)
    windows = [record for record in records if record["line"] == "window"]
    # the device is opened between hello and the first step
    assert windows[0]["t_ns"] - hello["t_ns"] > device["build_ns"]
    for window in windows:
        assert sum(window["device_ns"]) <= window["ns"] == sum(window["phases_ns"])
        assert all(part > 0 for part in (*window["device_ns"], *window["phases_ns"]))
    for trace in (record for record in records if record["line"] == "trace"):
        assert all(sooner <= later for sooner, later in pairwise(trace["ends_ns"]))
        home = [w for w in windows if w["first"] <= trace["step"]][-1]
        step_ns = home["ns"] / home["n"]
        assert 0 < trace["ends_ns"][-1] <= step_ns


def test_feeds_copy_operands_batches_or_nothing(ready: AdbPhone) -> None:
    feeds = {name: run(ready, f"--feed {name}") for name in ("copied", "resident", "preloaded")}
    step = {name: mean_ms(records) for name, records in feeds.items()}
    copy = {name: mean_ms(records, "device_ns", 0) for name, records in feeds.items()}
    assert step["copied"] > 3 * step["resident"] > 3 * step["preloaded"]
    assert copy["copied"] > 10 * copy["resident"] > 0
    assert copy["preloaded"] == 0
    device = {name: records[2]["copy_ns"] for name, records in feeds.items()}
    assert device["preloaded"] > device["resident"]  # the data set is copied before the first step


def test_a_large_batch_is_written_faster_into_mapped_memory(ready: AdbPhone) -> None:
    put_plan(ready, "squeezenet", batch_size=16)
    mapped, resident = (run(ready, f"--feed {feed} --steps 3") for feed in ("mapped", "resident"))
    assert 0 < mean_ms(mapped, "device_ns", 0) < mean_ms(resident, "device_ns", 0)


def test_a_better_kernel_is_faster_for_matrix_products_only(ready: AdbPhone) -> None:
    put_plan(ready, "sgemm-square", n=512)
    kernels = ("naive", "vector", "tiled_vector", "tuned")
    product = [mean_ms(run(ready, f"--kernel {name}"), "device_ns", 2) for name in kernels]
    assert product[0] > 1.5 * product[1] > 2 * product[2]
    assert product[2] == pytest.approx(product[3], rel=0.05)
    put_plan(ready, "squeezenet", batch_size=1)
    naive, tuned = (
        mean_ms(run(ready, f"--kernel {name} --steps 5")) for name in ("naive", "tuned")
    )
    assert naive == pytest.approx(tuned, rel=0.1)  # a convolution has its own kernel


def test_a_tuning_file_is_for_one_device(ready: AdbPhone) -> None:
    product = "sgemm 512 512 512 0 0 tiled_vector MR=4\n"
    fitting = TUNED.format(version=VERSION, driver=DRIVER) + product
    ready.put(f"{HOME}/tuned", fitting.encode())
    assert run(ready, "--tuned tuned")[2]["tuned"] == 8  # the matrix products of mlp-4
    assert run(ready, "--tuned tuned --kernel naive")[2]["tuned"] == 0
    other = TUNED.format(version="OpenCL 3.0 Adreno(TM) 740", driver=DRIVER) + product
    for number, text in enumerate((other, "MZ\n", fitting.replace("512 0 0", "x 0 0"), "")):
        ready.put(f"{HOME}/tuned", text.encode())
        fault = fault_of(ready, "--tuned tuned")
        assert fault == (4, "unsupported"), number


def fault_of(phone: AdbPhone, options: str, plan: str = "plan") -> tuple[int, str]:
    """Return status and code of a run that fails."""
    result = phone.run(f"cd {HOME}; ./runner run {plan} dir --kernels kernels {options}")
    fault = json.loads(result.out)
    assert fault["line"] == "fault"
    if result.status != 2:
        assert json.loads(phone.out(f"tail -n 1 {HOME}/dir/out.jsonl")) == fault
    return result.status, fault["code"]


@pytest.mark.parametrize(
    ("options", "status", "code"),
    [
        ("--kernel fastest", 2, "usage"),
        ("--feed pigeon", 2, "usage"),
        ("--input tape", 2, "usage"),
        ("--fallback gpu", 2, "usage"),
        ("--device one", 2, "usage"),
        ("--feed preloaded --input storage", 2, "usage"),
        ("--kernel", 2, "usage"),
        ("--kernels dir", 3, "bad_plan"),
        ("--kernels nowhere", 3, "bad_plan"),
        ("--device 1", 4, "unsupported"),
        ("--tuned nowhere", 4, "unsupported"),
    ],
)
def test_wrong_options_have_their_status(
    ready: AdbPhone, options: str, status: int, code: str
) -> None:
    assert fault_of(ready, options) == (status, code)


def test_a_plan_larger_than_a_buffer_of_the_gpu_never_starts(ready: AdbPhone) -> None:
    size = {"activation": 1100 << 20, "input": 4, "dataset": 4}
    ready.put(f"{HOME}/large", a_plan(backend="opencl", memory=size))
    assert fault_of(ready, "", "large") == (5, "out_of_memory")
    preloaded = {"activation": 4, "input": 4, "dataset": 1100 << 20}
    ready.put(f"{HOME}/large", a_plan(backend="opencl", memory=preloaded))
    assert fault_of(ready, "--feed preloaded", "large") == (5, "out_of_memory")
    assert ready.run(f"cd {HOME}; ./runner run large dir --kernels kernels --steps 1").status == 0


@pytest.mark.parametrize("profile", ["meizu-16t:no_opencl", "nvidia-tx2:no_opencl"])
def test_a_phone_without_the_library_offers_the_cpu_only(
    start_phone: StartPhone, profile: str
) -> None:
    phone = make_ready(start_phone(profile))
    info = json.loads(phone.out(f"{HOME}/runner info"))
    assert (info["backends"], info["opencl"]) == (["cpu"], [])
    assert fault_of(phone, "") == (4, "unsupported")
    assert phone.run(f"cd {HOME}; ./runner tune dir").status == 4


def node_values(phone: AdbPhone, *paths: str) -> Callable[[str], dict[str, list[int]]]:
    """Sample nodes during a run; return a function from options to the values by node."""
    phone.put(f"{HOME}/dir/nodes", "".join(f"{path}\n" for path in paths).encode())

    def values(options: str) -> dict[str, list[int]]:
        phone.out(f"rm -f {HOME}/dir/readings.jsonl")
        windows = [record for record in run(phone, options) if record["line"] == "window"]
        readings = [json.loads(r) for r in phone.out(f"cat {HOME}/dir/readings.jsonl").splitlines()]
        inside = [r["v"] for r in readings[1:] if r["t_ns"] > windows[0]["t_ns"]]
        rows = [[int(str(value).split("@")[0].split(" ")[0]) for value in row] for row in inside]
        return dict(zip(paths, map(list, zip(*rows, strict=True)), strict=True))

    return values


def test_the_load_and_clock_of_an_adreno_are_on_its_nodes(ready: AdbPhone) -> None:
    zone = next(
        path.rpartition("/")[0]
        for path in ready.out("grep -l gpuss /sys/class/thermal/thermal_zone*/type").split()
    )
    busy, clock, temp = f"{KGSL}/gpu_busy_percentage", f"{KGSL}/gpuclk", f"{zone}/temp"
    assert ready.out(f"cat {busy}").split() == ["0", "%"]
    idle_hz, idle_mc = ready.number(clock), ready.number(temp)
    values = node_values(ready, busy, clock, temp)
    small = values("--seconds 5")
    assert 20 < sum(small[busy]) / len(small[busy]) < 90
    assert set(small[clock]) == {585000000} != {idle_hz}
    put_plan(ready, "densenet40", batch_size=16)
    large = values("--seconds 30")
    assert min(large[busy]) > 90
    assert max(large[temp]) > idle_mc + 5000
    ready.sleep_until(lambda: ready.number(clock) == idle_hz, "the GPU is idle again")


def test_a_reboot_resets_the_limits_of_the_gpu(still_phone: VirtualPhone) -> None:
    gpu = still_phone.soc.gpu
    assert gpu is not None
    tree = still_phone.tree
    node = tree.open_for_writing(f"{KGSL}/devfreq/max_freq", 0)
    tree.append(node, b"257000000\n", 0)
    assert gpu.max_khz == 257000
    still_phone.reboot()
    still_phone.finish_reboot()
    assert gpu.max_khz == 585000


def test_a_board_shows_the_power_of_its_gpu_on_its_rail(start_phone: StartPhone) -> None:
    phone = make_ready(start_phone("nvidia-tx2"), "densenet40")
    rail = "/sys/bus/i2c/drivers/ina3221x/0-0040/iio:device0/in_power0_input"
    board = "/sys/bus/i2c/drivers/ina3221x/0-0041/iio:device1/in_power0_input"
    load = "/sys/class/devfreq/17000000.gp10b/device/load"
    assert phone.number(rail) == 0
    values = node_values(phone, rail, board, load)("--seconds 5")
    assert all(2000 < gpu < whole for gpu, whole in zip(values[rail], values[board], strict=True))
    assert all(500 < tenths <= 1000 for tenths in values[load])
    phone.sleep_until(lambda: phone.number(rail) == 0, "the GPU is idle again")


def test_the_core_that_feeds_the_gpu_is_partly_busy(ready: AdbPhone) -> None:
    put_plan(ready, "densenet40", batch_size=4)
    ready.put(f"{HOME}/dir/nodes", b"/proc/stat\tcores\n/proc/self/stat\tticks\n")
    windows = [record for record in run(ready, "--seconds 10") if record["line"] == "window"]
    readings = [json.loads(r) for r in ready.out(f"cat {HOME}/dir/readings.jsonl").splitlines()]
    inside = [r for r in readings[1:] if r["t_ns"] > windows[0]["t_ns"]]
    first, last = (
        {word.split(":")[0]: int(word.split(":")[1].split("/")[0]) for word in r["v"][0].split()}
        for r in (inside[0], inside[-1])
    )
    seconds = (inside[-1]["t_ns"] - inside[0]["t_ns"]) / 1e9
    busy = {cpu: (last[cpu] - first[cpu]) / 100 / seconds for cpu in ("4", "5", "6", "7")}
    shares = sorted(busy.values())
    assert shares[:3] == [0, 0, 0]
    assert 0.1 < shares[3] < 0.6
    used = [r["v"][1] for r in (inside[0], inside[-1])]
    assert (used[1] - used[0]) / 100 / seconds == pytest.approx(shares[3], abs=0.02)


def test_batches_from_storage_take_time_to_load(
    ready: AdbPhone, journal_events: JournalReader
) -> None:
    ready.put(f"{HOME}/plan", lower(bind("lenet", {"batch_size": 32}), 4))
    memory, storage = run(ready), run(ready, "--input storage")
    record = storage[2]
    assert (record["line"], record["source"], record["direct"]) == ("input", "storage", True)
    assert "input" not in {other["line"] for other in memory}
    load_ms = mean_ms(storage, "phases_ns", 0)
    assert mean_ms(memory, "phases_ns", 0) == 0
    assert load_ms > record["batch_bytes"] / 400e6 * 1e3
    assert mean_ms(storage) == pytest.approx(mean_ms(memory) + load_ms, rel=0.1)
    assert 0 < storage[1]["dataset"] - record["batch_bytes"] < 10000  # one batch is in memory
    (written,) = [e for e in journal_events("file_remove") if "/dir/dataset" in str(e["path"])]
    assert written["path"] == f"{HOME}/dir/dataset"
    ready.put(f"{HOME}/plan", lower(bind("lenet", {"batch_size": 32}, backend="opencl"), 4))
    kinds = [line["line"] for line in run(ready, "--input storage")]
    assert kinds[:5] == ["hello", "memory", "input", "device", "program"]


def has_ended(phone: AdbPhone, pid: int) -> bool:
    return phone.run(f"kill -0 {pid}").status == 1


def test_a_run_can_be_stopped_paused_and_killed_while_kernels_are_built(ready: AdbPhone) -> None:
    command = f"cd {HOME}; setsid taskset f0 ./runner run plan dir --kernels kernels --seconds 5"
    for signals, code in (("STOP CONT", None), ("TERM", "stopped"), ("KILL", None)):
        ready.out(f"rm -f {HOME}/dir/out.jsonl")
        pid = int(ready.out(f"{command} >/dev/null 2>&1 </dev/null & echo $!"))
        ready.sleep_until(
            lambda: "hello" in ready.run(f"cat {HOME}/dir/out.jsonl").out, "it started", step_s=0.01
        )
        for name in signals.split():
            ready.out(f"kill -{name} {pid}")
        ready.sleep_until(partial(has_ended, ready, pid), "it ended")
        last = json.loads(ready.out(f"tail -n 1 {HOME}/dir/out.jsonl"))
        if signals == "STOP CONT":
            assert last["line"] == "done"
        elif code:
            assert last["code"] == code
    assert ready.out(f"cat {KGSL}/gpu_busy_percentage").split() == ["0", "%"]
