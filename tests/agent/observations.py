"""Builders of observations, by default of a valid cold run on big4."""

from dataclasses import replace
from typing import Any

from agent.collect.readings import Readings
from agent.collect.run_probe import ProbeSnapshot, RunProbe
from agent.collect.runner_output import DoneRecord, RunnerOutput, StepWindow
from agent.judge.observe_clocks import ClockObservation
from agent.judge.run_observation import RunObservation
from agent.judge.work_rules import ClaimedWork
from tests.builders import a_phone
from workloads.catalogue import bind, cost_of
from workloads.protocol.condition import Condition
from workloads.protocol.metrics import Source
from workloads.protocol.phone_facts import CoreSet

SECOND_NS = 10**9
COST = cost_of(bind("mlp-4", {}))
DONE = DoneRecord(
    steps=100,
    ns=1,
    t_ns=1,
    loss_first=2.3,
    loss_last=0.7,
    parameters_changed=True,
    parameters=COST.parameters,
    macs=COST.macs,
    learned=6,
    moved=6,
    fallbacks=0,
)
CLAIMED = ClaimedWork(COST, DONE, warmup=5, source=Source.PHONE)
COOLER = "/sys/class/thermal/cooling_device0/cur_state"
PROBE = RunProbe(
    facts=a_phone(),
    cores=CoreSet(name="big4", cpus=(4, 5, 6, 7)),
    requested_khz={4: 2419200, 7: 2841600},
    coolers={COOLER: "thermal-cpufreq-0"},
)
UNPINNED = replace(PROBE, requested_khz={})
BEFORE = ProbeSnapshot(boot_id="a", temp_c=30.0, residency={})
CLOCKS = ClockObservation(pinned_share=1.0, counted=True)


def output_of(windows: list[StepWindow]) -> RunnerOutput:
    """Build the output of a runner with these windows."""
    output = RunnerOutput("ab")
    output.windows += windows
    return output


def a_window(seconds: float) -> StepWindow:
    """Build one window with a hundred steps."""
    ns = round(seconds * SECOND_NS)
    return StepWindow(first=0, n=100, t_ns=0, ns=ns, ns_min=0, ns_max=ns)


def an_observation(span_s: float = 8.1, **changes: Any) -> RunObservation:
    """Build the observation of a valid run of some seconds."""
    fields: dict[str, Any] = {
        "condition": Condition(start_temp_max_c=32.0),
        "probe": PROBE,
        "before": BEFORE,
        "after": BEFORE,
        "output": output_of([a_window(span_s)]),
        "readings": Readings(),
        "claimed": CLAIMED,
        "found_mask": 0xF0,
        "threads": 4,
        "clocks": CLOCKS,
        "sampled_temps_c": (30.0, 41.0, 45.0),
    }
    return RunObservation(**(fields | changes))
