"""Event time: a phone's clock moves only while a service that a host has opened waits for it."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.virtual.fleet_server import FleetConfig
from agent.virtual.virtual_phone import VirtualPhone
from tests.virtual.adb_host import AdbHost, AdbPhone
from tests.virtual.injection_bench import InjectionBench, start_bench
from tests.virtual.running_fleet import serve_fleet_in_thread
from tests.virtual.sample_plans import HOME, RUNNER
from tests.virtual.test_phone_loop import ROUNDING_S, TIMED, phone_seconds
from workloads.cli_options import EVENT_TIME

TICKS = f"{HOME}/ticks"
TICKING = f"setsid sh -c 'while :; do echo x >>{TICKS}; sleep 1; done' >/dev/null 2>&1 </dev/null &"
SENSORS = "/sys/class/thermal/thermal_zone*/temp /sys/class/power_supply/battery/* /proc/stat"
A_MOMENT_S = 0.1  # of the host, in which a phone would move if it could


@pytest.fixture
def bench(host: AdbHost, tmp_path: Path) -> Iterator[InjectionBench]:
    with start_bench(host, tmp_path) as bench:
        yield bench


@pytest.fixture
def phone(bench: InjectionBench) -> AdbPhone:
    return bench.adb_phone


def test_a_detached_process_moves_nothing(phone: AdbPhone) -> None:
    phone.out(TICKING)
    before = phone.uptime()
    time.sleep(A_MOMENT_S)
    assert phone.uptime() == before
    assert phone.out(f"wc -l <{TICKS}") == "1"


@pytest.mark.parametrize("line", ["read -r x", "cat", "sleep 1000 & read -r x"])
def test_a_shell_that_waits_for_input_moves_nothing(phone: AdbPhone, line: str) -> None:
    phone.out(TICKING)
    before = phone.uptime()
    shell = phone.shell()
    shell.send(f"{line}\n")
    time.sleep(A_MOMENT_S)
    assert phone.uptime() == before
    shell.close()


def test_a_host_that_is_gone_waits_for_nothing(phone: AdbPhone) -> None:
    """What it started runs on, and holds the output of its shell."""
    shell = phone.shell()
    before = phone.uptime()
    assert shell.line(f"setsid sh -c 'while :; do echo x >>{TICKS}; sleep 1; done' &") == (0, "")
    shell.close()
    time.sleep(A_MOMENT_S)
    assert phone.uptime() == before
    phone.out("sleep 15.5")
    assert phone.out(f"wc -l <{TICKS}") == "16"


@pytest.mark.parametrize(
    ("script", "seconds"),
    [
        ("sleep 15.5", 15.5),
        ("sleep 7 & wait", 7.0),
        ("sleep 3 & sleep 9", 9.0),
        (f"{HOME}/runner sample {HOME}/dir --seconds 20 >/dev/null", 20.0),
        (f"setsid sleep 12 </dev/null >/dev/null 2>&1 & {HOME}/runner wait $!", 12.0),
        (f"setsid sleep 90 </dev/null >/dev/null 2>&1 & {HOME}/runner wait $! --seconds 15", 15.0),
    ],
)
def test_what_a_service_waits_for_moves_the_clock(
    phone: AdbPhone, script: str, seconds: float
) -> None:
    phone.put(f"{HOME}/runner", RUNNER, 0o755)
    phone.put(f"{HOME}/dir/nodes", b"/proc/uptime\n")
    elapsed_s = phone_seconds(phone.out(TIMED.format(script=script)))
    assert elapsed_s == pytest.approx(seconds, abs=ROUNDING_S)


def test_every_process_wakes_up_in_time_while_a_service_waits(phone: AdbPhone) -> None:
    phone.out(TICKING)
    phone.out("sleep 15.5")
    assert phone.out(f"wc -l <{TICKS}") == "16"


@pytest.mark.parametrize("kind", ["unplug", "hang", "partition", "adbd_restarts"])
def test_an_outage_passes_at_once_and_nothing_after_it(bench: InjectionBench, kind: str) -> None:
    """Nobody can wait on a phone that no host reaches."""
    phone = bench.adb_phone
    if kind != "adbd_restarts":  # it ends what runs on the phone
        phone.out(TICKING)
    before = phone.uptime()
    bench.mischief.add(kind, for_=300)
    bench.connect()
    assert phone.uptime() - before == pytest.approx(300, abs=ROUNDING_S)
    if kind != "adbd_restarts":
        assert phone.out(f"wc -l <{TICKS}") in {"300", "301"}  # both are due at the same moment


def test_a_reboot_takes_no_time_of_the_host(bench: InjectionBench) -> None:
    target = bench.fleet.servers[0].phone
    bench.mischief.add("reboot")
    bench.connect()
    assert target.clock.now == pytest.approx(target.profile.boot_s)
    assert bench.adb_phone.uptime() == pytest.approx(0, abs=ROUNDING_S)


def test_a_long_wait_does_not_delay_another_phone_of_the_process(
    host: AdbHost, tmp_path: Path
) -> None:
    config = FleetConfig(("meizu-16t", "xiaomi-mi-9"), speed=EVENT_TIME, journal=tmp_path)
    with serve_fleet_in_thread(config) as (_, addresses):
        phones = [AdbPhone(host, address.address) for address in addresses]
        for phone in phones:
            assert "connected" in host.adb("connect", phone.address).out
        waiting, other = phones
        before = other.uptime()
        with host.open_service(waiting.address, "shell,v2,raw:sleep 1000000000"):
            assert other.out("echo here") == "here"
            assert other.uptime() == before
            assert phone_seconds(other.out(TIMED.format(script="sleep 100"))) == pytest.approx(
                100, abs=ROUNDING_S
            )
        for phone in phones:
            host.adb("disconnect", phone.address)


def state_of(phone: VirtualPhone) -> dict[str, object]:
    """Return what physics has computed, to the last bit."""
    phone.catch_up()
    soc = phone.soc
    soc.update_counters()
    return {
        "now": phone.clock.now,
        "temps": tuple(soc.heat.temps),
        "zones": [soc.read_zone_mc(zone) for zone in soc.zones],
        "charge": soc.battery.charge_uah,
        "rails": dict(soc.rails_j),
        "idle": dict(soc.idle_s),
        "busy": dict(soc.busy_s),
        "residency": [tuple(cluster.residency_s) for cluster in soc.clusters],
    }


@pytest.mark.parametrize("profile", ["meizu-16t", "google-pixel-8"])
def test_looking_at_a_phone_changes_no_bit(host: AdbHost, tmp_path: Path, profile: str) -> None:
    """A hot phone cools for 300 s, while somebody looks at it now and then, or not at all."""
    states = []
    for looks in (0, 20, 60, 600):
        with start_bench(host, tmp_path / str(looks), profile) as bench:
            bench.mischief.add("other_work", mask="f0", threads=4, for_=60)
            bench.adb_phone.out("sleep 60")
            hot = state_of(bench.fleet.servers[0].phone)["temps"]
            look = f"sleep {300 / looks if looks else 300}; cat {SENSORS} >/dev/null 2>&1"
            rounds = f"i=0; while [ $i -lt {max(looks, 1)} ]; do i=$((i+1)); {look}; done; true"
            bench.adb_phone.out(rounds)
            states.append(state_of(bench.fleet.servers[0].phone))
            assert states[-1]["temps"] != hot
    assert states[0]["now"] == 360.0
    assert states[1:] == states[:1] * 3
