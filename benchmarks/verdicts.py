"""Which disturbed runs are accepted as valid, and which clean ones are rejected? (simulation)

    python -m benchmarks.verdicts [--draws N] [--seed N [--draw N]] [--json FILE]
    python -m benchmarks.verdicts --only-clean   # no disturbance: which clean runs are rejected

A run is drawn at random: phone, workload, protocol, cores and clocks. It is made once as it is,
which has to be valid, and then some times with a disturbance (kind, strength, moment, length), on a
fresh phone with the same seed. The ratio of both headlines is the true bias. Rates have 95 %
intervals (Wilson). The agent is the real one: adb, lane, canaries, sampler and verdict.

Draws take turns in eight settings: phones with little noise or as noisy as recorded ones, rooted or
not, idle or with the background work of an Android.

Each draw is judged three times: alone, as the first run of its trial; with its trial of five, when
that is complete; and with four runs of an earlier sweep as well. Nothing disturbs the other runs.
All are runs of a phone whose canaries have references.

The phones run in event time, so a draw depends on the seed and its number alone. A failure prints
the command that repeats its draw.
"""

import argparse
import json
import os
import random
import secrets
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from functools import cache
from itertools import count
from multiprocessing import get_context
from multiprocessing.util import Finalize
from pathlib import Path

from agent.deadline import Deadline
from agent.lane import run_attempt
from agent.lane_context import LaneContext
from agent.phone.adb import AdbServer
from agent.phone.phone_driver import Phone
from agent.phone.phone_memory import PhoneMemory
from agent.phone.probe import probe
from agent.virtual.fleet_server import FleetConfig, FleetServer
from benchmarks.drawn_disturbances import (
    BY_NAME,
    DISTURBANCES,
    PHONES,
    SETTINGS,
    DrawnRun,
    Mischief,
    Setting,
    draw_kinds,
    draw_run,
)
from kernels.runner_builds import runner_for
from orchestrator.analysis.joint_rules import RunNumbers, judge_together
from tests.virtual.running_fleet import serve_fleet_in_thread
from workloads.cli_options import EVENT_TIME
from workloads.protocol.condition import Condition, Protocol
from workloads.protocol.faults import Blame, Fault
from workloads.protocol.messages import Job, Report, RunId
from workloads.protocol.phone_facts import PhoneFacts
from workloads.protocol.verdict import ReasonCode, Validity, Verdict

PER_CLEAN = 10  # disturbed runs per clean one
TRIAL_RUNS, EARLIER_RUNS = 5, 4
LEARNING_RUNS, LEARNING_TRIES = 3, 3
BIAS, LARGE_BIAS, HARMLESS = 0.03, 0.05, 0.01
ENERGY, PEAK_TEMP = "energy_per_step_mj", "peak_temp_c"
ENDING = "evidence that ends"
CLEAN = "none"  # the kind of a draw without a disturbance
HEAT_ERROR_C = 2.0
REASONS_SHOWN = 3
CREEP, CREEP_RUNS, CREEP_SERIES = 0.015, 6, 16
CREEPING = {
    "protocol": "cold",
    "cores": "big2",
    "freq": "mid",
    "start_temp_max_c": None,
    "time_min_s": 8.0,
}
VIEWS = ("alone", "in its trial", "with an earlier sweep")
HEADINGS = (
    "kind",
    "drawn",
    "accepted, bias > 5 %",
    "3 to 5 %",
    "reason first",
    "harmless rejected",
)


@dataclass(frozen=True)
class Judged:
    """The outcome of one run; None where it ended with a fault."""

    validity: Validity | None
    codes: tuple[ReasonCode, ...] = ()  # that count against the run, in their order
    headline: float | None = None
    energy: float | None = None
    peak_temp_c: float | None = None
    fault: str = ""
    is_repeated: bool = False  # it is void, or its reasons are all of the moment


@dataclass(frozen=True)
class Outcome:
    """One run with its disturbance, and the same without it."""

    seed: int  # of all draws
    draw: int  # its number
    kind: str
    setting: Setting
    run: DrawnRun
    faults: list[Mischief]
    disturbed: Judged  # as the view says
    clean: Judged
    views: tuple[Judged, ...] = ()  # alone, in its trial, with the runs of an earlier sweep

    @property
    def repeat_command(self) -> str:
        """The command that repeats the draw exactly."""
        return f"python -m benchmarks.verdicts --seed {self.seed} --draw {self.draw}"

    @property
    def bias(self) -> float:
        """Of the headline; a false claim invalidates a run whatever its times are."""
        if not self.is_clean and BY_NAME[self.kind].is_false_claim:
            return 1.0
        return _ratio(self.disturbed.headline, self.clean.headline)

    @property
    def energy_bias(self) -> float:
        return _ratio(self.disturbed.energy, self.clean.energy)

    @property
    def heat_error_c(self) -> float:
        """How far the peak temperature is too low; 0 where none is stated."""
        shown, true = self.disturbed.peak_temp_c, self.clean.peak_temp_c
        return true - shown if shown is not None and true is not None else 0.0

    @property
    def is_clean(self) -> bool:
        """Whether nothing was disturbed."""
        return self.kind == CLEAN

    @property
    def is_accepted(self) -> bool:
        return self.disturbed.validity is Validity.VALID

    @property
    def is_named(self) -> bool:
        """Whether the first reason names the disturbance."""
        codes = self.disturbed.codes
        return bool(codes) and codes[0] in BY_NAME[self.kind].reasons

    def seen(self, view: int) -> "Outcome":
        """The same draw, judged alone (0), in its trial (1) or with an earlier sweep (2)."""
        judged = self.views[view]
        return replace(self, disturbed=judged, clean=judged if self.is_clean else self.clean)


def _ratio(disturbed: float | None, clean: float | None) -> float:
    return disturbed / clean - 1 if disturbed and clean else 0.0


class VerdictBench:
    """Virtual phones behind one adb server, and what was learned about each model."""

    def __init__(self, adb: AdbServer) -> None:
        self._adb = adb
        self._facts: dict[str, tuple[PhoneFacts, str]] = {}  # with the tool for digests
        self._memories: dict[tuple[object, ...], PhoneMemory] = {}
        self._fences = count(1)

    @contextmanager
    def open(self, word: str, seed: int) -> Iterator[tuple[FleetServer, Phone]]:
        """Start one virtual phone with its facts."""
        facts, digest_tool = self._learn_facts(word)
        with self._connect(word, seed) as (fleet, phone):
            phone.facts, phone.digest_tool = facts, digest_tool
            yield fleet, phone

    def facts_of(self, word: str) -> PhoneFacts:
        """The facts of a model."""
        return self._learn_facts(word)[0]

    def _learn_facts(self, word: str) -> tuple[PhoneFacts, str]:
        """Probe a phone of a model; always the same one, whichever draw needs it first."""
        if word not in self._facts:
            with self._connect(word, 0) as (_, phone):
                self.probe(phone)
                self._facts[word] = phone.facts, phone.digest_tool
        return self._facts[word]

    @staticmethod
    def probe(phone: Phone) -> None:
        """Find out what a phone is."""
        phone.find_digest_tool()
        phone.facts = probe(phone, runner_for)

    def _connect(self, word: str, seed: int) -> AbstractContextManager[tuple[FleetServer, Phone]]:
        return self.connect(FleetConfig((word,), speed=EVENT_TIME, seed=seed))

    @contextmanager
    def connect(self, config: FleetConfig) -> Iterator[tuple[FleetServer, Phone]]:
        """Start the only phone of a fleet."""
        with serve_fleet_in_thread(config) as (fleet, (address,)):
            if self._adb.connect(address.address, Deadline.after(10)) != "device":
                raise SystemExit(f"{config.profiles[0]} does not answer")
            phone = Phone(self._adb.open(address.address))
            yield fleet, phone
            phone.close()
            self._adb.disconnect(address.address)

    def memory_of(self, run: DrawnRun) -> PhoneMemory | Fault:
        """What earlier runs of the same trial taught; why there are none if they fail."""
        key = (run.phone, run.workload[0], run.workload[2], *run.condition.values())
        for _ in range(LEARNING_TRIES):
            if key in self._memories:
                return self._memories[key]
            with self.open(run.phone, 0) as (_, phone):
                faults = [self.attempt(run, phone).fault for _ in range(LEARNING_RUNS)]
                fault = next((fault for fault in faults if fault is not None), None)
                if fault is None:
                    self._memories[key] = phone.memory
                elif fault.blame is Blame.REQUEST:
                    return fault
        assert fault is not None
        return fault

    def make(self, run: DrawnRun, memory: PhoneMemory, faults: Sequence[Mischief] = ()) -> Report:
        """Make a run on a fresh phone."""
        with self.open(run.phone, run.seed) as (fleet, phone):
            phone.memory = memory
            phone.facts = phone.facts.model_copy(update={"gauge": memory.gauge})
            for fault in faults:
                fleet.mischief.add_entry(fault)
            return self.attempt(run, phone)

    def attempt(self, run: DrawnRun, phone: Phone) -> Report:
        """Let the agent make the run."""
        job = Job(
            run=RunId(trial="tr-" + "0" * 16, repeat=0, attempt=1),
            phone=phone.facts.serial,
            fence=next(self._fences),
            lease_timeout_s=60,
            case=run.case,
            condition=Condition(**run.condition),
            telemetry=False,
        )
        with tempfile.TemporaryDirectory(prefix="farm-verdicts-") as folder:
            return run_attempt(job, phone, LaneContext("bench", Path(folder))).report

    def draw_outcomes(self, seed: int, draw: int, per_clean: int = PER_CLEAN) -> list[Outcome]:
        """Draw a run that this phone can make: as it is, and disturbed in some ways."""
        rng = random.Random(f"{seed}:{draw}")
        setting = setting_of(draw)
        while True:
            run = draw_run(rng, setting)
            memory = self.memory_of(run)
            if isinstance(memory, PhoneMemory):
                break  # a phone may not have these cores
        report = self.make(run, memory)
        others = self._other_runs(run, memory)
        views = judged_in_views(report, others)
        clean = views[0]
        outcomes = [Outcome(seed, draw, CLEAN, setting, run, [], clean, clean, views)]
        for kind in draw_kinds(rng, run, per_clean):
            faults = kind.draw(rng, run, self.facts_of(run.phone))
            views = judged_in_views(self.make(run, memory, faults), others)
            outcomes.append(
                Outcome(seed, draw, kind.name, setting, run, faults, views[0], clean, views)
            )
        return outcomes

    def _other_runs(self, run: DrawnRun, memory: PhoneMemory) -> list[Report]:
        """Further runs of the same work on the same phone: its trial, then an earlier sweep."""
        numbers = range(1, TRIAL_RUNS + EARLIER_RUNS)
        reports = [self.make(replace(run, seed=run.seed + number), memory) for number in numbers]
        return [report for report in reports if report.verdict is not None]

    def runs_until_creep_is_found(self, rng: random.Random) -> int:
        """How many runs it takes until a phone that slows down with every run is noticed."""
        word = Setting("low", background=False).word(rng.choice(PHONES), 0)
        run = DrawnRun(word, rng.randrange(2**31), ("mlp-4", {}, "cpu"), CREEPING)
        memory = self.memory_of(run)
        assert isinstance(memory, PhoneMemory), memory
        with self.open(run.phone, run.seed) as (fleet, phone):
            phone.memory = memory
            for number in range(1, CREEP_RUNS + 1):
                fleet.mischief.clear()
                fleet.mischief.add("hidden_limit", share=(1 + CREEP) ** -number)
                if judged(self.attempt(run, phone)).validity is not Validity.VALID:
                    return number
        return CREEP_RUNS + 1


def setting_of(draw: int) -> Setting:
    """The kind of phone of a draw."""
    return SETTINGS[draw % len(SETTINGS)]


def judged(report: Report) -> Judged:
    """The verdict and the figures of a report."""
    if report.verdict is None:
        return Judged(None, fault=report.fault.text if report.fault else "")
    values = {metric.name: metric.value for metric in report.metrics}
    headlines = [values[name] for name in ("last_minute_step_ms", "step_ms") if name in values]
    bad = [item.code for item in report.verdict.reasons if item.validity is not Validity.VALID]
    headline = headlines[0] if headlines else None
    is_void = report.verdict.validity is Validity.VOID
    is_repeated = is_void or report.verdict.is_of_the_moment
    energy, peak_temp_c = values.get(ENERGY), values.get(PEAK_TEMP)
    return Judged(
        *(report.verdict.validity, tuple(bad), headline, energy, peak_temp_c),
        is_repeated=is_repeated,
    )


def judged_in_views(report: Report, others: Sequence[Report]) -> tuple[Judged, ...]:
    """Judge a report alone, in its trial, and with the runs of an earlier sweep."""
    if report.verdict is None:
        return (judged(report),) * 3
    views = [judged(report)]
    for group in (others[: TRIAL_RUNS - 1], others):
        kept = [
            each for each in group if each.verdict and each.verdict.validity is not Validity.VOID
        ]
        together = [numbers_of(each) for each in (report, *kept)]
        verdict = judged_together(together)[0]
        is_void = (
            report.verdict.validity is Validity.VOID
        )  # it is repeated: its siblings never meet it
        views.append(
            views[0] if is_void else judged(report.model_copy(update={"verdict": verdict}))
        )
    return tuple(views)


def judged_together(runs: Sequence[RunNumbers]) -> list[Verdict]:
    """The verdicts that readers use, once the runs of a trial are judged together."""
    found = zip(runs, judge_together(runs), strict=True)
    return [judgement.applied_to(run.verdict) for run, judgement in found]


def numbers_of(report: Report) -> RunNumbers:
    """What the joint rules read of a report."""
    is_long = any(metric.name == "last_minute_step_ms" for metric in report.metrics)
    protocol = Protocol.ENDURANCE if is_long else Protocol.COLD
    return RunNumbers.of_report(report.model_dump(mode="json"), protocol)


# -- one process of several


@cache
def _bench() -> VerdictBench:
    stack = ExitStack()
    Finalize(None, stack.close, exitpriority=1)  # when the process of the pool ends
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    return VerdictBench(stack.enter_context(AdbServer(folder)))


def _draw(seed: int, number: int, per_clean: int = PER_CLEAN) -> list[Outcome]:
    return _bench().draw_outcomes(seed, number, per_clean)


def _creep(seed: int, index: int) -> int:
    return _bench().runs_until_creep_is_found(random.Random(f"{seed}:creep {index}"))


def draw_until(
    pool: ProcessPoolExecutor,
    seed: int,
    jobs: int,
    per_clean: int,
    enough: Callable[[Sequence[Outcome], int], bool],
) -> list[Outcome]:
    """Draw groups of runs until there are enough of them; a group has one clean run."""
    outcomes: list[Outcome] = []
    waiting: set[Future[list[Outcome]]] = set()
    numbers, clean = count(), 0
    while True:
        while len(waiting) < 2 * jobs:
            waiting.add(pool.submit(_draw, seed, next(numbers), per_clean))
        done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
        new = [outcome for future in done for outcome in future.result()]
        print_failures(new)
        outcomes, clean = outcomes + new, clean + len(done)
        if enough(outcomes, clean):
            late = [outcome for future in waiting for outcome in future.result()]
            print_failures(late)
            return outcomes + late


# -- tables


def rate(matching: int, total: int) -> str:
    """A share with its 95 % interval."""
    if not total:
        return "-"
    z, share = 1.96, matching / total
    middle = (share + z * z / (2 * total)) / (1 + z * z / total)
    half = z / (1 + z * z / total) * (share * (1 - share) / total + (z / total / 2) ** 2) ** 0.5
    low, high = max(middle - half, 0), min(middle + half, 1)
    return f"{matching}/{total} {share:.1%} ({low:.1%}-{high:.1%})"


def print_kinds(outcomes: Sequence[Outcome]) -> None:
    """Print one row per kind of disturbance, and all of them together."""
    row = "{:<26} {:>5}  {:<26} {:<26} {:<26} {:<26}".format
    print(row(*HEADINGS))
    disturbed = [outcome for outcome in outcomes if not outcome.is_clean]
    groups = {kind.name: [o for o in disturbed if o.kind == kind.name] for kind in DISTURBANCES}
    for name, group in {**groups, "all": disturbed}.items():
        large = [o for o in group if abs(o.bias) > LARGE_BIAS]
        small = [o for o in group if BIAS < abs(o.bias) <= LARGE_BIAS]
        found = [o for o in (*large, *small) if o.disturbed.codes]
        harmless = [o for o in group if abs(o.bias) <= HARMLESS and o.disturbed.validity]
        cells = [
            rate(sum(o.is_accepted for o in large), len(large)),
            rate(sum(o.is_accepted for o in small), len(small)),
            rate(sum(o.is_named for o in found), len(found)),
            rate(sum(not o.is_accepted for o in harmless), len(harmless)),
        ]
        print(row(name, len(group), *cells))
    energy = [o for o in disturbed if abs(o.energy_bias) > LARGE_BIAS and abs(o.bias) <= BIAS]
    shown = rate(sum(o.is_accepted for o in energy), len(energy))
    print(f"only the energy biased by more than 5 %, and accepted: {shown}")
    heat = [o for o in disturbed if o.kind == ENDING and o.disturbed.validity is not None]
    low = sum(o.is_accepted and o.heat_error_c > HEAT_ERROR_C for o in heat)
    shown = rate(low, len(heat))
    print(f"temperatures that end, accepted with a peak {HEAT_ERROR_C:g} °C too low: {shown}")


def print_settings(outcomes: Sequence[Outcome]) -> None:
    """Print one row per kind of phone: clean runs that are valid, biased ones that are accepted."""
    row = "{:<38} {:<28} {:<28} {:<24} {:<24} {:<24}".format
    print(
        row(
            "phones", "clean valid: alone", "in its trial", "bias > 5 % accepted: alone", *VIEWS[1:]
        )
    )
    groups = {setting.label: [o for o in outcomes if o.setting == setting] for setting in SETTINGS}
    for label, group in {**groups, "all": list(outcomes)}.items():
        views = [[o.seen(view) for o in group] for view in range(len(VIEWS))]
        clean = [[o for o in each if o.is_clean and o.clean.validity is not None] for each in views]
        large = [[o for o in each if abs(o.bias) > LARGE_BIAS] for each in views]
        cells = [rate(sum(o.is_accepted for o in each), len(each)) for each in (*clean[:2], *large)]
        print(row(label, *cells))
        reasons = Counter(o.clean.codes[0].value for o in clean[1] if o.clean.codes)
        if reasons:
            shown = ", ".join(f"{code} {n}" for code, n in reasons.most_common(REASONS_SHOWN))
            print(f"    clean runs were rejected for {shown}")
    repeated = [
        o.clean.is_repeated for o in outcomes if o.is_clean and o.clean.validity is not None
    ]
    print(f"clean runs that are made again: {rate(sum(repeated), len(repeated))}")


def print_failures(outcomes: Sequence[Outcome]) -> None:
    """Print every biased run that its trial accepts or misnames, and every clean one rejected."""
    rejected = {}
    for outcome in (each.seen(1) for each in outcomes):
        run, codes = outcome.run, [code.value for code in outcome.disturbed.codes]
        where = f"on {run.phone} {run.workload} {run.condition}; {outcome.repeat_command}"
        if outcome.is_clean and outcome.clean.validity not in {Validity.VALID, None}:
            rejected[where] = [code.value for code in outcome.clean.codes]
        if abs(outcome.bias) <= BIAS:
            continue
        what = f"{outcome.bias:+.1%} {outcome.kind}"
        if outcome.is_accepted:
            print(f"accepted {what} {outcome.faults} {where}", flush=True)
        elif outcome.seen(0).is_accepted:
            print(f"accepted alone {what} {outcome.faults} {where}", flush=True)
        elif codes and not outcome.is_named:
            print(f"misnamed {what} {codes} {outcome.faults} {where}", flush=True)
    for where, bad in rejected.items():
        print(f"rejected {bad} {where}", flush=True)


def repeat_draw(seed: int, number: int) -> None:
    """Make one draw again, and print what it finds."""
    outcomes = _draw(seed, number)
    for outcome in outcomes:
        print(json.dumps(asdict(outcome)))
    print_failures(outcomes)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--draws", type=int, default=150, help="runs that are drawn and disturbed")
    parser.add_argument("--seed", type=int, default=None, help="default: random, and printed")
    parser.add_argument("--draw", type=int, help="make only this draw of the seed, and print it")
    parser.add_argument("--only-clean", action="store_true", help="disturb no run")
    parser.add_argument("--minutes", type=float, default=60.0, help="end earlier after this time")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--json", type=Path, help="file for every drawn run")
    options = parser.parse_args()
    if options.draw is not None and options.seed is None:
        parser.error("--draw needs --seed")
    seed = secrets.randbelow(2**31) if options.seed is None else options.seed
    print(f"seed {seed}, {len(PHONES)} virtual phones (simulated)", flush=True)
    if options.draw is not None:
        repeat_draw(seed, options.draw)
        return
    started = time.monotonic()

    def enough(_: Sequence[Outcome], clean: int) -> bool:
        return clean >= options.draws or time.monotonic() - started > 60 * options.minutes

    with ProcessPoolExecutor(options.jobs, get_context("spawn")) as pool:
        per_clean = 0 if options.only_clean else PER_CLEAN
        outcomes = draw_until(pool, seed, options.jobs, per_clean, enough)
        if options.json is not None:
            options.json.write_text(json.dumps([asdict(o) for o in outcomes], indent=1))
        print_settings(outcomes)
        if not options.only_clean:
            for view, label in enumerate(VIEWS):
                print(f"\njudged {label}:")
                print_kinds([outcome.seen(view) for outcome in outcomes])
            creeps = list(pool.map(_creep, [seed] * CREEP_SERIES, range(CREEP_SERIES)))
            found = sorted(creeps)
            print(f"slower by {CREEP:.1%} with every run: found after {found} runs")
    print(f"{time.monotonic() - started:.0f} s, load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
