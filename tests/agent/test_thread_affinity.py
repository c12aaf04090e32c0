"""Threads: one per core, unless the workload says otherwise; plan and report agree."""

import json

from agent.lane import run_attempt
from agent.lane_context import LaneContext
from agent.launch.launch_spec import LaunchSpec
from agent.phone.phone_driver import Phone
from tests.agent.jobs import a_job
from workloads.catalogue import bind, lower
from workloads.protocol.condition import LAUNCHES, Protocol
from workloads.protocol.phone_facts import CoreSet


def test_the_workload_decides_and_the_plan_states_it() -> None:
    cores = CoreSet(name="big2", cpus=(4, 5))
    for name, threads in (("mlp-4", 2), ("emdl-lenet", 4)):
        spec = LaunchSpec("runner", bind(name, {}), cores, LAUNCHES[Protocol.COLD], ())
        assert spec.threads == threads
        plan = lower(spec.case, spec.threads)
        assert json.loads(plan.split(b"\n")[1])["threads"] == threads


def test_a_report_states_the_number_of_threads(phone: Phone, context: LaneContext) -> None:
    job = a_job(phone.facts.serial, workload="emdl-lenet", cores="big2")
    report = run_attempt(job, phone, context).report
    assert report.fault is None
    assert (report.applied.mask, report.applied.threads) == ("30", 4)
