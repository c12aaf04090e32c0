"""Every injected fault at every stage of the lane: the full product, outside the default suite."""

import pytest

from agent.virtual.mischief.fault_registry import FAULT_TYPES
from tests.agent.lane_harness import LaneHarness
from workloads.protocol.faults import Blame
from workloads.protocol.verdict import Validity

# The moment of a stage, as the phone observes it.
STAGES = {
    "fence": "command:mv -f *fence*",
    "install": "command:sha256sum *runner*",
    "watchdog": "command:setsid *",
    "charge": "command:grep *battery/capacity*",
    "quiesce": "command:settings put *#2",
    "prepare": "command:printf */proc/stat*",
    "cool": "command:grep *battery/capacity*#2",
    "pin": "write:*/scaling_governor",
    "run": "command:taskset *",
    "timed": "run@50%",
    "collect": "command:cat *readings.jsonl",
    "restore": "write:*/scaling_min_freq#4",
}
# Faults of cable and adb, which end by themselves after some host seconds.
LINK: dict[str, dict[str, object]] = {
    "unplug": {},
    "flap": {"period_s": 0.4, "off_s": 0.2},
    "adbd_restarts": {},
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
    "op_power": {"watts": 2.0},
    "never_cools": {},
    "battery_drains": {"percent": 10},
    "disk_full": {},
    "refuse_settings": {},
    "screen_off": {},
    "low_memory": {"command": "*runner*"},
    "hotplug": {"cpu": 6, "service": "core_ctl"},
    "migrate": {},
    "other_work": {},
    "sleep": {"for_": 5},
    "charger_returns": {},
    "hidden_limit": {},
    "memory_contention": {},
    "bus_throttle": {},
    "foreground": {},
    "gpu_contention": {},
    "screen": {},
    "power_draw": {},
    "governor": {},
    "node_value": {},
    "time_jump": {},
    "clock_pretends": {},
    "false_loss": {},
    "gpu_missing": {},
    "gpu_build_fails": {},
    "gpu_memory": {},
    "gpu_lost": {},
    "gpu_wrong": {},
    "false_times": {},
    "truncated": {"command": "grep *", "bytes": 60},
    "endless": {"command": "cat *"},
    "hostile": {"command": "grep *"},
    "hostile_names": {},
    "duplicate_serial": {"serial": "ANOTHER"},
}
# A run must not be valid if one of these happened in it.
SPOILS = {
    ("throttle", "timed"),
    ("throttle", "run"),
    ("clock_ignored", "quiesce"),
    ("never_cools", "quiesce"),
    ("sensor", "run"),
    ("reboot", "timed"),
}


def test_every_fault_is_injected() -> None:
    assert FAULT_TYPES.keys() == {*LINK, *BODY}


@pytest.mark.slow
@pytest.mark.usefixtures("short_timeouts")
@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("kind", FAULT_TYPES)
def test_the_lane_survives(lane_harness: LaneHarness, kind: str, stage: str) -> None:
    words = {**LINK[kind], "for_host": 1.5} if kind in LINK else BODY[kind]
    lane_harness.inject(kind, at=STAGES[stage], **words)
    report = lane_harness.run_attempt(freq="mid", cool_wait_max_s=60)
    assert lane_harness.events("mischief_start"), "the lane never reached this stage"
    if report.fault is not None:
        assert report.fault.blame in {Blame.PHONE, Blame.CONDITION, Blame.RUNNER}, report.fault
        if kind != "low_memory":
            assert report.fault.blame is not Blame.RUNNER, report.fault
    else:
        assert report.verdict is not None
        if (kind, stage) in SPOILS:
            assert report.verdict.validity is not Validity.VALID, report.verdict
    if kind == "battery_drains":
        lane_harness.clear_faults()
        lane_harness.inject("battery_drains", percent=85, per_min=0)
    lane_harness.verify_recovery()
