"""Threads: a thread a core, unless the workload says otherwise; plan and report agree on it."""

import json

from agent.desk import Desk
from agent.lane import attempt
from agent.phone.phone import Phone
from agent.run.runner import Ask
from tests.agent.jobs import a_job
from workloads.catalogue import bind, lower
from workloads.condition import LAUNCHES, Protocol
from workloads.phone import CoreSet


def test_the_workload_decides_and_the_plan_says_so() -> None:
    cores = CoreSet(name="big2", cpus=(4, 5))
    for name, threads in (("mlp-4", 2), ("emdl-lenet", 4)):
        ask = Ask("runner", bind(name, {}), cores, LAUNCHES[Protocol.COLD], ())
        assert threads == ask.threads
        assert threads == json.loads(lower(ask.case, ask.threads).split(b"\n")[1])["threads"]


def test_a_report_says_with_how_many_threads_a_run_was_made(phone: Phone, desk: Desk) -> None:
    job = a_job(phone.known.serial, workload="emdl-lenet", cores="big2")
    report = attempt(job, phone, desk).report
    assert report.fault is None
    assert ("30", 4) == (report.resolved.mask, report.resolved.threads)
