"""The noise of a phone, the work in its background, and what a second load takes from a run."""

import random
from statistics import fmean, pstdev

import pytest

from agent.virtual.engines import load_engine
from agent.virtual.fleet_server import FleetConfig, FleetServer
from agent.virtual.phone_clock import PhoneClock
from agent.virtual.physics.idle_background import IdleBackground
from agent.virtual.physics.phone_noise import (
    LOW_NOISE,
    NoiseKind,
    PhoneNoise,
    Unrest,
    draw_noise,
)
from agent.virtual.physics.soc import Soc
from agent.virtual.physics.step_timing import ComputeSpeed
from agent.virtual.physics.thread_placement import CoreLoad, place_threads
from agent.virtual.profiles import load_profile
from agent.virtual.runner.step_noise import StepNoise
from tests.virtual.adb_host import AdbPhone
from tests.virtual.conftest import StartPhone
from tests.virtual.test_runner import lines, make_ready, run

OWN = load_engine("farmhand")
REALISTIC = Unrest(NoiseKind.RECORDED, background=True)


def noise_of(*words: str, unrest: Unrest = REALISTIC, seed: int = 0) -> list[PhoneNoise]:
    fleet = FleetServer(FleetConfig(words, unrest=unrest, seed=seed))
    return [server.phone.noise for server in fleet.servers]


def test_noise_belongs_to_the_phone_whatever_the_seed() -> None:
    words = ("meizu-16t=A", "meizu-16t=B")
    first = noise_of(*words)
    assert first == noise_of(*words, seed=1)
    assert first[0] != first[1]


def test_a_phone_says_whether_it_is_noisy_and_busy() -> None:
    words = ("meizu-16t:noisy", "xiaomi-mi-9:quiet", "oneplus-6:background", "huawei-honor-8")
    phones = [server.phone for server in FleetServer(FleetConfig(words, unrest=Unrest())).servers]
    assert [phone.noise == LOW_NOISE for phone in phones] == [False, True, True, True]
    assert [phone.unrest.background for phone in phones] == [False, False, True, False]


def test_phones_scatter_as_recorded_ones() -> None:
    noises = [draw_noise(NoiseKind.RECORDED, random.Random(seed)) for seed in range(400)]
    for levels, low, high in (
        ([noise.pinned for noise in noises], 0.005, 0.07),
        ([noise.free for noise in noises], 0.02, 0.16),
    ):
        scatter = [level.step_cv for level in levels]
        assert low <= min(scatter) < 1.1 * low
        assert 0.9 * high < max(scatter) <= high
        assert all(0.01 <= level.run_cv <= 0.025 for level in levels)
        assert len({level.shape for level in levels}) >= 3


@pytest.mark.parametrize("is_pinned", [True, False])
def test_windows_scatter_as_much_as_their_phone(is_pinned: bool) -> None:
    for seed in range(6):
        rng = random.Random(seed)
        level = draw_noise(NoiseKind.RECORDED, rng).level(is_pinned)
        noise = StepNoise(rng, level)
        factors = []
        for _ in range(5000):
            noise.draw_window(5.0, 0.01, is_warmup=False)
            factors.append(noise.window_factor)
        assert fmean(factors) == pytest.approx(1.0, abs=0.01)
        drift = 0.005
        assert pstdev(factors) == pytest.approx(level.step_cv, rel=0.15, abs=drift)


def windows_of(phone: AdbPhone) -> list[dict[str, object]]:
    assert run(phone, "--steps 40 --seconds 4") == 0
    return lines(phone)[2:-1]


def test_a_run_on_a_realistic_phone_is_repeated_to_the_last_bit(start_phone: StartPhone) -> None:
    words = ("meizu-16t:noisy:background=ONE", "meizu-16t:quiet=ONE")
    noisy, quiet = ([windows_of(make_ready(start_phone(word))) for _ in "ab"] for word in words)
    assert noisy[0] == noisy[1]
    assert noisy[0] != quiet[0]
    for window in noisy[0]:
        assert window["ns_min"] <= window["ns"] / window["n"] <= window["ns_max"]  # type: ignore[operator]


def soc_of(profile: str = "meizu-16t") -> Soc:
    return Soc(load_profile(profile), PhoneClock(speed=0.0))


def test_an_idle_android_uses_a_few_percent_of_a_core() -> None:
    soc = soc_of()
    background = IdleBackground(soc, random.Random(1))
    background.start()
    soc.clock.advance(1200.0)
    soc.update_counters()
    busy_s = sum(soc.busy_s.values())
    little_s = sum(soc.busy_s[cpu] for cpu in soc.clusters[0].cpus)
    assert 0.02 < busy_s / 1200 < 0.10
    assert little_s > 0.6 * busy_s
    background.stop()
    assert not soc.loads
    soc.clock.advance(120.0)
    soc.update_counters()
    assert sum(soc.busy_s.values()) == busy_s


def attach(soc: Soc, mask: int, gbs: float) -> list[ComputeSpeed]:
    """Attach a load with this traffic; return the speeds that it is told."""
    speeds: list[ComputeSpeed] = []
    load = CoreLoad(mask, 1, OWN, speeds.append, gbs=gbs)
    soc.attach(load)
    return speeds


def test_a_second_load_takes_the_bandwidth_that_it_transfers() -> None:
    soc = soc_of()
    total = soc.profile.memory.bandwidth_gbs
    speeds = attach(soc, 0xF0, 0.9 * total)
    alone = speeds[-1].bandwidth_gbs
    attach(soc, 0x0F, 0.0)
    assert speeds[-1].bandwidth_gbs == alone
    others = attach(soc, 0x0F, 0.1 * total)
    assert speeds[-1].bandwidth_gbs == pytest.approx(min(alone, 0.9 * total))
    assert others[-1].bandwidth_gbs <= total / 3  # an equal part, however much the first one takes


def test_background_work_is_nice_to_a_run_on_the_same_core() -> None:
    loads = [CoreLoad(0x1, 1, OWN, lambda _: None) for _ in range(2)]
    loads[1].weight = 110 / 1024
    place_threads(loads, {0: 1.0})
    assert loads[0].first_share == pytest.approx(1024 / 1134)
    assert loads[1].first_share == pytest.approx(110 / 1134)
