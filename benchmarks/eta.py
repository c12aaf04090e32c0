"""How often the true end of a sweep lies in the 80 % interval that was shown before.

.venv/bin/python -m benchmarks.eta [--sweeps 200] [--lab FOLDER ...] [--virtual 50 [--labs 2]]

Three sources, each with its own line. Drawn sweeps: a model of a lab, with cooling, charging, void
runs, phones away, other sweeps and cells without a run. Stored sweeps: every finished sweep
of a lab is replayed from its reports. Virtual labs: sweeps run on virtual phones with faults, and
what `farm watch` knows is recorded several times per second. A look is a moment after the first
tenth of the sweep's time; looks at which the end is called unknown are counted apart. The score of
an interval is its width plus ten times what it misses, in shares of the time left; less is better.
"""

import argparse
import math
import multiprocessing
import os
import pickle
import random
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from itertools import repeat
from pathlib import Path
from statistics import fmean, median
from typing import NamedTuple

from orchestrator.planning.eta import (
    CompetingWork,
    RemainingTime,
    SweepRest,
    estimate_remaining,
)
from orchestrator.planning.run_durations import Cell, RunTiming
from orchestrator.planning.states import Health

LOOKS = 18  # per sweep, evenly spread after the first tenth
TENTH = 0.1


class Look(NamedTuple):
    """What was shown at a moment, and how long it really took from then."""

    share: float  # of the sweep's time that had passed
    early_s: float
    late_s: float
    likely_s: float
    true_s: float
    unknown: bool = False

    @property
    def holds(self) -> bool:
        """Whether the true end lies in the interval."""
        return self.early_s <= self.true_s <= self.late_s

    @property
    def score(self) -> float:
        """The interval score: the width, and ten times a miss, in shares of the time left."""
        miss_s = max(0.0, self.early_s - self.true_s, self.true_s - self.late_s)
        return (self.late_s - self.early_s + 2.0 / 0.2 * miss_s) / max(self.true_s, 0.001)


class OtherSweep(NamedTuple):
    """Another sweep on the same phones: its attempts, and its runs per run of this one."""

    submitted_s: float
    weight: float
    attempts: tuple[RunTiming, ...]

    def left(self, now_s: float) -> dict[str, dict[Cell, int]]:
        """Return what it had left at a moment."""
        left: dict[str, dict[Cell, int]] = {}
        for each in self.attempts:
            if each.ended_s > now_s:
                cells = left.setdefault(each.phone, {})
                cells[each.cell] = cells.get(each.cell, 0) + 1
        return left


@dataclass(frozen=True)
class SweepHistory:
    """A finished sweep: its runs, its attempts, absences of phones, and the lab's other sweeps."""

    started_s: float
    planned: Mapping[str, Mapping[Cell, int]]
    attempts: tuple[tuple[RunTiming, bool], ...]  # and whether the run was done with it
    absences: Mapping[str, tuple[tuple[float, float], ...]] = field(default_factory=dict)
    others: tuple["OtherSweep", ...] = ()

    @property
    def ended_s(self) -> float:
        """The end of its last attempt."""
        return max(attempt.ended_s for attempt, _ in self.attempts)

    def at(self, now_s: float) -> SweepRest:
        """Return what was known at a moment."""
        past = [(each, kept) for each, kept in self.attempts if each.ended_s <= now_s]
        left = {phone: dict(cells) for phone, cells in self.planned.items()}
        for attempt, kept in past:
            left[attempt.phone][attempt.cell] -= kept
        done = sum(kept for _, kept in past)
        others = [other for other in self.others if other.submitted_s <= now_s]
        ended = [attempt for attempt, _ in past]
        ended += [each for other in others for each in other.attempts if each.ended_s <= now_s]
        return SweepRest(
            now_s,
            left,
            ended,
            done,
            len(past) - done,
            {
                phone: "away"
                for phone, spans in self.absences.items()
                if any(start <= now_s < end for start, end in spans)
            },
            [CompetingWork(other.left(now_s), other.weight) for other in others if other.weight],
            since_s=self.started_s,
        )

    def looks(self) -> Iterator[Look]:
        """Estimate the end at some moments of the sweep."""
        length_s = self.ended_s - self.started_s
        for number in range(LOOKS):
            share = TENTH + (1 - TENTH) * (number + 0.5) / LOOKS
            now_s = self.started_s + share * length_s
            shown = estimate_remaining(self.at(now_s))
            if shown is not None:
                unknown = bool(shown.unknown)
                spans = (shown.early_s, shown.late_s, shown.likely_s)
                yield Look(share, *spans, self.ended_s - now_s, unknown)


def drawn_sweep(seed: int) -> SweepHistory:
    """Draw a sweep on a lab: phones and cells of different speed, and what goes wrong."""
    rng = random.Random(seed)
    phones = [f"phone-{index}" for index in range(rng.choice([1, 2, 3, 6, 6, 12]))]
    conditions = [f"condition-{index}" for index in range(rng.choice([1, 1, 2, 3]))]
    usual_s = {name: rng.lognormvariate(math.log(60), 0.9) for name in conditions}
    cells = [
        (f"case-{index}", condition)
        for condition in conditions
        for index in range(rng.choice([1, 2, 4, 8]))
    ]
    case_spread = rng.choice([0.05, 0.3, 0.7])
    effects = {cell: rng.gauss(0, case_spread) for cell in cells}
    repeats = rng.choice([2, 3, 5, 8])
    void, noise = rng.choice([0.0, 0.02, 0.1, 0.25]), rng.choice([0.02, 0.1, 0.25, 0.4])
    warming = rng.choice([0.0, 0.2, 0.5])  # how much shorter the first cycles of a cool phone are
    work_s = len(cells) * repeats * fmean(usual_s.values())
    busy = []
    if rng.random() < 0.3:  # another sweep has half of the lab for some time
        start = rng.uniform(0, work_s)
        busy = [(start, start + rng.uniform(0.1, 0.5) * work_s)]
    attempts: list[tuple[RunTiming, bool]] = []
    others: list[RunTiming] = []
    absences: dict[str, tuple[tuple[float, float], ...]] = {}
    for phone in phones:
        speed, now_s, charge = rng.gauss(0, 0.35), rng.uniform(0, 5), rng.uniform(0.2, 1.0)
        cool = 1.0
        own = {cell: rng.gauss(0, 0.12) for cell in cells}
        hours = (
            2.0 if rng.random() < 0.2 else 20.0
        )  # of work, until a weak port has let it run flat
        away = rng.uniform(0, 2 * work_s) if rng.random() < 0.15 else math.inf
        for cell in [c for _ in range(repeats) for c in rng.sample(cells, len(cells))]:
            kept = False
            while not kept:
                if now_s >= away:
                    back_s = now_s + rng.uniform(0.02, 0.2) * work_s
                    absences[phone] = ((now_s, back_s),)
                    now_s, away = back_s, math.inf
                run_s = usual_s[cell[1]] * math.exp(
                    effects[cell] + own[cell] + speed + rng.gauss(0, noise)
                )
                run_s, cool = run_s * (1.0 - warming * cool), 0.75 * cool
                charge -= run_s / 3600 / hours
                if charge < 0.2:  # it charges to 60 % first
                    run_s, charge = run_s + rng.uniform(900, 2400), 0.6
                if any(start <= now_s < end for start, end in busy):
                    span = (now_s + 1.0, now_s + 1.0 + run_s)
                    others.append(RunTiming(phone, "other", cell[1], *span, "other"))
                    now_s = span[1]
                started_s = now_s + rng.uniform(0.5, 3.0)
                now_s = started_s + run_s
                kept = rng.random() >= void
                attempts.append((RunTiming(phone, *cell, started_s, now_s), kept))
    planned = {phone: dict.fromkeys(cells, repeats) for phone in phones}
    other = tuple(OtherSweep(start, 1.0, tuple(others)) for start, _ in busy)
    return SweepHistory(0.0, planned, tuple(attempts), absences, other)


def stored_sweeps(folder: Path) -> Iterator[SweepHistory]:
    """Yield every finished sweep of a lab, from its reports."""
    from sqlalchemy import select

    from orchestrator.app.lab_status import weight_against
    from orchestrator.planning.states import ReportStatus, RunState
    from orchestrator.store.database import Database
    from orchestrator.store.sweep_queries import sweep_summaries
    from orchestrator.store.tables import report, run, trial
    from workloads.lab.settings import Lab

    db = Database(Lab.read(folder, {}).store_url)
    counted = (ReportStatus.ACCEPTED, ReportStatus.VOID, ReportStatus.FAULT)
    cell = (trial.c.case_digest, trial.c.condition_digest)
    same = (run.c.trial == report.c.trial) & (run.c.repeat == report.c.repeat)
    with db.read() as connection:
        reports = connection.execute(
            select(report, trial.c.sweep, run.c.id.label("run"), *cell)
            .join(trial, trial.c.id == report.c.trial)
            .join(run, same)
            .where(report.c.status.in_(counted))
            .where(run.c.state.in_((RunState.DONE, RunState.FAILED)))
            .order_by(report.c.id)
        ).all()
    last = {row.run: row.id for row in reports}
    attempts: dict[str, list[tuple[RunTiming, bool]]] = {}
    for row in reports:
        times = (row.started_at_s, row.ended_at_s)
        attempt = RunTiming(row.phone, row[-2], row[-1], *times, row.sweep)
        attempts.setdefault(row.sweep, []).append((attempt, last[row.run] == row.id))
    summaries = [each for each in sweep_summaries(db) if len(attempts.get(each.id, ())) >= 10]
    db.close()
    for summary in summaries:
        planned: dict[str, dict[Cell, int]] = {}
        for attempt, kept in attempts[summary.id]:
            counts = planned.setdefault(attempt.phone, {})
            counts[attempt.cell] = counts.get(attempt.cell, 0) + kept
        others = tuple(
            OtherSweep(
                other.created_at.timestamp(),
                weight_against(summary, other),
                tuple(each for each, _ in attempts[other.id]),
            )
            for other in summaries
            if other is not summary
        )
        submitted_s = summary.created_at.timestamp()
        if summary.finished:
            yield SweepHistory(submitted_s, planned, tuple(attempts[summary.id]), {}, others)


MISCHIEF = """seed = {seed}

[[mischief]]
kind = "unplug"
at = "run@40%"
for_host = {away_s}
times = 0
chance = {chance}
"""
SWEEP = """farm: 1
name: eta-{seed}-{number}
workload: {{use: {workload}}}
phones: all
matrix: {{batch_size: {batches}, cores: {cores}}}
conditions: {{protocol: {protocol}, time_min: {time_min}}}
repeat: {repeat}
"""
POLL_INTERVAL_S = 0.2


class LiveSweep(NamedTuple):
    """A sweep on virtual phones: what was known whenever its end was estimated, and its end."""

    name: str
    known: list[SweepRest]
    ended_s: float

    def looks(self) -> list[Look]:
        """Estimate the end again at all these moments."""
        with_runs = [rest for rest in self.known if any(map(len, rest.left.values()))]
        start_s = self.known[0].now_s if self.known else 0.0
        without = (rest.now_s for rest in self.known if rest.now_s > start_s and not rest.left)
        ended_s = next(without, self.ended_s)
        looks = []
        for rest in with_runs:
            share = (rest.now_s - start_s) / (ended_s - start_s)
            shown = estimate_remaining(rest) if TENTH < share < 1.0 else None
            if shown is not None:
                spans = (shown.early_s, shown.late_s, shown.likely_s)
                looks.append(Look(share, *spans, ended_s - rest.now_s, bool(shown.unknown)))
        return looks


def drawn_files(seed: int, sweeps: int) -> list[str]:
    """Draw sweep files of some ten to some hundred runs."""
    rng = random.Random(seed)
    return [
        SWEEP.format(
            seed=seed,
            number=number,
            workload=rng.choice(["mlp-4", "lenet", "mlp-2"]),
            batches=rng.choice(["[16, 64]", "[8, 32, 128]", "[32]"]),
            cores=rng.choice(["[big2, all8]", "[big1, big4, all8]", "[big4]"]),
            protocol=(protocol := rng.choice(["cold", "cold", "cold", "endurance"])),
            time_min="120s" if protocol == "endurance" else rng.choice(["8s", "20s", "60s"]),
            repeat=rng.choice([1, 2, 3]),
        )
        for number in range(sweeps)
    ]


def virtual_lab(
    folder: Path, sweeps: int, speed: float, save: Path | None, seed: int
) -> list[LiveSweep]:
    """Run sweeps on virtual phones with faults, two at a time; return what was known of each."""
    from orchestrator.app import lab_status
    from orchestrator.app.control_phones import release_phone
    from orchestrator.app.submit_sweep import submit_sweep
    from orchestrator.supervisor.demo_lab import demo_lab
    from workloads.lab.settings import Lab

    known: dict[str, list[SweepRest]] = {}
    polled = ""

    def record(rest: SweepRest) -> RemainingTime | None:
        known[polled].append(rest)
        return None

    lab_status.estimate_remaining = record  # it is estimated afterwards, from the same
    rng = random.Random(seed)
    waiting, ended = drawn_files(seed, sweeps), list[LiveSweep]()
    folder.mkdir(parents=True)
    mischief = folder / "mischief.toml"
    chance, away_s = rng.choice([0.02, 0.05, 0.08]), rng.choice([1, 3])
    mischief.write_text(MISCHIEF.format(seed=seed, away_s=away_s, chance=chance))
    with demo_lab(Lab.read(folder, {}), speed, print, mischief=mischief) as lab:
        pollers: dict[str, lab_status.LabPoller] = {}
        while waiting or pollers:
            lab.keep_up()
            while waiting and len(pollers) < 2:
                text = waiting.pop()
                polled = lab.retry(partial(submit_sweep, lab.connection, text)).sweep.id
                pollers[polled] = lab_status.LabPoller(lab.connection, polled)
                known[polled] = []
            for polled, poller in list(pollers.items()):
                view = lab.retry(poller.poll)
                for phone in view.phones:  # as an operator would
                    if phone.health is Health.QUARANTINED:
                        lab.retry(partial(release_phone, lab.connection, phone.serial))
                if view.sweeps[0].finished:
                    del pollers[polled]
                    ended.append(LiveSweep(view.sweeps[0].name, known.pop(polled), time.time()))
                    print(describe(ended[-1].name, [ended[-1].looks()]), flush=True)
                    if save:
                        save.with_suffix(f".{seed}.pickle").write_bytes(pickle.dumps(ended))
            time.sleep(POLL_INTERVAL_S)
    return ended


def virtual_labs(options: argparse.Namespace) -> list[LiveSweep]:
    """Run several labs at a time, each in its own process."""
    each = -(-options.virtual // options.labs)
    seeds = range(options.first_seed, options.first_seed + options.labs)
    context = multiprocessing.get_context("spawn")
    with (
        tempfile.TemporaryDirectory(prefix="farm-eta-") as folder,
        ProcessPoolExecutor(options.labs, mp_context=context) as pool,
    ):
        folders = [Path(folder) / f"lab-{seed}" for seed in seeds]
        same = (repeat(each), repeat(options.speed), repeat(options.save))
        labs = pool.map(virtual_lab, folders, *same, seeds)
        live = [sweep for lab in labs for sweep in lab]
        stored = [list(h.looks()) for each in folders for h in stored_sweeps(each)]
    print(describe("virtual, live", [sweep.looks() for sweep in live]))
    print(describe("virtual, stored", stored))
    return live


def describe(name: str, sweeps: Iterable[list[Look]]) -> str:
    """Return the coverage of some sweeps, each of which counts the same."""
    shown = [looks for looks in sweeps if looks]
    known = [[look for look in looks if not look.unknown] for looks in shown]
    known = [looks for looks in known if looks]
    every = [look for looks in known for look in looks]
    if not every:
        return f"{name:<16} no sweep"
    coverage = fmean(fmean(look.holds for look in looks) for looks in known)
    parts = (
        [look.holds for look in every if low <= look.share < high]
        for low, high in ((0.1, 0.4), (0.4, 0.7), (0.7, 1.01))
    )
    thirds = " ".join(f"{fmean(part):4.0%}" if part else "   -" for part in parts)
    width = median((look.late_s - look.early_s) / max(look.true_s, 0.001) for look in every)
    late = fmean(look.true_s > look.late_s for look in every)
    score = fmean(look.score for look in every)
    unknown = sum(map(len, shown)) - len(every)
    return (
        f"{name:<16} {len(known):>6} {len(every):>7} {unknown:>8} {coverage:>9.1%}   {thirds}  "
        f"{late:>7.1%} {width:>7.2f} {score:>7.2f}"
    )


def main() -> None:
    """Print the coverage of every source."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sweeps", type=int, default=200, help="number of drawn sweeps")
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--lab", type=Path, action="append", default=[], help="folder of a lab")
    parser.add_argument("--virtual", type=int, default=0, help="sweeps on virtual phones")
    parser.add_argument("--labs", type=int, default=2, help="virtual labs at a time")
    parser.add_argument("--speed", type=float, default=200.0)
    parser.add_argument("--save", type=Path, help="write what was known to files, one per lab")
    parser.add_argument("--replay", type=Path, nargs="*", help="estimate again from such files")
    options = parser.parse_args()
    print(f"80 % intervals after the first tenth of a sweep; load {os.getloadavg()[0]:.1f}")
    print(
        f"{'source':<16} {'sweeps':>6} {'looks':>7} {'unknown':>8} {'coverage':>9}   by third of "
        "the time  too late   width   score"
    )
    seeds = range(options.first_seed, options.first_seed + options.sweeps)
    print(describe("drawn", (list(drawn_sweep(seed).looks()) for seed in seeds)))
    stored = [list(history.looks()) for folder in options.lab for history in stored_sweeps(folder)]
    if options.lab:
        print(describe("stored", stored))
    if options.replay:
        saved: list[LiveSweep] = [
            sweep for file in options.replay for sweep in pickle.loads(file.read_bytes())
        ]
        print(describe("virtual, saved", [sweep.looks() for sweep in saved]))
    if options.virtual:
        virtual_labs(options)


if __name__ == "__main__":
    main()
