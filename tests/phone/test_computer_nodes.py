"""Parsers for nodes of computers: stepless clocks, core kinds, second threads, hwmon."""

import pytest

from agent.phone.computer_nodes import (
    adapt_clusters,
    is_stepless,
    parse_hwmon_zones,
    parse_second_threads,
    stepless_ladder,
)
from agent.phone.cpu_clusters import parse_clusters
from agent.phone.kernel_nodes import (
    CPU,
    CPUFREQ,
    FIRMWARE_THROTTLING,
    is_cooler_active,
    parse_cpu_coolers,
)
from tests.builders import a_phone
from workloads.protocol.phone_facts import Cluster, choose_cores

HWMON = "/sys/class/hwmon"


def intel(policy: int, highest: int, base: int | None = 1_800_000) -> dict[str, str]:
    """Build the nodes of a core under intel_pstate."""
    folder = f"{CPUFREQ}/policy{policy}"
    nodes = {
        f"{folder}/related_cpus": f"{policy}",
        f"{folder}/scaling_driver": "intel_pstate",
        f"{folder}/scaling_cur_freq": "900000",
        f"{folder}/cpuinfo_min_freq": "400000",
        f"{folder}/cpuinfo_max_freq": f"{highest}",
    }
    return nodes | ({f"{folder}/base_frequency": f"{base}"} if base else {})


def test_a_stepless_clock_has_steps_up_to_the_base_clock() -> None:
    nodes = intel(0, 4_700_000, 1_850_000)
    assert is_stepless(nodes, 0)
    ladder = stepless_ladder(nodes, 0, 0)
    assert ladder[:3] == (400_000, 500_000, 600_000)
    assert ladder[-2:] == (1_800_000, 1_850_000)


@pytest.mark.parametrize(
    ("more", "highest"),
    [
        ({}, 3_600_000),  # neither base nor nominal clock: what the driver allows
        ({f"{CPU}/cpu0/acpi_cppc/nominal_freq": "2000"}, 2_000_000),  # AMD, in MHz
    ],
)
def test_the_clock_that_can_be_held_is_the_highest_step(more: dict[str, str], highest: int) -> None:
    assert stepless_ladder(intel(0, 3_600_000, None) | more, 0, 0)[-1] == highest


@pytest.mark.parametrize("bad", [{}, intel(0, 400_000, 100), intel(0, 99_000_000, None)])
def test_nonsense_gives_no_steps(bad: dict[str, str]) -> None:
    assert stepless_ladder(bad, 0, 0) == ()


def test_a_driver_with_steps_keeps_them() -> None:
    nodes = intel(0, 3_000_000) | {f"{CPUFREQ}/policy0/scaling_driver": "acpi-cpufreq"}
    nodes[f"{CPUFREQ}/policy0/scaling_available_frequencies"] = "3000000 2200000 1600000"
    (cluster,) = adapt_clusters(parse_clusters(nodes), nodes, clocks_writable=False)
    assert cluster.ladder_khz == (1_600_000, 2_200_000, 3_000_000)


def test_a_stepless_clock_that_cannot_be_set_has_no_steps_but_is_shown() -> None:
    nodes = intel(0, 4_700_000)
    (cluster,) = adapt_clusters(parse_clusters(nodes), nodes, clocks_writable=False)
    assert (cluster.ladder_khz, cluster.has_clock) == ((), True)
    (cluster,) = adapt_clusters(parse_clusters(nodes), nodes, clocks_writable=True)
    assert cluster.ladder_khz[-1] == 1_800_000


def test_favoured_cores_are_of_the_same_kind() -> None:
    nodes = intel(0, 5_000_000) | intel(1, 4_800_000) | intel(2, 4_800_000)
    clusters = adapt_clusters(parse_clusters(nodes), nodes, clocks_writable=True)
    assert {cluster.capacity for cluster in clusters} == {5000}


@pytest.mark.parametrize("listed", [True, False])
def test_a_hybrid_processor_has_two_kinds_of_cores(listed: bool) -> None:
    nodes = intel(0, 4_700_000) | intel(1, 4_600_000) | intel(2, 3_500_000)
    if listed:
        nodes |= {"/sys/devices/cpu_core/cpus": "0-1", "/sys/devices/cpu_atom/cpus": "2"}
    clusters = adapt_clusters(parse_clusters(nodes), nodes, clocks_writable=True)
    assert [cluster.capacity for cluster in clusters] == [4700, 4700, 3500]


def test_capacities_of_the_kernel_are_kept() -> None:
    nodes = intel(0, 4_700_000) | {f"{CPU}/cpu0/cpu_capacity": "1024"}
    (cluster,) = adapt_clusters(parse_clusters(nodes), nodes, clocks_writable=True)
    assert cluster.capacity == 1024


def test_second_threads_are_chosen_last() -> None:
    siblings = {0: "0,4", 4: "0,4", 1: "1,5", 5: "1,5", 2: "2-3", 3: "2-3"}
    nodes = {
        f"{CPU}/cpu{cpu}/topology/thread_siblings_list": text for cpu, text in siblings.items()
    }
    second = parse_second_threads(nodes)
    assert second == (3, 4, 5)
    clusters = tuple(
        Cluster(policy=cpu, cpus=(cpu,), capacity=1024, ladder_khz=()) for cpu in range(6)
    )
    facts = a_phone(clusters=clusters, second_threads=second)
    assert choose_cores(facts, "all3").cpus == (0, 1, 2)
    assert choose_cores(facts, "all4").cpus == (0, 1, 2, 3)


def hwmon(chip: str, **temps: tuple[str, str]) -> dict[str, str]:
    """Build the nodes of a chip: label and value of each thermometer."""
    nodes = {f"{HWMON}/hwmon3/name": chip}
    for name, (label, value) in temps.items():
        nodes[f"{HWMON}/hwmon3/{name}_label"] = label
        nodes[f"{HWMON}/hwmon3/{name}_input"] = value
    return nodes


@pytest.mark.parametrize(
    ("nodes", "types"),
    [
        (
            hwmon("coretemp", temp1=("Package id 0", "51000"), temp2=("Core 0", "50000")),
            ["coretemp Package id 0"],
        ),
        (hwmon("k10temp", temp1=("Tctl", "70000"), temp2=("Tdie", "43000")), ["k10temp Tdie"]),
        (hwmon("k10temp", temp1=("Tctl", "43000")), ["k10temp Tctl"]),
        (hwmon("nvme", temp1=("Composite", "40000")), []),  # not the processor
        (hwmon("coretemp", temp1=("Package id 0", "0")), []),  # it does not measure
    ],
)
def test_thermometers_of_the_processor(nodes: dict[str, str], types: list[str]) -> None:
    assert [zone.type for zone in parse_hwmon_zones(nodes)] == types


@pytest.mark.parametrize(
    ("value", "active"),
    [
        (0, False),
        (50000, False),  # hexadecimal: it happened since the boot, and is over
        (50005, True),  # too little voltage, throttled
        ("e0008", True),  # soft temperature limit
        ("nonsense", False),
        (None, False),
    ],
)
def test_throttling_by_the_firmware(value: int | str | None, active: bool) -> None:
    assert is_cooler_active(FIRMWARE_THROTTLING, value) is active


def test_coolers_of_computers() -> None:
    thermal = "/sys/class/thermal"
    nodes = {
        f"{thermal}/cooling_device0/type": "Processor",
        f"{thermal}/cooling_device1/type": "TCC Offset",
        FIRMWARE_THROTTLING: "0",
    }
    coolers = parse_cpu_coolers(nodes)
    assert set(coolers) == {f"{thermal}/cooling_device0/cur_state", FIRMWARE_THROTTLING}
    assert is_cooler_active(f"{thermal}/cooling_device0/cur_state", 3)
