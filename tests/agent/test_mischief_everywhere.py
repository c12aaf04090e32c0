"""Every mischief at every stage of the lane: the full product, kept out of the default suite."""

import pytest

from agent.virtual.mischief.kinds import KINDS
from tests.agent.trial import Trial, a_trial, an_impatient_agent
from workloads.fault import Blame
from workloads.measure import Standing

__all__ = ("a_trial", "an_impatient_agent")  # fixtures

# The moment of a stage, as the phone sees it.
STAGES = {
    "fence": "command:mv -f *fence*",
    "install": "command:sha256sum *runner*",
    "guard": "command:setsid *",
    "charge": "command:grep *battery/capacity*",
    "quiet": "command:settings put *#2",
    "prepare": "command:printf */proc/stat*",
    "cool": "command:grep *battery/capacity*#2",
    "pin": "write:*/scaling_governor",
    "run": "command:taskset *",
    "timed": "run@50%",
    "harvest": "command:cat *readings.jsonl",
    "restore": "write:*/scaling_min_freq#4",
}
# The cable and adb: what comes back by itself, after some host seconds.
LINK: dict[str, dict[str, object]] = {
    "unplug": {},
    "flap": {"period_s": 0.4, "off_s": 0.2},
    "hang": {},
    "partition": {},
    "unauthorized": {},
    "offline": {},
    "version_clash": {},
    "slow": {"latency_s": 0.01},
}
BODY: dict[str, dict[str, object]] = {
    "reboot": {},
    "clock_ignored": {},
    "clock_reset": {"after_s": 2},
    "throttle": {},
    "sensor": {"value": "999"},
    "never_cools": {},
    "battery_drains": {"percent": 10},
    "disk_full": {},
    "low_memory": {"command": "*runner*"},
    "hotplug": {"cpu": 6, "service": "core_ctl"},
    "migrate": {},
    "other_work": {},
    "sleep": {"for_": 5},
    "charger_returns": {},
    "hidden_limit": {},
    "truncated": {"command": "grep *", "bytes": 60},
    "endless": {"command": "cat *"},
    "hostile": {"command": "grep *"},
    "hostile_names": {},
    "duplicate_serial": {"serial": "ANOTHER"},
}
# Where these change the truth of a run, it may not pass for valid.
SPOILS = {
    ("throttle", "timed"),
    ("throttle", "run"),
    ("clock_ignored", "quiet"),
    ("never_cools", "quiet"),
    ("sensor", "run"),
    ("reboot", "timed"),
}


def test_no_mischief_is_left_out() -> None:
    assert KINDS.keys() == {*LINK, *BODY}


@pytest.mark.slow
@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("kind", KINDS)
def test_it_is_survived(trial: Trial, kind: str, stage: str) -> None:
    words = {**LINK[kind], "for_host": 1.5} if kind in LINK else BODY[kind]
    trial.trouble(kind, at=STAGES[stage], **words)
    report = trial.attempt(freq="mid", cool_wait_max_s=60)
    assert trial.events("mischief_start"), "it never came to this stage"
    if report.fault is not None:
        assert report.fault.blame in {Blame.PHONE, Blame.CONDITION, Blame.RUNNER}, report.fault
        if kind != "low_memory":
            assert report.fault.blame is not Blame.RUNNER, report.fault
    else:
        assert report.verdict is not None
        if (kind, stage) in SPOILS:
            assert report.verdict.standing is not Standing.VALID, report.verdict
    if kind == "battery_drains":
        trial.peace()
        trial.trouble("battery_drains", percent=85, per_min=0)
    trial.settle()
