"""The book: what is known of heat, time and shares, as the scheduler remembers it from the store.

Everything in it can be read anew; a scheduler that starts begins with the last reports.
"""

import math
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from orchestrator.dispatch.choice import Expected, Heat, Offer, Stake, choose_order, share_out
from orchestrator.store import past
from orchestrator.store.database import Database
from orchestrator.store.lines import Line, Pick, drawn_blocks
from orchestrator.store.past import Past
from workloads.catalogue import Case, is_known, launch_of, work_of, workload_of
from workloads.condition import Condition
from workloads.messages import Presence

HALF_LIFE_S = 1800.0  # after so long, what an owner used weighs half
FRESH = 0.4  # what the newest run weighs in what is expected of the next
RISE_MAX_C = 60.0
AT_ONCE, BEGIN_AT_ONCE = 50, 8  # phones that get a run in one tick, and that begin a block
TRIALS_MAX = 200_000
# Before any report: a phone of middling speed, power and weight.
PRIOR_GFLOPS, PRIOR_W, PRIOR_J_PER_K = 8.0, 4.0, 120.0

Key = tuple[str, str, str]  # case, condition, and phone or model


@dataclass
class _Seen:
    """What the runs of a trial were like: seconds, and degrees where they could be told."""

    run_s: float
    rise_c: float | None = None


class Book:
    """What the scheduler remembers."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._cursor: int | None = None
        self._seen: dict[Key, _Seen] = {}
        self._last: dict[str, Past] = {}
        self._heats: dict[str, Heat] = {}
        self._models: dict[str, str] = {}
        self._trials: dict[str, tuple[str, str]] = {}
        self._priors: dict[tuple[str, str], Expected] = {}
        self._stakes: dict[str, Stake] = {}
        self._used_s: dict[str, float] = {}
        self._under_way: dict[str, tuple[str, float]] = {}
        self._read_at = time.monotonic()
        self.left_out = False  # whether phones are left that could have been given a run just now

    def look(self, presences: Iterable[Presence]) -> None:
        """Take over what heartbeats say of heat, and what was reported since."""
        for presence in presences:
            for phone in presence.phones:
                if phone.temp_c is not None and phone.cools is not None:
                    self._heats[phone.serial] = Heat(phone.temp_c, *phone.cools)
        self.left_out = False
        self._stakes.clear()
        self._age()
        made = past.made_since(self._db, self._cursor)
        if made:
            self._know_sweeps({run.sweep for run in made})
            if {run.phone for run in made} - self._models.keys():
                self._models = past.models(self._db)
        for run in made:
            self._note(run)
            self._cursor = run.id

    def choose(self, lines: Sequence[Line]) -> list[Pick]:
        """Pick a run for each phone that has a line, and an order for each block that begins.

        No more than a handful at once: the rest are next, and nobody else waits for long.
        """
        some = _a_handful(lines)
        self.left_out = len(some) < len(lines)
        lines = some
        self._know_sweeps({line.sweep for line in lines})
        self._know_trials({line.trial for line in lines})
        of_run = {line.run: line for line in lines}
        offers: dict[str, list[Offer]] = {}
        for line in lines:
            expected = self.expected(line.trial, line.phone)
            offer = Offer(line.phone, line.sweep, line.run, expected)
            offers.setdefault(line.phone, []).append(offer)
        chosen = share_out(offers, self._stakes, self.used_s, self._heats, time.time())
        for phone, offer in chosen.items():
            stake = self._stakes[offer.sweep]
            self._under_way[phone] = (stake.owner, offer.expected.run_s / stake.weight)
        beginning = [of_run[offer.run] for offer in chosen.values() if of_run[offer.run].undecided]
        began = {pick.phone: pick for pick in self._begin(beginning)}
        return [
            began.get(phone) or Pick(phone, offer.sweep, offer.run)
            for phone, offer in chosen.items()
        ]

    def _begin(self, beginning: Sequence[Line]) -> list[Pick]:
        """Choose among the orders that were drawn for blocks that begin now."""
        picks = []
        blocks = drawn_blocks(self._db, beginning)
        self._know_trials({trial for block in blocks for trial in block.trials})
        for block in blocks:
            orders = [block.order(number) for number in range(len(block.places[0]))]
            runs = [self.expected(trial, block.phone) for trial in block.trials]
            heat = self._heats.get(block.phone)
            ways = [[runs[at] for at in order] for order in orders]
            number = choose_order(ways, heat, block.is_last)
            first = block.runs[orders[number][0]]
            picks.append(Pick(block.phone, block.sweep, first, block, number))
        return picks

    @property
    def used_s(self) -> Mapping[str, float]:
        """What each owner has had of the lab lately, by weight, with what is under way."""
        used = dict(self._used_s)
        for owner, seconds in self._under_way.values():
            used[owner] = used.get(owner, 0.0) + seconds
        return used

    def expected(self, trial: str, phone: str) -> Expected:
        """What a trial's next run will be like: by itself, by its siblings, or by its plan."""
        asked = self._trials[trial]
        found = [seen for name in self._names(phone) if (seen := self._seen.get((*asked, name)))]
        unseen = self._priors[asked]
        if not found:
            return unseen
        rise_c = next((seen.rise_c for seen in found if seen.rise_c is not None), unseen.rise_c)
        return Expected(found[0].run_s, rise_c, unseen.start_max_c)

    def _note(self, run: Past) -> None:
        stake = self._stakes[run.sweep]
        self._under_way.pop(run.phone, None)
        share = (run.ended_s - run.began_s) / stake.weight
        self._used_s[stake.owner] = self._used_s.get(stake.owner, 0.0) + max(0.0, share)
        for name in self._names(run.phone):
            seen = self._seen.setdefault(
                (run.case_digest, run.condition_digest, name), _Seen(run.ran_s)
            )
            seen.run_s += FRESH * (run.ran_s - seen.run_s)
        before = self._last.get(run.phone)
        if before is not None:
            self._note_rise(before, run)
        self._last[run.phone] = run

    def _note_rise(self, before: Past, run: Past) -> None:
        """How long a phone cooled afterwards tells how warm the run before had left it."""
        heat = self._heats.get(run.phone)
        if heat is None or before.start_temp_c is None or run.start_temp_c is None:
            return
        waited_s = run.began_s - before.ended_s + run.cooled_s
        if not 0.0 <= waited_s <= 6 * heat.tau_s:
            return
        left_c = (run.start_temp_c - heat.rest_c) * math.exp(waited_s / heat.tau_s)
        began = Heat(before.start_temp_c, heat.rest_c, heat.tau_s).later(before.ran_s)
        rise_c = min(max(heat.rest_c + left_c - began.temp_c, 0.0), RISE_MAX_C)
        for name in self._names(run.phone):
            seen = self._seen.get((before.case_digest, before.condition_digest, name))
            if seen is not None:
                old = rise_c if seen.rise_c is None else seen.rise_c
                seen.rise_c = old + FRESH * (rise_c - old)

    def _names(self, phone: str) -> list[str]:
        """Under what a phone's runs are remembered: its own, and what all of its model share."""
        model = self._models.get(phone)
        return [phone] if model is None else [phone, f"model {model}"]

    def _age(self) -> None:
        now = time.monotonic()
        share = 0.5 ** ((now - self._read_at) / HALF_LIFE_S)
        self._used_s = {owner: share * used for owner, used in self._used_s.items()}
        self._read_at = now

    def _know_sweeps(self, sweeps: set[str]) -> None:
        missing = sweeps - self._stakes.keys()
        for claim in past.claims(self._db, missing) if missing else ():
            typical_s = [seen.run_s for seen in self._seen.values()]
            each_s = sum(typical_s) / len(typical_s) if typical_s and claim.left else 0.0
            self._stakes[claim.id] = Stake(
                *(claim.owner, claim.priority, claim.deadline, claim.created_s),
                left_s=each_s * claim.left,
            )

    def _know_trials(self, trials: set[str]) -> None:
        if len(self._trials) > TRIALS_MAX:
            self._trials.clear()
        missing = trials - self._trials.keys()
        if not missing:
            return
        found = past.digests(self._db, missing)
        # One trial of each question is enough to know the question.
        asked = {key: trial for trial, key in found.items() if key not in self._priors}
        for case, condition in past.questions(self._db, asked.values()) if asked else ():
            self._priors[(case.digest, condition.digest)] = prior(case, condition)
        self._trials |= found


def _a_handful(lines: Sequence[Line]) -> list[Line]:
    """The lines of as many phones as one tick may serve."""
    beginning = {line.phone for line in lines if line.undecided}
    some = sorted(beginning)[:BEGIN_AT_ONCE]
    some += sorted({line.phone for line in lines} - beginning)[: AT_ONCE - len(some)]
    return [line for line in lines if line.phone in set(some)]


def prior(case: Case, condition: Condition) -> Expected:
    """What a run is expected to be like before anybody has made it: from the plan's arithmetic."""
    if not is_known(case) or not workload_of(case).on_phone:
        return Expected(0.1, 0.0, None)
    launch = launch_of(case, condition.launch)
    step_s = work_of(case).flops / (PRIOR_GFLOPS * 1e9)
    run_s = min(max(launch.seconds, step_s * (launch.warmup + launch.steps)), launch.max_seconds)
    return Expected(run_s, PRIOR_W * run_s / PRIOR_J_PER_K, condition.start_temp_max_c)
