"""Heat, clocks, throttling and charge, on a clock that only `advance` moves."""

from dataclasses import dataclass, replace

import pytest

from agent.virtual.engines import load_engine
from agent.virtual.phone_clock import PhoneClock
from agent.virtual.physics.heat_network import HeatNetwork
from agent.virtual.physics.soc import AMBIENT_C, Soc
from agent.virtual.physics.step_timing import ComputeSpeed, OpTable, SimulatedOp, time_step
from agent.virtual.physics.thermal_throttle import ThermalThrottle
from agent.virtual.physics.thread_placement import CoreLoad, place_threads
from agent.virtual.profiles import (
    ThrottleProfile,
    ThrottleRung,
    load_profile,
    profile_ids,
)
from agent.virtual.twin.offline_model import OfflineModel, bind_workload
from agent.virtual.twin.predict import PredictionQuery, predict

SGEMM = (SimulatedOp("matmul", "matmul", 2 * 512**3, 8 * 512**2, 4 * 512**2),)
GFLOP = SGEMM[0].flops / 1e9
OWN = load_engine("farmhand")
PHONES = [name for name in profile_ids() if load_profile(name).tier != "board"]
EMDL = (
    "huawei-honor-8",
    "huawei-mate-30",
    "meizu-16t",
    "redmi-note-9-pro",
    "samsung-s8-plus",
    "xiaomi-mi-9",
)


@dataclass
class LoadedSoc:
    """A phone's SoC with a matrix product on all cores that are not little."""

    soc: Soc
    load: CoreLoad
    gflops: float = 0.0

    def advance(self, seconds: float) -> None:
        self.soc.clock.advance(seconds)
        self.soc.update()


def loaded_soc(profile_id: str) -> LoadedSoc:
    soc = Soc(load_profile(profile_id), PhoneClock(speed=0.0))
    big = [cpu for c in soc.clusters if c.profile.role != "little" for cpu in c.cpus]

    def on_speed_change(pace: ComputeSpeed) -> None:
        cost = time_step(OpTable(SGEMM, OWN), pace)
        load.apply_timing(cost)
        loaded.gflops = GFLOP / cost.seconds

    load = CoreLoad(sum(1 << cpu for cpu in big), min(4, len(big)), OWN, on_speed_change)
    loaded = LoadedSoc(soc, load)
    return loaded


def test_a_phone_at_rest_stays_at_rest() -> None:
    loaded = loaded_soc("meizu-16t")
    before = loaded.soc.heat.temps
    loaded.advance(100_000)
    assert loaded.soc.heat.temps == pytest.approx(before, abs=0.3)
    assert all(AMBIENT_C < temp < AMBIENT_C + 6 for temp in before)


def test_the_result_does_not_depend_on_the_step_size() -> None:
    profile = load_profile("samsung-s8-plus").heat
    one, many = HeatNetwork(profile, 25.0), HeatNetwork(profile, 25.0)
    one.advance(700.0, (4.0, 0.5, 0.1))
    for _ in range(7000):
        many.advance(0.1, (4.0, 0.5, 0.1))
    assert one.temps == pytest.approx(many.temps, abs=1e-6)


def test_a_burst_warms_the_die_but_hardly_the_body() -> None:
    for profile_id in PHONES:
        loaded = loaded_soc(profile_id)
        die, body, _ = loaded.soc.heat.temps
        loaded.soc.attach(loaded.load)
        loaded.advance(10)
        assert 3 < loaded.soc.heat.node("die") - die < 20, profile_id
        assert loaded.soc.heat.node("body") - body < 0.6, profile_id


@pytest.mark.parametrize("profile_id", PHONES)
def test_a_long_run_heats_and_a_rest_cools(profile_id: str) -> None:
    loaded = loaded_soc(profile_id)
    rest = loaded.soc.heat.temps
    loaded.soc.attach(loaded.load)
    loaded.advance(600)
    assert loaded.soc.heat.node("body") - rest[1] > 5
    loaded.soc.detach(loaded.load)
    minutes = 0
    while max(now - then for now, then in zip(loaded.soc.heat.temps, rest, strict=True)) > 3:
        loaded.advance(60)
        minutes += 1
    assert 7 <= minutes <= 30
    loaded.advance(1200)
    assert all(cluster.throttle_state == 0 for cluster in loaded.soc.clusters)


def first_throttled_s(loaded: LoadedSoc) -> float | None:
    for second in range(600):
        loaded.advance(1)
        if any(cluster.throttle_state for cluster in loaded.soc.clusters):
            return float(second)
    return None


def test_cold_and_soaked_phones_rank_differently() -> None:
    cold, soaked, throttled = {}, {}, {}
    for profile_id in EMDL:
        loaded = loaded_soc(profile_id)
        loaded.soc.attach(loaded.load)
        cold[profile_id] = loaded.gflops
        throttled[profile_id] = first_throttled_s(loaded)
        loaded.advance(900 - loaded.soc.clock.now)
        soaked[profile_id] = loaded.gflops
    gave_way = [seconds for seconds in throttled.values() if seconds is not None]
    assert len(gave_way) == 5
    assert all(60 <= seconds <= 600 for seconds in gave_way), throttled
    assert throttled["redmi-note-9-pro"] is None
    by_cold = sorted(cold, key=cold.__getitem__, reverse=True)
    by_soaked = sorted(soaked, key=soaked.__getitem__, reverse=True)
    assert set(by_cold[:2]) == {"xiaomi-mi-9", "meizu-16t"}  # one SoC
    assert by_cold != by_soaked
    assert soaked["huawei-mate-30"] > soaked["xiaomi-mi-9"]
    assert soaked["xiaomi-mi-9"] < soaked["meizu-16t"]
    losses = [1 - soaked[name] / cold[name] for name in cold]
    assert max(losses) > 0.25
    assert min(losses) == 0


def test_the_s8_throttles_to_the_plateau_of_the_trace() -> None:
    loaded = loaded_soc("samsung-s8-plus")
    loaded.soc.attach(loaded.load)
    assert loaded.soc.cluster_by_role("big").clock_khz == 2361600
    loaded.advance(900)
    assert loaded.soc.cluster_by_role("big").clock_khz == 1881600


def test_rungs_follow_the_temperature_and_are_released_in_full() -> None:
    rungs = (ThrottleRung(trip_c=40, steps=3), ThrottleRung(trip_c=42, steps=6))
    profile = ThrottleProfile(
        zone="skin", rungs=rungs, hysteresis_c=1.5, poll_s=1.0, clusters=("big",)
    )
    throttle = ThermalThrottle(profile, 10)
    temps = (39.9, 40.1, 42.5, 41.0, 40.4, 38.6, 38.4, 43.0, 30.0)
    steps = []
    for second, temp_c in enumerate(temps):
        throttle.poll(temp_c, float(second))
        steps.append(throttle.state)
    assert steps == [0, 3, 6, 6, 3, 3, 0, 6, 0]
    with pytest.raises(ValueError, match="do not rise"):
        ThrottleProfile(
            zone="skin", rungs=rungs[::-1], hysteresis_c=1.5, poll_s=1.0, clusters=("big",)
        )


def test_a_policy_with_a_slow_average_reacts_late() -> None:
    rungs = (ThrottleRung(trip_c=40, steps=3),)
    profile = ThrottleProfile(
        zone="die", rungs=rungs, hysteresis_c=4, poll_s=8, lag_s=100.0, clusters=("big",)
    )
    throttle = ThermalThrottle(profile, 10)
    throttle.poll(30.0, 0.0)
    assert not throttle.poll(45.0, 50.0)  # the average is 35.9 °C
    assert throttle.poll(45.0, 150.0)
    assert throttle.release()


def test_a_cap_lowers_the_effective_limit_until_it_ends() -> None:
    loaded = loaded_soc("xiaomi-mi-9")
    big = loaded.soc.cluster_by_role("big")
    loaded.soc.attach(loaded.load)
    loaded.advance(500)
    assert big.throttle_state > 0
    assert big.max_khz == big.ladder[-1 - big.throttle_state] < big.user_max_khz
    assert big.clock_khz <= big.max_khz
    loaded.soc.detach(loaded.load)
    loaded.advance(1200)
    assert big.max_khz == big.user_max_khz


def test_a_lower_clock_avoids_throttling() -> None:
    loaded = loaded_soc("xiaomi-mi-9")

    def slow_down() -> None:
        for role in ("big", "prime"):
            loaded.soc.cluster_by_role(role).user_max_khz = 1497600

    loaded.soc.change(slow_down)
    loaded.soc.attach(loaded.load)
    assert first_throttled_s(loaded) is None


def test_without_its_daemon_only_the_kernel_throttles() -> None:
    loaded = loaded_soc("xiaomi-mi-9")
    loaded.soc.is_service_running = lambda name: name != "thermal-engine"
    loaded.soc.attach(loaded.load)
    assert first_throttled_s(loaded) is None


def test_training_on_four_big_cores_draws_the_measured_power() -> None:
    """EMDL 2021, Meizu 16T, mask f0: 4.3 to 4.6 W for AlexNet, idle 0.75 to 0.84 W."""
    model = OfflineModel(load_profile("meizu-16t"), bind_workload("emdl-alexnet", 16))
    soc = model.soc
    assert 0.7 < model.idle_w < 0.9
    assert soc.system_w() == pytest.approx(4.45, abs=0.5)
    assert soc.battery.power_w == pytest.approx(soc.system_w() - 0.486 * 4.85, abs=0.01)


def test_some_clock_steps_do_half_of_their_work() -> None:
    """freqbench: the lowest step of big and prime on the Snapdragon 855."""
    step = bind_workload("sgemm")
    models = [
        OfflineModel(load_profile("meizu-16t"), step, "big1", khz) for khz in ("710400", "825600")
    ]
    slow, usual = (model.soc.cluster_by_role("big") for model in models)
    assert (slow.clock_khz, usual.clock_khz) == (710400, 825600)
    assert slow.running_khz == pytest.approx(355200, rel=0.01)
    assert models[0].timing.seconds > 1.9 * models[1].timing.seconds


@pytest.mark.parametrize(("cores", "least", "most"), [("big", 1.8, 2.4), ("little", 2.9, 3.4)])
def test_slow_cores_scale_better_than_fast_ones(cores: str, least: float, most: float) -> None:
    """EMDL 2021: four little cores are 3.1 times as fast as one; the big ones share a cache."""
    one, four = (
        predict("meizu-16t", PredictionQuery("emdl-cpuconf", None, f"{cores}{n}", "high"))
        for n in (1, 4)
    )
    assert least < one.step_ms / four.step_ms < most


def test_equal_parts_wait_for_the_slowest_core_and_claimed_parts_do_not() -> None:
    profile, step = load_profile("meizu-16t"), bind_workload("emdl-alexnet", 16)
    for engine, most in ((load_engine("mnn"), 0.5), (OWN, 1.01)):
        fast, mixed = (
            OfflineModel(profile, replace(step, threads=None), cores, engine=engine).speed.gflops
            for cores in ("mask:f0", "mask:f8")
        )
        assert mixed < most * fast or engine is OWN
        assert mixed > fast or engine is not OWN


def test_idle_helpers_stay_on_frugal_cores_and_busy_ones_leave_them() -> None:
    """EMDL 2021 on all cores: LeNet had one big core busy and helpers on little ones."""
    profile = load_profile("meizu-16t")
    cpus = {
        workload: set(OfflineModel(profile, bind_workload(workload, batch), "all8").load.shares)
        for workload, batch in (("emdl-lenet", 1), ("emdl-alexnet", 16))
    }
    assert cpus["emdl-lenet"] == {0, 1, 2, 7}
    assert cpus["emdl-alexnet"] == {4, 5, 6, 7}


def test_all_of_the_bandwidth_is_there_at_any_clock() -> None:
    profile, step = load_profile("meizu-16t"), bind_workload("emdl-alexnet", 16)
    fast, slow = (OfflineModel(profile, step, "big4", khz).speed for khz in ("high", "1708800"))
    assert slow.bandwidth_gbs == fast.bandwidth_gbs
    assert slow.gflops < 0.75 * fast.gflops


def test_memory_bound_work_does_not_scale_with_the_clock() -> None:
    copy = OpTable((SimulatedOp("copy", "elementwise", 1e6, 64e6, 64e6),), OWN)
    fast = ComputeSpeed(
        100, bandwidth_gbs=10, cache_kb=64, cache_gbs=50, first_thread_ghz=2.8, first_thread_gbs=8
    )
    slow = ComputeSpeed(
        50, bandwidth_gbs=10, cache_kb=64, cache_gbs=50, first_thread_ghz=2.8, first_thread_gbs=8
    )
    assert time_step(copy, fast).seconds == pytest.approx(0.0128, rel=0.01)
    assert time_step(copy, fast).seconds == pytest.approx(time_step(copy, slow).seconds, rel=0.01)
    assert time_step(copy, fast).other_cores_activity < 0.7


@pytest.mark.parametrize(
    ("masks", "threads", "shares"),
    [
        ([0b1100], 2, [{2: 1.0, 3: 1.0}]),
        ([0b1111], 2, [{3: 1.0, 2: 1.0}]),  # the fastest first
        ([0b0100], 2, [{2: 1.0}]),  # two threads on one core
        ([0b1000, 0b1000], 1, [{3: 0.5}, {3: 0.5}]),  # two loads on one core
        ([0b10000], 1, [{3: 1.0}]),  # a mask without an online core falls back
    ],
)
def test_threads_spread_over_their_mask(
    masks: list[int], threads: int, shares: list[dict[int, float]]
) -> None:
    loads = [CoreLoad(mask, threads, OWN, lambda _: None) for mask in masks]
    place_threads(loads, {0: 1.0, 1: 1.0, 2: 2.0, 3: 3.0})
    assert [load.shares for load in loads] == shares


def test_a_gauge_updates_slowly_with_its_vendors_sign() -> None:
    signs = {name: load_profile(name).battery.discharge_sign for name in profile_ids()}
    assert set(signs.values()) == {-1, 1}
    loaded = loaded_soc("redmi-note-9-pro")
    loaded.soc.change(lambda: setattr(loaded.soc.battery, "charging_allowed", False))
    assert loaded.soc.battery.gauge_current() > 0
    before = loaded.soc.battery.charge_uah
    loaded.advance(3600)
    hour_uah = before - loaded.soc.battery.charge_uah
    assert hour_uah == pytest.approx(loaded.soc.battery.amps() * 1e6, rel=0.02)
