"""The silicon and the body around it: loads set clocks, clocks set power, power sets heat.

Between two changes everything is constant, so the state is brought forward only when somebody
looks or something changes, by exactly the model time that passed.
"""

from collections.abc import Callable
from functools import partial

from agent.virtual.physics.battery import Battery
from agent.virtual.physics.cluster import Cluster
from agent.virtual.physics.gpu import Gpu
from agent.virtual.physics.heat import HeatNetwork, Triple
from agent.virtual.physics.placement import Load, place
from agent.virtual.physics.roofline import Pace
from agent.virtual.physics.throttle import Throttle
from agent.virtual.physics.zone import Zone
from agent.virtual.profiles import Profile
from agent.virtual.timeline import Event, Timeline

AMBIENT_C = 25.0
_MEASURE_EVERY_S = 1.0
_CHARGE_STEP_S = 30.0
_IDLE_BUSY = 0.06  # housekeeping keeps the little cores this busy


class Soc:
    """One phone's physics, in °C, W, kHz and model seconds."""

    def __init__(
        self,
        profile: Profile,
        timeline: Timeline,
        seed: str = "",
        speed_spread: float = 1.0,
        heat_spread: float = 1.0,
        ambient_c: float = AMBIENT_C,
    ) -> None:
        self.profile = profile
        self.timeline = timeline
        self.clusters = [Cluster(part, profile.kernel) for part in profile.cluster]
        self.gpu = Gpu(profile.gpu) if profile.gpu else None
        self.heat = HeatNetwork(profile.heat, ambient_c, heat_spread)
        self.battery = Battery(profile.battery, profile.battery.start_percent)
        self.throttles = [Throttle(part) for part in profile.throttle]
        self.zones = [Zone(part, seed) for part in profile.zone]
        self.loads: list[Load] = []
        self.version = 0  # changes whenever a clock or a limit may have
        self.forced_steps: dict[str, int] = {}  # rungs below the top by role, whatever the heat
        self.service_runs: Callable[[str], bool] = lambda _: True
        self._speed_spread = speed_spread
        self.hidden_share = 1.0  # what a limiter that no node shows leaves of the speed
        self._settled = timeline.now
        self._polls: dict[int, Event] = {}
        self._cluster_w: dict[str, float] = {}
        self._soc_w = 0.0
        self.gpu_w = 0.0
        self._measured = timeline.now
        self._heat_inputs: Triple = (0.0, 0.0, 0.0)
        self._busy: set[int] = set()
        self._counted = timeline.now
        self._asleep = False
        self.idle_s = {cpu: 0.0 for cluster in self.clusters for cpu in cluster.cpus}
        self.busy_s = dict(self.idle_s)
        self.rails_j: dict[str, float] = {}  # since boot, where the board counts
        self.refresh()
        self.heat.temps = self.heat.rest(self._heat_inputs)

    # -- what others read

    def cluster_of(self, cpu: int) -> Cluster:
        return next(cluster for cluster in self.clusters if cpu in cluster.cpus)

    def by_role(self, role: str) -> Cluster:
        return next(cluster for cluster in self.clusters if cluster.profile.role == role)

    def online(self) -> list[int]:
        return sorted(cpu for cluster in self.clusters for cpu in cluster.online)

    def zone_mc(self, zone: Zone) -> int:
        """What a thermal zone reads now, in milli-degrees."""
        now = self.timeline.now
        if now > self._settled:
            self.settle()
        watts = self._soc_w if zone.role is None else self._cluster_w[zone.role]
        return zone.read_mc(self.heat.temps[zone.place], watts, now)

    def pinned(self, mask: int) -> bool:
        """Whether every core of a mask is held at one clock."""
        used = [c for c in self.clusters if any(mask >> cpu & 1 for cpu in c.cpus)]
        held = ("userspace", "performance", "powersave")
        return all(c.user_min_khz == c.user_max_khz or c.governor in held for c in used)

    def system_w(self) -> float:
        """What the whole phone draws."""
        return self.profile.heat.idle_w + self._soc_w

    def rails_w(self) -> dict[str, float]:
        """What parts of the board draw: each cluster by its role, gpu, memory, and all of it."""
        return {
            **self._cluster_w,
            "gpu": self.gpu_w,
            "memory": self._memory_w,
            "board": self.system_w(),
        }

    # -- what others change

    def attach(self, load: Load) -> None:
        self.change(lambda: self.loads.append(load))

    def detach(self, load: Load) -> None:
        if load in self.loads:
            self.change(lambda: self.loads.remove(load))

    def change(self, mutate: Callable[[], None]) -> None:
        """Apply a change of settings at this very moment."""
        self.settle()
        self.count()
        mutate()
        self.refresh()

    def hold_steady(self, steady: bool) -> None:
        """The framework's fixed-performance mode: one clock that the phone can keep for good."""

        def mutate() -> None:
            for cluster in self.clusters:
                cluster.steady = steady

        self.change(mutate)

    def settle(self) -> None:
        """Bring heat and charge forward to now."""
        while (left := self.timeline.now - self._settled) > 0:
            # A charger gives less as the cell fills, so a long charge is taken in steps.
            seconds = left if self.battery.power_w >= 0 else min(left, _CHARGE_STEP_S)
            self._settled = self.timeline.now if seconds == left else self._settled + seconds
            self._pass(seconds)

    def count(self) -> None:
        """Bring the time spent at each clock, busy and idle, forward to now."""
        seconds = 0.0 if self._asleep else self.timeline.now - self._counted
        self._counted = self.timeline.now
        for cluster in self.clusters:
            if cluster.online:
                cluster.residency_s[cluster.rung] += seconds
            for cpu in cluster.online:
                (self.busy_s if cpu in self._busy else self.idle_s)[cpu] += seconds
        for load in self.loads:
            load.cpu_s += seconds * sum(load.shares.values())

    def sleep(self, asleep: bool) -> None:
        """Fall asleep or wake up; time goes uncounted in between, however often somebody looks."""
        self.settle()
        self.count()
        self._asleep = asleep

    def refresh(self) -> None:
        """Work out placement, clocks, paces and power from the present settings."""
        self.version += 1
        speeds = {cpu: self._top_speed(cpu) for cpu in self.online()}
        place(self.loads, speeds)
        self._busy = {cpu for load in self.loads for cpu in load.shares}
        for cluster in self.clusters:
            loaded = not self._busy.isdisjoint(cluster.cpus)
            idle = _IDLE_BUSY if cluster.profile.role == "little" else 0.0
            cluster.busy = 1.0 if loaded else idle
            cluster.pick_clock()
        if self.gpu is not None:
            self.gpu.busy = max((load.gpu_busy for load in self.loads), default=0.0)
        for load in list(self.loads):
            load.on_pace(self._pace(load))
        self._measure_power()
        self._plan_polls()

    # -- inside

    def _pass(self, seconds: float) -> None:
        if self.profile.rails == "odpm":
            for rail, watts in self.rails_w().items():
                self.rails_j[rail] = self.rails_j.get(rail, 0.0) + watts * seconds
        self.heat.advance(seconds, self._heat_inputs)
        self.battery.advance(seconds)
        if seconds >= _MEASURE_EVERY_S:
            self._measure_power()

    def _top_speed(self, cpu: int) -> float:
        cluster = self.cluster_of(cpu)
        return cluster.max_khz / 1e6 * cluster.profile.flops_per_cycle

    def _pace(self, load: Load) -> Pace:
        profile, memory, engine = self.profile, self.profile.memory, load.engine
        used = [(self.cluster_of(cpu), share) for cpu, share in load.shares.items()]
        gflops = sum(share * c.clock_khz / 1e6 * c.profile.flops_per_cycle for c, share in used)
        threads = max(load.threads, 1)
        together = 1.0 / (1.0 + engine.parallel_loss * (min(len(used), threads) - 1))
        crowded = 1.0 if threads <= len(used) else engine.crowding
        # The memory clock follows the highest vote; a core by itself cannot use all of it.
        voted = memory.bandwidth_gbs * max(cluster.vote() for cluster, _ in used)
        best_ipc = max(cluster.ipc for cluster in self.clusters)
        lone = self.cluster_of(load.first)
        strength = lone.ipc / best_ipc
        pull = sum(memory.core_gbs * cluster.ipc / best_ipc * cluster.pace for cluster, _ in used)
        return Pace(
            gflops=gflops * together * crowded * self._speed_spread * self.hidden_share,
            bandwidth_gbs=min(voted, pull) / len(self.loads),
            cache_kb=memory.cache_kb,
            cache_gbs=memory.cache_gbs * max(c.ipc / best_ipc * c.pace for c, _ in used),
            lone_ghz=lone.clock_khz
            / 1e6
            * strength
            * profile.scalar_ipc
            * self._speed_spread
            * self.hidden_share,
            lone_gbs=min(voted, memory.core_gbs * strength * lone.pace) / len(self.loads),
            threads=threads,
            stalled=profile.heat.stalled_share,
            scalar=profile.heat.scalar_share,
        )

    def _measure_power(self) -> None:
        busy: dict[int, float] = {}
        for load in self.loads:
            for cpu, share in load.shares.items():
                busy[cpu] = busy.get(cpu, 0.0) + share * load.activity(cpu)
        die_c = self.heat.node("die")
        heat = self.profile.heat
        awake = 0.0
        for cluster in self.clusters:
            cores = sum(busy.get(cpu, 0.0) for cpu in cluster.online)
            watts = cluster.dynamic_w(cores, heat.vector_factor)
            # An idle cluster is power-gated: its leakage is part of the idle figure.
            watts += cluster.leak_w(die_c) if cores else 0.0
            awake = max(awake, cluster.shared_share() if cores else 0.0)
            self._cluster_w[cluster.profile.role] = watts
        memory_w = sum(load.gbs for load in self.loads) * self.profile.memory.watts_per_gbs
        self.gpu_w = self.gpu.watts(die_c) if self.gpu else 0.0
        self._memory_w = memory_w
        shared_w = memory_w + heat.uncore_w * awake + self.gpu_w
        self._soc_w = sum(self._cluster_w.values()) + shared_w
        self.battery.draw(self.system_w())
        self._heat_inputs = (
            self._soc_w + heat.idle_w * heat.idle_die_share,
            heat.idle_w * (1 - heat.idle_die_share),
            self.battery.loss_w,
        )
        self._measured = self.timeline.now

    def _plan_polls(self) -> None:
        """Trips are looked at while there is work or a cap; an idle cool phone sleeps."""
        for index, throttle in enumerate(self.throttles):
            if index not in self._polls and (self.loads or throttle.state):
                when = self.timeline.now + throttle.next_look_s
                self._polls[index] = self.timeline.at(when, partial(self._poll, index))

    def _poll(self, index: int) -> None:
        del self._polls[index]
        throttle = self.throttles[index]
        zone = next(zone for zone in self.zones if zone.profile.type == throttle.profile.zone)
        temp_c = self.zone_mc(zone) / 1000
        service = throttle.profile.service
        changed = (
            throttle.poll(temp_c)
            if service is None or self.service_runs(service)
            else throttle.release()
        )
        if changed:
            self.change(self.apply_caps)
            return
        if self.timeline.now - self._measured >= _MEASURE_EVERY_S:
            self._measure_power()  # leakage follows the die, and charge the voltage
        self._plan_polls()

    def apply_caps(self) -> None:
        """Cap each cluster as deep as its strictest throttle says, or as mischief does."""
        for cluster in self.clusters:
            states = [self.forced_steps.get(cluster.profile.role, 0)] + [
                throttle.state
                for throttle in self.throttles
                if cluster.profile.role in throttle.profile.clusters
            ]
            cluster.throttle_state = min(max(states), len(cluster.ladder) - 1)
        if self.gpu is not None:
            states = [self.forced_steps.get("gpu", 0)] + [
                t.state for t in self.throttles if "gpu" in t.profile.clusters
            ]
            self.gpu.throttle_state = min(max(states), len(self.gpu.ladder) - 1)
