"""Clusters: folders per policy or per core, cores that are offline, kinds of cores."""

import pytest

from agent.phone.cpu_clusters import (
    CPUINFO,
    core_kinds,
    offline_clusters,
    parse_clusters,
    parse_cores,
    parse_ladder,
)
from agent.phone.kernel_nodes import CPU, CPUFREQ


def core_nodes(cpus: range, ladder: str, **others: str) -> dict[str, str]:
    """Return the nodes of cores as kernels without policies show them."""
    names = {"related_cpus": " ".join(map(str, cpus)), "scaling_available_frequencies": ladder}
    return {
        f"{CPU}/cpu{cpu}/cpufreq/{name}": text
        for cpu in cpus
        for name, text in (names | others).items()
    }


def cpuinfo(*parts: int, implementer: int = 0x41) -> str:
    """Return /proc/cpuinfo with a block per core."""
    return "\n\n".join(
        f"processor\t: {cpu}\nCPU implementer\t: {implementer:#04x}\nCPU part\t: {part:#05x}"
        for cpu, part in enumerate(parts)
    )


@pytest.mark.parametrize(
    ("available", "time_in_state", "ladder"),
    [
        ("300000 576000 1785600 \n", "", (300000, 576000, 1785600)),  # ascending, trailing blank
        ("1785600 300000 576000", "", (300000, 576000, 1785600)),  # MediaTek lists it descending
        ("", "300000 12\n576000 7\n", (300000, 576000)),  # no list: the counters name the steps
        ("<unsupported>", "", ()),  # neither
    ],
)
def test_ladders(available: str, time_in_state: str, ladder: tuple[int, ...]) -> None:
    assert parse_ladder(available, time_in_state) == ladder


@pytest.mark.parametrize(
    ("nodes", "clusters"),
    [
        ({f"{CPU}/present": "0-1"}, [(0, (0, 1), 1024)]),  # a computer
        ({f"{CPU}/present": "2,5"}, [(2, (2, 5), 1024)]),  # a part of one
        (
            {f"{CPU}/present": "0-2", f"{CPU}/cpu0/cpu_capacity": "300"},
            [(0, (0,), 300), (1, (1, 2), 1024)],  # different cores stay separate
        ),
        ({}, []),
    ],
)
def test_cores_without_clocks(
    nodes: dict[str, str], clusters: list[tuple[int, tuple[int, ...], int]]
) -> None:
    parsed = parse_cores(nodes)
    assert [(cluster.policy, cluster.cpus, cluster.capacity) for cluster in parsed] == clusters
    assert not any(cluster.ladder_khz for cluster in parsed)


def test_clusters_follow_the_kernel() -> None:
    nodes = {
        f"{CPUFREQ}/policy0/related_cpus": "0 1 2 3",
        f"{CPUFREQ}/policy0/scaling_available_frequencies": "2419200 710400",
        f"{CPUFREQ}/policy4/related_cpus": "4 5 6 7",
        f"{CPUFREQ}/policy4/stats/time_in_state": "300000 4\n1785600 5",
        f"{CPU}/cpu0/cpu_capacity": "1024",
        f"{CPUFREQ}/policy9/related_cpus": "",
    }
    big, little = parse_clusters(nodes)
    assert (big.policy, big.cpus, big.capacity) == (
        0,
        (0, 1, 2, 3),
        2419,
    )  # one figure alone does not give an order
    assert (little.ladder_khz, little.capacity) == ((300000, 1785600), 1785)


def test_a_folder_per_core() -> None:
    nodes = core_nodes(range(4), "480000 1800000") | core_nodes(range(4, 8), "480000 2300000")
    little, big = parse_clusters(nodes | {f"{CPU}/present": "0-7"})
    assert (little.cpus, little.folder) == ((0, 1, 2, 3), f"{CPU}/cpu0/cpufreq")
    assert (big.policy, big.cpus, big.folder) == (4, (4, 5, 6, 7), f"{CPU}/cpu4/cpufreq")
    both = nodes | {
        f"{CPUFREQ}/policy0/related_cpus": "0 1 2 3 4 5 6 7",
        f"{CPUFREQ}/policy0/scaling_available_frequencies": "480000",
    }
    assert [(at.cpus, at.folder) for at in parse_clusters(both)] == [(tuple(range(8)), "")]


def test_a_cluster_that_is_offline_is_not_lost() -> None:
    nodes = core_nodes(range(4), "384000 1440000") | {f"{CPU}/present": "0-5"}
    clusters = parse_clusters(nodes)
    (hidden,) = offline_clusters(nodes, clusters)
    assert (hidden.cpus, hidden.ladder_khz) == ((4, 5), ())
    assert hidden.capacity > clusters[0].capacity
    # Krait: a clock per core, and three of four cores offline most of the time
    lone = core_nodes(range(1), "300000 2265600") | core_nodes(range(1, 2), "300000 2265600")
    nodes = lone | {f"{CPU}/present": "0-3"}
    hidden_cores = offline_clusters(nodes, parse_clusters(nodes))
    assert [(at.cpus, at.capacity) for at in hidden_cores] == [((2,), 2265), ((3,), 2265)]
    assert offline_clusters({}, ()) == ()


def test_clusters_that_are_offline_at_once_are_told_apart() -> None:
    """Capacities of a core are shown while it is offline; numbers of a cluster have no gap."""
    one = {
        f"{CPUFREQ}/policy0/related_cpus": "0 1 2",
        f"{CPUFREQ}/policy0/scaling_available_frequencies": "300000 1800000",
        f"{CPU}/present": "0-7",
    }
    figures = [250] * 3 + [768] * 4 + [1024]
    stated = {f"{CPU}/cpu{cpu}/cpu_capacity": str(figure) for cpu, figure in enumerate(figures)}
    hidden = offline_clusters(one | stated, parse_clusters(one | stated))
    assert [(at.cpus, at.capacity) for at in hidden] == [((3, 4, 5, 6), 768), ((7,), 1024)]
    (together,) = offline_clusters(one, parse_clusters(one))  # nothing tells them apart
    assert together.cpus == (3, 4, 5, 6, 7)
    middle = {path.replace("policy0", "policy2"): text for path, text in one.items()}
    middle[f"{CPUFREQ}/policy2/related_cpus"] = "2 3 4"
    assert [at.cpus for at in offline_clusters(middle, parse_clusters(middle))] == [
        (0, 1),
        (5, 6, 7),
    ]


def test_a_capacity_of_another_scale_is_not_compared() -> None:
    nodes = core_nodes(range(4), "384000 1440000") | {f"{CPU}/present": "0-7"}
    nodes[f"{CPU}/cpu4/cpu_capacity"] = "1024"  # the other cores state none: theirs is a clock
    clusters = parse_clusters(nodes)
    assert all(at.capacity > clusters[0].capacity for at in offline_clusters(nodes, clusters))


def test_equal_clocks_without_capacities_are_told_apart_by_the_kind_of_core() -> None:
    """MT6771: four Cortex-A53 and four Cortex-A73, all up to 1989 MHz."""
    nodes = core_nodes(range(4), "793000 1989000") | core_nodes(range(4, 8), "793000 1989000")
    assert len({at.capacity for at in parse_clusters(nodes)}) == 1
    nodes[CPUINFO] = cpuinfo(*[0xD03] * 4, *[0xD09] * 4)
    little, big = parse_clusters(nodes)
    assert little.capacity < big.capacity
    equal = {f"{CPU}/cpu{cpu}/cpu_capacity": "1024" for cpu in range(8)}
    little, big = parse_clusters(nodes | equal)
    assert little.capacity < big.capacity
    nodes[CPUINFO] = cpuinfo(*[0xD03] * 8)
    assert {at.capacity for at in parse_clusters(nodes | equal)} == {1024}


def test_kinds_of_cores() -> None:
    assert core_kinds({CPUINFO: cpuinfo(0x800, implementer=0x51)}) == {0: (0x51, 0x800)}
    one_block = "processor\t: 0\n\nprocessor\t: 1\nCPU implementer\t: 0x41\nCPU part\t: 0xd03\n"
    assert core_kinds({CPUINFO: one_block}) == {}
    midr = {f"{CPU}/cpu4/regs/identification/midr_el1": "0x00000000531f0020\n"}
    assert core_kinds(midr) == {4: (0x53, 0x002)}
    assert core_kinds({CPUINFO: "processor : x\nCPU part : 0xzz"}) == {}


@pytest.mark.parametrize(
    ("related", "ladder"),
    [("0 1", "300000"), ("1 2", "99999999999"), ("9", "300000"), ("7-1", "300000")],
)
def test_impossible_policies_are_left_out(related: str, ladder: str) -> None:
    """Cores of two policies, clocks of 100 THz, cores that are not present."""
    nodes = {
        f"{CPU}/present": "0-3",
        f"{CPUFREQ}/policy0/related_cpus": "0 1",
        f"{CPUFREQ}/policy0/scaling_available_frequencies": "300000 600000",
        f"{CPUFREQ}/policy1/related_cpus": related,
        f"{CPUFREQ}/policy1/scaling_available_frequencies": ladder,
    }
    assert [at.cpus for at in parse_clusters(nodes)] == [(0, 1)]
