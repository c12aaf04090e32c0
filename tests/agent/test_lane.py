"""The lane: what becomes of a job on a phone, and what the phone saw of it."""

import json
import socket
import statistics
import threading
import time
import zlib
from itertools import pairwise

import pytest

from agent.control.clocks import read_policies
from agent.control.fence import FENCE
from agent.control.guard import lane_file
from agent.control.journal import journal_file
from agent.deadline import Deadline
from agent.desk import Desk
from agent.lane import attempt
from agent.phone.adb import AdbServer
from agent.phone.link import Link
from agent.phone.phone import HOME, Command, Phone
from agent.phone.probe import probe
from agent.run.runner import Ask, write_plan
from kernels.manifest import runner_for
from tests.agent.conftest import StartPhone
from tests.agent.jobs import a_job
from tests.agent.trial import LONG_AND_COOL, SOON, Trial, a_trial, blamed
from tests.agent.virtual_phones import VirtualPhone, open_phone
from workloads.catalogue import bind
from workloads.condition import Condition, Launch, Protocol
from workloads.fault import Blame
from workloads.measure import Source, Standing
from workloads.messages import chunks_of
from workloads.noun import digest_of_bytes
from workloads.phone import ControlLevel, CoreSet, choose_cores

__all__ = ("a_trial",)  # fixture


def test_a_cold_run_yields_a_valid_report(phone: Phone, desk: Desk) -> None:
    """Figures with provenance, telemetry by digest, and a phone that is as it was."""
    before = read_policies(phone, (0, 4, 7))
    began = time.monotonic()
    outcome = attempt(a_job(phone.known.serial), phone, desk)
    took = time.monotonic() - began
    report = outcome.report
    assert report.fault is None
    assert report.verdict is not None
    assert report.verdict.standing is Standing.VALID, report.verdict.reasons
    assert {metric.provenance.source for metric in report.metrics} == {Source.SIMULATED}
    names = {metric.name for metric in report.metrics}
    assert {"step_ms", "samples_per_s", "start_temp_c", "peak_temp_c", "clock_held_share"} <= names
    assert report.resolved.mask == "f0"
    assert report.resolved.clocks_khz == {4: 2419200, 7: 2841600}
    assert outcome.telemetry is not None
    assert report.telemetry == digest_of_bytes(outcome.telemetry)
    assert report.chunks == len(chunks_of(report.telemetry, outcome.telemetry))
    assert json.loads(zlib.decompress(outcome.telemetry))["windows"]["n"]
    assert read_policies(phone, (0, 4, 7)) == before
    assert not journal_file(desk.state_dir, phone.known.serial).exists()
    waited = report.stage_s["cool"] + report.stage_s["run"]
    print(f"cold run: {took:.2f} s, of which {took - waited:.3f} s overhead")  # noqa: T201


def test_a_run_is_sampled_as_often_as_asked(phone: Phone, desk: Desk) -> None:
    job = a_job(phone.known.serial, **SOON, time_min_s=2, sample_hz=50)
    outcome = attempt(job, phone, desk)
    assert outcome.report.fault is None, outcome.report.fault
    assert outcome.telemetry is not None
    moments = json.loads(zlib.decompress(outcome.telemetry))["readings"]["t_ns"]
    apart_ms = [(later - sooner) / 1e6 for sooner, later in pairwise(moments)]
    assert 20 == pytest.approx(statistics.median(apart_ms), rel=0.1)


@pytest.mark.parametrize(
    ("condition", "period_ms"),
    [
        (Condition(), 100),
        (Condition(sample_hz=100), 10),
        (Condition(protocol=Protocol.ENDURANCE), 1000),
        (Condition(protocol=Protocol.ENDURANCE, sample_hz=10), 100),
        (Condition(protocol=Protocol.ENDURANCE, sample_hz=100), 100),  # else too many readings
        (Condition(protocol=Protocol.SOAKED, sample_hz=10), 400),
    ],
)
def test_long_runs_are_sampled_less_often(condition: Condition, period_ms: int) -> None:
    cores = CoreSet(name="big1", cpus=(4,))
    hz = condition.sample_hz
    asked = Ask("runner", bind("mlp-4", {}), cores, condition.launch, [], sample_hz=hz)
    assert period_ms == asked.period_ms


def test_the_phone_saw_everything_in_order(phone: Phone, there: VirtualPhone, desk: Desk) -> None:
    """Quiet, pin, run, unpin, unquiet; cores before governors before limits."""
    attempt(a_job(phone.known.serial), phone, desk)
    story = []
    for event in there.events("setting", "sysfs", "run_start", "run_stop"):
        kind = event["event"]
        word = event["path"].rsplit("/", 1)[1] if kind == "sysfs" else kind
        if not story or story[-1] != word:
            story.append(word)
    assert story[:4] == ["setting", "input_suspend", "min_cpus", "scaling_governor"]
    assert story[-4:] == ["scaling_governor", "min_cpus", "input_suspend", "setting"]
    assert story[story.index("run_start") : story.index("run_stop") + 1] == [
        "run_start",
        "run_stop",
    ]
    assert set(story) == {
        "setting",
        "input_suspend",
        "min_cpus",
        "scaling_governor",
        "scaling_max_freq",
        "scaling_min_freq",
        "run_start",
        "run_stop",
    }
    settings = there.events("setting")
    first = {event["name"]: event["old"] for event in reversed(settings)}
    last = {event["name"]: event["new"] for event in settings}
    assert first == last


def test_a_hot_phone_is_waited_for(adb: AdbServer, start_phone: StartPhone, desk: Desk) -> None:
    """The run starts when the phone has cooled down, and says how long that takes."""
    phone = open_phone(adb, start_phone(speed=300).address)
    heat_up(phone, seconds=240)
    told: list[tuple[float, float, float]] = []
    hot = threading.Event()

    def watch_view() -> None:
        while not hot.is_set():
            if desk.view.stage == "cool" and desk.view.ready_s is not None:
                told.append(desk.view.ready_s)
            time.sleep(0.01)

    watcher = threading.Thread(target=watch_view)
    watcher.start()
    report = attempt(a_job(phone.known.serial), phone, desk).report
    hot.set()
    watcher.join()
    assert report.fault is None
    assert report.stage_s["cool"] > 0.5
    start = next(metric.value for metric in report.metrics if metric.name == "start_temp_c")
    assert start <= 33.0
    assert told


def test_a_thermal_cap_is_neither_overlooked_nor_put_back_as_a_setting(trial: Trial) -> None:
    """A capped phone is not started, however cool; afterwards it is as fast as it was before."""
    trial.found = trial.looks()
    trial.trouble("throttle")
    report = trial.attempt(start_temp_max_c=60, start_slope_max_c_per_min=60, cool_wait_max_s=60)
    blamed(report, Blame.CONDITION, "TooHot")
    assert "still throttled" in (report.fault.text if report.fault else "")
    trial.settle()


def test_an_endurance_run_is_not_void_by_throttling(
    adb: AdbServer, start_phone: StartPhone, desk: Desk
) -> None:
    """Ten minutes of full load: whatever the clocks did is the finding."""
    there = start_phone("meizu-16t", speed=300)
    phone = open_phone(adb, there.address)
    job = a_job(phone.known.serial, workload="sgemm", protocol="endurance", cores="all8")
    report = attempt(job, phone, desk).report
    assert report.fault is None
    assert report.verdict is not None
    assert report.verdict.standing is Standing.VALID, report.verdict.reasons
    found = {metric.name: metric.value for metric in report.metrics}
    assert found["clock_held_share"] < 1.0
    assert found["last_minute_step_ms"] > found["first_minute_step_ms"]


@pytest.mark.parametrize(
    ("condition", "words"),
    [
        ({"cores": "big8"}, "big cores"),  # more cores than there are
        ({"cores": "mask:f000"}, "no cores mask:f000"),  # cores of another phone
        ({"freq": "1234kHz"}, "no step of 1234 kHz"),  # a clock of another phone
    ],
)
def test_what_the_phone_cannot_do_is_refused_untouched(
    phone: Phone, there: VirtualPhone, desk: Desk, condition: dict[str, str], words: str
) -> None:
    """REQUEST is to blame, and nothing was changed to find that out."""
    report = attempt(a_job(phone.known.serial, **condition), phone, desk).report
    assert report.fault is not None
    assert report.fault.blame is Blame.REQUEST
    assert words in report.fault.text
    assert report.verdict is None
    assert not there.events("setting", "sysfs", "run_start")


def test_noop_never_calls_the_phone(phone: Phone, desk: Desk) -> None:
    """What the farm itself costs."""
    deaf = Phone(Link("nowhere", never))
    deaf.facts = phone.facts
    report = attempt(a_job("X", workload="noop"), deaf, desk).report
    assert report.fault is None
    assert report.verdict is not None
    assert report.verdict.standing is Standing.VALID


def test_a_late_lease_is_kept_out(phone: Phone, there: VirtualPhone, desk: Desk) -> None:
    """A phone that has seen a newer lease does not listen to an older one."""
    phone.batch([Command(["mkdir", "-p", FENCE.rsplit("/", 1)[0]])])
    phone.push(b"9 host-b\n", FENCE)
    report = attempt(a_job(phone.known.serial, fence=8), phone, desk).report
    assert report.fault is not None
    assert (report.fault.kind, report.fault.stage) == ("LeaseLost", "fence")
    assert "9 host-b" in report.fault.text
    assert not there.events("setting", "sysfs", "run_start")
    assert attempt(a_job(phone.known.serial, fence=10), phone, desk).report.fault is None


def test_a_lane_that_was_overtaken_does_not_put_the_phone_back(
    doomed_phone: Phone, doomed: VirtualPhone, desk: Desk
) -> None:
    """Whoever overtook it has done that, and has set its own values since."""
    phone, there = doomed_phone, doomed
    in_run = when(lambda: desk.view.stage == "run" and bool(there.events("run_start")))

    def overtake() -> None:
        assert in_run.wait(20)
        phone.push(b"99 host-b\n", FENCE)
        desk.cancel.set()

    threading.Thread(target=overtake, daemon=True).start()
    report = attempt(a_job(phone.known.serial, protocol="endurance"), phone, desk).report
    assert report.fault is not None
    written = [event["new"] for event in there.events("sysfs") if "governor" in event["path"]]
    assert written == ["performance", "performance"]


def test_cancelling_ends_the_run_and_restores(
    phone: Phone, there: VirtualPhone, desk: Desk
) -> None:
    """Cancelled is nobody's fault, and the phone is as it was."""
    before = read_policies(phone, (0, 4, 7))
    in_run = when(lambda: desk.view.stage == "run" and bool(there.events("run_start")))

    def cancel() -> None:
        assert in_run.wait(20)
        desk.cancel.set()

    threading.Thread(target=cancel, daemon=True).start()
    report = attempt(a_job(phone.known.serial, protocol="endurance"), phone, desk).report
    assert report.fault is not None
    assert (report.fault.kind, report.fault.stage) == ("Cancelled", "run")
    assert there.events("run_stop")
    assert read_policies(phone, (0, 4, 7)) == before


def test_a_phone_that_vanishes_in_its_run_is_a_phone_fault(
    doomed_phone: Phone, doomed: VirtualPhone, desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The report says where it happened; the journal stays for the phone's return."""
    phone, there = doomed_phone, doomed
    monkeypatch.setattr("agent.run.runner.PATIENCE_S", 0.5)
    monkeypatch.setattr("agent.control.custody.RESTORE_PATIENCE_S", 0.5)
    in_run = when(lambda: desk.view.stage == "run" and bool(there.events("run_start")))

    def vanish() -> None:
        assert in_run.wait(20)
        there.kill()

    threading.Thread(target=vanish, daemon=True).start()
    report = attempt(a_job(phone.known.serial, protocol="endurance"), phone, desk).report
    assert report.fault is not None
    assert (report.fault.blame, report.fault.stage) == (Blame.PHONE, "run")
    assert journal_file(desk.state_dir, phone.known.serial).exists()


def test_a_dead_adb_server_does_not_cost_the_run(
    adb: AdbServer, phone: Phone, there: VirtualPhone, desk: Desk
) -> None:
    """The runner works on by itself; the lane finds it again."""
    in_run = when(lambda: desk.view.stage == "run" and bool(there.events("run_start")))

    def kill() -> None:
        assert in_run.wait(20)
        assert adb._child is not None
        adb._child.kill()

    threading.Thread(target=kill, daemon=True).start()
    report = attempt(a_job(phone.known.serial, **LONG_AND_COOL), phone, desk).report
    assert report.fault is None
    assert report.verdict is not None
    assert report.verdict.standing is Standing.VALID, report.verdict.reasons


def test_a_runner_that_dies_is_a_finding(phone: Phone, there: VirtualPhone, desk: Desk) -> None:
    """Killed from outside, without a last word; the phone is put back."""
    before = read_policies(phone, (0, 4, 7))
    in_run = when(lambda: desk.view.progress is not None and bool(there.events("run_start")))

    def kill() -> None:
        assert in_run.wait(20)
        hello = json.loads(phone.must(["head", "-n", "1", lane_file("out.jsonl")]))
        phone.must(["kill", "-9", str(hello["pid"])])

    threading.Thread(target=kill, daemon=True).start()
    fault = attempt(a_job(phone.known.serial, protocol="endurance"), phone, desk).report.fault
    assert fault is not None
    assert (fault.kind, fault.blame, fault.stage) == ("DiesLater", Blame.RUNNER, "run")
    assert read_policies(phone, (0, 4, 7)) == before


def test_a_reboot_is_not_blamed_on_the_runner(
    adb: AdbServer, doomed_phone: Phone, doomed: VirtualPhone, desk: Desk
) -> None:
    """The phone comes back by itself, says that it restarted, and gets its settings back."""
    phone = doomed_phone
    in_run = when(lambda: desk.view.progress is not None and bool(doomed.events("run_start")))

    def reboot() -> None:
        assert in_run.wait(20)
        adb.service(doomed.address, "reboot:", Deadline.after(5)).close()

    threading.Thread(target=reboot, daemon=True).start()
    fault = attempt(a_job(phone.known.serial, protocol="endurance"), phone, desk).report.fault
    assert fault is not None
    assert (fault.kind, fault.blame) == ("Restarted", Blame.PHONE)
    assert "restarted" in fault.text
    settings = doomed.events("setting")
    assert settings[-1]["new"] == settings[0]["old"]


def test_a_stock_phone_is_observed(
    adb: AdbServer, phone: Phone, there: VirtualPhone, desk: Desk
) -> None:
    """Without root nothing is pinned; the verdict still looks at what the clocks did."""
    phone.must(["rm", "-rf", HOME])
    stock = Phone(adb.open(there.address))
    stock.link._su_refused = True
    facts = probe(stock, runner_for)
    assert facts.control is ControlLevel.OBSERVED
    report = attempt(a_job(facts.serial), stock, desk).report
    assert report.fault is None
    assert report.control is ControlLevel.OBSERVED
    assert report.verdict is not None
    assert not there.events("sysfs")
    refused = attempt(a_job(facts.serial, fence=2, freq="mid"), stock, desk).report.fault
    assert refused is not None
    assert "the clocks cannot be written" in refused.text
    phone.must(["rm", "-rf", HOME])


def test_a_phone_without_a_runner_is_refused(phone: Phone, desk: Desk) -> None:
    """In the placeholder's own words."""
    sentence = "There is no Farmhand runner for x86 yet."
    phone.facts = phone.known.model_copy(update={"runner_absent": sentence})
    fault = attempt(a_job(phone.known.serial), phone, desk).report.fault
    assert fault is not None
    assert (fault.blame, fault.text) == (Blame.REQUEST, sentence)


def never(address: str, name: str, deadline: Deadline) -> socket.socket:
    """A way to a phone that nobody may take."""
    raise AssertionError(f"{address} was called for {name}")


def heat_up(phone: Phone, seconds: int) -> None:
    """Work all cores for some of the phone's seconds, outside any lane."""
    cores = choose_cores(phone.known, "all8")
    runner = f"/data/local/tmp/farmhand/runner-{phone.known.runner[:12]}"
    launch = Launch(warmup=0, steps=1, seconds=seconds, max_seconds=seconds, window_ms=1000)
    ask = Ask(runner, a_job("x", workload="sgemm").case, cores, launch, ())
    phone.must(["mkdir", "-p", "/data/local/tmp/farmhand/lane"])
    write_plan(phone, ask)
    phone.batch([ask.command()])
    done = Deadline.after(30)
    while '"done"' not in phone.shell(["tail", "-n", "1", lane_file("out.jsonl")]).text:
        assert not done.expired
        time.sleep(0.05)


def when(condition: object) -> threading.Event:
    """An event that is set as soon as a condition holds."""
    event = threading.Event()

    def watch() -> None:
        deadline = Deadline.after(30)
        while not condition() and not deadline.expired:  # type: ignore[operator]
            time.sleep(0.01)
        event.set()

    threading.Thread(target=watch, daemon=True).start()
    return event
