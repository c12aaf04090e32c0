"""Who is chosen for the next round: five rules of the literature, and ours.

All see the same: what was measured, how hot and how charged each phone is, what was learned from
its last update. None sees what is true. Every choice comes with its reason.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from orchestrator.selection.fleet import Array, Fleet, Mask, Picks, work_s

BATTERY_FLOOR = 0.2


@dataclass(frozen=True)
class Want:
    """What a round asks for."""

    k: int
    deadline_s: float | None = None
    link_s: float = 0.0  # to send an update, for each phone


@dataclass
class Situation:
    """What the server knows before a round."""

    fleet: Fleet
    samples: Array  # of local work in a round, by phone
    heat: Array
    charge: Array  # share of the battery
    online: Mask
    utility: Array  # samples · root of the mean squared loss; NaN while never heard from
    last_round: Array  # 0 is never
    chosen: Array  # how often so far
    round: int = 1

    @property
    def eligible(self) -> Picks:
        """Phones that could do it at all: there, not flat, with the memory for it."""
        able = self.online & self.fleet.fits & (self.charge > BATTERY_FLOOR)
        return np.flatnonzero(able)

    @property
    def expected_s(self) -> Array:
        """How long each would take, as hot as it is."""
        return work_s(self.fleet, self.samples, self.heat)


def first_look(fleet: Fleet, samples: float) -> Situation:
    """A fleet that nobody has asked yet: cool, charged, all there."""
    n = len(fleet)
    return Situation(
        fleet,
        samples=np.full(n, float(samples)),
        heat=np.zeros(n),
        charge=np.ones(n),
        online=np.ones(n, dtype=bool),
        utility=np.full(n, np.nan),
        last_round=np.zeros(n),
        chosen=np.zeros(n),
    )


@dataclass(frozen=True)
class Choice:
    """Phones for a round, and why each."""

    picks: Picks
    why: tuple[str, ...]


class Random:
    """Anybody who can: what federated averaging does unless told otherwise."""

    def choose(self, now: Situation, want: Want, rng: np.random.Generator) -> Choice:
        """Draw without looking."""
        picks = _draw(now.eligible, want.k, rng)
        return Choice(picks, ("drawn",) * len(picks))


class Fastest:
    """The quickest by what was measured of a cool phone, or of a hot one."""

    def __init__(self, sustained: bool = False) -> None:
        self._sustained = sustained

    def choose(self, now: Situation, want: Want, _: np.random.Generator) -> Choice:
        """Take the first k of a list that never changes."""
        fleet = now.fleet
        pace = fleet.cold_s * (fleet.slowdown if self._sustained else 1.0) * now.samples
        able = now.eligible
        picks = able[np.argsort(pace[able], kind="stable")[: want.k]]
        kind = "sustained" if self._sustained else "cold"
        return Choice(picks, tuple(f"{pace[i]:.3g} s a round, {kind}" for i in picks))


class FedCS:
    """FedCS: as many as fit into a deadline, of a random pool; updates are sent one by one."""

    def __init__(self, pool: int = 3) -> None:
        self._pool = pool

    def choose(self, now: Situation, want: Want, rng: np.random.Generator) -> Choice:
        """Add the quickest of the pool while the round still ends in time."""
        pool = _draw(now.eligible, want.k * self._pool, rng)
        if not len(pool):
            return Choice(pool, ())
        took = now.expected_s[pool]
        deadline = want.deadline_s if want.deadline_s is not None else float(np.median(took) * 1.5)
        picks: list[int] = []
        elapsed = 0.0
        for client, seconds in sorted(zip(pool, took, strict=True), key=lambda pair: pair[1]):
            until = max(elapsed, seconds) + want.link_s
            if until > deadline or len(picks) == want.k:
                break
            picks.append(int(client))
            elapsed = until
        return Choice(
            np.array(picks, dtype=np.int64),
            tuple(f"fits into {deadline:.3g} s" for _ in picks),
        )


class TiFL:
    """TiFL: tiers of like speed, one tier a round, the worse served the likelier, with credits."""

    TIERS = 5

    def __init__(self, credits: int = 200) -> None:
        self._credits = np.full(self.TIERS, credits)

    def choose(self, now: Situation, want: Want, rng: np.random.Generator) -> Choice:
        """Draw a tier by how badly the model does on it, then phones inside."""
        able = now.eligible
        pace = (now.fleet.cold_s * now.fleet.slowdown * now.samples)[able]
        tier = _tiers(pace, self.TIERS)
        weight = np.array([_need(now, able[tier == t]) for t in range(self.TIERS)])
        weight[self._credits <= 0] = 0
        if weight.sum() == 0:
            return Random().choose(now, want, rng)
        drawn = int(rng.choice(self.TIERS, p=weight / weight.sum()))
        self._credits[drawn] -= 1
        picks = _draw(able[tier == drawn], want.k, rng)
        return Choice(picks, (f"tier {drawn + 1} of {self.TIERS}",) * len(picks))


def _tiers(pace: Array, count: int) -> Array:
    """Which quantile each lies in, slowest last."""
    rank = np.argsort(np.argsort(pace, kind="stable"), kind="stable")
    return np.asarray(rank * count // max(1, len(pace)))


def _need(now: Situation, members: Picks) -> float:
    """How badly the model does on a tier: the mean loss that its members told; 1 while unheard."""
    if not len(members):
        return 0.0
    told = now.utility[members] / np.maximum(now.samples[members], 1)
    heard = told[~np.isnan(told)]
    return float(heard.mean()) if len(heard) else 1.0


class Oort:
    """Oort: useful data first, slow phones marked down, some of each round for the unknown."""

    PENALTY, CLIP = 2.0, 0.9
    EXPLORE_MIN, EXPLORE_DECAY = 0.3, 0.98
    PACE_PERCENTILE, PACER_STEP, PACER_DELTA = 30, 20, 5

    def __init__(self) -> None:
        self._explore = 0.9
        self._percentile = float(self.PACE_PERCENTILE)
        self._earned: list[float] = []

    def choose(self, now: Situation, want: Want, rng: np.random.Generator) -> Choice:
        """Exploit those heard from by utility, explore the others by speed."""
        able = now.eligible
        took = now.expected_s[able]
        preferred = float(np.percentile(took, min(100.0, self._percentile))) if len(able) else 0.0
        heard = ~np.isnan(now.utility[able])
        self._explore = max(self.EXPLORE_MIN, self._explore * self.EXPLORE_DECAY)
        unheard = able[~heard]
        exploring = min(len(unheard), round(want.k * self._explore)) if heard.any() else want.k
        score = self._score(now, able[heard], preferred)
        best = able[heard][np.argsort(-score, kind="stable")[: want.k - exploring]]
        slow_first = 1 / np.maximum(now.expected_s[unheard], 1e-9)
        new = _draw(unheard, want.k - len(best), rng, slow_first)
        self._pace(now, best)
        why = [f"useful: {now.utility[i]:.3g}" for i in best] + ["not heard from yet"] * len(new)
        return Choice(np.concatenate([best, new]).astype(np.int64), tuple(why))

    def _score(self, now: Situation, members: Picks, preferred: float) -> Array:
        if not len(members):
            return np.zeros(0)
        reward = np.minimum(now.utility[members], np.quantile(now.utility[members], self.CLIP))
        spread = np.ptp(reward) or 1.0
        stale = np.sqrt(0.1 * np.log(max(now.round, 2)) / np.maximum(now.last_round[members], 1))
        score = (reward - reward.min()) / spread + stale
        took = now.expected_s[members]
        return np.asarray(score * np.where(took > preferred, preferred / took, 1.0) ** self.PENALTY)

    def _pace(self, now: Situation, best: Picks) -> None:
        """Allow slower phones when the last rounds earned less than those before."""
        self._earned.append(float(np.nansum(now.utility[best])))
        step = self.PACER_STEP
        due = len(self._earned) >= 2 * step and len(self._earned) % step == 0
        if due and sum(self._earned[-step:]) < sum(self._earned[-2 * step : -step]):
            self._percentile = min(100.0, self._percentile + self.PACER_DELTA)


class Frugal:
    """Ours: useful data, quick even when hot and even if mismeasured, sparing energy and turns.

    Time is that of the phone as hot as it is now, at the upper end of its interval, so that a
    phone that was measured badly is not favoured; energy is held against the fleet's median, a
    battery near its floor and a phone that has served more than its share count less.
    """

    TIME, ENERGY, FAIR = 1.0, 0.25, 0.75

    def choose(self, now: Situation, want: Want, rng: np.random.Generator) -> Choice:
        """Score everybody who can and take the best."""
        able = now.eligible
        if not len(able):
            return Choice(able, ())
        score, parts = self._score(now, able)
        # A tenth of chance breaks ties, and keeps a round from always being the same phones.
        order = np.argsort(-score * rng.uniform(0.9, 1.0, len(able)), kind="stable")[: want.k]
        return Choice(able[order], tuple(_because(parts, int(index)) for index in order))

    def _score(self, now: Situation, able: Picks) -> tuple[Array, dict[str, Array]]:
        upper_s = (now.expected_s * (1 + now.fleet.doubt))[able]
        energy_j = (now.fleet.energy_j * now.samples)[able]
        typical_s = float(np.median(upper_s))
        typical_j = float(np.nanmedian(energy_j)) if not np.isnan(energy_j).all() else np.nan
        dear = np.nan_to_num(energy_j / typical_j, nan=1.0) if typical_j else np.ones(len(able))
        useful = now.utility[able]
        known = useful[~np.isnan(useful)]
        # Who was never heard from is taken for as useful as the better ones that were.
        hope = np.quantile(known, 0.75) if len(known) else 1.0
        useful = np.where(np.isnan(useful), hope, useful)
        served = now.chosen[able]
        fair = 1 / (1 + served / max(1.0, float(served.mean())))
        guard = np.clip((now.charge[able] - BATTERY_FLOOR) / 0.3, 0.05, 1.0)
        score = (
            useful
            * (typical_s / np.maximum(upper_s, 1e-9)) ** self.TIME
            * (1 / np.maximum(dear, 1e-9)) ** self.ENERGY
            * fair**self.FAIR
            * guard
        )
        parts = {"seconds": upper_s, "heat": now.heat[able], "dear": dear, "served": served}
        return np.asarray(score), parts


def _because(parts: dict[str, Array], index: int) -> str:
    """What counted for one phone."""
    said = [f"at most {parts['seconds'][index]:.3g} s"]
    if parts["heat"][index] > 0.1:
        said.append(f"{parts['heat'][index]:.0%} hot")
    if abs(parts["dear"][index] - 1) > 0.1:
        said.append(f"{parts['dear'][index]:.2g}x the usual energy")
    if parts["served"][index]:
        said.append(f"served {parts['served'][index]:.0f} times")
    return ", ".join(said)


POLICIES: dict[str, Callable[[], "Policy"]] = {
    "random": Random,
    "fastest": lambda: Fastest(sustained=False),
    "fastest-sustained": lambda: Fastest(sustained=True),
    "fedcs": FedCS,
    "tifl": TiFL,
    "oort": Oort,
    "frugal": Frugal,
}
Policy = Random | Fastest | FedCS | TiFL | Oort | Frugal


def _draw(members: Picks, k: int, rng: np.random.Generator, weight: Array | None = None) -> Picks:
    """Draw k of them without putting back; all when there are fewer."""
    if len(members) <= k:
        return members
    chance = None if weight is None else weight / weight.sum()
    return np.asarray(rng.choice(members, size=max(0, k), replace=False, p=chance))
