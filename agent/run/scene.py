"""The scene: which nodes tell of a run, and what they told before, during and after it."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from agent.control.clocks import can_pin, clusters_of, policy_node
from agent.control.placement import Placement, strays
from agent.phone.framework import STATUS as THERMAL_STATUS
from agent.phone.framework import is_framework
from agent.phone.nodes import THERMAL, first_number, hottest, parse_cpu_coolers
from agent.phone.phone import BOOT_ID, UPTIME, Command, Phone, reading
from agent.run.activity import (
    CORES_MARK,
    MEMINFO,
    OWN_STAT,
    STAT,
    WHOLE_MARK,
    busy_course,
    gpu_node,
    parse_memory,
    swap_used_kb,
    swapped_mb,
)
from agent.run.canary import NO_CANARY, Canary
from agent.run.energy import POWER_NODES, Points, Power, found_gauge, power_of, rest_power_w
from agent.run.figures import (
    FULL_CHARGE,
    Measured,
    figures,
    hottest_trace,
    span_ns,
)
from agent.run.gates import Effort
from agent.run.lines import Output
from agent.run.rails import RAIL_NODES, Meter, parse_meters, rail_courses
from agent.run.settling import curve_of, settled_ns, throttled_after_s
from agent.run.surroundings import look_around
from agent.run.telemetry import Readings, pack, within
from agent.run.verdict import Evidence, held_share, judge
from workloads.catalogue import Case, launch_of, work_of
from workloads.condition import Condition, Protocol
from workloads.fault import RunnerFailed
from workloads.measure import Metric, Provenances, Verdict
from workloads.messages import Resolved
from workloads.phone import CoreSet, Gauge, PhoneFacts, ThermalZone
from workloads.text import safe_text
from workloads.timeline import BUSY, CLOCK, ENERGY, Course, course_of

READINGS_MIN = 5


@dataclass(frozen=True)
class Snapshot:
    """The phone at one moment: its boot, its heat, and how long it was at which clock."""

    boot_id: str
    temp_c: float | None
    residency: Mapping[int, str]
    charge_uah: int | None = None  # of the full battery
    swap_used_kb: int | None = None


@dataclass(frozen=True)
class Harvest:
    """What a run comes to."""

    verdict: Verdict
    metrics: tuple[Metric, ...]
    digest: str
    telemetry: bytes
    curve: tuple[tuple[float, float], ...] = ()
    gauge: Gauge | None = None
    idle_w: float | None = None


@dataclass(frozen=True)
class Beside:
    """What the agent itself saw around a run: its threads, canary, power at rest, and a meter."""

    placement: Placement | None = None
    canary: Canary = NO_CANARY
    rest: Readings = field(default_factory=Readings)
    idle_w: float | None = None  # remembered, where this rest was too short to tell
    metered: Points | None = None


NOTHING_BESIDE = Beside()


@dataclass(frozen=True)
class Scene:
    """One run's view of its phone."""

    facts: PhoneFacts
    cores: CoreSet
    asked_khz: Mapping[int, int]
    coolers: Mapping[str, str]
    meters: tuple[Meter, ...] = ()
    gpu_khz: int | None = None  # asked of the GPU

    @property
    def sampled(self) -> list[str]:
        """The nodes that the runner samples beside the work."""
        slow = [self.facts.slow_zone.path] if self.facts.slow_zone else []
        clocks = [
            policy_node(cluster.policy, name)
            for cluster in clusters_of(self.facts, self.cores)
            if cluster.ladder_khz
            for name in ("scaling_cur_freq", "scaling_max_freq")
        ]
        zones = [zone.path for zone in self.facts.cpu_zones]
        counts = [] if can_pin(self.facts) else map(_residency_node, self.asked_khz)
        nodes = [*zones, *slow, *clocks, *self.coolers, *POWER_NODES]
        nodes += [f"{path}{WHOLE_MARK}" for path in counts]
        nodes += [f"{STAT}{CORES_MARK}", OWN_STAT, f"{MEMINFO}{WHOLE_MARK}"]
        gpu = gpu_node(self.facts.gpu)
        nodes += [gpu] if gpu else []
        nodes += [self.gpu_clock_node] if self.gpu_khz is not None else []
        nodes += [meter.sampled for meter in self.meters]
        return [path for path in nodes if not is_framework(path)]

    def looking(self) -> Command:
        """The command behind a snapshot."""
        zones = (zone.path for zone in self.facts.cpu_zones)
        residency = map(_residency_node, self.asked_khz)
        return reading([UPTIME, BOOT_ID, FULL_CHARGE, MEMINFO, *zones, *residency])

    def snapshot(self, nodes: Mapping[str, str]) -> Snapshot:
        """What the command saw."""
        return Snapshot(
            boot_id=safe_text(nodes.get(BOOT_ID, ""), 64),
            temp_c=hottest(self.facts.cpu_zones, nodes),
            residency={policy: nodes.get(_residency_node(policy), "") for policy in self.asked_khz},
            charge_uah=first_number(nodes.get(FULL_CHARGE, "")),
            swap_used_kb=swap_used_kb(parse_memory(nodes.get(MEMINFO, "").splitlines())),
        )

    def caps_khz(self, readings: Readings) -> dict[int, int]:
        """Policies whose limit was seen below what was asked: the mark of a thermal cap."""
        caps = {}
        for policy, khz in self.asked_khz.items():
            limits = readings.numbers(policy_node(policy, "scaling_max_freq"))
            lowest = min((limit for limit in limits if limit is not None), default=khz)
            if lowest < khz:
                caps[policy] = lowest
        return caps

    def sampled_share(self, readings: Readings, span: tuple[int, int]) -> float | None:
        """The share of readings within the timed part that show the asked clock; worst policy."""
        shares = []
        for policy, khz in self.asked_khz.items():
            column = readings.numbers(policy_node(policy, "scaling_cur_freq"))
            share = _share_at(khz, _inside(readings, column, span))
            if share is None:
                return None
            shares.append(share)
        return min(shares, default=None)

    def gpu_share(self, readings: Readings, span: tuple[int, int]) -> float | None:
        """The share of readings within the timed part at which the GPU had the asked clock."""
        if self.gpu_khz is None:
            return None
        column = readings.numbers(self.gpu_clock_node)
        # A GPU without work may be switched off; then it has no clock that could slip.
        return _share_at(1000 * self.gpu_khz, filter(None, _inside(readings, column, span)))

    @property
    def gpu_clock_node(self) -> str:
        """Where the GPU's present clock is read, in Hz."""
        assert self.facts.gpu is not None, "a clock was asked for, so there is a GPU"
        return f"{self.facts.gpu.folder}/cur_freq"

    def counted_share(
        self, snapshots: tuple[Snapshot, Snapshot], readings: Readings, span: tuple[int, int]
    ) -> float | None:
        """The share of time at the asked clock, as the kernel counted it; worst policy.

        A pinned clock stays where it is before and after the run. One that only follows the load
        has to be counted within the timed part.
        """
        if can_pin(self.facts):
            return held_share(self.asked_khz, snapshots[0].residency, snapshots[1].residency)
        inside = [at for at, t_ns in enumerate(readings.t_ns) if span[0] <= t_ns <= span[1]]
        if len(inside) < READINGS_MIN:
            return None

        def counts(row: int) -> dict[int, str]:
            columns = {p: readings.columns.get(_residency_node(p), []) for p in self.asked_khz}
            return {p: str(seen[row]).replace(";", "\n") for p, seen in columns.items() if seen}

        return held_share(self.asked_khz, counts(inside[0]), counts(inside[-1]))

    def courses(self, readings: Readings, offered: Provenances, power: Power) -> dict[str, Course]:
        """What adds up during a run, of the families that this phone offers."""
        found: dict[str, Course | None] = {BUSY: busy_course(readings, self.cores.cpus)}
        if offered.clock is not None:
            for cluster in clusters_of(self.facts, self.cores):
                column = readings.numbers(policy_node(cluster.policy, "scaling_cur_freq"))
                found[f"{CLOCK}{cluster.policy}"] = _course(readings, column)
        if offered.energy is not None:
            found[ENERGY] = course_of(power.points) if power.points else None
            found |= rail_courses(readings, self.meters)
        return {name: course for name, course in found.items() if course and len(course.t_ns) > 1}

    @property
    def clock_nodes(self) -> list[str]:
        """Where the present clocks of the measured cores are read."""
        clusters = clusters_of(self.facts, self.cores)
        return [
            policy_node(each.policy, "scaling_cur_freq") for each in clusters if each.ladder_khz
        ]

    @property
    def thermometers(self) -> tuple[ThermalZone, ...]:
        """The zones that tell of the slow heat of a long run."""
        return (self.facts.slow_zone,) if self.facts.slow_zone else self.facts.cpu_zones

    def temps_c(
        self, snapshots: tuple[Snapshot, Snapshot], readings: Readings
    ) -> tuple[float, ...]:
        """How warm it was in the run; before and after it, where the sampler has no thermometer."""
        if any(is_framework(zone.path) for zone in self.facts.cpu_zones):
            return tuple(seen.temp_c for seen in snapshots if seen.temp_c is not None)
        return tuple(hottest_trace(readings, self.facts.cpu_zones))

    def busy_coolers(self, readings: Readings) -> tuple[str, ...]:
        """CPU cooling devices that were not at rest all the time."""
        busy = {
            name for path, name in self.coolers.items() if any(filter(None, readings.numbers(path)))
        }
        return tuple(sorted(busy))


def set_scene(phone: Phone, cores: CoreSet, asked: Resolved, boot_id: str) -> Scene:
    """Find the nodes that will tell of a run."""
    found = phone.lasting_nodes([f"{THERMAL}/cooling_device*/type", *RAIL_NODES], boot_id)
    if any(is_framework(zone.path) for zone in phone.known.cpu_zones):
        coolers = {THERMAL_STATUS: "the framework's thermal status"}
    else:
        coolers = parse_cpu_coolers(found)
    meters = parse_meters(found)
    return Scene(phone.known, cores, asked.clocks_khz, coolers, meters, asked.gpu_khz)


def weigh(
    scene: Scene,
    case: Case,
    condition: Condition,
    snapshots: tuple[Snapshot, Snapshot],
    output: Output,
    readings: Readings,
    beside: Beside = NOTHING_BESIDE,
) -> Harvest:
    """Make verdict, figures and telemetry of everything that a run left behind. Pure."""
    before, after = snapshots
    placement = beside.placement
    if output.hello is None or output.done is None or not output.windows:
        raise RunnerFailed("The runner is done, but it measured nothing.")
    work, span = work_of(case), span_ns(output.windows)
    offered = output.hello.provenance or scene.facts.provenance
    time = offered.time if offered is not None else None
    counted = scene.counted_share(snapshots, readings, span)
    sampled = scene.sampled_share(readings, span)
    # Counters miss nothing but include the moments around the run; samples are the reverse.
    share = min((share for share in (counted, sampled) if share is not None), default=None)
    long = condition.protocol is not Protocol.COLD
    clocks = scene.clock_nodes
    soaked_ns = (
        settled_ns(readings, scene.thermometers, clocks, span)
        if condition.protocol is Protocol.SOAKED
        else None
    )
    timed = within(readings, span)
    gauge = found_gauge(scene.facts.gauge, beside.rest, timed)
    power = power_of(timed, gauge, beside.metered)
    around = look_around(readings, span, scene.cores.cpus, scene.facts.slow_zone, clocks)
    if case.manifest is not None:  # beside a foreign program the sampler is a process of its own
        around = replace(around, inside_pct=None)
    swapped = swapped_mb(readings, before.swap_used_kb)
    idle_w = rest_power_w(beside.rest, gauge) or beside.idle_w
    evidence = Evidence(
        condition=condition,
        asked_mask=scene.cores.mask,
        found_mask=int(output.hello.mask, 16),
        asked_khz=scene.asked_khz,
        held_share=share,
        counted=counted is not None,
        capped_khz=scene.caps_khz(readings),
        coolers=scene.busy_coolers(readings),
        start_temp_c=before.temp_c,
        temps_c=scene.temps_c(snapshots, readings),
        span_s=(span[1] - span[0]) / 1e9,
        boot_ids=(before.boot_id, after.boot_id),
        effort=Effort(
            work,
            output.done,
            launch_of(case, condition.launch).warmup,
            time.source if time else None,
        ),
        unseen_s=longest_gap_s(readings.t_ns, span),
        strays=strays(placement, scene.cores.mask) if placement else {},
        clamp_max=placement.clamp_max if placement else None,
        asked_gpu_khz=scene.gpu_khz,
        gpu_held_share=scene.gpu_share(readings, span),
        swapped_mb=swapped,
        settled=soaked_ns is not None,
        around=around,
        charger_cut=scene.facts.charging is not None,
        canary=beside.canary,
        power=power if offered is not None and offered.energy is not None else None,
    )
    courses = scene.courses(readings, offered, power) if offered is not None else {}
    measured = Measured(
        work=work,
        output=output,
        done=output.done,
        readings=readings,
        facts=scene.facts,
        cpus=scene.cores.cpus,
        start_temp_c=before.temp_c,
        clock_held_share=share,
        charge_uah=before.charge_uah,
        swapped_mb=swapped,
        courses=courses,
        power=power,
        idle_w=idle_w,
        soaked_ns=soaked_ns,
        throttled_after_s=throttled_after_s(readings, clocks, span) if long else None,
    )
    metrics = figures(measured, offered) if offered is not None else ()
    digest, blob = pack(output, readings, work.ops, courses, len(scene.cores.cpus))
    curve = curve_of(output.windows) if long else ()
    return Harvest(judge(evidence), metrics, digest, blob, curve, gauge, idle_w)


def longest_gap_s(t_ns: Sequence[int], span: tuple[int, int]) -> float:
    """The longest time within a span in which nothing was read, in seconds."""
    moments = [span[0], *(moment for moment in t_ns if span[0] <= moment <= span[1]), span[1]]
    return max(later - sooner for sooner, later in pairwise(moments)) / 1e9


def _inside(
    readings: Readings, column: Sequence[int | None], span: tuple[int, int]
) -> Iterator[int]:
    """What a column shows within a span."""
    for t_ns, value in zip(readings.t_ns, column, strict=False):
        if value is not None and span[0] <= t_ns <= span[1]:
            yield value


def _share_at(asked: int, clocks: Iterable[int]) -> float | None:
    """The share of clocks that are the asked one; None where too few were seen."""
    seen = list(clocks)
    if len(seen) < READINGS_MIN:
        return None
    # Some drivers report the measured clock, a little beside the step.
    return sum(abs(clock - asked) <= asked / 100 for clock in seen) / len(seen)


def _course(readings: Readings, column: Sequence[int | None]) -> Course:
    pairs = zip(readings.t_ns, column, strict=False)
    return course_of([(t_ns, float(value)) for t_ns, value in pairs if value is not None])


def _residency_node(policy: int) -> str:
    return policy_node(policy, "stats/time_in_state")
