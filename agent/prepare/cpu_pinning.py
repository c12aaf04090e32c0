"""The cores and CPU clocks that a condition requests: what a phone allows, and its nodes."""

from collections.abc import Iterable

from agent.phone.kernel_nodes import CPU, is_cooler_active, policy_node
from agent.phone.phone_driver import Phone
from agent.phone.shell_command import ShellCommand, write_node_command
from agent.prepare.clock_pinning import ClockNodes, NodeWrite, node_changes
from agent.restore.restore_journal import RestoreJournal
from agent.restore.reversible_change import FRAMEWORK_MODES, OFF, ON, ChangeKind, ReversibleChange
from workloads.protocol.faults import ClockSlipped, InvalidRequest
from workloads.protocol.phone_facts import FIXED, FREE, CoreSet, PhoneFacts
from workloads.text import safe_text

_ALL_CORES_CPUSET = "/dev/cpuset"  # the root of the cpusets: every core


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


def policy_nodes(facts: PhoneFacts, policy: int) -> ClockNodes:
    """The nodes of the clock of a cpufreq policy."""
    return ClockNodes(f"policy{policy}", policy_node(facts, policy, "").removesuffix("/"))


def uncapped_limits(phone: Phone, coolers: Iterable[str]) -> dict[ClockNodes, int]:
    """The highest clock of every policy while a thermal cap is active; else nothing."""
    if not any(is_cooler_active(path, text) for path, text in phone.read_nodes(coolers).items()):
        return {}
    return {
        policy_nodes(phone.facts, cluster.policy): cluster.ladder_khz[-1]
        for cluster in phone.facts.clusters
    }


def enable_fixed_performance(phone: Phone, journal: RestoreJournal) -> None:
    """Ask the framework for the clock that the vendor guarantees to sustain."""
    # No command shows whether the mode is on already; by default it is off.
    change = ReversibleChange(kind=ChangeKind.MODE, key="mode fixed-performance", old=OFF)
    journal.record_changes([change])
    result = phone.shell(FRAMEWORK_MODES["fixed-performance"][ON])
    if result.status != 0:
        output = safe_text(result.text, 120)
        raise ClockSlipped(f"the fixed-performance mode was refused: {output}")


def switch_on_cores(phone: Phone, cores: CoreSet, journal: RestoreJournal) -> None:
    """Switch on the requested cores that are offline."""
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
