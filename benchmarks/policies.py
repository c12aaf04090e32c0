"""How long a lab takes under different rules for cooling: a policy simulation, in phone time.

    python -m benchmarks.policies [--seed 2026]

The same sweep with the same drawn orders and the same start band, on the six phones of the demo lab
and on fifty. Phones are the three heat capacities of their profiles, with the twin's watts for each
case. What a lane costs beside cooling and running is left out for all.

ours               the scheduler's own code (store, book, choice) and the agent's own cooldown rule
fixed sleep        180 s after each run (FAI-PEP) and 300 s (MLPerf Mobile), in the first order
threshold polling  every 5 s, at most 600 s, then it runs hot (Workload Automation), in file order
lower bound        runs, and cooling that ends with the first moment that counts as inside the band

The band is that of a condition: at most 32 °C, falling by no more than 1 °C a minute. By its true
temperature a run began outside of it if it was more than half a degree too warm, or fell more than
twice as fast.
"""

import argparse
import heapq
import itertools
import random
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

from agent.control.cooldown import POLL_MAX_S, POLL_MIN_S, Look, Ready, Wait, decide
from agent.phone.memory import HeatMemory
from agent.virtual.physics.heat import HeatNetwork, Triple
from agent.virtual.profiles import load_profile, profile_ids
from agent.virtual.twin.bench import Bench, job_named
from orchestrator.dispatch.book import Book
from orchestrator.lab.virtual import PROFILES
from orchestrator.nouns import Trial
from orchestrator.plan.order import order
from orchestrator.plan.sweep import Sweep, read_sweep
from orchestrator.store import backlog, leases
from orchestrator.store.database import Database
from orchestrator.store.ingest import store_parcels
from tests.builders import a_phone, a_report, a_sighting
from workloads.catalogue import Case
from workloads.condition import Condition
from workloads.measure import Metric, Model, Provenance, Source
from workloads.messages import Job, PhonePresence, Presence

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
ROOM_C, SENSOR_C, BODY_SENSOR_C, SLACK_C = 24.0, 0.08, 0.05, 0.5
STEP_S = 1.0
SIMULATED = Provenance(source=Source.SIMULATED, model=Model.EXTRAPOLATED)
START_S = 1_700_000_000.0


@dataclass
class Score:
    """What a policy came to."""

    ends_s: list[float] = field(default_factory=list)
    runs: int = 0
    too_warm: int = 0
    falling: int = 0

    @property
    def makespan_s(self) -> float:
        """When the last phone of the lab was done."""
        return max(self.ends_s)


class SimPhone:
    """A phone as physics: it works, or it rests."""

    def __init__(self, model: str, serial: str, dice: random.Random) -> None:
        self.model, self.serial = model, serial
        self.dice = dice
        self.heat = HeatNetwork(load_profile(model).heat, ROOM_C, dice.gauss(1.0, 0.03))
        self.heat.temps = self.heat.rest(idle_w(model))
        self.t_s = 0.0

    @property
    def die_c(self) -> float:
        """The hottest CPU zone, in truth."""
        return self.heat.temps[0]

    def slope_c_per_min(self) -> float:
        """How fast the die falls, in truth, if the phone rests."""
        before, temps = self.die_c, self.heat.temps
        self.heat.advance(4.0, idle_w(self.model))
        after, self.heat.temps = self.die_c, temps
        return 15.0 * (after - before)

    def read(self) -> tuple[float, float]:
        """What its thermometers say."""
        die, body, _ = self.heat.temps
        return (
            round(die + self.dice.gauss(0, SENSOR_C), 1),
            round(body + self.dice.gauss(0, BODY_SENSOR_C), 1),
        )

    def rest(self, seconds: float) -> None:
        """Do nothing for a while."""
        self.heat.advance(seconds, idle_w(self.model))
        self.t_s += seconds

    def work(self, case: Case, condition: Condition) -> None:
        """Make a run."""
        seconds, watts = run_of(self.model, case.workload, case.parameters["batch_size"], condition)
        self.heat.advance(seconds, watts)
        self.t_s += seconds


@cache
def idle_w(model: str) -> Triple:
    """What a phone draws at rest, at die, body and battery."""
    bench = Bench(load_profile(model), job_named("mlp-4", 16))
    bench.soc.detach(bench.load)
    return bench.soc._heat_inputs


@cache
def run_of(model: str, workload: str, batch: int, condition: Condition) -> tuple[float, Triple]:
    """How long a run takes on a phone, and what it draws meanwhile: from its twin."""
    job = job_named(workload, batch)
    bench = Bench(load_profile(model), job, condition.cores, condition.freq)
    launch = condition.launch
    steps_s = bench.cost.seconds * (launch.warmup + launch.steps)
    seconds = min(max(launch.seconds, steps_s), launch.max_seconds)
    bench.advance(min(seconds, 300.0) / 2)
    return seconds, bench.soc._heat_inputs


Cool = Callable[[SimPhone, Condition], None]


def sleep_for(seconds: float) -> Cool:
    """Rest for a fixed time, whatever the phone is like."""
    return lambda phone, _: phone.rest(seconds if phone.t_s else 0.0)


def poll_threshold(phone: SimPhone, condition: Condition) -> None:
    """Look every five seconds; after ten minutes run as it is."""
    limit = condition.start_temp_max_c or 99.0
    for _ in range(120):
        if phone.read()[0] <= limit:
            return
        phone.rest(5.0)


def exactly(phone: SimPhone, condition: Condition) -> None:
    """Rest until the very moment from which a run counts as inside the band, in truth."""
    limit = (condition.start_temp_max_c or 99.0) + SLACK_C
    steepest = 2 * condition.start_slope_max_c_per_min
    while phone.die_c > limit or -phone.slope_c_per_min() > steepest:
        phone.rest(STEP_S)


def by_our_rule(memory: HeatMemory) -> Cool:
    """The agent's own rule; it looks at least every five seconds, with a fit or without."""

    def cool(phone: SimPhone, condition: Condition) -> None:
        looks: list[Look] = []
        since_s = phone.t_s
        while True:
            die, body = phone.read()
            memory.record(phone.t_s, die, body)
            looks.append(Look(phone.t_s, die))
            decision = decide(looks, since_s, condition, None)
            if isinstance(decision, Ready):
                memory.disturbed()
                return
            assert isinstance(decision, Wait), decision
            phone.rest(min(max(decision.phone_s, POLL_MIN_S), POLL_MAX_S))

    return cool


def make(phone: SimPhone, job: tuple[Case, Condition], cool: Cool, score: Score) -> None:
    """One run under a rule, counted."""
    case, condition = job
    cool(phone, condition)
    score.runs += 1
    score.too_warm += phone.die_c > (condition.start_temp_max_c or 99.0) + SLACK_C
    score.falling += -phone.slope_c_per_min() > 2 * condition.start_slope_max_c_per_min
    phone.work(case, condition)


def in_line(
    lab: Sequence[tuple[str, str]], lines: dict[str, list[Trial]], rule: Cool, seed: int
) -> Score:
    """Every phone makes its runs as they stand."""
    score = Score()
    for number, (model, serial) in enumerate(lab):
        phone = SimPhone(model, serial, random.Random(seed + number))
        for trial in lines[serial]:
            make(phone, (trial.case, trial.condition), rule, score)
        score.ends_s.append(phone.t_s)
    return score


def ours(
    lab: Sequence[tuple[str, str]], sweep: Sweep, trials: Sequence[Trial], seed: int
) -> tuple[Score, dict[str, list[Trial]], int]:
    """The scheduler's own code hands out the runs; answer also what it made of the orders."""
    by_id = {trial.id: trial for trial in trials}
    made: dict[str, list[Trial]] = {serial: [] for _, serial in lab}
    score, others = Score(), 0
    with tempfile.TemporaryDirectory() as folder:
        db = Database(f"sqlite:///{Path(folder) / 'farm.db'}")
        db.migrate()
        facts = [a_phone(serial, model=model) for model, serial in lab]
        store_parcels(db, "host-a", [a_sighting(each) for each in facts])
        row = {"id": sweep.id, "name": sweep.name, "source": SWEEP, "seed": sweep.seed}
        backlog.submit(db, row, trials, order(sweep, trials))
        book = Book(db)
        phones = {
            serial: (SimPhone(model, serial, random.Random(seed + number)), HeatMemory())
            for number, (model, serial) in enumerate(lab)
        }
        due = [(0.0, serial) for _, serial in lab]
        while due:
            now_s, serial = heapq.heappop(due)
            phone, memory = phones[serial]
            book.look([_presence(phone, memory)])
            jobs = leases.lease_next(
                db, {serial: "host-a"}, 1e9, START_S + now_s, choose=book.choose
            )
            if not jobs:
                score.ends_s.append(now_s)
                continue
            job = jobs[0][1]
            made[serial].append(by_id[job.run.trial])
            _carry_out(db, job, phone, memory, score)
            heapq.heappush(due, (phone.t_s, serial))
        with db.read() as connection:
            others = connection.exec_driver_sql(
                "SELECT count(*) FROM run WHERE chosen > 0"
            ).scalar()
        db.close()
    return score, made, others or 0


def _presence(phone: SimPhone, memory: HeatMemory) -> Presence:
    known = memory.known
    cools = (known.rest_c, known.slow_s) if known.coolings else None
    seen = PhonePresence(serial=phone.serial, state="idle", temp_c=phone.read()[0], cools=cools)
    return Presence(host="host-a", at=datetime.now(UTC), slots=60, phones=(seen,))


def _carry_out(db: Database, job: Job, phone: SimPhone, memory: HeatMemory, score: Score) -> None:
    began_s = phone.t_s
    cool = by_our_rule(memory)
    cooled: list[float] = []

    def and_note(phone: SimPhone, condition: Condition) -> None:
        cool(phone, condition)
        cooled[:] = [phone.t_s - began_s, phone.read()[0]]

    make(phone, (job.case, job.condition), and_note, score)
    figures = {"step_ms": 1.0, "start_temp_c": cooled[1]}
    metrics = tuple(
        Metric(name=name, value=value, unit="", provenance=SIMULATED)
        for name, value in figures.items()
    )
    report = a_report(
        job,
        metrics=metrics,
        started_at=datetime.fromtimestamp(START_S + began_s, UTC),
        ended_at=datetime.fromtimestamp(START_S + phone.t_s, UTC),
        stage_s={"cool": cooled[0]},
    )
    store_parcels(db, "host-a", [report])


def labs() -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """The demo lab, and fifty phones of all models."""
    yield "demo lab, 6 phones", [(model, f"P{at}") for at, model in enumerate(PROFILES)]
    models = [name for name in profile_ids() if name != "nvidia-tx2"]
    chosen = itertools.islice(itertools.cycle(models), 50)
    yield "50 phones", [(model, f"P{at}") for at, model in enumerate(chosen)]


def study(lab: Sequence[tuple[str, str]], sweep: Sweep, seed: int) -> dict[str, Score]:
    """Every contender on one lab."""
    trials = [
        Trial(
            sweep.trial_id((cell.case_digest, cell.condition_digest), serial),
            cell.case,
            cell.condition,
            serial,
        )
        for _, serial in lab
        for cell in sweep.cells
    ]
    by_id = {trial.id: trial for trial in trials}
    drawn: dict[str, list[Trial]] = {serial: [] for _, serial in lab}
    for run in order(sweep, trials):
        drawn[by_id[run.trial].phone].append(by_id[run.trial])
    files = {
        serial: [trial for trial in trials if trial.phone == serial] * sweep.policy.blocks
        for _, serial in lab
    }
    found, made, others = ours(lab, sweep, trials, seed)
    bounds = [in_line(lab, lines, exactly, seed) for lines in (drawn, made)]
    lower = min(bounds, key=lambda score: score.makespan_s)
    print(f"  {others} of {found.runs} runs stand in another than the first drawn order")
    return {
        "lower bound": lower,
        "ours": found,
        "ours, first order": in_line_with_memory(lab, drawn, seed),
        "fixed sleep 180 s": in_line(lab, drawn, sleep_for(180.0), seed),
        "fixed sleep 300 s": in_line(lab, drawn, sleep_for(300.0), seed),
        "threshold polling": in_line(lab, files, poll_threshold, seed),
    }


def in_line_with_memory(
    lab: Sequence[tuple[str, str]], lines: dict[str, list[Trial]], seed: int
) -> Score:
    """Our rule for cooling, without our choice of orders."""
    return in_line(lab, lines, by_our_rule(HeatMemory()), seed)


def main() -> None:
    """Print both labs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=2026)
    seed = parser.parse_args().seed
    sweep = read_sweep(SWEEP)
    print("policy simulation, phone time:")
    for name, lab in labs():
        print(f"{name}, {len(sweep.cells)} cells x {sweep.policy.blocks}:")
        scores = study(lab, sweep, seed)
        bound_s = scores["lower bound"].makespan_s
        for policy, score in scores.items():
            phone_h = sum(score.ends_s) / 3600
            print(
                f"  {policy:20} makespan {score.makespan_s / 3600:6.2f} h"
                f"  {score.makespan_s / bound_s:5.2f} x   phones {phone_h:7.1f} h"
                f"   of {score.runs} runs {score.too_warm:3} too warm, {score.falling:3} falling"
            )


if __name__ == "__main__":
    main()
