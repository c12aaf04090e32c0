"""An external program in the lane: the same conditions and report; its output is not trusted."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.collect.runner_output import WINDOWS_MAX
from agent.lane import run_attempt
from agent.lane_context import LaneContext, LaneResult
from agent.launch.external_process import (
    install_program,
    kill_program,
    launch_program,
    windows_from_steps,
)
from agent.launch.launch_spec import LaunchSpec
from agent.launch.parse_in_subprocess import read_in_subprocess
from agent.phone.adb import AdbServer
from agent.phone.phone_driver import Phone
from agent.phone.phone_paths import PROGRAM_STDERR, PROGRAM_STDOUT, UPTIME, lane_file
from agent.phone.runner_install import install_runner
from agent.phone.shell_command import ShellCommand
from agent.restore.watchdog import Watchdog
from agent.virtual.fleet_server import FleetConfig
from kernels.runner_builds import runner_for
from orchestrator.commands.start_files import write_manifest
from orchestrator.sweepfile.sweep_file import read_sweep
from tests.agent.jobs import a_job
from tests.agent.lane_harness import assert_fault, read_policy_states
from tests.agent.virtual_phones import VirtualPhone, open_phone
from tests.virtual.running_fleet import serve_fleet_in_thread
from workloads.catalogue import Case, bind_external
from workloads.external_program import LossRule, Manifest, ProgramFile, StepRule
from workloads.program_output import StepGroup
from workloads.protocol.base import digest_of_bytes
from workloads.protocol.condition import Condition
from workloads.protocol.faults import BadOutput, Blame, FaultKind
from workloads.protocol.metrics import Source
from workloads.protocol.phone_facts import choose_cores
from workloads.protocol.stage import Stage
from workloads.protocol.verdict import ReasonCode, Validity

EXAMPLE = Path(__file__).parents[2] / "examples" / "external"
STEPS = "i=0; while [ $i -lt 18 ]; do sleep 0.5; echo step 500 ms; i=$((i + 1)); done\n"


def store_file(context: LaneContext, content: bytes) -> str:
    digest = digest_of_bytes(content)
    context.files_dir.mkdir(parents=True, exist_ok=True)
    (context.files_dir / digest).write_bytes(content)
    return digest


def a_program(context: LaneContext, script: str, **parts: object) -> Case:
    """Build a case whose program is a script."""
    digest = store_file(context, script.encode())
    content: dict[str, object] = {
        "name": "tool",
        "files": (ProgramFile(name="tool.sh", sha256=digest),),
        "command": ("sh", "{tool.sh}"),
        "step": StepRule(regex=r"step ([0-9.]+) ms", unit="ms"),
    }
    return bind_external(Manifest.model_validate({**content, **parts}), {})


def run(phone: Phone, context: LaneContext, case: Case, fence: int = 1) -> LaneResult:
    job = a_job(phone.facts.serial, fence).model_copy(update={"case": case})
    return run_attempt(job, phone, context)


def running_parts(phone: Phone) -> str:
    """Return the processes of a program that still run on the phone."""
    return phone.shell(["pgrep", "-f", f"{lane_file('work')}/|sample {lane_file('')}"]).text.strip()


@pytest.fixture(name="restored_phone")
def check_restored(phone: Phone) -> Iterator[None]:
    """Check after every test that the phone is restored and no process of the program runs."""
    before = read_policy_states(phone, (0, 4, 7))
    yield
    assert read_policy_states(phone, (0, 4, 7)) == before
    assert running_parts(phone) == ""


@pytest.mark.usefixtures("restored_phone")
def test_the_example_runs_from_its_sweep_to_a_valid_report(
    phone: Phone, context: LaneContext
) -> None:
    for name in ("bench.sh", "recorded.json"):
        store_file(context, (EXAMPLE / name).read_bytes())
    text = (EXAMPLE / "compare.yaml").read_text()
    sweep = read_sweep(text, lambda name: (EXAMPLE / name).read_text())
    (case,) = [case for case in sweep.cases if case.manifest is not None]
    result = run(phone, context, case)
    report = result.report
    assert report.fault is None, report.fault
    assert report.verdict is not None
    assert report.verdict.validity is Validity.VALID, report.verdict.reasons
    metrics = {metric.name: metric.value for metric in report.metrics}
    assert metrics["step_ms"] == pytest.approx(499.5)
    assert metrics["samples_per_s"] == pytest.approx(64.0)
    assert {"start_temp_c", "peak_temp_c", "pinned_clock_share"} <= metrics.keys()
    assert "gflops" not in metrics
    assert "peak_rss_mb" not in metrics
    assert report.applied.mask == "f0"
    assert report.case_digest == case.digest
    assert result.telemetry is not None


@pytest.mark.usefixtures("restored_phone")
def test_the_program_that_is_written_for_a_start_gives_a_valid_run(
    phone: Phone, context: LaneContext, tmp_path: Path
) -> None:
    manifest, program = write_manifest("my-engine", tmp_path, None)
    store_file(context, program.read_bytes())
    text = f"farm: 1\nname: x\nphones: all\nworkload: external:{manifest.name}\n"
    (case,) = read_sweep(text, lambda name: (tmp_path / name).read_text()).cases
    report = run(phone, context, case).report
    assert report.fault is None, report.fault
    assert report.verdict is not None
    assert report.verdict.validity is not Validity.VOID, report.verdict.reasons


@pytest.mark.usefixtures("restored_phone")
def test_the_program_gets_its_arguments_cores_and_environment(
    phone: Phone, virtual_phone: VirtualPhone, context: LaneContext
) -> None:
    script = 'sleep 9; echo "$X $1 $2 loss 3.5 loss 1.25 step 450 ms" >&2\n'
    case = a_program(
        context,
        script,
        command=("sh", "{tool.sh}", "{threads} threads", "{steps}"),
        environment={"X": "it's {seconds} s"},
        training=True,
        step=StepRule(regex=r"step ([0-9.]+) ms", unit="ms", n="steps"),
        loss=LossRule(regex=r"loss ([0-9.]+)"),
    )
    report = run(phone, context, case).report
    assert report.fault is None, report.fault
    assert "it's 8 s 4 threads 20 loss" in phone.shell_checked(["cat", lane_file(PROGRAM_STDERR)])
    started = [
        event
        for event in virtual_phone.events("process_exec")
        if any(word.endswith("work/tool.sh") for word in event["argv"])
    ]
    assert started
    assert started[-1]["mask"] == "f0"


@pytest.mark.usefixtures("restored_phone")
def test_a_file_that_is_not_on_this_host_is_named(phone: Phone, context: LaneContext) -> None:
    case = a_program(context, STEPS)
    assert case.manifest is not None
    path = context.files_dir / case.manifest.files[0].sha256
    path.write_text("something else")
    fault = run(phone, context, case, 1).report.fault
    assert fault is not None
    assert fault.blame is Blame.REQUEST
    path.unlink()
    fault = run(phone, context, case, 2).report.fault
    assert fault is not None
    assert (fault.blame, fault.stage) == (Blame.REQUEST, Stage.PREPARE)
    assert "tool.sh is not on this host" in fault.text
    assert "farm workload add" in fault.text


@pytest.mark.usefixtures("restored_phone")
@pytest.mark.parametrize(
    ("script", "kind", "text"),
    [
        (
            "sleep 1; echo no such model >&2; exit 3\n",
            FaultKind.RUNNER_FAILED,
            "tool exited with 3; it printed: no such model",
        ),
        ("sleep 1; exit 139\n", FaultKind.RUNNER_FAILED, "tool was killed by signal 11"),
        ("sleep 1; exit 127\n", FaultKind.RUNNER_FAILED, "tool or what it calls was not found"),
        (
            "sleep 9; echo well done\n",
            FaultKind.BAD_OUTPUT,
            "no step time found in the output of tool: its last line is 'well done'; correct",
        ),
        ("sleep 2; echo step 90000 ms\n", FaultKind.BAD_OUTPUT, "printed 90.00 s of steps but ran"),
        ("sleep 2; echo step 0 ms\n", FaultKind.BAD_OUTPUT, "'0' is not a time"),
    ],
)
def test_a_program_that_fails_is_a_finding(
    phone: Phone, context: LaneContext, script: str, kind: FaultKind, text: str
) -> None:
    report = run(phone, context, a_program(context, script)).report
    assert_fault(report, Blame.RUNNER, kind)
    assert report.fault is not None
    assert text in report.fault.text


@pytest.mark.usefixtures("restored_phone")
def test_a_program_that_is_too_short_is_void(phone: Phone, context: LaneContext) -> None:
    report = run(phone, context, a_program(context, "sleep 2; echo step 1500 ms\n")).report
    assert report.fault is None, report.fault
    assert report.verdict is not None
    assert report.verdict.validity is Validity.VOID
    assert ReasonCode.TOO_SHORT in {reason.code for reason in report.verdict.reasons}


@pytest.mark.usefixtures("restored_phone")
def test_a_training_whose_loss_does_not_fall_is_void(phone: Phone, context: LaneContext) -> None:
    case = a_program(
        context,
        STEPS.replace("step 500 ms", "step 500 ms loss 2.$i"),
        training=True,
        loss=LossRule(regex=r"loss ([0-9.]+)"),
    )
    report = run(phone, context, case).report
    assert report.fault is None, report.fault
    assert report.verdict is not None
    assert report.verdict.validity is Validity.VOID, report.verdict
    assert ReasonCode.LOSS_DID_NOT_FALL in {reason.code for reason in report.verdict.reasons}


@pytest.mark.usefixtures("restored_phone")
def test_a_program_that_does_not_end_is_killed(phone: Phone, context: LaneContext) -> None:
    case = a_program(context, "while true; do sleep 5; done\n", seconds_max=40.0)
    fault = run(phone, context, case).report.fault
    assert fault is not None
    assert (fault.kind, fault.stage) == (FaultKind.RUNNER_FAILED, Stage.RUN)


@pytest.mark.usefixtures("restored_phone")
def test_a_cancelled_program_is_killed(phone: Phone, context: LaneContext) -> None:
    def cancel() -> None:
        while context.status.stage is not Stage.RUN:
            time.sleep(0.005)
        time.sleep(0.05)
        context.cancel.set()

    canceller = threading.Thread(target=cancel)
    canceller.start()
    fault = run(phone, context, a_program(context, "sleep 500\n")).report.fault
    canceller.join()
    assert fault is not None
    assert (fault.kind, fault.stage) == (FaultKind.CANCELLED, Stage.RUN)


@pytest.mark.usefixtures("restored_phone")
def test_endless_output_of_a_program_is_refused(phone: Phone, context: LaneContext) -> None:
    line = "0123456789" * 820
    script = f"i=0\nwhile [ $i -lt 200 ]; do echo {line}; i=$((i + 1)); done\nsleep 9\n"
    fault = run(phone, context, a_program(context, script)).report.fault
    assert fault is not None
    assert fault.kind is FaultKind.BAD_OUTPUT


def test_a_file_is_pushed_once(
    phone: Phone, virtual_phone: VirtualPhone, context: LaneContext
) -> None:
    case = a_program(context, STEPS + "# pushed once\n")
    assert run(phone, context, case, 1).report.fault is None
    virtual_phone.forget()
    assert run(phone, context, case, 2).report.fault is None
    assert case.manifest is not None
    digest = case.manifest.files[0].sha256
    assert not [event for event in virtual_phone.events("file_write") if digest in str(event)]


def test_a_regex_that_takes_too_long_is_stopped(context: LaneContext) -> None:
    rule = StepRule(regex=r".*a.*a.*a.*a.*a.*e=([0-9.]+)", unit="ms")
    case = a_program(context, STEPS, step=rule)
    assert case.manifest is not None
    with pytest.raises(BadOutput, match="the regex of tool"):
        read_in_subprocess(case.manifest, {}, "a" * 1000, "", timeout_s=1.0)


def test_steps_become_consecutive_windows() -> None:
    windows = list(windows_from_steps((StepGroup(2, 20, 9, 11), StepGroup(1, 12, 12, 12)), 100))
    assert [(window.first, window.n, window.t_ns, window.ns) for window in windows] == [
        (0, 2, 100, 20),
        (2, 1, 120, 12),
    ]


def test_too_many_steps_share_windows_and_none_is_lost() -> None:
    times_ns = [10 + step % 3 for step in range(10_000)]
    steps = tuple(StepGroup(1, ns, ns, ns) for ns in times_ns)
    windows = list(windows_from_steps(steps, 0))
    assert len(windows) <= WINDOWS_MAX
    assert sum(window.n for window in windows) == 10_000
    assert sum(window.ns for window in windows) == sum(times_ns)


def test_the_watchdog_kills_a_program_without_an_agent(phone: Phone, context: LaneContext) -> None:
    runner = install_runner(phone, runner_for(phone.facts.abi))
    Watchdog(phone, runner, fence=1, timeout_s=1.0).start()
    case = a_program(context, "sleep 50000\n")
    spec = LaunchSpec(runner, case, choose_cores(phone.facts, "big4"), Condition().launch, [UPTIME])
    install_program(phone, spec, context.files_dir)
    launch_program(phone, spec, ShellCommand(["true"]))
    phone.shell(["sleep", "5"])
    assert phone.shell(["pgrep", "-f", f"{lane_file('work')}/"]).status != 0
    assert phone.shell(["test", "-e", lane_file("restored")]).status == 0
    assert '"exit","status":137' in phone.shell_checked(["cat", lane_file("out.jsonl")])
    kill_program(phone)
    phone.shell(["rm", "-f", lane_file("restored")])


def test_a_native_phone_runs_the_program(
    adb: AdbServer, context: LaneContext, tmp_path: Path
) -> None:
    script = "sleep 0.4; echo step 100 ms; echo step 110 ms; cat /proc/self/status\n"
    case = a_program(context, script, environment={"EMPTY": ""})
    plan = FleetConfig(("meizu-16t",), native=True, journal=tmp_path / "journals")
    with serve_fleet_in_thread(plan) as (_, (address,)):
        phone = open_phone(adb, address.address)
        condition = Condition(cores="all1", freq="free", start_temp_max_c=None, time_min_s=1)
        job = a_job(phone.facts.serial).model_copy(update={"case": case, "condition": condition})
        result = run_attempt(job, phone, context)
        printed = phone.shell_checked(["cat", lane_file(PROGRAM_STDOUT)])
        status = phone.shell(["pgrep", "-f", f"{lane_file('work')}/"]).status
        phone.close()
        adb.disconnect(address.address)
    report = result.report
    assert report.fault is None, report.fault
    metrics = {metric.name: metric for metric in report.metrics}
    assert metrics["step_ms"].value == pytest.approx(105.0)
    assert metrics["step_ms"].provenance.source is Source.HOST
    assert report.verdict is not None
    assert report.verdict.validity is Validity.VOID
    assert "Cpus_allowed_list:\t0\n" in printed
    assert status == 1
