"""Clocks: hold the policies of the chosen cores at one step, and read back that it took."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from agent.control.change import MODES, OFF, ON, Change
from agent.control.journal import Journal
from agent.phone.nodes import CPU, CPUFREQ, first_number
from agent.phone.phone import Phone, writing
from agent.phone.reach import CLOCKS_FIXED
from workloads.fault import ClockSlipped, Refused
from workloads.phone import FIXED, FREE, Cluster, CoreSet, PhoneFacts, choose_clock
from workloads.text import safe_text

STEADY = "performance"


class PolicyState(NamedTuple):
    """How a policy stands."""

    governor: str
    governors: tuple[str, ...]
    min_khz: int
    max_khz: int

    def uncapped(self, cluster: Cluster) -> "PolicyState":
        """As it stands without the thermal cap: what is read then is the cap, not the setting.

        Putting the cap back as if it were the setting would slow the phone down for good.
        """
        return self._replace(max_khz=cluster.ladder_khz[-1])


class NodeWrite(NamedTuple):
    """One write to one node."""

    path: str
    value: str
    old: str


def policy_node(policy: int, name: str) -> str:
    """The path of a policy's node."""
    return f"{CPUFREQ}/policy{policy}/{name}"


def clusters_of(facts: PhoneFacts, cores: CoreSet) -> tuple[Cluster, ...]:
    """The clusters whose clocks the chosen cores run on."""
    return tuple(cluster for cluster in facts.clusters if set(cluster.cpus) & set(cores.cpus))


def choose_clocks(facts: PhoneFacts, cores: CoreSet, freq: str) -> dict[int, int]:
    """Policy -> kHz that was asked for; empty when the governor is to be left alone."""
    chosen = {cluster.policy: choose_clock(cluster, freq) for cluster in clusters_of(facts, cores)}
    return {policy: khz for policy, khz in chosen.items() if khz is not None}


def order_writes(policy: int, state: PolicyState, khz: int) -> list[NodeWrite]:
    """Writes that pin a policy. min must never exceed max on the way: kernels refuse that.

    Raising goes by max first, lowering by min first; undone in reverse, both stay in order.
    """
    low = NodeWrite(policy_node(policy, "scaling_min_freq"), str(khz), str(state.min_khz))
    high = NodeWrite(policy_node(policy, "scaling_max_freq"), str(khz), str(state.max_khz))
    limits = [high, low] if khz >= state.min_khz else [low, high]
    if STEADY in state.governors and state.governor != STEADY:
        governor = NodeWrite(policy_node(policy, "scaling_governor"), STEADY, state.governor)
        return [governor, *limits]
    return limits


def plan_writes(clocks: Mapping[int, int], states: Mapping[int, PolicyState]) -> list[NodeWrite]:
    """All writes that pin some policies, governors first: setting one may reset the limits."""
    writes = [
        write
        for policy, khz in clocks.items()
        for write in order_writes(policy, states[policy], khz)
    ]
    return sorted(writes, key=lambda write: not write.path.endswith("governor"))


def pin_clocks(
    phone: Phone,
    clocks: Mapping[int, int],
    cores: CoreSet,
    coolers: Iterable[str],
    journal: Journal,
) -> None:
    """Pin each policy to its clock; ClockSlipped when one does not take it."""
    _wake_cores(phone, cores, journal)
    states = read_policies(phone, clocks)
    if any(first_number(text) for text in phone.read_nodes(coolers).values()):
        clusters = {cluster.policy: cluster for cluster in phone.known.clusters}
        states = {policy: state.uncapped(clusters[policy]) for policy, state in states.items()}
    writes = plan_writes(clocks, states)
    journal.note([Change(kind="node", key=write.path, old=write.old) for write in writes])
    for _ in range(2):  # a vendor's daemon may win the first round
        phone.batch([writing(write.path, write.value) for write in writes])
        slipped = [
            f"policy{policy} stands at {state.min_khz}..{state.max_khz} kHz, asked {clocks[policy]}"
            for policy, state in read_policies(phone, clocks).items()
            if not state.min_khz == state.max_khz == clocks[policy]
        ]
        if not slipped:
            return
    raise ClockSlipped(f"The clocks did not take: {'; '.join(slipped)}.")


def hold_fixed_performance(phone: Phone, journal: Journal) -> None:
    """Ask the framework for the clock that the vendor can keep for good."""
    # No command tells whether it is on already; a phone out of its box has it off.
    journal.note([Change(kind="mode", key="mode fixed-performance", old=OFF)])
    said = phone.shell(MODES["fixed-performance"][ON])
    if said.status != 0:
        raise ClockSlipped(f"The fixed-performance mode was refused: {safe_text(said.text, 120)}")


def check_clocks_possible(facts: PhoneFacts, freq: str) -> None:
    """Refuse a clock that this phone can neither be set to nor reach by itself."""
    if freq == FIXED and not facts.fixed_performance:
        raise Refused(f"{facts.model} offers no fixed-performance mode; ask for high or free.")
    if freq not in {FREE, FIXED, "high"} and not can_pin(facts):
        why = ", ".join(facts.uncontrolled)
        raise Refused(f"{facts.model} cannot be held at '{freq}' ({why}); ask for high or free.")


def can_pin(facts: PhoneFacts) -> bool:
    """Whether this phone's clocks can be written."""
    return not any(why.startswith(CLOCKS_FIXED) for why in facts.uncontrolled)


def read_policies(phone: Phone, policies: Iterable[int]) -> dict[int, PolicyState]:
    """Read how policies stand, in one round trip."""
    names = (
        "scaling_governor",
        "scaling_available_governors",
        "scaling_min_freq",
        "scaling_max_freq",
    )
    wanted = list(policies)
    nodes = phone.read_nodes([policy_node(policy, name) for policy in wanted for name in names])
    states = {}
    for policy in wanted:
        texts = [nodes.get(policy_node(policy, name), "") for name in names]
        low, high = first_number(texts[2]), first_number(texts[3])
        if low is None or high is None:
            raise ClockSlipped(f"policy{policy} does not show its limits.")
        governors = tuple(safe_text(word, 32) for word in texts[1].split())
        states[policy] = PolicyState(safe_text(texts[0], 32), governors, low, high)
    return states


def _wake_cores(phone: Phone, cores: CoreSet, journal: Journal) -> None:
    asleep = _asleep(phone, cores)
    if asleep:
        journal.note([Change(kind="node", key=path, old="0") for path in asleep])
        phone.batch([writing(path, "1") for path in asleep])
        if still := _asleep(phone, cores):
            raise ClockSlipped(f"{', '.join(still)} cannot be switched on.")


def _asleep(phone: Phone, cores: CoreSet) -> list[str]:
    nodes = phone.read_nodes(f"{CPU}/cpu{cpu}/online" for cpu in cores.cpus)
    return [path for path, text in nodes.items() if text.strip() == "0"]
