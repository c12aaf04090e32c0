"""A foreign program in the lane: same conditions, same report, and no trust."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.control.clocks import read_policies
from agent.control.guard import Guard, lane_file
from agent.deadline import Deadline
from agent.desk import Desk, Outcome
from agent.lane import attempt
from agent.phone.adb import AdbServer
from agent.phone.install import install_runner
from agent.phone.phone import UPTIME, Command, Phone
from agent.run.external import end_program, install_program, launch_program, windows
from agent.run.lines import WINDOWS_MAX
from agent.run.reading import read_apart
from agent.run.runner import Ask
from agent.virtual.shelf import ShelfPlan, shelf_in_thread
from kernels.manifest import runner_for
from orchestrator.plan.sweep import read_sweep
from tests.agent.jobs import a_job
from tests.agent.virtual_phones import VirtualPhone, open_phone
from workloads.catalogue import Case, bind_external
from workloads.condition import Condition
from workloads.external import ForeignFile, Manifest, NumberRule, StepRule
from workloads.fault import BadOutput, Blame
from workloads.measure import Source, Standing
from workloads.noun import digest_of_bytes
from workloads.phone import choose_cores
from workloads.printed import Steps

EXAMPLE = Path(__file__).parents[2] / "examples" / "external"
STEPS = "i=0; while [ $i -lt 18 ]; do sleep 0.5; echo step 500 ms; i=$((i + 1)); done\n"


def on_shelf(desk: Desk, content: bytes) -> str:
    digest = digest_of_bytes(content)
    desk.shelf.mkdir(parents=True, exist_ok=True)
    (desk.shelf / digest).write_bytes(content)
    return digest


def a_program(desk: Desk, script: str, **parts: object) -> Case:
    """A case whose program is a script."""
    digest = on_shelf(desk, script.encode())
    content: dict[str, object] = {
        "name": "tool",
        "files": (ForeignFile(name="tool.sh", sha256=digest),),
        "command": ("sh", "{tool.sh}"),
        "step": StepRule(regex=r"step ([0-9.]+) ms", unit="ms"),
    }
    return bind_external(Manifest.model_validate({**content, **parts}), {})


def run(phone: Phone, desk: Desk, case: Case, fence: int = 1) -> Outcome:
    job = a_job(phone.known.serial, fence).model_copy(update={"case": case})
    return attempt(job, phone, desk)


def at_work(phone: Phone) -> str:
    """What of a program is still on the phone."""
    return phone.shell(["pgrep", "-f", f"{lane_file('work')}/|sample {lane_file('')}"]).text.strip()


@pytest.fixture(name="before")
def phone_before(phone: Phone) -> Iterator[None]:
    """Whatever becomes of a program, the phone is as it was and nothing runs on."""
    before = read_policies(phone, (0, 4, 7))
    yield
    assert read_policies(phone, (0, 4, 7)) == before
    assert at_work(phone) == ""


@pytest.mark.usefixtures("before")
def test_the_example_runs_from_its_sweep_to_a_valid_report(phone: Phone, desk: Desk) -> None:
    for name in ("bench.sh", "recorded.json"):
        on_shelf(desk, (EXAMPLE / name).read_bytes())
    text = (EXAMPLE / "compare.yaml").read_text()
    sweep = read_sweep(text, lambda name: (EXAMPLE / name).read_text())
    (case,) = [case for case in sweep.cases if case.manifest is not None]
    outcome = run(phone, desk, case)
    report = outcome.report
    assert report.fault is None, report.fault
    assert report.verdict is not None
    assert Standing.VALID is report.verdict.standing, report.verdict.reasons
    figures = {metric.name: metric.value for metric in report.metrics}
    assert pytest.approx(499.5) == figures["step_ms"]
    assert pytest.approx(64.0) == figures["samples_per_s"]
    assert {"start_temp_c", "peak_temp_c", "clock_held_share"} <= figures.keys()
    assert "gflops" not in figures
    assert "peak_rss_mb" not in figures
    assert "f0" == report.resolved.mask
    assert case.digest == report.case_digest
    assert outcome.telemetry is not None


@pytest.mark.usefixtures("before")
def test_the_program_gets_its_words_its_cores_and_its_environment(
    phone: Phone, there: VirtualPhone, desk: Desk
) -> None:
    script = 'sleep 9; echo "$X $1 $2 loss 3.5 loss 1.25 step 450 ms" >&2\n'
    case = a_program(
        desk,
        script,
        command=("sh", "{tool.sh}", "{threads} threads", "{steps}"),
        environment={"X": "it's {seconds} s"},
        training=True,
        step=StepRule(regex=r"step ([0-9.]+) ms", unit="ms", n="steps"),
        loss=NumberRule(regex=r"loss ([0-9.]+)"),
    )
    report = run(phone, desk, case).report
    assert report.fault is None, report.fault
    assert "it's 8 s 4 threads 20 loss" in phone.must(["cat", lane_file("complained")])
    started = [
        event
        for event in there.events("process_exec")
        if any(word.endswith("work/tool.sh") for word in event["argv"])
    ]
    assert started
    assert "f0" == started[-1]["mask"]


@pytest.mark.usefixtures("before")
def test_a_file_that_is_not_on_this_host_is_named(phone: Phone, desk: Desk) -> None:
    case = a_program(desk, STEPS)
    assert case.manifest is not None
    path = desk.shelf / case.manifest.files[0].sha256
    path.write_text("something else")
    fault = run(phone, desk, case, 1).report.fault
    assert fault is not None
    assert Blame.REQUEST is fault.blame
    assert "is not the file of that digest" in fault.text
    path.unlink()
    fault = run(phone, desk, case, 2).report.fault
    assert fault is not None
    assert (Blame.REQUEST, "prepare") == (fault.blame, fault.stage)
    assert "tool.sh is not on this host" in fault.text
    assert "farm workload keep" in fault.text


@pytest.mark.usefixtures("before")
@pytest.mark.parametrize(
    ("script", "sentence"),
    [
        ("sleep 1; echo no such model >&2; exit 3\n", "tool ended with status 3 and said: no such"),
        ("sleep 9; echo well done\n", "No step was found in what tool printed."),
        ("sleep 2; echo step 90000 ms\n", "tool tells of 90.00 s of steps and ran for "),
        ("sleep 2; echo step 0 ms\n", "'0' is no time."),
    ],
)
def test_a_program_that_fails_is_a_finding(
    phone: Phone, desk: Desk, script: str, sentence: str
) -> None:
    report = run(phone, desk, a_program(desk, script)).report
    assert report.fault is not None
    assert Blame.RUNNER is report.fault.blame
    assert sentence in report.fault.text
    assert not report.metrics


@pytest.mark.usefixtures("before")
def test_a_program_that_is_too_short_does_not_count(phone: Phone, desk: Desk) -> None:
    report = run(phone, desk, a_program(desk, "sleep 2; echo step 1500 ms\n")).report
    assert report.fault is None, report.fault
    assert report.verdict is not None
    assert Standing.VOID is report.verdict.standing
    assert "it measured 1.5 s, asked were 8 s" in report.verdict.reasons


@pytest.mark.usefixtures("before")
def test_a_training_whose_loss_does_not_fall_does_not_count(phone: Phone, desk: Desk) -> None:
    case = a_program(
        desk,
        STEPS.replace("step 500 ms", "step 500 ms loss 2.$i"),
        training=True,
        loss=NumberRule(regex=r"loss ([0-9.]+)"),
    )
    report = run(phone, desk, case).report
    assert report.fault is None, report.fault
    assert report.verdict is not None
    assert Standing.VOID is report.verdict.standing, report.verdict
    assert any("loss" in reason for reason in report.verdict.reasons), report.verdict.reasons


@pytest.mark.usefixtures("before")
def test_a_program_that_does_not_end_is_ended(phone: Phone, desk: Desk) -> None:
    case = a_program(desk, "while true; do sleep 5; done\n", seconds_max=40.0)
    fault = run(phone, desk, case).report.fault
    assert fault is not None
    assert "did not end within 40 s" in fault.text


@pytest.mark.usefixtures("before")
def test_a_cancelled_program_is_ended(phone: Phone, desk: Desk) -> None:
    def cancel() -> None:
        while desk.view.stage != "run":
            time.sleep(0.005)
        time.sleep(0.05)
        desk.cancel.set()

    canceller = threading.Thread(target=cancel)
    canceller.start()
    fault = run(phone, desk, a_program(desk, "sleep 500\n")).report.fault
    canceller.join()
    assert fault is not None
    assert ("Cancelled", "run") == (fault.kind, fault.stage)


@pytest.mark.usefixtures("before")
def test_a_program_that_prints_without_end_is_not_read(phone: Phone, desk: Desk) -> None:
    line = "0123456789" * 820
    script = f"i=0\nwhile [ $i -lt 200 ]; do echo {line}; i=$((i + 1)); done\nsleep 9\n"
    fault = run(phone, desk, a_program(desk, script)).report.fault
    assert fault is not None
    assert "The program printed 1640200 bytes; 1048576 are read." == fault.text


def test_a_file_is_pushed_once(phone: Phone, there: VirtualPhone, desk: Desk) -> None:
    case = a_program(desk, STEPS + "# pushed once\n")
    assert run(phone, desk, case, 1).report.fault is None
    there.forget()
    assert run(phone, desk, case, 2).report.fault is None
    assert case.manifest is not None
    digest = case.manifest.files[0].sha256
    assert not [event for event in there.events("file") if digest in str(event)]


def test_a_regex_that_runs_away_is_stopped(desk: Desk) -> None:
    rule = StepRule(regex=r".*a.*a.*a.*a.*a.*e=([0-9.]+)", unit="ms")
    case = a_program(desk, STEPS, step=rule)
    assert case.manifest is not None
    with pytest.raises(BadOutput, match="The regex of tool found no end in 1 s"):
        read_apart(case.manifest, {}, "a" * 1000, "", patience_s=1.0)


def test_steps_become_windows_one_after_the_other() -> None:
    made = list(windows((Steps(2, 20, 9, 11), Steps(1, 12, 12, 12)), 100))
    assert [(0, 2, 100, 20), (2, 1, 120, 12)] == [(w.first, w.n, w.t_ns, w.ns) for w in made]


def test_too_many_steps_share_windows_and_none_is_lost() -> None:
    steps = tuple(Steps(1, 10 + at % 3, 10 + at % 3, 10 + at % 3) for at in range(10_000))
    made = list(windows(steps, 0))
    assert len(made) <= WINDOWS_MAX
    assert 10_000 == sum(window.n for window in made)
    assert sum(each.ns for each in steps) == sum(window.ns for window in made)


def test_the_dead_man_ends_a_program_whose_agent_is_silent(phone: Phone, desk: Desk) -> None:
    runner = install_runner(phone, runner_for(phone.known.abi))
    Guard(phone, runner, fence=1, silence_s=1.0).start()
    case = a_program(desk, "sleep 50000\n")
    ask = Ask(runner, case, choose_cores(phone.known, "big4"), Condition().launch, [UPTIME])
    install_program(phone, ask, desk.shelf)
    launch_program(phone, ask, Command(["true"]))
    deadline = Deadline.after(20)
    while phone.shell(["pgrep", "-f", f"{lane_file('work')}/"]).status == 0:
        assert not deadline.expired
        time.sleep(0.05)
    while phone.shell(["test", "-e", lane_file("restored")]).status != 0:
        assert not deadline.expired
        time.sleep(0.05)
    assert '"exit","status":137' in phone.must(["cat", lane_file("out.jsonl")])
    end_program(phone)
    phone.shell(["rm", "-f", lane_file("restored")])


def test_a_native_phone_really_runs_it(adb: AdbServer, desk: Desk, tmp_path: Path) -> None:
    """Real processes, the real runner's sampler and real time; too short to count, and told so."""
    script = "sleep 0.4; echo step 100 ms; echo step 110 ms; cat /proc/self/status\n"
    case = a_program(desk, script, environment={"EMPTY": ""})
    plan = ShelfPlan(("meizu-16t",), native=True, journal=tmp_path / "witness")
    with shelf_in_thread(plan) as (_, (address,)):
        phone = open_phone(adb, address.address)
        condition = Condition(cores="all1", freq="free", start_temp_max_c=None, time_min_s=1)
        job = a_job(phone.known.serial).model_copy(update={"case": case, "condition": condition})
        outcome = attempt(job, phone, desk)
        said = phone.must(["cat", lane_file("said")])
        left = phone.shell(["pgrep", "-f", f"{lane_file('work')}/"]).status
        phone.close()
        adb.disconnect(address.address)
    report = outcome.report
    assert report.fault is None, report.fault
    figures = {metric.name: metric for metric in report.metrics}
    assert pytest.approx(105.0) == figures["step_ms"].value
    assert Source.HOST is figures["step_ms"].provenance.source
    assert report.verdict is not None
    assert Standing.VOID is report.verdict.standing
    assert "Cpus_allowed_list:\t0\n" in said
    assert 1 == left
