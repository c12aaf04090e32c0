"""Whatever a phone prints: it is bounded, plain, and names nothing that is not its own."""

from agent.phone.daemons import OPPONENTS_MAX, find_opponents
from agent.phone.framework import parse_thermalservice
from agent.phone.gpu import parse_gpu
from agent.phone.nodes import (
    CLUSTERS_MAX,
    CPUFREQ,
    STEPS_MAX,
    THERMAL,
    ZONES_MAX,
    parse_clusters,
    parse_zones,
)
from agent.phone.probe import _plain

MANY = 3 * ZONES_MAX


def test_a_phone_of_a_thousand_parts_is_cut_short() -> None:
    nodes = {f"{CPUFREQ}/policy{at}/related_cpus": str(at) for at in range(MANY)}
    nodes |= {
        f"{CPUFREQ}/policy{at}/scaling_available_frequencies": " ".join(map(str, range(1, MANY)))
        for at in range(MANY)
    }
    clusters = parse_clusters(nodes)
    assert len(clusters) == CLUSTERS_MAX
    assert len(clusters[0].ladder_khz) == STEPS_MAX
    zones = {f"{THERMAL}/thermal_zone{at}/type": "cpu" for at in range(MANY)}
    zones |= {f"{THERMAL}/thermal_zone{at}/temp": "30000" for at in range(MANY)}
    assert len(parse_zones(zones)) == ZONES_MAX


def test_lists_of_the_framework_and_of_init_are_cut_short() -> None:
    rows = "".join(
        f"Temperature{{mValue=3{at % 9}.0, mType=0, mName=c{at}, x\n" for at in range(MANY)
    )
    assert len(parse_thermalservice(f"Current temperatures from HAL\n{rows}")) == ZONES_MAX
    said = "".join(f"[init.svc.perf-hal-{at}]: [running]\n" for at in range(MANY))
    assert len(find_opponents(said)) == OPPONENTS_MAX


def test_a_gpu_lives_where_gpus_live() -> None:
    for path in (
        "/sys/../data/x",
        "/data/local/tmp",
        "/sys/class/devfreq/a b",
        "/sys/class/devfreq",
    ):
        assert parse_gpu({f"{path}/available_frequencies": "100000000"}) is None


def test_properties_are_plain() -> None:
    assert _plain("Redmi Note 9 Pro (4G)\n") == "Redmi Note 9 Pro (4G)"
    assert _plain("荣耀 8") == "荣耀 8"
    assert _plain("a\x1b[31m$(reboot)`x`;<b>&\u202e") == "a?31m?(reboot)?x???b??"
    assert len(_plain("x" * 500)) == 64
