"""Hostile output of a phone: the result is bounded and plain, and has only allowed paths."""

from agent.phone.cpu_clusters import parse_clusters
from agent.phone.gpu_probe import parse_gpu
from agent.phone.kernel_nodes import (
    CLUSTERS_MAX,
    CPUFREQ,
    STEPS_MAX,
    THERMAL,
    ZONES_MAX,
)
from agent.phone.phone_reading import plain_property
from agent.phone.thermal_zones import ZoneUse, examine_zones, zones_in_use
from agent.phone.thermalservice import parse_thermalservice
from agent.phone.vendor_daemons import PERF_DAEMONS_MAX, find_perf_daemons, running_services

MANY = 3 * ZONES_MAX


def test_endless_lists_of_nodes_are_truncated() -> None:
    nodes = {f"{CPUFREQ}/policy{number}/related_cpus": str(number) for number in range(MANY)}
    nodes |= {
        f"{CPUFREQ}/policy{number}/scaling_available_frequencies": " ".join(
            str(1000 * khz) for khz in range(100, 100 + MANY)
        )
        for number in range(MANY)
    }
    clusters = parse_clusters(nodes)
    assert len(clusters) == CLUSTERS_MAX
    assert len(clusters[0].ladder_khz) == STEPS_MAX
    zones = {f"{THERMAL}/thermal_zone{number}/type": "cpu" for number in range(MANY)}
    zones |= {f"{THERMAL}/thermal_zone{number}/temp": "30000" for number in range(MANY)}
    assert len(zones_in_use(examine_zones(zones), ZoneUse.CPU)) == ZONES_MAX


def test_endless_lists_of_services_are_truncated() -> None:
    rows = "".join(
        f"Temperature{{mValue=3{number % 9}.0, mType=0, mName=c{number}, x\n"
        for number in range(MANY)
    )
    assert len(parse_thermalservice(f"Current temperatures from HAL\n{rows}")) == ZONES_MAX
    properties = "".join(f"[init.svc.perf-hal-{number}]: [running]\n" for number in range(MANY))
    assert len(find_perf_daemons(running_services(properties))) == PERF_DAEMONS_MAX


def test_a_gpu_is_found_only_in_its_folders() -> None:
    for path in (
        "/sys/../data/x",
        "/data/local/tmp",
        "/sys/class/devfreq/a b",
        "/sys/class/devfreq",
    ):
        assert parse_gpu({f"{path}/available_frequencies": "100000000"}) is None


def test_properties_are_plain_text() -> None:
    assert plain_property("Redmi Note 9 Pro (4G)\n") == "Redmi Note 9 Pro (4G)"
    assert plain_property("荣耀 8") == "荣耀 8"
    assert plain_property("a\x1b[31m$(reboot)`x`;<b>&\u202e") == "a?31m?(reboot)?x???b??"
    assert len(plain_property("x" * 500)) == 64
