"""Which disturbed runs are accepted as valid, and which clean ones are rejected? (simulation)

    python -m benchmarks.verdicts [--runs N] [--seed N] [--json FILE]

A disturbance is drawn at random: its kind, strength, moment and length, a phone, a protocol, clocks
and a workload. The same run of the same phone with the same seed is made without it: the ratio of
both step times is the true bias, and the run without it has to be valid. Rates have 95 % intervals
(Wilson).
"""

import argparse
import json
import random
import secrets
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent.deadline import Deadline
from agent.lane import run_attempt
from agent.lane_context import LaneContext
from agent.phone.adb import AdbServer
from agent.phone.phone_driver import Phone
from agent.phone.probe import probe
from agent.virtual.fleet_server import FleetConfig, serve_fleet_in_thread
from agent.virtual.mischief.control_socket import send_control_request
from kernels.runner_builds import runner_for
from workloads.catalogue import bind
from workloads.protocol.condition import Condition
from workloads.protocol.messages import Job, Report, RunId
from workloads.protocol.verdict import ReasonCode, Validity

SPEED = 200.0
PHONES = (
    "meizu-16t",
    "xiaomi-mi-9",
    "huawei-mate-30",
    "redmi-note-9-pro",
    "samsung-s8-plus",
    "huawei-honor-8",
    "oneplus-6",
    "oneplus-8-pro",
)
WORKLOADS: tuple[tuple[str, dict[str, int]], ...] = (
    ("mlp-4", {}),
    ("lenet", {"batch_size": 16}),
    ("sgemm-square", {"n": 256}),
)
MOMENTS = ("command:taskset *runner* run *", "run@5%", "run@10%", "run@30%", "run@55%", "run@85%")
BIASES = (0.03, 0.05)


@dataclass(frozen=True)
class Disturbance:
    """A kind of disturbance: how it is drawn, and the reasons that name it."""

    name: str
    draw: Callable[[random.Random], dict[str, Any]]
    reasons: frozenset[ReasonCode]


def _codes(*codes: ReasonCode) -> frozenset[ReasonCode]:
    return frozenset(codes)


SPEED_REASONS = _codes(
    ReasonCode.STEP_TIMES_CHANGED,
    ReasonCode.STEP_TIMES_TWO_MODES,
    ReasonCode.CANARY_CHANGED,
    ReasonCode.CANARY_DRIFTED,
    ReasonCode.WORK_RATE_LOW,
)
CLOCK_REASONS = SPEED_REASONS | _codes(
    ReasonCode.CLOCKS_NOT_PINNED,
    ReasonCode.CLOCK_CAPPED,
    ReasonCode.COOLING_DEVICE_ACTIVE,
    ReasonCode.CLOCK_ABOVE_REQUEST,
    ReasonCode.CLOCK_LOWERED,
    ReasonCode.CLOCK_LIMIT_LOWERED,
)
WORK_REASONS = SPEED_REASONS | _codes(
    ReasonCode.OWN_CORES_SHARED, ReasonCode.OTHER_CORES_BUSY, ReasonCode.OTHER_APPS_BUSY
)
CORE_REASONS = SPEED_REASONS | _codes(
    ReasonCode.WRONG_CORES,
    ReasonCode.THREAD_ON_OTHER_CORES,
    ReasonCode.CORE_OFFLINE,
    ReasonCode.OTHER_CORES_BUSY,
)


def _mask(rng: random.Random) -> str:
    cores = rng.sample(range(8), rng.randint(1, 4))
    return f"{sum(1 << cpu for cpu in cores):x}"


DISTURBANCES = (
    Disturbance(
        "hidden limit",
        lambda rng: {"kind": "hidden_limit", "share": rng.uniform(0.5, 0.98)},
        SPEED_REASONS,
    ),
    Disturbance(
        "throttled",
        lambda rng: {"kind": "throttle", "steps": rng.randint(1, 6)},
        CLOCK_REASONS,
    ),
    Disturbance(
        "clock reset",
        lambda rng: {"kind": "clock_reset", "after_s": rng.uniform(0.5, 5)},
        CLOCK_REASONS,
    ),
    Disturbance("clock ignored", lambda _: {"kind": "clock_ignored"}, CLOCK_REASONS),
    Disturbance(
        "other work",
        lambda rng: {"kind": "other_work", "mask": _mask(rng), "threads": rng.randint(1, 4)},
        WORK_REASONS,
    ),
    Disturbance("moved threads", lambda rng: {"kind": "migrate", "mask": _mask(rng)}, CORE_REASONS),
    Disturbance(
        "core switched off",
        lambda rng: {"kind": "hotplug", "cpu": rng.randint(1, 7), "service": "surfaceflinger"},
        CORE_REASONS,
    ),
    Disturbance(
        "suspended",
        lambda rng: {"kind": "sleep", "for": rng.uniform(0.2, 5)},
        SPEED_REASONS | _codes(ReasonCode.PHONE_SLEPT, ReasonCode.SAMPLING_GAP),
    ),
    Disturbance(
        "false times",
        lambda rng: {"kind": "false_times", "share": rng.choice((0.95, 0.8, 0.5, 1e-3, 1e-6))},
        _codes(ReasonCode.TIME_MISMATCH, ReasonCode.SPEED_IMPOSSIBLE),
    ),
    Disturbance(
        "frozen sensor",
        lambda _: {"kind": "sensor", "value": "frozen"},
        _codes(ReasonCode.SENSOR_FROZEN, ReasonCode.NO_TEMP_READINGS),
    ),
)


@dataclass(frozen=True)
class Outcome:
    """One drawn run, with and without its disturbance."""

    kind: str
    draw: dict[str, Any]
    bias: float | None  # of the step time; None if the run failed
    validity: Validity | None  # None: a fault
    codes: tuple[ReasonCode, ...]  # that count against the run, in their order
    clean_validity: Validity | None
    clean_codes: tuple[ReasonCode, ...]

    @property
    def named(self) -> bool:
        """Whether the first reason names the disturbance."""
        reasons = next(kind.reasons for kind in DISTURBANCES if kind.name == self.kind)
        return bool(self.codes) and self.codes[0] in reasons


@contextmanager
def phone_of(adb: AdbServer, profile: str, seed: int, folder: Path) -> Iterator[Phone]:
    """Start one virtual phone, and probe it."""
    config = FleetConfig((profile,), speed=SPEED, seed=seed, control=folder)
    with serve_fleet_in_thread(config) as (_, (address,)):
        if adb.connect(address.address, Deadline.after(10)) != "device":
            raise SystemExit(f"{profile} does not answer")
        phone = Phone(adb.open(address.address))
        probe(phone, runner_for)
        yield phone
        phone.close()
        adb.disconnect(address.address)


def run_once(adb: AdbServer, draw: dict[str, Any], fault: dict[str, Any] | None) -> Report:
    """Make one run on a fresh phone; the first of two runs learns the canary."""
    with tempfile.TemporaryDirectory(prefix="farm-verdicts-") as name:
        folder = Path(name)
        with phone_of(adb, draw["phone"], draw["seed"], folder / "control") as phone:
            context = LaneContext("bench", folder)
            for repeat in range(2):
                if repeat == 1 and fault is not None:
                    send_control_request(folder / "control", {"action": "add", **fault})
                job = Job(
                    run=RunId(trial="tr-" + "0" * 16, repeat=repeat, attempt=1),
                    phone=phone.facts.serial,
                    fence=repeat + 1,
                    lease_timeout_s=60,
                    case=bind(*draw["workload"]),
                    condition=Condition(**draw["condition"]),
                )
                report = run_attempt(job, phone, context).report
    return report


def draw_run(rng: random.Random) -> dict[str, Any]:
    """Draw a phone, a workload and a condition."""
    protocol = rng.choice(("cold", "cold", "cold", "endurance"))
    condition: dict[str, Any] = {
        "protocol": protocol,
        "cores": rng.choice(("big2", "big4", "little2", "all8")),
        "freq": rng.choice(("high", "mid", "low", "free")),
        "start_temp_max_c": None,
        "time_min_s": rng.choice((10.0, 20.0)) if protocol == "cold" else 150.0,
    }
    return {
        "phone": rng.choice(PHONES),
        "seed": rng.randrange(2**31),
        "workload": rng.choice(WORKLOADS),
        "condition": condition,
    }


def draw_outcome(adb: AdbServer, rng: random.Random) -> Outcome:
    """Draw a disturbance and a run; make the run with and without it."""
    kind, draw = rng.choice(DISTURBANCES), draw_run(rng)
    fault = {"at": rng.choice(MOMENTS), **kind.draw(rng)}
    if kind.name not in {"moved threads", "suspended"} and rng.random() < 0.3:
        fault["for"] = rng.uniform(2, 60)
    clean, disturbed = run_once(adb, draw, None), run_once(adb, draw, fault)
    times = [_step_ms(report) for report in (disturbed, clean)]
    bias = times[0] / times[1] - 1 if times[0] and times[1] else None
    return Outcome(kind.name, draw | {"fault": fault}, bias, *_judged(disturbed), *_judged(clean))


def _judged(report: Report) -> tuple[Validity | None, tuple[ReasonCode, ...]]:
    if report.verdict is None:
        return None, ()
    reasons = report.verdict.reasons
    return report.verdict.validity, tuple(
        reason.code for reason in reasons if reason.validity is not Validity.VALID
    )


def _step_ms(report: Report) -> float | None:
    names = ("step_ms", "last_minute_step_ms")
    values = {metric.name: metric.value for metric in report.metrics}
    return next((values[name] for name in names if name in values), None)


def rate(count: int, total: int) -> str:
    """A share with its 95 % interval."""
    if not total:
        return "-"
    z, share = 1.96, count / total
    middle = (share + z * z / (2 * total)) / (1 + z * z / total)
    half = z / (1 + z * z / total) * (share * (1 - share) / total + (z / total / 2) ** 2) ** 0.5
    return f"{count}/{total} {share:.1%} ({max(middle - half, 0):.1%} to {middle + half:.1%})"


def print_table(outcomes: list[Outcome]) -> None:
    """Print one row per kind, and all of them together."""
    groups = {kind.name: [o for o in outcomes if o.kind == kind.name] for kind in DISTURBANCES}
    for name, group in {**groups, "all": outcomes}.items():
        biased = {
            limit: [o for o in group if o.bias is not None and abs(o.bias) > limit]
            for limit in BIASES
        }
        accepted = {
            limit: sum(o.validity is Validity.VALID for o in runs) for limit, runs in biased.items()
        }
        between = len(biased[0.03]) - len(biased[0.05])
        found = [o for o in biased[0.03] if o.validity in {Validity.SUSPECT, Validity.VOID}]
        print(f"{name}: {len(group)} drawn")
        print(f"  accepted, bias above 5 %  {rate(accepted[0.05], len(biased[0.05]))}")
        print(f"  accepted, bias 3 to 5 %   {rate(accepted[0.03] - accepted[0.05], between)}")
        print(f"  right reason first        {rate(sum(o.named for o in found), len(found))}")
    clean = [o for o in outcomes if o.clean_validity is not None]
    rejected = [o for o in clean if o.clean_validity is not Validity.VALID]
    print(f"clean and rejected: {rate(len(rejected), len(clean))}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=200, help="drawn runs, each made twice")
    parser.add_argument("--seed", type=int, default=None, help="default: random, and printed")
    parser.add_argument("--json", type=Path, help="file for every drawn run")
    options = parser.parse_args()
    seed = secrets.randbelow(2**31) if options.seed is None else options.seed
    print(f"seed {seed}, {options.runs} runs on {len(PHONES)} virtual phones (simulated)")
    rng = random.Random(seed)
    outcomes = []
    with tempfile.TemporaryDirectory() as folder, AdbServer(Path(folder)) as adb:
        for _ in range(options.runs):
            outcomes.append(draw_outcome(adb, rng))
    print_table(outcomes)
    if options.json is not None:
        options.json.write_text(json.dumps([vars(outcome) for outcome in outcomes], indent=1))


if __name__ == "__main__":
    main()
