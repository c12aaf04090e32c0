"""Random runs and disturbances: phone, workload, condition; kind, time and strength.

Every draw depends on its own generator only, so that a seed names it.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from workloads.catalogue import Case, bind
from workloads.protocol.phone_facts import PhoneFacts, choose_cores
from workloads.protocol.verdict import ReasonCode

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
Backend = Literal["cpu", "opencl"]
Work = tuple[str, dict[str, int], Backend]
WORKLOADS: tuple[Work, ...] = (
    ("mlp-4", {}, "cpu"),
    ("lenet", {"batch_size": 16}, "cpu"),
    ("resnet20", {"batch_size": 8}, "cpu"),
    ("sgemm-square", {"n": 256}, "cpu"),
    ("sgemm", {"m": 1, "n": 4096, "k": 4096}, "cpu"),  # waits for memory
    ("lenet", {"batch_size": 16}, "opencl"),
    ("sgemm-square", {"n": 512}, "opencl"),
)
UNITS = 8  # of each model, which scatter by different amounts
CPU_WORKLOADS = tuple(work for work in WORKLOADS if work[2] == "cpu")
FIRST_CANARY = "command:taskset *runner* run *"
Mischief = dict[str, Any]


@dataclass(frozen=True)
class Setting:
    """What kind of phone a run is drawn on."""

    noise: Literal["low", "recorded"] = "recorded"
    is_stock: bool = False
    background: bool = True

    @property
    def is_quiet(self) -> bool:
        """Whether its times scatter little, and it does nothing by itself."""
        return self.noise == "low" and not self.background

    @property
    def label(self) -> str:
        """A row's name in a table."""
        root = "unrooted" if self.is_stock else "rooted"
        return f"{self.noise} noise, {root}, {'background' if self.background else 'idle'}"

    def word(self, model: str, unit: int) -> str:
        """A phone of this kind, for `farm virtual up`."""
        stock = ":stock" if self.is_stock else ""
        quiet = ":quiet" if self.noise == "low" else ":quiet:noisy"
        background = ":background" if self.background else ""
        return f"{model}{stock}{quiet}{background}=DRAWN{unit}"


SETTINGS = tuple(
    Setting(noise, is_stock, background)
    for noise in ("low", "recorded")
    for is_stock in (False, True)
    for background in (False, True)
)


@dataclass(frozen=True)
class DrawnRun:
    """One run: a phone with its seed, a workload and a condition."""

    phone: str
    seed: int
    workload: Work
    condition: dict[str, Any]

    @property
    def case(self) -> Case:
        name, parameters, backend = self.workload
        return bind(name, parameters, backend=backend)

    @property
    def seconds(self) -> float:
        return float(self.condition["time_min_s"])

    @property
    def is_stock(self) -> bool:
        return ":stock" in self.phone

    @property
    def is_gpu(self) -> bool:
        return self.workload[2] == "opencl"

    @property
    def is_held(self) -> bool:
        return bool(self.condition["freq"] != "free")


def draw_run(rng: random.Random, setting: Setting) -> DrawnRun:
    """Draw a phone of a kind, a workload and a condition that a healthy phone can meet."""
    phone = setting.word(rng.choice(PHONES), rng.randrange(UNITS))
    protocol = rng.choices(("cold", "endurance", "soaked"), (75, 18, 7))[0]
    condition: dict[str, Any] = {
        "protocol": protocol,
        "cores": rng.choice(("big1", "big2", "little2", "little4", "all4", "all8")),
        "freq": "free" if setting.is_stock else rng.choice(("high", "mid", "mid", "low", "free")),
        "start_temp_max_c": None,
        "time_min_s": round(rng.uniform(8.0, 20.0), 1),
    }
    if protocol == "endurance":
        condition["time_min_s"] = 150.0
    elif protocol == "soaked":  # little power, so that every phone is steady at the end
        condition |= {"cores": "little2", "time_min_s": 1800.0}
        condition |= {} if setting.is_stock else {"freq": "low"}
    works = WORKLOADS if protocol != "soaked" else CPU_WORKLOADS
    return DrawnRun(phone, rng.randrange(2**31), rng.choice(works), condition)


Draw = Callable[[random.Random, DrawnRun, PhoneFacts], list[Mischief]]


@dataclass(frozen=True)
class Disturbance:
    """A kind of disturbance: how it is drawn, and the reasons that name it."""

    name: str
    draw: Draw
    reasons: frozenset[ReasonCode]
    fits: Callable[[DrawnRun], bool] = field(default=lambda _: True)
    weight: int = 2
    # Whether the run must not count, also if its times are right.
    is_false_claim: bool = False


def moment(rng: random.Random, run: DrawnRun) -> Mischief:
    """Draw when a disturbance starts and ends."""
    own = f"run_start:{run.case.digest}"
    share = rng.uniform(0, 95)
    lasting: Mischief = {"at": f"run@{share:.0f}%"}
    length = run.seconds * rng.uniform(0.05, 1 - share / 100)
    period = run.seconds * rng.uniform(0.05, 0.3)
    bursts = {"for": period * rng.uniform(0.3, 0.9), "every": period, "until": "run_stop"}
    choices: tuple[tuple[int, Mischief], ...] = (
        (2, {}),  # since long before
        (2, {"at": FIRST_CANARY}),
        (3, lasting),
        (2, {"at": f"run@{rng.uniform(0, 5):.1f}%"}),
        (2, {**lasting, "for": length}),
        (2, {"at": own, "for": run.seconds * rng.uniform(0.5, 1.2)}),
        (2, {**lasting, **bursts}),
    )
    return rng.choices([item for _, item in choices], [weight for weight, _ in choices])[0]


def timed(kind: str, **options: Callable[[random.Random], Any]) -> Draw:
    """A fault at a random moment, with options that are drawn."""

    def draw(rng: random.Random, run: DrawnRun, _: PhoneFacts) -> list[Mischief]:
        drawn = {name: option(rng) for name, option in options.items()}
        return [{"kind": kind, **drawn, **moment(rng, run)}]

    return draw


def _own_mask(run: DrawnRun, facts: PhoneFacts) -> int:
    return choose_cores(facts, run.condition["cores"]).mask


def _some(rng: random.Random, mask: int) -> int:
    cpus = [cpu for cpu in range(mask.bit_length()) if mask >> cpu & 1]
    return sum(1 << cpu for cpu in rng.sample(cpus, rng.randint(1, len(cpus)))) if cpus else 0


def _stolen_share(rng: random.Random, run: DrawnRun, facts: PhoneFacts) -> list[Mischief]:
    """Part of one or more of the run's own cores."""
    mask = _some(rng, _own_mask(run, facts))
    threads, share = mask.bit_count(), rng.uniform(0.03, 0.5)
    fault = {"kind": "other_work", "mask": f"{mask:x}", "threads": threads, "share": share}
    return [fault | moment(rng, run)]


def _other_work(rng: random.Random, run: DrawnRun, facts: PhoneFacts) -> list[Mischief]:
    mask, threads = _some(rng, (1 << facts.cores) - 1), rng.randint(1, 4)
    return [{"kind": "other_work", "mask": f"{mask:x}", "threads": threads, **moment(rng, run)}]


def _moved(mask: Callable[[random.Random, int, int], int]) -> Draw:
    def draw(rng: random.Random, run: DrawnRun, facts: PhoneFacts) -> list[Mischief]:
        every = (1 << facts.cores) - 1
        own = _own_mask(run, facts)
        new = mask(rng, own, every & ~own) or every
        return [{"kind": "migrate", "mask": f"{new:x}", "at": f"run@{rng.uniform(0, 95):.0f}%"}]

    return draw


def _hotplug(rng: random.Random, run: DrawnRun, facts: PhoneFacts) -> list[Mischief]:
    own = choose_cores(facts, run.condition["cores"]).cpus
    cpu = rng.choice([cpu for cpu in own if cpu] or [facts.cores - 1])
    return [{"kind": "hotplug", "cpu": cpu, "service": "surfaceflinger", **moment(rng, run)}]


def _clock_reset(rng: random.Random, run: DrawnRun, _: PhoneFacts) -> list[Mischief]:
    return [{"kind": "clock_reset", "after_s": rng.uniform(0.5, run.seconds)}]


def _hopping(rng: random.Random, run: DrawnRun, _: PhoneFacts) -> list[Mischief]:
    period = rng.uniform(0.2, 3.0)
    when = {"at": f"run@{rng.uniform(0, 50):.0f}%", "every": period, "until": "run_stop"}
    fault = {"kind": "throttle", "steps": rng.randint(1, 8), "for": period * rng.uniform(0.3, 0.9)}
    return [fault | when]


def _exact_run(rng: random.Random, run: DrawnRun, _: PhoneFacts) -> list[Mischief]:
    """From the first step to the last one; both canaries are as always."""
    when = {"at": f"run_start:{run.case.digest}", "until": "run_stop"}
    return [{"kind": "hidden_limit", "share": rng.uniform(0.5, 0.97), **when}]


def _canary_only(rng: random.Random, run: DrawnRun, _: PhoneFacts) -> list[Mischief]:
    when = {"at": f"run_start#{rng.randint(1, 2)}", "until": "run_stop"}
    return [{"kind": "hidden_limit", "share": rng.uniform(0.5, 0.97), **when}]


def _warmup_only(rng: random.Random, run: DrawnRun, _: PhoneFacts) -> list[Mischief]:
    when = {"at": f"run_start:{run.case.digest}", "for": rng.uniform(0.001, 0.2)}
    return [{"kind": "hidden_limit", "share": rng.uniform(0.2, 0.9), **when}]


def _in_short_periods(rng: random.Random, run: DrawnRun, _: PhoneFacts) -> list[Mischief]:
    """Shorter than a window, so that all windows are equally slow."""
    period = rng.uniform(0.02, 0.3)
    when = {"at": f"run_start:{run.case.digest}", "until": "run_stop", "every": period}
    fault = {"kind": "hidden_limit", "share": rng.uniform(0.5, 0.9)}
    return [fault | when | {"for": period * rng.uniform(0.2, 0.8)}]


def _slow_ramp(rng: random.Random, run: DrawnRun, _: PhoneFacts) -> list[Mischief]:
    total, steps = rng.uniform(0.03, 0.3), 12
    shares = [1 - total * step / steps for step in range(1, steps + 1)]
    return [
        {"kind": "hidden_limit", "share": share, "at": f"run@{100 * step / steps:.1f}%"}
        for step, share in enumerate(shares)
    ]


def _weak_together(rng: random.Random, run: DrawnRun, facts: PhoneFacts) -> list[Mischief]:
    """Each below its limit."""
    stolen: Mischief = {"kind": "other_work", "mask": f"{_own_mask(run, facts):x}"}
    stolen |= {"threads": _own_mask(run, facts).bit_count(), "share": rng.uniform(0.01, 0.035)}
    weak: list[Mischief] = [
        {"kind": "hidden_limit", "share": rng.uniform(0.97, 0.985)},
        {"kind": "memory_contention", "share": rng.uniform(0.96, 0.98)},
        stolen,
    ]
    return [fault | moment(rng, run) for fault in rng.sample(weak, rng.randint(2, 3))]


def _frozen_process(rng: random.Random, run: DrawnRun, _: PhoneFacts) -> list[Mischief]:
    period = rng.choice((0.1, 1.0, run.seconds / 2))
    when = {"at": f"run_start:{run.case.digest}", "until": "run_stop", "every": period}
    return [{"kind": "sleep", "suspends": False, "for": period * rng.uniform(0.05, 0.5), **when}]


def _evidence_lost(rng: random.Random, run: DrawnRun, facts: PhoneFacts) -> list[Mischief]:
    """What shows a disturbance is lost: the canaries, or the use of the cores."""
    lost: tuple[Mischief, ...] = (
        {"kind": "truncated", "command": "cat *canary*", "bytes": rng.randint(0, 200)},
        {"kind": "node_value", "value": rng.choice(("frozen", "missing"))},
    )
    return [rng.choice(lost) | {"at": FIRST_CANARY}, *_stolen_share(rng, run, facts)]


def _governor(rng: random.Random, run: DrawnRun, _: PhoneFacts) -> list[Mischief]:
    period = rng.choice((0.1, 1.0, run.seconds / 3))
    when = {"at": f"run@{rng.uniform(0, 50):.0f}%", "every": period, "until": "run_stop"}
    return [{"kind": "governor", "for": period * rng.uniform(0.2, 0.8), **when}]


def _foreground(rng: random.Random, run: DrawnRun, facts: PhoneFacts) -> list[Mischief]:
    """An app comes to the foreground: cores, GPU and screen."""
    when = moment(rng, run)
    work = {"kind": "other_work", "mask": f"{(1 << facts.cores) - 1:x}", "threads": 2}
    draws: list[Mischief] = [work, {"kind": "gpu_contention", "share": rng.uniform(0.4, 0.9)}]
    draws += [{"kind": "screen", "watts": rng.uniform(0.3, 1.2)}, {"kind": "foreground"}]
    return [fault | when for fault in draws]


def _codes(*codes: ReasonCode) -> frozenset[ReasonCode]:
    return frozenset(codes)


R = ReasonCode
SPEED = _codes(
    *(R.STEP_TIMES_CHANGED, R.STEP_TIMES_TWO_MODES, R.CANARY_CHANGED, R.CANARY_DRIFTED),
    *(R.WORK_RATE_LOW, R.WORK_RATE_HIGH, R.WORK_RATE_CHANGED, R.CLOCK_NOT_COUNTED),
)
LOST = _codes(R.CANARY_FAILED, R.READINGS_LOST, R.SAMPLING_GAP, R.CPU_TIME_LOW)
CLOCK = SPEED | _codes(
    *(R.CLOCKS_NOT_PINNED, R.CLOCK_CAPPED, R.COOLING_DEVICE_ACTIVE, R.CLOCK_ABOVE_REQUEST),
    *(R.CLOCK_LOWERED, R.CLOCK_LIMIT_LOWERED, R.GPU_CLOCK_LOWERED, R.GPU_CLOCK_NOT_PINNED),
)
WORK = SPEED | _codes(R.OWN_CORES_SHARED, R.OTHER_CORES_BUSY, R.OTHER_APPS_BUSY)
CORES = SPEED | _codes(
    *(R.WRONG_CORES, R.THREAD_ON_OTHER_CORES, R.THREADS_MOVED, R.CORE_OFFLINE),
    R.OTHER_CORES_BUSY,
)
GPU = SPEED | _codes(R.GPU_SHARED, R.GPU_CLOCK_NOT_PINNED, R.GPU_CLOCK_LOWERED)
USED = _codes(R.SCREEN_LIT, R.FOREGROUND_CHANGED, R.PHONE_USED)
CLAIM = _codes(
    R.TIME_STAMPS_COARSE, R.TIME_MISMATCH, R.SPEED_IMPOSSIBLE, R.TOO_SHORT, R.LOSS_DID_NOT_FALL
)


def _is_held(run: DrawnRun) -> bool:
    return run.is_held


def _is_rooted_cpu(run: DrawnRun) -> bool:
    return not run.is_stock and not run.is_gpu


def _is_gpu(run: DrawnRun) -> bool:
    return run.is_gpu


def _is_cold(run: DrawnRun) -> bool:
    return bool(run.condition["protocol"] == "cold")


DISTURBANCES = (
    Disturbance(
        "hidden limit", timed("hidden_limit", share=lambda r: r.uniform(0.5, 0.97)), SPEED, weight=4
    ),
    Disturbance("limit exactly in the run", _exact_run, SPEED, weight=1),
    Disturbance("limit in a canary only", _canary_only, SPEED, weight=1),
    Disturbance("limit in the warm-up only", _warmup_only, SPEED, weight=1),
    Disturbance(
        "slower since yesterday",
        lambda r, _, __: [{"kind": "hidden_limit", "share": r.uniform(0.8, 0.97)}],
        SPEED,
    ),
    Disturbance("throttled", timed("throttle", steps=lambda r: r.randint(1, 8)), CLOCK, _is_cold),
    Disturbance("frequency hopping", _hopping, CLOCK, _is_cold),
    Disturbance("clock reset", _clock_reset, CLOCK, _is_held),
    Disturbance("clock ignored", lambda *_: [{"kind": "clock_ignored"}], CLOCK, _is_held, 1),
    Disturbance(
        "clock ignored, shown",
        lambda *_: [{"kind": "clock_ignored", "shown": True}],
        CLOCK,
        _is_held,
        1,
    ),
    Disturbance(
        "clock that pretends",
        timed("clock_pretends", steps=lambda r: r.choice((-6, -4, -3, -2, -1, 1, 2, 4))),
        SPEED,
    ),
    Disturbance("stolen share of a core", _stolen_share, WORK, lambda run: not run.is_gpu, 4),
    Disturbance("other work", _other_work, WORK),
    Disturbance("limit in short periods", _in_short_periods, SPEED, weight=1),
    Disturbance("slow ramp", _slow_ramp, SPEED, weight=1),
    Disturbance("weak ones together", _weak_together, WORK, lambda run: not run.is_gpu, 2),
    Disturbance("frozen process", _frozen_process, SPEED | LOST, weight=1),
    Disturbance("evidence lost", _evidence_lost, WORK | LOST, lambda run: not run.is_gpu, 1),
    Disturbance("governor", _governor, SPEED, lambda run: not run.is_held and _is_cold(run), 3),
    Disturbance(
        "power drawn elsewhere",
        timed("power_draw", watts=lambda r: r.uniform(0.2, 1.5)),
        _codes(R.POWER_CHANGED, R.STEP_ENERGY_CHANGED),
        weight=1,
    ),
    Disturbance(
        "coarse time stamps",
        lambda r, *_: [{"kind": "false_times", "share": 1.0, "tick_ms": r.uniform(1.0, 20.0)}],
        SPEED | CLAIM,
        weight=1,
    ),
    Disturbance("narrowed cores", _moved(lambda r, own, _: _some(r, own)), CORES, _is_rooted_cpu),
    Disturbance(
        "widened cores", _moved(lambda r, own, rest: own | _some(r, rest)), CORES, _is_rooted_cpu
    ),
    Disturbance("other cores", _moved(lambda r, _, rest: _some(r, rest)), CORES, _is_rooted_cpu),
    Disturbance("core switched off", _hotplug, CORES, lambda run: not run.is_stock),
    Disturbance(
        "memory contention", timed("memory_contention", share=lambda r: r.uniform(0.3, 0.95)), SPEED
    ),
    Disturbance(
        "GPU contention",
        timed("gpu_contention", share=lambda r: r.uniform(0.3, 0.95)),
        GPU,
        _is_gpu,
    ),
    Disturbance(
        "hidden limit of the GPU",
        timed("hidden_limit", share=lambda r: r.uniform(0.5, 0.95), part=lambda _: "gpu"),
        GPU,
        _is_gpu,
    ),
    Disturbance(
        "GPU throttled",
        timed("throttle", cluster=lambda _: "gpu", steps=lambda r: r.randint(1, 4)),
        GPU,
        lambda run: run.is_gpu and _is_cold(run),
    ),
    Disturbance("app in the foreground", _foreground, WORK | GPU | USED),
    Disturbance("idle app in the foreground", timed("foreground"), USED, weight=1),
    Disturbance(
        "memory clock lowered",
        timed("bus_throttle", share=lambda r: r.uniform(0.3, 0.95)),
        SPEED | _codes(R.BUS_CLOCK_LOWERED),
    ),
    Disturbance(
        "suspended",
        lambda r, run, _: [
            {"kind": "sleep", "for": r.uniform(0.2, 5), "at": f"run@{r.uniform(0, 90):.0f}%"}
        ],
        SPEED | _codes(R.PHONE_SLEPT, R.SAMPLING_GAP),
        weight=1,
    ),
    Disturbance(
        "clock of the phone jumps",
        lambda r, run, _: [
            {
                "kind": "time_jump",
                "seconds": r.choice((-5, -1, 0.5, 5, 60)),
                "at": f"run@{r.uniform(0, 90):.0f}%",
            }
        ],
        SPEED | CLAIM | _codes(R.PHONE_SLEPT, R.SAMPLING_GAP),
        weight=1,
    ),
    Disturbance(
        "false times",
        lambda r, _, __: [
            {
                "kind": "false_times",
                "share": r.choice((1.3, 1.05, 0.95, 0.8, 0.5, 1e-3, 1e-6)),
                "at": r.choice((FIRST_CANARY, "run_start", "")),
            }
        ],
        SPEED | CLAIM,
    ),
    Disturbance(
        "dropped steps",
        lambda r, _, __: [
            {
                "kind": "false_times",
                "share": 1.0,
                "drop_every": r.randint(2, 20),
                "at": FIRST_CANARY,
            }
        ],
        SPEED | CLAIM,
        weight=1,
        is_false_claim=True,
    ),
    Disturbance(
        "false count of steps",
        lambda r, run, _: [
            {
                "kind": "false_times",
                "share": 1.0,
                "step_factor": r.choice((1.5, 2.0, 5.0, 1e3)),
                "at": f"run_start:{run.case.digest}",
            }
        ],
        SPEED | CLAIM,
        weight=1,
    ),
    Disturbance(
        "wrong loss",
        lambda *_: [{"kind": "false_loss", "first": 1.0, "last": 1.5}],
        CLAIM,
        lambda run: "sgemm" not in run.workload[0],
        1,
        True,
    ),
    Disturbance(
        "frozen sensor",
        timed("sensor", value=lambda _: "frozen"),
        _codes(R.SENSOR_FROZEN, R.NO_TEMP_READINGS),
        lambda run: not run.is_stock,
        1,
    ),
    Disturbance(
        "evidence that ends",
        lambda r, *_: [
            {
                "kind": "sensor",
                "value": r.choice(("nan", "0")),
                "at": f"run@{r.uniform(10, 30):.0f}%",
            }
        ],
        _codes(R.SENSOR_FROZEN, R.NO_TEMP_READINGS, R.READINGS_LOST),
        lambda run: run.condition["protocol"] == "endurance",
        1,
    ),
    Disturbance(
        "screen on",
        timed("screen", watts=lambda r: r.uniform(0.2, 1.5)),
        USED,
        lambda run: not run.is_stock,
        1,
    ),
    Disturbance(
        "charger plugged",
        lambda r, *_: [{"kind": "charger_returns", "at": f"run@{r.uniform(0, 90):.0f}%"}],
        _codes(R.CHARGED),
        lambda run: not run.is_stock,
        1,
    ),
    Disturbance(
        "charger unplugged",
        lambda r, *_: [
            {"kind": "charger_returns", "on": False, "at": f"run@{r.uniform(0, 90):.0f}%"}
        ],
        _codes(R.CHARGED),
        weight=1,
    ),
)
BY_NAME = {kind.name: kind for kind in DISTURBANCES}


def draw_kinds(rng: random.Random, run: DrawnRun, count: int) -> list[Disturbance]:
    """Draw different kinds of disturbance that this run can have."""
    fitting = [kind for kind in DISTURBANCES if kind.fits(run)]
    keyed = sorted(fitting, key=lambda kind: rng.random() ** (1 / kind.weight), reverse=True)
    return keyed[:count]
