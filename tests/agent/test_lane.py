"""The lane: the report of a job, and the events that the phone recorded."""

import json
import socket
import statistics
import threading
import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from agent.deadline import Deadline
from agent.lane import run_attempt
from agent.lane_context import LaneContext
from agent.launch.launch_files import prepare_checkpoint, surplus_checkpoints
from agent.launch.launch_spec import LaunchSpec
from agent.launch.runner_process import watch_runner, write_plan
from agent.phone.adb import AdbServer
from agent.phone.phone_driver import Phone
from agent.phone.phone_memory import RestTemps
from agent.phone.phone_paths import HOME, LANE_DIR, lane_file
from agent.phone.phone_snapshot import take_snapshot
from agent.phone.phone_waits import Cancellation, PhoneWaits
from agent.phone.probe import probe
from agent.phone.shell_command import ShellCommand
from agent.phone.shell_link import ShellLink
from agent.restore.fence import FENCE_FILE
from agent.restore.restore_journal import journal_file
from kernels.runner_builds import runner_for
from tests.agent.conftest import StartPhone
from tests.agent.jobs import a_job
from tests.agent.lane_harness import (
    LONG_AND_COOL,
    QUICK,
    LaneHarness,
    assert_fault,
    read_policy_states,
)
from tests.agent.virtual_phones import VirtualPhone, open_phone
from workloads.catalogue import bind
from workloads.protocol.base import digest_of_bytes
from workloads.protocol.condition import Condition, Launch, Protocol
from workloads.protocol.faults import Blame, FaultKind, TrainingKilled
from workloads.protocol.messages import split_into_chunks
from workloads.protocol.metrics import Source
from workloads.protocol.phone_facts import ControlLevel, choose_cores
from workloads.protocol.stage import Stage
from workloads.protocol.telemetry import unpack_telemetry
from workloads.protocol.verdict import ReasonCode, Validity

HOURS_S = 7200  # of a run in whose middle a test acts


def test_a_cold_run_yields_a_valid_report(phone: Phone, context: LaneContext) -> None:
    before = read_policy_states(phone, (0, 4, 7))
    result = run_attempt(a_job(phone.facts.serial), phone, context)
    report = result.report
    assert report.fault is None
    assert report.verdict is not None
    assert report.verdict.validity is Validity.VALID, report.verdict.reasons
    assert {metric.provenance.source for metric in report.metrics} == {Source.SIMULATED}
    names = {metric.name for metric in report.metrics}
    assert {
        "step_ms",
        "samples_per_s",
        "start_temp_c",
        "peak_temp_c",
        "pinned_clock_share",
    } <= names
    assert report.applied.mask == "f0"
    assert report.applied.clocks_khz == {4: 2419200, 7: 2841600}
    assert result.telemetry is not None
    assert report.telemetry == digest_of_bytes(result.telemetry)
    assert report.chunks == len(split_into_chunks(report.telemetry, result.telemetry))
    assert unpack_telemetry(result.telemetry)["windows"]["n"]
    assert read_policy_states(phone, (0, 4, 7)) == before
    assert not journal_file(context.state_dir, phone.facts.serial).exists()


def test_a_run_is_sampled_at_the_requested_rate(phone: Phone, context: LaneContext) -> None:
    job = a_job(phone.facts.serial, **QUICK, time_min_s=2, sample_hz=50)
    result = run_attempt(job, phone, context)
    assert result.report.fault is None, result.report.fault
    assert result.telemetry is not None
    t_ns = unpack_telemetry(result.telemetry)["readings"]["t_ns"]
    periods_ms = [(later - sooner) / 1e6 for sooner, later in pairwise(t_ns)]
    assert statistics.median(periods_ms) == pytest.approx(20, rel=0.1)


@pytest.mark.parametrize(
    ("condition", "period_ms"),
    [
        (Condition(), 100),
        (Condition(sample_hz=100), 10),
        (Condition(protocol=Protocol.ENDURANCE), 1000),
        (Condition(protocol=Protocol.ENDURANCE, sample_hz=10), 100),
        (Condition(protocol=Protocol.ENDURANCE, sample_hz=100), 10),
        (Condition(protocol=Protocol.SOAKED, sample_hz=10), 100),
        (Condition(protocol=Protocol.SOAKED, sample_hz=100), 40),  # else too many readings
        (Condition(sample_hz=200, steps_min=8), 5),  # few steps are expected to be short
        (Condition(sample_hz=100, steps_min=60, time_min_s=0.0), 10),
    ],
)
def test_long_runs_are_sampled_less_often(condition: Condition, period_ms: int) -> None:
    assert condition.sample_period_ms == period_ms


def test_the_phone_is_changed_and_restored_in_order(
    phone: Phone, virtual_phone: VirtualPhone, context: LaneContext
) -> None:
    run_attempt(a_job(phone.facts.serial), phone, context)
    sequence: list[str] = []
    for event in virtual_phone.events("setting_write", "sysfs_write", "run_start", "run_stop"):
        kind = event["event"]
        word = event["path"].rsplit("/", 1)[1] if kind == "sysfs_write" else kind
        if not sequence or sequence[-1] != word:
            sequence.append(word)
    changes = ["setting_write", "wake_lock", "input_suspend", "min_cpus", "scaling_governor"]
    assert sequence[:5] == changes
    assert sequence[-5:] == [*changes[:1:-1], "wake_unlock", "setting_write"]
    assert sequence[sequence.index("run_start") : sequence.index("run_stop") + 1] == [
        "run_start",
        "run_stop",
    ]
    assert set(sequence) == {
        *changes,
        "wake_unlock",
        "scaling_max_freq",
        "scaling_min_freq",
        "run_start",
        "run_stop",
    }
    settings = virtual_phone.events("setting_write")
    first = {event["name"]: event["old"] for event in reversed(settings)}
    last = {event["name"]: event["new"] for event in settings}
    assert first == last


def test_a_run_waits_for_a_hot_phone(
    adb: AdbServer, start_phone: StartPhone, context: LaneContext
) -> None:
    phone = open_phone(adb, start_phone().address)
    rest = RestTemps(zones_c=dict(take_snapshot(phone).zones_c))
    phone.remember_rest(rest)
    heat_up(phone, seconds=240)
    predictions: list[tuple[float, float, float]] = []
    done = threading.Event()

    def watch_status() -> None:
        while not done.is_set():
            if context.status.stage is Stage.COOL and context.status.cool_in_s is not None:
                predictions.append(context.status.cool_in_s)
            time.sleep(0.01)

    watcher = threading.Thread(target=watch_status)
    watcher.start()
    report = run_attempt(a_job(phone.facts.serial), phone, context).report
    done.set()
    watcher.join()
    assert report.fault is None
    assert report.stage_seconds[Stage.COOL] > 0.5
    start = next(metric.value for metric in report.metrics if metric.name == "start_temp_c")
    assert rest.hottest_c is not None
    assert start <= rest.hottest_c + 4.0
    assert report.applied.start_by == "rest"
    assert predictions


def test_a_thermal_cap_is_noticed_and_not_restored_as_a_setting(
    lane_harness: LaneHarness,
) -> None:
    lane_harness.initial_state = lane_harness.read_phone_state()
    lane_harness.inject("throttle")
    report = lane_harness.run_attempt(
        start_temp_max_c=60, start_slope_max_c_per_min=60, cool_wait_max_s=60
    )
    assert_fault(report, Blame.CONDITION, FaultKind.TOO_HOT)
    lane_harness.verify_recovery()


def test_an_endurance_run_is_not_void_by_throttling(
    adb: AdbServer, start_phone: StartPhone, context: LaneContext
) -> None:
    phone = open_phone(adb, start_phone("meizu-16t").address)
    job = a_job(phone.facts.serial, workload="sgemm", protocol="endurance", cores="all8")
    report = run_attempt(job, phone, context).report
    assert report.fault is None
    assert report.verdict is not None
    assert report.verdict.validity is Validity.VALID, report.verdict.reasons
    metrics = {metric.name: metric.value for metric in report.metrics}
    assert metrics["pinned_clock_share"] < 1.0
    assert metrics["last_minute_step_ms"] > metrics["first_minute_step_ms"]


@pytest.mark.parametrize(
    "condition",
    [
        {"cores": "big8"},  # more cores than there are
        {"cores": "mask:f000"},  # cores of another phone
        {"freq": "1234kHz"},  # a clock of another phone
    ],
)
def test_an_impossible_request_is_refused_before_any_change(
    phone: Phone, virtual_phone: VirtualPhone, context: LaneContext, condition: dict[str, Any]
) -> None:
    report = run_attempt(a_job(phone.facts.serial, **condition), phone, context).report
    assert report.fault is not None
    assert (report.fault.blame, report.fault.stage) == (Blame.REQUEST, Stage.RESOLVE)
    assert report.verdict is None
    assert not virtual_phone.events("setting_write", "sysfs_write", "run_start")


def test_noop_never_calls_the_phone(phone: Phone, context: LaneContext) -> None:
    unreachable = Phone(ShellLink("nowhere", fail_to_dial))
    unreachable.facts = phone.facts
    report = run_attempt(a_job("X", workload="noop"), unreachable, context).report
    assert report.fault is None
    assert report.verdict is not None
    assert report.verdict.validity is Validity.VALID


def test_an_older_lease_is_refused(
    phone: Phone, virtual_phone: VirtualPhone, context: LaneContext
) -> None:
    phone.shell_batch([ShellCommand(["mkdir", "-p", FENCE_FILE.rsplit("/", 1)[0]])])
    phone.push(b"9 host-b\n", FENCE_FILE)
    report = run_attempt(a_job(phone.facts.serial, fence=8), phone, context).report
    assert report.fault is not None
    assert (report.fault.kind, report.fault.stage) == (FaultKind.LEASE_LOST, Stage.FENCE)
    assert "lease 9 host-b" in report.fault.text  # the fence of the newer lease
    assert not virtual_phone.events("setting_write", "sysfs_write", "run_start")
    assert run_attempt(a_job(phone.facts.serial, fence=10), phone, context).report.fault is None


def test_a_superseded_lane_restores_nothing(
    opened_phone: Phone, disposable_phone: VirtualPhone, context: LaneContext
) -> None:
    in_run = event_when(
        lambda: context.status.stage is Stage.RUN and bool(disposable_phone.events("run_start"))
    )

    def overtake() -> None:
        assert in_run.wait(300)
        opened_phone.push(b"99 host-b\n", FENCE_FILE)
        context.cancel.set()

    threading.Thread(target=overtake, daemon=True).start()
    report = run_attempt(
        a_job(opened_phone.facts.serial, protocol="endurance"), opened_phone, context
    ).report
    assert report.fault is not None
    written = [
        event["new"]
        for event in disposable_phone.events("sysfs_write")
        if "governor" in event["path"]
    ]
    assert written == ["performance", "performance"]


def test_cancelling_ends_the_run_and_restores(
    phone: Phone, virtual_phone: VirtualPhone, context: LaneContext
) -> None:
    before = read_policy_states(phone, (0, 4, 7))
    in_run = event_when(
        lambda: context.status.stage is Stage.RUN and bool(virtual_phone.events("run_start"))
    )

    def cancel() -> None:
        assert in_run.wait(300)
        context.cancel.set()

    threading.Thread(target=cancel, daemon=True).start()
    job = a_job(phone.facts.serial, protocol="endurance", time_min_s=HOURS_S)
    report = run_attempt(job, phone, context).report
    assert report.fault is not None
    assert (report.fault.kind, report.fault.stage) == (FaultKind.CANCELLED, Stage.RUN)
    assert virtual_phone.events("run_stop")
    phone.shell(["sleep", "120"])  # a thermal cap ends by itself
    assert read_policy_states(phone, (0, 4, 7)) == before


@pytest.mark.usefixtures("short_timeouts")
def test_a_phone_that_disconnects_during_its_run_is_a_phone_fault(
    opened_phone: Phone, disposable_phone: VirtualPhone, context: LaneContext
) -> None:
    in_run = event_when(
        lambda: context.status.stage is Stage.RUN and bool(disposable_phone.events("run_start"))
    )

    def vanish() -> None:
        assert in_run.wait(300)
        disposable_phone.kill()

    threading.Thread(target=vanish, daemon=True).start()
    report = run_attempt(
        a_job(opened_phone.facts.serial, protocol="endurance"), opened_phone, context
    ).report
    assert report.fault is not None
    assert (report.fault.blame, report.fault.stage) == (Blame.PHONE, Stage.RUN)
    assert journal_file(context.state_dir, opened_phone.facts.serial).exists()


def test_a_dead_adb_server_does_not_cost_the_run(
    adb: AdbServer, phone: Phone, virtual_phone: VirtualPhone, context: LaneContext
) -> None:
    in_run = event_when(
        lambda: context.status.stage is Stage.RUN and bool(virtual_phone.events("run_start"))
    )

    def kill() -> None:
        assert in_run.wait(300)
        adb.kill()

    threading.Thread(target=kill, daemon=True).start()
    report = run_attempt(a_job(phone.facts.serial, **LONG_AND_COOL), phone, context).report
    assert report.fault is None
    assert report.verdict is not None
    assert report.verdict.validity is Validity.VALID, report.verdict.reasons


def test_a_runner_that_dies_is_a_finding(
    phone: Phone, virtual_phone: VirtualPhone, context: LaneContext
) -> None:
    before = read_policy_states(phone, (0, 4, 7))
    in_run = event_when(
        lambda: context.status.progress is not None and bool(virtual_phone.events("run_start"))
    )

    def kill() -> None:
        assert in_run.wait(300)
        hello = json.loads(phone.shell_checked(["head", "-n", "1", lane_file("out.jsonl")]))
        phone.shell_checked(["kill", "-9", str(hello["pid"])])

    threading.Thread(target=kill, daemon=True).start()
    job = a_job(phone.facts.serial, protocol="endurance", time_min_s=HOURS_S)
    fault = run_attempt(job, phone, context).report.fault
    assert fault is not None
    assert (fault.kind, fault.blame, fault.stage) == (FaultKind.DIES_LATER, Blame.RUNNER, Stage.RUN)
    phone.shell(["sleep", "120"])  # a thermal cap ends by itself
    assert read_policy_states(phone, (0, 4, 7)) == before


def test_a_damaged_checkpoint_is_removed_and_the_run_is_repeated(
    phone: Phone, context: LaneContext
) -> None:
    job = a_job(phone.facts.serial, protocol="endurance", resume_s=5)
    checkpoint = f"{HOME}/checkpoint-{job.run.trial}.{job.run.repeat}"
    phone.shell_checked(["mkdir", "-p", HOME])
    phone.push(b"not a checkpoint", checkpoint)
    fault = run_attempt(job, phone, context).report.fault
    assert fault is not None
    assert (fault.blame, fault.stage) == (Blame.PHONE, Stage.RUN)
    assert fault.text.startswith("the checkpoint is damaged; it was removed")
    assert phone.shell(["test", "-e", checkpoint]).status == 1


def test_a_training_with_a_checkpoint_that_ends_at_once_was_killed(phone: Phone) -> None:
    checkpoint = f"{HOME}/checkpoint-tr-{0:016x}.0"
    cores = choose_cores(phone.facts, "big4")
    launch = Condition().launch
    spec = LaunchSpec("runner", bind("mlp-4", {}), cores, launch, (), checkpoint=checkpoint)
    phone.shell_checked(["rm", "-rf", LANE_DIR])
    phone.shell_checked(["mkdir", "-p", LANE_DIR])
    write_plan(phone, spec)
    phone.push(b"of an earlier attempt", checkpoint)
    waits = PhoneWaits(phone, Cancellation())
    with pytest.raises(TrainingKilled, match="killed at step 0"):
        watch_runner(phone, spec, 2**22 - 1, None, waits, lambda _: None)
    phone.shell_checked(["rm", checkpoint])


def test_a_killed_training_continues_from_its_checkpoint(
    phone: Phone, virtual_phone: VirtualPhone, context: LaneContext
) -> None:
    job = a_job(phone.facts.serial, protocol="endurance", resume_s=5, time_min_s=3000)
    checkpoint = f"{HOME}/checkpoint-{job.run.trial}.{job.run.repeat}"
    in_run = event_when(lambda: phone.shell(["test", "-e", checkpoint]).status == 0)

    def kill() -> None:
        assert in_run.wait(300)
        hello = json.loads(phone.shell_checked(["head", "-n", "1", lane_file("out.jsonl")]))
        phone.shell_checked(["kill", "-9", str(hello["pid"])])

    threading.Thread(target=kill, daemon=True).start()
    fault = run_attempt(job, phone, context).report.fault
    assert fault is not None
    assert (fault.kind, fault.blame) == (FaultKind.TRAINING_KILLED, Blame.PHONE)
    # Another run takes place before the next attempt.
    prepare_checkpoint(phone, job.run.model_copy(update={"repeat": job.run.repeat + 1}))
    report = run_attempt(job, phone, context).report
    assert report.fault is None, report.fault
    metrics = {metric.name: metric.value for metric in report.metrics}
    assert metrics["resume_lost_s"] > 0
    assert report.verdict is not None
    reasons = report.verdict.reasons
    assert ReasonCode.CONTINUED in {reason.code for reason in reasons}
    objections = {reason.code for reason in reasons if reason.validity is not Validity.VALID}
    assert objections <= {ReasonCode.CONTINUED}, reasons  # it was killed soon or late
    assert phone.shell(["test", "-e", checkpoint]).status == 1


def test_the_oldest_checkpoints_of_other_runs_are_removed() -> None:
    sizes = {"a": 9 * 10**8, "b": 10**8, "c": 1, "own": 10**10}
    listing = "".join(
        f"{time} {size} checkpoint-{name}\n"
        for time, (name, size) in zip((30, 20, 10, 5), sizes.items(), strict=True)
    )
    assert surplus_checkpoints(listing, "checkpoint-own") == ["checkpoint-c"]
    assert surplus_checkpoints("stat: checkpoint-*: No such file\n", "checkpoint-own") == []
    assert surplus_checkpoints("1 99999999999 checkpoint-x; reboot\n", "checkpoint-own") == []


def test_a_reboot_is_not_blamed_on_the_runner(
    adb: AdbServer, opened_phone: Phone, disposable_phone: VirtualPhone, context: LaneContext
) -> None:
    in_run = event_when(
        lambda: context.status.progress is not None and bool(disposable_phone.events("run_start"))
    )

    def reboot() -> None:
        assert in_run.wait(300)
        adb.service(disposable_phone.address, "reboot:", Deadline.after(120)).close()

    threading.Thread(target=reboot, daemon=True).start()
    fault = run_attempt(
        a_job(opened_phone.facts.serial, protocol="endurance"), opened_phone, context
    ).report.fault
    assert fault is not None
    assert (fault.kind, fault.blame) == (FaultKind.RESTARTED, Blame.PHONE)
    settings = disposable_phone.events("setting_write")
    assert settings[-1]["new"] == settings[0]["old"]


def test_a_stock_phone_is_observed(
    adb: AdbServer, phone: Phone, virtual_phone: VirtualPhone, context: LaneContext
) -> None:
    phone.shell_checked(["rm", "-rf", HOME])
    stock = Phone(adb.open(virtual_phone.address, use_root=False))
    facts = probe(stock, runner_for)
    assert facts.control is ControlLevel.OBSERVED
    warm = a_job(facts.serial, start_temp_max_c=None)  # other tests have warmed it
    report = run_attempt(warm, stock, context).report
    assert report.fault is None
    assert report.control is ControlLevel.OBSERVED
    assert report.verdict is not None
    assert not virtual_phone.events("sysfs_write")
    refused = run_attempt(a_job(facts.serial, fence=2, freq="mid"), stock, context).report.fault
    assert refused is not None
    assert refused.kind is FaultKind.INVALID_REQUEST
    phone.shell_checked(["rm", "-rf", HOME])


def test_a_phone_without_a_runner_is_refused(phone: Phone, context: LaneContext) -> None:
    error = "there is no Farmhand runner for x86 yet"
    phone.facts = phone.facts.model_copy(update={"runner_error": error})
    fault = run_attempt(a_job(phone.facts.serial), phone, context).report.fault
    assert fault is not None
    assert (fault.blame, fault.text) == (Blame.REQUEST, error)


def fail_to_dial(address: str, name: str, deadline: Deadline) -> socket.socket:
    """Fail the test: this phone must not be called."""
    raise AssertionError(f"{address} was called for {name}")


def heat_up(phone: Phone, seconds: int) -> None:
    """Load all cores for some phone seconds, outside any lane."""
    cores = choose_cores(phone.facts, "all8")
    runner = f"{HOME}/runner-{phone.facts.runner[:12]}"
    launch = Launch(warmup=0, steps=1, seconds=seconds, max_seconds=seconds, window_ms=1000)
    spec = LaunchSpec(runner, a_job("x", workload="sgemm").case, cores, launch, ())
    phone.shell_checked(["mkdir", "-p", LANE_DIR])
    write_plan(phone, spec)
    phone.shell_batch([spec.command()])
    while '"done"' not in phone.shell(["tail", "-n", "1", lane_file("out.jsonl")]).text:
        phone.shell(["sleep", "15"])


def event_when(condition: Callable[[], bool]) -> threading.Event:
    """Return an event that is set as soon as a condition is true."""
    event = threading.Event()

    def watch() -> None:
        deadline = Deadline.after(120)
        while not condition() and not deadline.expired:
            time.sleep(0.01)
        event.set()

    threading.Thread(target=watch, daemon=True).start()
    return event
