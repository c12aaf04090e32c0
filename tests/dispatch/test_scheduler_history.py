"""The scheduler's history: what it learns from reports and heartbeats."""

from datetime import UTC, datetime, timedelta

from sqlalchemy import update

from agent.host import failed_result
from orchestrator.dispatch.scheduler_history import SchedulerHistory, prior_duration
from orchestrator.planning.trials import PlannedRun, Trial
from orchestrator.store import submission, sweep_queries
from orchestrator.store.database import Database
from orchestrator.store.ingest import store_parcels
from orchestrator.store.tables import trial
from tests.builders import (
    SIMULATED,
    a_phone,
    a_report,
    a_trial,
    an_announcement,
)
from tests.leasing import lease_next
from workloads.catalogue import bind
from workloads.protocol.condition import Condition, Protocol
from workloads.protocol.faults import InvalidRequest
from workloads.protocol.messages import CoolingEstimate, HostHeartbeat, PhoneStatus
from workloads.protocol.metrics import Metric
from workloads.protocol.stage import Stage

STARTED = datetime(2026, 1, 1, tzinfo=UTC)
COLD = bind("mlp-4", {"batch_size": 32})
REST_C, TAU_S = 28.0, 500.0


def a_heartbeat(temp_c: float = 31.0) -> HostHeartbeat:
    phones = tuple(
        PhoneStatus(
            serial=serial,
            state="idle",
            temp_c=temp_c,
            cooling=CoolingEstimate(rest_c=REST_C, time_constant_s=TAU_S),
        )
        for serial in ("PH1", "PH2")
    )
    return HostHeartbeat(host="host-a", sent_at=datetime.now(UTC), max_parallel=60, phones=phones)


def prepare_lab(store: Database, trials: list[Trial]) -> None:
    """Announce two phones of one model and submit every trial twice."""
    facts = [a_phone(serial, model="Twin") for serial in ("PH1", "PH2")]
    store_parcels(store, "host-a", [an_announcement(each) for each in facts])
    count = len(trials)
    runs = [
        PlannedRun(each.id, block, block, block * count + index)
        for block in range(2)
        for index, each in enumerate(trials)
    ]
    sweep = {"id": "sw-00000001", "name": "test", "source": "farm: 1", "seed": 1}
    submission.submit(store, sweep, trials, runs)


def run_next(
    store: Database,
    history: SchedulerHistory,
    started_at_s: float,
    cooldown_s: float,
    start_c: float,
) -> str:
    """Run the next run of PH1 for 60 s; return its trial."""
    ((_, job),) = lease_next(store, {"PH1": "host-a"}, 30, 2e9, history.choose_runs)
    started = STARTED + timedelta(seconds=started_at_s)
    heat = Metric(name="start_temp_c", value=start_c, unit="°C", provenance=SIMULATED)
    report = a_report(
        job,
        started_at=started,
        ended_at=started + timedelta(seconds=cooldown_s + 60),
        stage_seconds={Stage.COOL: cooldown_s},
        metrics=(heat,),
    )
    store_parcels(store, "host-a", [report])
    history.update([a_heartbeat()])
    return job.run.trial


def trials_of_two_cases() -> list[Trial]:
    hot = a_trial(1)
    return [
        Trial(a_trial(0).id, COLD, Condition(), "PH1"),
        Trial(hot.id, COLD, Condition(protocol=Protocol.ENDURANCE), "PH1"),
    ]


def test_without_reports_the_protocol_decides_the_expected_heat() -> None:
    cold, long = (prior_duration(COLD, trial.condition) for trial in trials_of_two_cases())
    assert cold.rise_c < long.rise_c
    assert (long.start_max_c, long.start_above_rest_k, long.run_s) == (None, 3.0, 600.0)
    assert prior_duration(bind("noop", {}), Condition()).rise_c == 0.0


def test_the_heat_of_a_run_is_derived_from_the_cooling_after_it(
    store: Database,
) -> None:
    trials = trials_of_two_cases()
    prepare_lab(store, trials)
    history = SchedulerHistory(store)
    history.update([a_heartbeat()])
    first = run_next(store, history, started_at_s=0, cooldown_s=0, start_c=31.0)
    # The temperature above rest halved, from 34 to 31 °C, within the 346.6 s after the run.
    second = run_next(store, history, started_at_s=60, cooldown_s=346.6, start_c=31.0)
    expected = history.expected_duration(first, "PH1")
    assert (round(expected.run_s, 6), expected.start_max_c) == (60.0, 31.0)
    left_c = 3.0 * 2.718281828 ** (-60 / TAU_S)
    assert abs(expected.rise_c - (6.0 - left_c)) < 0.01
    assert expected.rise_c == history.expected_duration(first, "PH2").rise_c, (
        "a phone of the same model is expected to behave alike"
    )
    assert (
        prior_duration(COLD, trials[1].condition).rise_c
        == history.expected_duration(second, "PH1").rise_c
    )


def test_the_usage_of_an_owner_is_counted_and_survives_a_restart(store: Database) -> None:
    prepare_lab(store, trials_of_two_cases())
    history = SchedulerHistory(store)
    history.update([a_heartbeat()])
    run_next(store, history, 0.0, 40.0, 31.0)
    used = history.used_s[""]
    assert 99.0 < used <= 100.0
    restarted = SchedulerHistory(store)
    restarted.update([a_heartbeat()])
    assert 99.0 < restarted.used_s[""] <= 100.0, "a restarted scheduler knows it too"


def test_a_workload_that_this_lab_does_not_know_does_not_stop_the_scheduler(
    store: Database,
) -> None:
    prepare_lab(store, [Trial(a_trial(0).id, COLD, Condition(), "PH1")])
    unknown = COLD.model_copy(update={"workload": "of-a-newer-version"}).model_dump(mode="json")
    with store.write() as connection:  # as a newer version of the command line has stored it
        connection.execute(update(trial).values(case=unknown, case_digest="a" * 64))
    history = SchedulerHistory(store)
    history.update([a_heartbeat()])
    ((_, job),) = lease_next(store, {"PH1": "host-a"}, 30, 2e9, history.choose_runs)
    assert job.case.workload == "of-a-newer-version"
    fault = InvalidRequest("the workload is unknown to this host's agent; update it")
    report = failed_result("host-a", job, fault, Stage.START).report
    result = store_parcels(store, "host-a", [report])
    assert "unknown to this host's agent" in result.events[0].text
    (summary,) = sweep_queries.sweep_summaries(store)
    assert (summary.failed, summary.left) == (1, 0)
