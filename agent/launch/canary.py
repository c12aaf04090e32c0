"""The canary: the same small product before and after a run, which tells of the phone alone.

No sensor and no root is needed for it: a hidden limiter, a tired battery or a daemon that came to
life in between makes it slower, whatever the nodes say.
"""

from dataclasses import dataclass
from functools import cache

from agent.control.guard import LANE_DIR
from agent.deadline import Deadline
from agent.phone.phone import HOME, Command, Phone
from agent.run.figures import median_step_ms
from agent.run.lines import Output
from workloads.catalogue import bind, lower
from workloads.fault import FarmError
from workloads.noun import digest_of_bytes
from workloads.phone import CoreSet

SECONDS, STEPS, WARMUP = 0.25, 10, 3
CALL_S = 20.0
CHANGE_MAX, AGED_MAX = 0.05, 0.08  # what a phone may differ from itself within and between runs
KEPT_SHARE = 0.8  # of the old record, when a new canary is added to it
_CASE = bind("sgemm-square", {"n": 256})
_DIR = f"{LANE_DIR}/canary"


@dataclass(frozen=True)
class Canary:
    """Times of one step before and after, in ms, and what this phone took before on such clocks."""

    before_ms: float | None = None
    after_ms: float | None = None
    record_ms: float | None = None

    @property
    def change(self) -> float | None:
        """How much longer it took after the run, as a share."""
        return _ratio(self.after_ms, self.before_ms)

    @property
    def aged(self) -> float | None:
        """How much longer it took before the run than the phone's own record, as a share."""
        return _ratio(self.before_ms, self.record_ms)

    @property
    def is_sound(self) -> bool:
        """Whether this one may be added to the phone's record."""
        return self.change is not None and abs(self.change) <= CHANGE_MAX


NO_CANARY = Canary()


def canary_key(cores: CoreSet, clocks_khz: dict[int, int]) -> str:
    """Under what a phone's record is kept: other cores or clocks, other record."""
    clocks = ",".join(f"{policy}:{khz}" for policy, khz in sorted(clocks_khz.items()))
    return f"{cores.mask:x}@{clocks}"


def updated_record(old_ms: float | None, new_ms: float) -> float:
    """The record with one more canary."""
    return new_ms if old_ms is None else KEPT_SHARE * old_ms + (1 - KEPT_SHARE) * new_ms


@cache
def _plan_for(cores: int) -> bytes:
    return lower(_CASE, cores)


def first_canary(phone: Phone, runner: str, cores: CoreSet) -> float | None:
    """Let the canary work for a moment; its step in ms, or None: it is a witness, no judge."""
    return _run(phone, runner, _bring(phone, cores), cores)


def second_canary(
    phone: Phone, runner: str, cores: CoreSet, clocks_khz: dict[int, int], first_ms: float | None
) -> Canary:
    """The same after a run that had a first one, and the phone's record; a sound one joins it."""
    if first_ms is None:
        return NO_CANARY
    key = canary_key(cores, clocks_khz)
    record_ms = phone.memory.canary_ms.get(key)
    canary = Canary(first_ms, first_canary(phone, runner, cores), record_ms)
    if canary.is_sound:
        phone.note_canary(key, updated_record(record_ms, first_ms))
    return canary


def _bring(phone: Phone, cores: CoreSet) -> str:
    """Have the canary's plan on the phone and answer its path; pushed once for a count of cores."""
    plan = _plan_for(len(cores.cpus))
    path = f"{HOME}/canary-{digest_of_bytes(plan)[:12]}"
    there, _ = phone.batch([Command(["test", "-s", path]), Command(["mkdir", "-p", _DIR])])
    if there.status != 0:
        phone.push(plan, path)
    return path


def _run(phone: Phone, runner: str, plan: str, cores: CoreSet) -> float | None:
    words = ["taskset", f"{cores.mask:x}", runner, "run", plan, _DIR]
    words += ["--warmup", str(WARMUP), "--steps", str(STEPS), "--seconds", f"{SECONDS:g}"]
    words += ["--max-seconds", "2"]
    lines = f"{_DIR}/out.jsonl"
    commands = [Command(words, into="/dev/null"), Command(["cat", lines])]
    ran, said = phone.exchange(commands, Deadline.after(CALL_S))
    output = Output(_CASE.digest)
    try:
        output.feed(said.output)
    except FarmError:
        return None
    if ran.status != 0 or output.done is None or not output.windows:
        return None
    return median_step_ms(output.windows)


def _ratio(now_ms: float | None, then_ms: float | None) -> float | None:
    return now_ms / then_ms - 1 if now_ms is not None and then_ms else None
