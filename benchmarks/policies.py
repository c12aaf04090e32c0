"""Time that a lab needs with different cooldown rules: a simulation in phone time.

    python -m benchmarks.policies [--seed 2026]

All rules run the same sweep in the same random order with the same start band, on the six phones of
the demo lab and on fifty. A phone is simulated with the three heat capacities of its profile and
the power of its twin for each case. Other overhead of a lane is left out for all rules.

ours               the scheduler's own code (store, fair share) and the agent's own cooldown rule
fixed sleep        180 s after each run (FAI-PEP) and 300 s (MLPerf Mobile)
threshold polling  every 5 s, at most 600 s, then a hot start (Workload Automation), in file order
lower bound        runs, and cooling that ends as soon as the phone is inside the band

The demo lab also runs two sweeps at once: the same one, and a second whose short runs may start
warm. Without backfilling the second sweep waits until the phones have finished the first.

The band is that of a condition: at most 32 °C, falling by at most 1 °C per minute. A run counts as
started outside the band if the true temperature was more than 0.5 °C too high, or fell more than
twice as fast.
"""

import argparse
import heapq
import itertools
import math
import random
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

from agent.phone.phone_memory import CoolingHistory
from agent.phone.phone_waits import PIECE_MAX_S
from agent.phone.start_limit import StartBy, StartLimit
from agent.prepare.cooldown import (
    CoolEnough,
    KeepWaiting,
    TempSample,
    decide_start,
)
from agent.virtual.physics.heat_network import HeatNetwork, NodeTriple
from agent.virtual.profiles import load_profile, profile_ids
from agent.virtual.twin.offline_model import OfflineModel, bind_workload
from orchestrator.dispatch.scheduler_history import SchedulerHistory
from orchestrator.planning.randomize import order_runs
from orchestrator.planning.trials import Trial
from orchestrator.store import submission
from orchestrator.store.database import Database
from orchestrator.store.ingest import store_parcels
from orchestrator.supervisor.virtual_phones import PROFILES
from orchestrator.sweepfile.sweep_file import Sweep, read_sweep
from tests.builders import a_phone, a_report, an_announcement
from tests.leasing import choose_oldest, lease_next
from workloads.catalogue import Case
from workloads.protocol.condition import Condition
from workloads.protocol.messages import CoolingEstimate, HostHeartbeat, Job, PhoneStatus
from workloads.protocol.metrics import Metric, Provenance, SimulationModel, Source
from workloads.protocol.stage import Stage

SWEEP = """\
farm: 1
name: policies
phones: all
matrix:
  workload: [mlp-4, emdl-lenet, emdl-mobilenetv2]
  batch_size: [16, 64]
  protocol: [cold, endurance]
conditions: {cores: big4, freq: high}
repeat: 2
"""
WARM_SWEEP = """\
farm: 1
name: warm-start
phones: all
matrix:
  workload: [mlp-4, emdl-lenet]
  batch_size: [16, 64]
conditions: {cores: little4, freq: low, start_temp_max_c: any}
repeat: 20
"""
ROOM_C, SENSOR_C, BODY_SENSOR_C, SLACK_C = 24.0, 0.08, 0.05, 0.5
STEP_S = 1.0
SIMULATED = Provenance(source=Source.SIMULATED, model=SimulationModel.EXTRAPOLATED)
START_S = 1_700_000_000.0


@dataclass
class Score:
    """The result of a rule."""

    ends_s: list[float] = field(default_factory=list)
    runs: int = 0
    too_warm: int = 0
    falling: int = 0

    @property
    def makespan_s(self) -> float:
        """The time at which the last phone of the lab has finished."""
        return max(self.ends_s)


class SimPhone:
    """A simulated phone: it works, or it rests."""

    def __init__(self, model: str, serial: str, rng: random.Random) -> None:
        self.model, self.serial = model, serial
        self.rng = rng
        self.heat = HeatNetwork(load_profile(model).heat, ROOM_C, rng.gauss(1.0, 0.03))
        self.heat.temps = self.heat.steady_state(idle_w(model))
        self.rest_c = self.die_c
        self.t_s = 0.0

    @property
    def die_c(self) -> float:
        """The true temperature of the hottest CPU zone."""
        return self.heat.temps[0]

    def slope_c_per_min(self) -> float:
        """Return the true slope of the die temperature while the phone rests."""
        before, temps = self.die_c, self.heat.temps
        self.heat.advance(4.0, idle_w(self.model))
        after, self.heat.temps = self.die_c, temps
        return 15.0 * (after - before)

    def read(self) -> tuple[float, float]:
        """Return the readings of the die and the body sensor."""
        die, body, _ = self.heat.temps
        return (
            round(die + self.rng.gauss(0, SENSOR_C), 1),
            round(body + self.rng.gauss(0, BODY_SENSOR_C), 1),
        )

    def rest(self, seconds: float) -> None:
        """Rest for some seconds."""
        self.heat.advance(seconds, idle_w(self.model))
        self.t_s += seconds

    def work(self, case: Case, condition: Condition) -> None:
        """Execute a run."""
        seconds, watts = run_of(self.model, case.workload, case.parameters["batch_size"], condition)
        self.heat.advance(seconds, watts)
        self.t_s += seconds


@cache
def idle_w(model: str) -> NodeTriple:
    """Return the power of a phone at rest, at die, body and battery."""
    bench = OfflineModel(load_profile(model), bind_workload("mlp-4", 16))
    bench.soc.detach(bench.load)
    return bench.soc.heat_watts


@cache
def run_of(model: str, workload: str, batch: int, condition: Condition) -> tuple[float, NodeTriple]:
    """Return duration and power of a run on a phone, from its twin."""
    job = bind_workload(workload, batch)
    bench = OfflineModel(load_profile(model), job, condition.cores, condition.freq)
    launch = condition.launch
    steps_s = bench.timing.seconds * (launch.warmup + launch.steps)
    seconds = min(max(launch.seconds, steps_s), launch.max_seconds)
    bench.advance(min(seconds, 300.0) / 2)
    return seconds, bench.soc.heat_watts


Cool = Callable[[SimPhone, Condition], None]


def sleep_rule(seconds: float) -> Cool:
    """Rest for a fixed time, independent of the temperature."""
    return lambda phone, _: phone.rest(seconds if phone.t_s else 0.0)


def poll_threshold(phone: SimPhone, condition: Condition) -> None:
    """Read the temperature every five seconds; start after ten minutes in any case."""
    limit = condition.start_limit_c(phone.rest_c) or 99.0
    for _ in range(120):
        if phone.read()[0] <= limit:
            return
        phone.rest(5.0)


def rest_until_inside(phone: SimPhone, condition: Condition) -> None:
    """Rest until the true temperature is inside the band."""
    limit = (condition.start_limit_c(phone.rest_c) or 99.0) + SLACK_C
    steepest = 2 * condition.start_slope_max_c_per_min
    while phone.die_c > limit or -phone.slope_c_per_min() > steepest:
        phone.rest(STEP_S)


def agent_rule(memory: CoolingHistory) -> Cool:
    """Return the rule of the agent; it samples at least every fifteen seconds."""

    def cool(phone: SimPhone, condition: Condition) -> None:
        if condition.start_temp_max_c is None:
            return
        samples: list[TempSample] = []
        limit_c = condition.start_limit_c(phone.rest_c)
        start = StartLimit(StartBy.LIMIT, math.inf if limit_c is None else limit_c)
        since_s = phone.t_s
        while True:
            die, body = phone.read()
            memory.record(phone.t_s, die, body)
            samples.append(TempSample(phone.t_s, die))
            decision = decide_start(samples, since_s, condition, None, start)
            if isinstance(decision, CoolEnough):
                memory.finish_trace()
                return
            assert isinstance(decision, KeepWaiting), decision
            phone.rest(min(decision.phone_s, PIECE_MAX_S))

    return cool


def execute_run(phone: SimPhone, job: tuple[Case, Condition], cool: Cool, score: Score) -> None:
    """Execute one run with a rule, and count it."""
    case, condition = job
    cool(phone, condition)
    score.runs += 1
    limit_c = condition.start_limit_c(phone.rest_c)
    if limit_c is not None:
        score.too_warm += phone.die_c > limit_c + SLACK_C
        score.falling += -phone.slope_c_per_min() > 2 * condition.start_slope_max_c_per_min
    phone.work(case, condition)


def run_in_order(
    lab: Sequence[tuple[str, str]], lines: dict[str, list[Trial]], rule: Cool, seed: int
) -> Score:
    """Execute the runs of every phone in the given order."""
    score = Score()
    for number, (model, serial) in enumerate(lab):
        phone = SimPhone(model, serial, random.Random(seed + number))
        for trial in lines[serial]:
            execute_run(phone, (trial.case, trial.condition), rule, score)
        score.ends_s.append(phone.t_s)
    return score


def run_with_scheduler(
    lab: Sequence[tuple[str, str]], sweeps: Sequence[Sweep], seed: int, backfill: bool = True
) -> Score:
    """Execute the runs that the real scheduler assigns."""
    score = Score()
    with tempfile.TemporaryDirectory() as folder:
        db = Database(f"sqlite:///{Path(folder) / 'farm.db'}")
        db.migrate()
        facts = [a_phone(serial, model=model) for model, serial in lab]
        store_parcels(db, "host-a", [an_announcement(each) for each in facts])
        for sweep in sweeps:
            trials = trials_of(sweep, lab)
            row = {"id": sweep.id, "name": sweep.name, "source": "", "seed": sweep.seed}
            # The first sweep has precedence wherever no phone has to cool.
            row |= {"owner": sweep.name, "priority": 100 if sweep is sweeps[0] else 0}
            submission.submit(db, row, trials, order_runs(sweep, trials))
        history = SchedulerHistory(db)
        phones = {
            serial: (SimPhone(model, serial, random.Random(seed + number)), CoolingHistory())
            for number, (model, serial) in enumerate(lab)
        }
        due = [(0.0, serial) for _, serial in lab]
        while due:
            now_s, serial = heapq.heappop(due)
            phone, memory = phones[serial]
            history.update([_heartbeat(phone, memory)])
            choose = history.choose_runs if backfill else choose_oldest
            jobs = lease_next(db, {serial: "host-a"}, 1e9, START_S + now_s, choose)
            if not jobs:
                score.ends_s.append(now_s)
                continue
            _run_job(db, jobs[0][1], phone, memory, score)
            heapq.heappush(due, (phone.t_s, serial))
        db.close()
    return score


def trials_of(sweep: Sweep, lab: Sequence[tuple[str, str]]) -> list[Trial]:
    """Return the trials of every cell on every phone."""
    return [
        Trial(
            sweep.trial_id((cell.case_digest, cell.condition_digest), serial),
            cell.case,
            cell.condition,
            serial,
        )
        for _, serial in lab
        for cell in sweep.cells
    ]


def _heartbeat(phone: SimPhone, memory: CoolingHistory) -> HostHeartbeat:
    posterior = memory.posterior
    cooling = None
    if posterior.coolings:
        cooling = CoolingEstimate(rest_c=posterior.rest_c, time_constant_s=posterior.slow_s)
    status = PhoneStatus(serial=phone.serial, state="idle", temp_c=phone.read()[0], cooling=cooling)
    return HostHeartbeat(
        host="host-a", sent_at=datetime.now(UTC), max_parallel=60, phones=(status,)
    )


def _run_job(db: Database, job: Job, phone: SimPhone, memory: CoolingHistory, score: Score) -> None:
    started_at_s = phone.t_s
    cool = agent_rule(memory)
    cooled: list[float] = []

    def cool_and_record(phone: SimPhone, condition: Condition) -> None:
        cool(phone, condition)
        cooled[:] = [phone.t_s - started_at_s, phone.read()[0]]

    execute_run(phone, (job.case, job.condition), cool_and_record, score)
    figures = {"step_ms": 1.0, "start_temp_c": cooled[1]}
    metrics = tuple(
        Metric(name=name, value=value, unit="", provenance=SIMULATED)
        for name, value in figures.items()
    )
    report = a_report(
        job,
        metrics=metrics,
        started_at=datetime.fromtimestamp(START_S + started_at_s, UTC),
        ended_at=datetime.fromtimestamp(START_S + phone.t_s, UTC),
        stage_seconds={Stage.COOL: cooled[0]},
    )
    store_parcels(db, "host-a", [report])


def labs() -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """Yield the demo lab, and fifty phones of all models."""
    yield "demo lab, 6 phones", [(model, f"P{index}") for index, model in enumerate(PROFILES)]
    models = [name for name in profile_ids() if name != "nvidia-tx2"]
    chosen = itertools.islice(itertools.cycle(models), 50)
    yield "50 phones", [(model, f"P{index}") for index, model in enumerate(chosen)]


def compare(lab: Sequence[tuple[str, str]], sweep: Sweep, seed: int) -> dict[str, Score]:
    """Simulate every rule on one lab."""
    trials = trials_of(sweep, lab)
    by_id = {trial.id: trial for trial in trials}
    random_order: dict[str, list[Trial]] = {serial: [] for _, serial in lab}
    for run in order_runs(sweep, trials):
        random_order[by_id[run.trial].phone].append(by_id[run.trial])
    file_order = {
        serial: [trial for trial in trials if trial.phone == serial] * sweep.policy.blocks
        for _, serial in lab
    }
    return {
        "lower bound": run_in_order(lab, random_order, rest_until_inside, seed),
        "ours": run_with_scheduler(lab, [sweep], seed),
        "fixed sleep 180 s": run_in_order(lab, random_order, sleep_rule(180.0), seed),
        "fixed sleep 300 s": run_in_order(lab, random_order, sleep_rule(300.0), seed),
        "threshold polling": run_in_order(lab, file_order, poll_threshold, seed),
    }


def compare_backfilling(
    lab: Sequence[tuple[str, str]], sweep: Sweep, seed: int
) -> dict[str, Score]:
    """Simulate two sweeps on one lab, with and without backfilling."""
    sweeps = [sweep, read_sweep(WARM_SWEEP)]
    return {
        "two sweeps, backfilled": run_with_scheduler(lab, sweeps, seed),
        "two sweeps in a row": run_with_scheduler(lab, sweeps, seed, backfill=False),
    }


def main() -> None:
    """Simulate both labs and print the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=2026)
    seed = parser.parse_args().seed
    sweep = read_sweep(SWEEP)
    print("policy simulation, phone time:")
    for name, lab in labs():
        print(f"{name}, {len(sweep.cells)} cells x {sweep.policy.blocks}:")
        scores = compare(lab, sweep, seed)
        if len(lab) == len(PROFILES):
            scores |= compare_backfilling(lab, sweep, seed)
        bound_s = scores["lower bound"].makespan_s
        for policy, score in scores.items():
            phone_h = sum(score.ends_s) / 3600
            print(
                f"  {policy:22} makespan {score.makespan_s / 3600:6.2f} h"
                f"  {score.makespan_s / bound_s:5.2f} x   phones {phone_h:7.1f} h"
                f"   of {score.runs} runs {score.too_warm:3} too warm, {score.falling:3} falling"
            )


if __name__ == "__main__":
    main()
