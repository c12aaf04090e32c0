"""The SoC and the body around it: loads set clocks, clocks set power, power sets temperatures.

Time advances in steps that are counted from the last change, and only a change ends a step early.
What is read between two steps is computed from the last one and kept nowhere, so looking at a phone
changes nothing on it.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from agent.virtual.phone_clock import PhoneClock, ScheduledAction
from agent.virtual.physics.battery_model import BatteryModel
from agent.virtual.physics.cpu_cluster import CpuCluster
from agent.virtual.physics.gpu_model import GpuModel
from agent.virtual.physics.heat_network import HeatNetwork, NodeTriple
from agent.virtual.physics.op_power import FIRST_CORE, GPU, MEMORY, OTHER_CORES
from agent.virtual.physics.step_timing import ComputeSpeed
from agent.virtual.physics.thermal_throttle import ThermalThrottle
from agent.virtual.physics.thread_placement import CoreLoad, place_threads
from agent.virtual.physics.zone_sensor import ZoneSensor
from agent.virtual.profiles import PhoneProfile

AMBIENT_C = 25.0
# Power follows temperature and charge once per step. A phone that is left alone takes long steps.
_STEP_S, _LONG_STEP_S, _LONG_STEPS_AFTER_S = 1.0, 30.0, 3600.0
_IDLE_LITTLE_BUSY = 0.06  # load of the little cores by background work
_MISFIT_BUSY = 0.8  # a thread that is busy for more of its time leaves a frugal core
# derived: half of the time of a miss passes in the clock domain of the core, the rest in memory.
_CORE_GBS_EXPONENT = 0.5
_LOWEST_VOTE_GBS = 0.3  # guessed: traffic that the lowest step serves, which an idle phone keeps on
_SHORTEST_STALL = 0.25  # guessed: clocks and queues that run while nothing is done


class _Varying(NamedTuple):
    """Power of a rail that differs between the operations of a load."""

    rail: str
    mean_w: float
    load: CoreLoad
    part: str  # of the chip, as op_power.py names it

    def lead_j(self, moment: float) -> float:
        """Return how far its energy is ahead of its mean."""
        return self.mean_w * self.load.lead_s(self.part, moment)


class Soc:
    """The physics of one phone, in °C, W, kHz and phone seconds."""

    def __init__(
        self,
        profile: PhoneProfile,
        clock: PhoneClock,
        seed: str = "",
        speed_spread: float = 1.0,
        heat_spread: float = 1.0,
        ambient_c: float = AMBIENT_C,
    ) -> None:
        self.profile = profile
        self.clock = clock
        self.clusters = [CpuCluster(part, profile.kernel) for part in profile.cluster]
        self.gpu = GpuModel(profile.gpu, speed_spread) if profile.gpu else None
        self.heat = HeatNetwork(profile.heat, ambient_c, heat_spread)
        self.battery = BatteryModel(profile.battery, profile.battery.start_percent)
        self.throttles = [
            ThermalThrottle(part, self._most_steps(part.clusters)) for part in profile.throttle
        ]
        self.zones = [ZoneSensor(part, seed) for part in profile.zone]
        self.loads: list[CoreLoad] = []
        self.version = 0  # increases whenever a clock or a limit may have changed
        # rungs below the top, by cluster role, set by the fault injector
        self.forced_throttle_steps: dict[str, int] = {}
        self.is_service_running: Callable[[str], bool] = lambda _: True
        self.on_hotplug: Callable[[], None] = lambda: None
        self._speed_spread = speed_spread
        self.hidden_speed_share = 1.0  # speed that a limiter without a sysfs node leaves
        self.bus_share = 1.0  # of the highest clock of the memory bus
        self.panel_w = 0.0  # of a screen that is not as dark as possible
        self._changed_at = self._stepped_to = self._updated_at = clock.now
        self._polls: dict[int, ScheduledAction] = {}
        self._cluster_w: dict[str, float] = {}
        self._soc_w = 0.0
        self._varying: list[_Varying] = []
        self.gpu_w = 0.0
        self.heat_watts: NodeTriple = (0.0, 0.0, 0.0)
        self._cpu_busy: dict[int, float] = {}  # share of the time in which a core is not idle
        self._counted_at = clock.now
        self._is_suspended = False
        self.idle_s = {cpu: 0.0 for cluster in self.clusters for cpu in cluster.cpus}
        self.busy_s = dict(self.idle_s)
        self._counted = (dict(self.idle_s), dict(self.busy_s))  # when something last changed
        self.rails_j: dict[str, float] = {}  # since boot, if the board has energy counters
        self.on_step: Callable[[float, float], None] = lambda start, end: None
        self.recompute()
        self.heat.temps = self.heat.steady_state(self.heat_watts)
        self._end_step()

    # -- reading

    def cluster_of(self, cpu: int) -> CpuCluster:
        return next(cluster for cluster in self.clusters if cpu in cluster.cpus)

    def cluster_by_role(self, role: str) -> CpuCluster:
        return next(cluster for cluster in self.clusters if cluster.profile.role == role)

    def online_cpus(self) -> list[int]:
        return sorted(cpu for cluster in self.clusters for cpu in cluster.online)

    def fastest_cores(self, mask: int) -> list[int]:
        """Return the cores of a mask, the fastest kind first."""
        cpus = (cpu for cpu in range(mask.bit_length()) if mask >> cpu & 1)
        return sorted(cpus, key=lambda cpu: -self.cluster_of(cpu).profile.capacity)

    def read_zone_mc(self, zone: ZoneSensor) -> int:
        """Return what a thermal zone reads now, in milli-degrees."""
        self.update()
        if zone.role is None:
            watts = self._soc_w
        else:
            watts = self.gpu_w if zone.role == "gpu" else self._cluster_w[zone.role]
        return zone.read_mc(self.heat.temps[zone.node_index], watts, self.clock.now)

    def is_pinned(self, mask: int) -> bool:
        """Return whether every core of a mask is pinned to one clock."""
        clusters = [c for c in self.clusters if any(mask >> cpu & 1 for cpu in c.cpus)]
        pinning_governors = ("userspace", "performance", "powersave")
        return all(
            c.user_min_khz == c.user_max_khz or c.governor in pinning_governors for c in clusters
        )

    def system_w(self) -> float:
        """Return the power of the whole phone."""
        return self.profile.heat.idle_w + self.panel_w + self._soc_w

    def rails_w(self, averaging_s: float = 0.0) -> dict[str, float]:
        """Return the power of the clusters by role, of gpu and memory, and of the whole board.

        A meter that averages over a time sees the operations in it, without one the mean of a step.
        """
        rails = {**self._cluster_w, "gpu": self.gpu_w, "memory": self._memory_w}
        rails["board"] = self.system_w()
        if averaging_s:
            for rail, watts in self.surplus_w(self.clock.now, averaging_s).items():
                rails[rail] += watts
        return rails

    def surplus_w(self, moment: float, averaging_s: float) -> dict[str, float]:
        """Return by rail how much more than the mean of a step was drawn before a moment."""
        surplus = {"board": 0.0}
        for part in self._varying:
            more_j = part.lead_j(moment) - part.lead_j(moment - averaging_s)
            surplus[part.rail] = surplus.get(part.rail, 0.0) + more_j / averaging_s
            surplus["board"] += more_j / averaging_s
        return surplus

    def rail_energies_j(self) -> dict[str, float]:
        """Return the energy of every rail since boot, as a counter shows it now."""
        self.update()
        return self._with_leads(self.rails_j, 1.0)

    # -- changing

    def attach(self, load: CoreLoad) -> None:
        self.change(lambda: self.loads.append(load))

    def detach(self, load: CoreLoad) -> None:
        if load in self.loads:
            self.change(lambda: self.loads.remove(load))

    def change(self, apply: Callable[[], None]) -> None:
        """Apply a change of settings at this moment."""
        self._commit()
        # Counters hold the mean of a step, and show how far the present step is ahead of it.
        self.rails_j = self._with_leads(self.rails_j, 1.0)
        apply()
        self.recompute()
        self.rails_j = self._with_leads(self.rails_j, -1.0)
        self._end_step()

    def set_fixed_performance(self, is_enabled: bool) -> None:
        """Switch the framework's fixed-performance mode: one clock that the phone can sustain."""

        def set_clusters() -> None:
            for cluster in self.clusters:
                cluster.fixed_performance = is_enabled

        self.change(set_clusters)

    def update(self) -> None:
        """Show heat and charge of now: of the last step, and of what has passed since."""
        now = self.clock.now
        if now == self._updated_at:
            return
        self.heat.temps, self.battery.charge_uah, self.rails_j = self._stepped
        while (end := self._stepped_to + self._step_s()) <= now:
            self._advance(end)
            self._update_power()
            self._stepped_to = end
            self._end_step()
        self._advance(now)
        self._updated_at = now

    def update_counters(self) -> None:
        """Show the time spent per clock, busy and idle, until now."""
        seconds = 0.0 if self._is_suspended else self.clock.now - self._counted_at
        idle_s, busy_s = self._counted
        for cluster in self.clusters:
            if cluster.online:
                cluster.residency_s = [*cluster.counted_s]
                cluster.residency_s[cluster.rung] += seconds
            for cpu in cluster.online:
                busy = seconds * self._cpu_busy.get(cpu, 0.0)
                self.busy_s[cpu] = busy_s[cpu] + busy
                self.idle_s[cpu] = idle_s[cpu] + (seconds - busy)
        for load in self.loads:
            busy = seconds * load.busy_share
            khz = math.fsum(
                share * self.cluster_of(cpu).counted_khz for cpu, share in load.shares.items()
            )
            load.use = load.counted.after(
                busy * math.fsum(load.shares.values()),
                busy * load.first_share,
                busy * (load.demand - load.first_share),
                1e3 * busy * khz * self.hidden_speed_share,
            )

    def set_suspended(self, is_suspended: bool) -> None:
        """Suspend or resume the phone; suspended time is not counted."""
        self._commit()
        self._is_suspended = is_suspended

    def recompute(self) -> None:
        """Recompute placement, clocks, speeds and power from the present settings."""
        self.version += 1
        speeds = {cpu: self._top_gflops(cpu) for cpu in self.online_cpus()}
        self._place_helpers(speeds)
        self._place(speeds)
        self._cpu_busy = {}
        for load in self.loads:
            for cpu, share in load.shares.items():
                busy = self._cpu_busy.get(cpu, 0.0) + share * load.busy_share
                self._cpu_busy[cpu] = min(busy, 1.0)
        self._update_power()
        self._schedule_polls()

    # -- internals

    def _with_leads(self, joules: dict[str, float], sign: float) -> dict[str, float]:
        """Add to energies how far the present step is ahead of its mean, or take it off again."""
        shown = dict(joules)
        for part in self._varying if shown else ():
            for rail in (part.rail, "board"):
                shown[rail] = shown.get(rail, 0.0) + sign * part.lead_j(self.clock.now)
        return shown

    def _step_s(self) -> float:
        alone_s = self._stepped_to - self._changed_at
        return _STEP_S if alone_s < _LONG_STEPS_AFTER_S else _LONG_STEP_S

    def _end_step(self) -> None:
        """Keep the state from which everything later is computed."""
        self._stepped = self.heat.temps, self.battery.charge_uah, dict(self.rails_j)

    def _commit(self) -> None:
        """End the present step now, because something changes."""
        self.update()
        self._changed_at = self._stepped_to = self.clock.now
        self._end_step()
        self.update_counters()
        self._counted_at = self.clock.now
        self._counted = (dict(self.idle_s), dict(self.busy_s))
        for cluster in self.clusters:
            cluster.counted_s = cluster.residency_s
        for load in self.loads:
            load.counted = load.use

    def _most_steps(self, roles: tuple[str, ...]) -> int:
        ladders = [part.ladder for part in self.clusters if part.profile.role in roles]
        ladders += [self.gpu.ladder] if self.gpu and "gpu" in roles else []
        return max((len(ladder) - 1 for ladder in ladders), default=0)

    def _place_helpers(self, speeds: dict[int, float]) -> None:
        """Let helper threads try the most frugal cores, and leave them if they are busy there."""
        slowest, fastest = min(speeds.values()), max(speeds.values())
        for load in self.loads:
            load.helpers_fit = False
            cpus = [cpu for cpu in speeds if load.mask >> cpu & 1]
            frugal = [cpu for cpu in cpus if speeds[cpu] == slowest]
            if (
                not load.engine.pins_threads
                and slowest < fastest
                and 1 < load.threads < len(cpus)
                and load.threads - 1 <= len(frugal)
            ):
                load.helpers_fit = True
                self._place(speeds)
                load.helpers_fit = load.helpers_busy <= _MISFIT_BUSY

    def _place(self, speeds: dict[int, float]) -> None:
        """Place threads, choose clocks and time the steps."""
        place_threads(self.loads, speeds)
        loaded_cpus = {cpu for load in self.loads for cpu in load.shares}
        for cluster in self.clusters:
            # A core that only launches kernels keeps its clock: governors boost what waits for I/O.
            is_loaded = not loaded_cpus.isdisjoint(cluster.cpus)
            idle_busy = _IDLE_LITTLE_BUSY if cluster.profile.role == "little" else 0.0
            cluster.busy = 1.0 if is_loaded else idle_busy
            cluster.choose_clock()
        self._update_gpu_load()
        for load in list(self.loads):
            load.on_speed_change(self._compute_speed(load))
        self._update_gpu_load()

    def _update_gpu_load(self) -> None:
        if self.gpu is not None:
            own_busy = max((load.gpu_busy for load in self.loads), default=0.0)
            self.gpu.busy = min(own_busy + self.gpu.others_busy, 1.0)

    def _advance(self, end: float) -> None:
        """Advance heat and charge from the last step to some time within the next one."""
        seconds = end - self._stepped_to
        self.on_step(self._stepped_to, end)
        if self.profile.rails == "odpm":
            joules = self._stepped[2]
            self.rails_j = {
                rail: joules.get(rail, 0.0) + watts * seconds
                for rail, watts in self.rails_w().items()
            }
        self.heat.advance(seconds, self.heat_watts)
        self.battery.advance(seconds)

    def _top_gflops(self, cpu: int) -> float:
        cluster = self.cluster_of(cpu)
        return cluster.max_khz / 1e6 * cluster.profile.flops_per_cycle

    def _compute_speed(self, load: CoreLoad) -> ComputeSpeed:
        memory, engine = self.profile.memory, load.engine
        shares = [(self.cluster_of(cpu), share) for cpu, share in load.shares.items()]
        rates = [share * _core_gflops(cluster) for cluster, share in shares]
        threads = max(load.threads, 1)
        # Equal parts wait for the slowest core; parts that are claimed one by one do not.
        gflops = len(rates) * min(rates) if engine.split == "static" else math.fsum(rates)
        oversubscription = 1.0 if threads <= len(shares) else engine.oversubscribed_speed
        speed_factor = self._speed_spread * self.hidden_speed_share
        first = self.cluster_of(load.first_cpu)
        core_speeds = [self._core_speed(cluster) for cluster, _ in shares]
        core_gbs = [memory.core_gbs * speed**_CORE_GBS_EXPONENT for speed in core_speeds]
        first_gbs = memory.core_gbs * self._core_speed(first) ** _CORE_GBS_EXPONENT
        first_ghz = first.running_khz / 1e6 * self._relative_ipc(first) * self.profile.scalar_ipc
        fastest = max(self._relative_ipc(part) * part.ladder[-1] for part in self.clusters)
        first_share = self._relative_ipc(first) * first.running_khz / fastest
        supply = min(memory.bandwidth_gbs / math.fsum(core_gbs), 1.0)
        left_gbs = self._bandwidth_left_gbs(load)
        # The memory clock follows the traffic, so that all of the bandwidth is there at any clock.
        return ComputeSpeed(
            gflops=gflops * oversubscription * speed_factor,
            bandwidth_gbs=min(left_gbs, math.fsum(core_gbs)),
            cache_kb=memory.cache_kb,
            cache_gbs=memory.cache_gbs * max(core_speeds) ** _CORE_GBS_EXPONENT,
            first_thread_ghz=first_ghz * speed_factor,
            first_thread_gbs=min(left_gbs, first_gbs),
            first_thread_gflops=_core_gflops(first) * speed_factor,
            threads=threads,
            first_thread_share=first_share * speed_factor,
            stalled_power_share=self.profile.heat.stalled_share * _stall_activity(supply),
            scalar_power_share=self.profile.heat.scalar_share,
        )

    def _bandwidth_left_gbs(self, load: CoreLoad) -> float:
        """Return what the traffic of other loads leaves, and at least an equal part."""
        bandwidth_gbs = self.profile.memory.bandwidth_gbs
        others_gbs = math.fsum(other.gbs for other in self.loads if other is not load)
        return max(bandwidth_gbs - others_gbs, bandwidth_gbs / len(self.loads))

    def _core_speed(self, cluster: CpuCluster) -> float:
        """Return the scalar speed of a core relative to the best kind at its highest clock."""
        return self._relative_ipc(cluster) * cluster.running_khz / cluster.ladder[-1]

    def _relative_ipc(self, cluster: CpuCluster) -> float:
        """Return the scalar work per cycle of a cluster's cores, relative to the best kind."""
        return cluster.capacity_per_khz / max(other.capacity_per_khz for other in self.clusters)

    def _update_power(self) -> None:
        cpu_activity: dict[int, float] = {}
        self._varying = []
        for load in self.loads:
            for cpu, share in load.shares.items():
                active = share * load.activity(cpu)
                cpu_activity[cpu] = cpu_activity.get(cpu, 0.0) + active
                cluster = self.cluster_of(cpu)
                watts = cluster.dynamic_w(active, self.profile.heat.vector_factor)
                part = FIRST_CORE if cpu == load.first_cpu else OTHER_CORES
                self._varying.append(_Varying(cluster.profile.role, watts, load, part))
            memory_w = load.gbs * self.profile.memory.watts_per_gbs
            self._varying.append(_Varying("memory", memory_w, load, MEMORY))
            if self.gpu is not None and load.gpu_busy:
                watts = self.gpu.dynamic_w(load.gpu_busy)
                self._varying.append(_Varying("gpu", watts, load, GPU))
        die_c = self.heat.node("die")
        heat = self.profile.heat
        for cluster in self.clusters:
            busy_cores = math.fsum(cpu_activity.get(cpu, 0.0) for cpu in cluster.online)
            watts = cluster.dynamic_w(busy_cores, heat.vector_factor)
            # An idle cluster is power-gated: its leakage is part of the idle power.
            watts += cluster.base_w(die_c) if busy_cores else 0.0
            self._cluster_w[cluster.profile.role] = watts
        memory_w = math.fsum(
            load.gbs * self.profile.memory.watts_per_gbs + self._shared_w(load)
            for load in self.loads
        )
        self.gpu_w = self.gpu.watts(die_c) if self.gpu else 0.0
        self._memory_w = memory_w
        shared_w = memory_w + self.gpu_w
        self._soc_w = math.fsum(self._cluster_w.values()) + shared_w
        self.battery.split_power(self.system_w())
        self.heat_watts = (
            self._soc_w + heat.idle_w * heat.idle_die_share,
            heat.idle_w * (1 - heat.idle_die_share) + self.panel_w,
            self.battery.loss_w,
        )

    def _shared_w(self, load: CoreLoad) -> float:
        """Return the power of shared caches and interconnect: their clock follows the traffic and
        reaches its highest step long before the bandwidth is used up, their voltage follows the
        first thread's cluster.
        """
        memory = self.profile.memory
        full_gbs = memory.full_vote_share * memory.bandwidth_gbs
        voted = max(load.shared_gbs - _LOWEST_VOTE_GBS, 0.0) / full_gbs
        clock_gbs = full_gbs * -math.expm1(-voted)
        first = self.cluster_of(load.first_cpu)
        highest = max(part.profile.power.volts_squared(part.ladder[-1]) for part in self.clusters)
        volts_squared = first.profile.power.volts_squared(first.running_khz) / highest
        return clock_gbs * memory.cache_watts_per_gbs * volts_squared

    def _schedule_polls(self) -> None:
        """Schedule polls of the trips while there is load or throttling, and none otherwise."""
        for index, throttle in enumerate(self.throttles):
            if index not in self._polls and (self.loads or throttle.state):
                when = self.clock.now + throttle.poll_interval_s
                self._polls[index] = self.clock.schedule(when, partial(self._poll, index))

    def _poll(self, index: int) -> None:
        del self._polls[index]
        throttle = self.throttles[index]
        zone = next(zone for zone in self.zones if zone.profile.type == throttle.profile.zone)
        temp_c = self.read_zone_mc(zone) / 1000
        service = throttle.profile.service
        changed = (
            throttle.poll(temp_c, self.clock.now)
            if service is None or self.is_service_running(service)
            else throttle.release()
        )
        if changed:
            self.change(self.apply_caps)
            return
        self._schedule_polls()

    def apply_caps(self) -> None:
        """Cap each cluster by its strictest throttle, or by what the fault injector demands."""
        for cluster in self.clusters:
            states = [self.forced_throttle_steps.get(cluster.profile.role, 0)] + [
                throttle.state
                for throttle in self.throttles
                if cluster.profile.role in throttle.profile.clusters
            ]
            cluster.throttle_state = min(max(states), len(cluster.ladder) - 1)
        if self.gpu is not None:
            states = [self.forced_throttle_steps.get("gpu", 0)] + [
                t.state for t in self.throttles if "gpu" in t.profile.clusters
            ]
            self.gpu.throttle_state = min(max(states), len(self.gpu.ladder) - 1)


def _core_gflops(cluster: CpuCluster) -> float:
    """Return the speed of a good matrix product on one core."""
    return cluster.running_khz / 1e6 * cluster.profile.flops_per_cycle


def _stall_activity(supply: float) -> float:
    """Return how active a core is while it waits: less, the longer it waits for a byte that other
    cores want too.
    """
    return _SHORTEST_STALL + (1.0 - _SHORTEST_STALL) * supply
