"""OpenCL cases on virtual phones through the whole lane: facts, metrics, and blame for faults."""

from typing import Any

import pytest

from agent.lane import run_attempt
from agent.lane_context import LaneContext
from agent.phone.adb import AdbServer
from agent.virtual.fleet_server import FleetConfig
from tests.agent.jobs import a_job
from tests.agent.lane_harness import LaneHarness
from tests.agent.virtual_phones import open_phone
from tests.virtual.running_fleet import serve_fleet_in_process
from workloads.catalogue import bind
from workloads.protocol.faults import Blame, FaultKind
from workloads.protocol.messages import Report
from workloads.protocol.metrics import SimulationModel, Source
from workloads.protocol.phone_facts import CanaryKind, OpenCLFacts
from workloads.protocol.stage import Stage
from workloads.protocol.verdict import ReasonCode, Validity

CONDITION: dict[str, Any] = {"cores": "all4", "freq": "free", "start_temp_max_c": None}


def run(harness: LaneHarness, workload: str, backend: str = "opencl", **given: int | str) -> Report:
    """Run one attempt at a case on the phone of a harness."""
    case = bind(workload, given, backend=backend)  # type: ignore[arg-type]
    job = a_job(harness.phone.facts.serial, **CONDITION).model_copy(update={"case": case})
    return run_attempt(job, harness.phone, harness.context).report


def values(report: Report) -> dict[str, float]:
    assert report.fault is None, report.fault
    assert report.verdict is not None
    assert report.verdict.validity is Validity.VALID, report.verdict
    return {metric.name: metric.value for metric in report.metrics}


def test_the_probe_finds_the_gpu(lane_harness: LaneHarness) -> None:
    facts = lane_harness.phone.facts
    assert facts.backends == ("cpu", "opencl")
    assert facts.opencl == OpenCLFacts(
        name="QUALCOMM Adreno(TM)",
        version="OpenCL 2.0 Adreno(TM) 640",
        driver="OpenCL 2.0 QUALCOMM build: virtual",
        units=2,
        memory_mb=2757,
        max_alloc_mb=1024,
    )
    assert (facts.offers("cpu"), facts.offers("opencl")) == (True, True)


def test_a_run_on_the_gpu_has_the_metrics_of_the_gpu(lane_harness: LaneHarness) -> None:
    report = run(lane_harness, "densenet40", batch_size=4)
    metrics = values(report)
    assert {metric.provenance.source for metric in report.metrics} == {Source.SIMULATED}
    # The Meizu was fitted to training on its cores.
    assert {metric.provenance.model for metric in report.metrics} == {SimulationModel.EXTRAPOLATED}
    assert metrics["build_ms"] > 500
    assert 0 < metrics["copy_ms"] + metrics["queue_ms"] < metrics["compute_ms"]
    assert metrics["compute_ms"] < metrics["step_ms"]
    assert 0 < metrics["copy_share"] < 0.1
    assert 80 < metrics["gpu_util_pct"] <= 100
    assert 0 < metrics["cpu_util_pct"] < 25  # one of four cores, and that one partly
    assert metrics["power_w"] > 3
    assert metrics["peak_temp_c"] > metrics["start_temp_c"]
    cores = values(run(lane_harness, "densenet40", "cpu", batch_size=4))
    assert cores["cpu_util_pct"] > 90
    assert (cores["gpu_util_pct"], "compute_ms" in cores) == (0, False)


def test_feed_and_input_reach_the_runner(lane_harness: LaneHarness) -> None:
    resident = values(run(lane_harness, "mlp-4"))
    copied = values(run(lane_harness, "mlp-4", feed="copied"))
    assert copied["step_ms"] > 3 * resident["step_ms"]
    assert copied["copy_share"] > resident["copy_share"]
    naive = values(run(lane_harness, "mlp-4", kernel="naive"))
    assert naive["compute_ms"] > 2 * resident["compute_ms"]
    memory = values(run(lane_harness, "lenet", "cpu", batch_size=32))
    storage = values(run(lane_harness, "lenet", "cpu", batch_size=32, input="storage"))
    assert (memory["load_ms"], storage["load_ms"] > 0.3) == (0, True)


def test_a_canary_shows_that_the_gpu_is_slower_than_usual(lane_harness: LaneHarness) -> None:
    lane_harness.context.canary = True
    assert values(run(lane_harness, "mlp-4"))["canary_gpu_ms"] > 0
    lane_harness.inject("hidden_limit", part="gpu", share=0.9)
    verdict = run(lane_harness, "mlp-4").verdict
    assert verdict is not None
    slower = [item for item in verdict.reasons if item.code is ReasonCode.WORK_RATE_LOW]
    assert [item.values["canary"] for item in slower] == [CanaryKind.GPU]


@pytest.mark.parametrize(
    ("kind", "words", "blame", "fault"),
    [
        ("gpu_missing", {}, Blame.REQUEST, FaultKind.INVALID_REQUEST),
        ("gpu_build_fails", {}, Blame.RUNNER, FaultKind.NEVER_STARTS),
        ("gpu_memory", {}, Blame.RUNNER, FaultKind.NEVER_STARTS),
        ("gpu_wrong", {}, Blame.RUNNER, FaultKind.RUNNER_FAILED),
        ("gpu_lost", {"at": "run@50%"}, Blame.PHONE, FaultKind.PHONE_TROUBLE),
    ],
)
def test_a_fault_of_the_gpu_is_blamed_by_its_code(
    lane_harness: LaneHarness,
    kind: str,
    words: dict[str, object],
    blame: Blame,
    fault: FaultKind,
) -> None:
    lane_harness.initial_state = lane_harness.read_phone_state()
    lane_harness.inject(kind, **words)
    report = run(lane_harness, "mlp-4")
    assert report.fault is not None
    assert (report.fault.blame, report.fault.kind) == (blame, fault)
    assert report.fault.stage is Stage.RUN
    lane_harness.verify_recovery()


def test_a_phone_without_opencl_refuses_the_case(
    adb: AdbServer, context: LaneContext, tmp_path: Any
) -> None:
    config = FleetConfig(("meizu-16t:no_opencl",), journal=tmp_path / "journals", speed=50.0)
    with serve_fleet_in_process(config) as (address,):
        phone = open_phone(adb, address.address)
        facts = phone.facts
        job = a_job(facts.serial).model_copy(update={"case": bind("mlp-1", {}, backend="opencl")})
        report = run_attempt(job, phone, context).report
        phone.close()
        adb.disconnect(address.address)
    assert (facts.backends, facts.opencl, facts.offers("opencl")) == (("cpu",), None, False)
    assert report.fault is not None
    assert (report.fault.blame, report.fault.stage) == (Blame.REQUEST, Stage.RUN)
