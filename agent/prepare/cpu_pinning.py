"""Pin cores and CPU clocks: hold the policies of the requested cores at one step, and verify it."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from agent.phone.kernel_nodes import (
    CPU,
    CPUFREQ,
    first_number,
    is_cooler_active,
    policy_node,
)
from agent.phone.phone_driver import Phone
from agent.phone.shell_command import ShellCommand, write_node_command
from agent.restore.restore_journal import RestoreJournal
from agent.restore.reversible_change import FRAMEWORK_MODES, OFF, ON, ChangeKind, ReversibleChange
from workloads.protocol.faults import ClockSlipped, InvalidRequest
from workloads.protocol.phone_facts import FIXED, FREE, Cluster, CoreSet, PhoneFacts
from workloads.text import safe_text

PERFORMANCE_GOVERNOR = "performance"
_ALL_CORES_CPUSET = "/dev/cpuset"  # the root of the cpusets: every core


class PolicyState(NamedTuple):
    """Governor and limits of a cpufreq policy."""

    governor: str
    governors: tuple[str, ...]
    min_khz: int
    max_khz: int
    folder: str = ""  # of its nodes; empty: that of the policy

    def without_thermal_cap(self, cluster: Cluster) -> "PolicyState":
        """The state as it is without a thermal cap.

        While a cap is active, the node shows the cap and not the setting. Restoring the cap as if
        it were the setting would slow the phone down permanently.
        """
        return self._replace(max_khz=cluster.ladder_khz[-1])


class NodeWrite(NamedTuple):
    """One write to one kernel node."""

    path: str
    value: str
    old: str


def check_cores_allowed(facts: PhoneFacts, cores: CoreSet) -> None:
    """Refuse cores outside the cpuset of a shell that is not root."""
    barred = barred_cpus(facts, cores)
    if barred and not facts.rooted:
        names = ", ".join(f"cpu{cpu}" for cpu in barred)
        raise InvalidRequest(
            f"the shell of {facts.model} may not use {names}: its cpuset excludes them; "
            "request other cores"
        )


def barred_cpus(facts: PhoneFacts, cores: CoreSet) -> list[int]:
    """Requested cores that the shell's cpuset excludes."""
    return sorted({*cores.cpus} - {*facts.shell_cpus}) if facts.shell_cpus else []


def enter_all_cores(phone: Phone) -> None:
    """Move our shell, and so everything it starts, to the cpuset of all cores.

    The shell's exit undoes this.
    """
    join = f"echo $PPID >{_ALL_CORES_CPUSET}/cgroup.procs"
    phone.shell_batch([ShellCommand(["sh", "-c", join])])


def check_clocks_supported(facts: PhoneFacts, freq: str) -> None:
    """Refuse a clock that this phone can neither be set to nor reach by itself."""
    if freq == FIXED and not facts.fixed_performance:
        raise InvalidRequest(
            f"{facts.model} has no fixed-performance mode; use freq: free, or "
            "freq: high, which then only checks that the clocks stay at their maximum"
        )
    if freq not in {FREE, FIXED, "high"} and not facts.clocks_writable:
        reasons = ", ".join(facts.uncontrolled)
        raise InvalidRequest(
            f"{facts.model} cannot be pinned to '{freq}' ({reasons}); use freq: free, or "
            "freq: high, which then only checks that the clocks stay at their maximum"
        )


def policy_writes(policy: int, state: PolicyState, khz: int) -> list[NodeWrite]:
    """The writes that pin a policy. min must never exceed max on the way: kernels refuse that.

    Raising writes max first, lowering writes min first; undone in reverse, both orders stay valid.
    """
    folder = state.folder or f"{CPUFREQ}/policy{policy}"
    low = NodeWrite(f"{folder}/scaling_min_freq", str(khz), str(state.min_khz))
    high = NodeWrite(f"{folder}/scaling_max_freq", str(khz), str(state.max_khz))
    limits = [high, low] if khz >= state.min_khz else [low, high]
    if PERFORMANCE_GOVERNOR in state.governors and state.governor != PERFORMANCE_GOVERNOR:
        path = f"{folder}/scaling_governor"
        return [NodeWrite(path, PERFORMANCE_GOVERNOR, state.governor), *limits]
    return limits


def pinning_writes(clocks: Mapping[int, int], states: Mapping[int, PolicyState]) -> list[NodeWrite]:
    """The writes that pin several policies, governors first: setting one may reset the limits."""
    writes = [
        write
        for policy, khz in clocks.items()
        for write in policy_writes(policy, states[policy], khz)
    ]
    return sorted(writes, key=lambda write: not write.path.endswith("governor"))


def pin_clocks(
    phone: Phone,
    clocks: Mapping[int, int],
    cores: CoreSet,
    coolers: Iterable[str],
    journal: RestoreJournal,
) -> None:
    """Pin each policy to its clock; ClockSlipped if one does not accept it."""
    _switch_on_cores(phone, cores, journal)
    states = read_policy_states(phone, clocks)
    if any(is_cooler_active(path, text) for path, text in phone.read_nodes(coolers).items()):
        clusters = {cluster.policy: cluster for cluster in phone.facts.clusters}
        states = {
            policy: state.without_thermal_cap(clusters[policy]) for policy, state in states.items()
        }
    writes = pinning_writes(clocks, states)
    journal.record_changes(node_changes(writes))
    for _ in range(2):  # a vendor daemon may overwrite the first attempt
        phone.shell_batch([write_node_command(write.path, write.value) for write in writes])
        slipped = [
            f"policy{policy} is {state.min_khz}..{state.max_khz} kHz, requested {clocks[policy]}"
            for policy, state in read_policy_states(phone, clocks).items()
            if not state.min_khz == state.max_khz == clocks[policy]  # guard: clock-read-back
        ]
        if not slipped:
            return
    raise ClockSlipped(f"CPU clock not applied: {'; '.join(slipped)}")


def node_changes(writes: Iterable[NodeWrite]) -> list[ReversibleChange]:
    """The journal entries of some writes."""
    return [
        ReversibleChange(kind=ChangeKind.NODE, key=write.path, old=write.old) for write in writes
    ]


def enable_fixed_performance(phone: Phone, journal: RestoreJournal) -> None:
    """Ask the framework for the clock that the vendor guarantees to sustain."""
    # No command shows whether the mode is on already; by default it is off.
    change = ReversibleChange(kind=ChangeKind.MODE, key="mode fixed-performance", old=OFF)
    journal.record_changes([change])
    result = phone.shell(FRAMEWORK_MODES["fixed-performance"][ON])
    if result.status != 0:
        output = safe_text(result.text, 120)
        raise ClockSlipped(f"the fixed-performance mode was refused: {output}")


def read_policy_states(phone: Phone, policies: Iterable[int]) -> dict[int, PolicyState]:
    """Read governors and limits of policies, in one round trip."""
    names = (
        "scaling_governor",
        "scaling_available_governors",
        "scaling_min_freq",
        "scaling_max_freq",
    )
    wanted = {policy: policy_node(phone.facts, policy, "") for policy in policies}
    nodes = phone.read_nodes([f"{folder}{name}" for folder in wanted.values() for name in names])
    states = {}
    for policy, folder in wanted.items():
        governor, available, low, high = (nodes.get(f"{folder}{name}", "") for name in names)
        min_khz, max_khz = first_number(low), first_number(high)
        if min_khz is None or max_khz is None:
            raise ClockSlipped(f"the limits of policy{policy} cannot be read")
        governors = tuple(safe_text(word, 32) for word in available.split())
        states[policy] = PolicyState(
            safe_text(governor, 32), governors, min_khz, max_khz, folder[:-1]
        )
    return states


def _switch_on_cores(phone: Phone, cores: CoreSet, journal: RestoreJournal) -> None:
    offline = _offline_nodes(phone, cores)
    if offline:
        writes = [NodeWrite(path, "1", "0") for path in offline]
        journal.record_changes(node_changes(writes))
        phone.shell_batch([write_node_command(write.path, write.value) for write in writes])
        if still_offline := _offline_nodes(phone, cores):
            raise ClockSlipped(
                f"cannot hold the clocks: {', '.join(still_offline)} cannot be switched on"
            )


def _offline_nodes(phone: Phone, cores: CoreSet) -> list[str]:
    nodes = phone.read_nodes(f"{CPU}/cpu{cpu}/online" for cpu in cores.cpus)
    return [path for path, text in nodes.items() if text.strip() == "0"]
