"""Pin clocks, those of CPU policies and of the GPU alike: hold each at one step, and verify it."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from agent.phone.kernel_nodes import first_number
from agent.phone.phone_driver import Phone
from agent.phone.shell_command import write_node_command
from agent.restore.restore_journal import RestoreJournal
from agent.restore.reversible_change import ChangeKind, ReversibleChange
from workloads.protocol.faults import ClockSlipped
from workloads.protocol.phone_facts import Gpu
from workloads.text import safe_text

PERFORMANCE_GOVERNOR = "performance"


class ClockNodes(NamedTuple):
    """The nodes of one clock: its folder, and the names of governor and limits in it."""

    name: str  # in messages
    folder: str
    governor: str = "scaling_governor"
    governors: str = "scaling_available_governors"
    low: str = "scaling_min_freq"
    high: str = "scaling_max_freq"

    @property
    def paths(self) -> tuple[str, ...]:
        """The paths of all nodes, in the order of the fields."""
        return tuple(f"{self.folder}/{name}" for name in self[2:])


class ClockState(NamedTuple):
    """Governor and limits of one clock."""

    governor: str
    governors: tuple[str, ...]
    low: int
    high: int


class NodeWrite(NamedTuple):
    """One write to one kernel node."""

    path: str
    value: str
    old: str


def gpu_nodes(gpu: Gpu) -> ClockNodes:
    """The nodes of a GPU's clock."""
    return ClockNodes(gpu.name, gpu.folder, "governor", "available_governors", *gpu.limits)


def limit_writes(nodes: ClockNodes, state: ClockState, step: int) -> list[NodeWrite]:
    """The writes that hold a clock. low must never exceed high on the way: kernels refuse that.

    Raising writes high first, lowering writes low first; undone in reverse, both orders stay valid.
    The governor is written before: setting it may reset the limits.
    """
    governor_path, _, low_path, high_path = nodes.paths
    low = NodeWrite(low_path, str(step), str(state.low))
    high = NodeWrite(high_path, str(step), str(state.high))
    limits = [high, low] if step >= state.low else [low, high]
    if PERFORMANCE_GOVERNOR in state.governors and state.governor != PERFORMANCE_GOVERNOR:
        return [NodeWrite(governor_path, PERFORMANCE_GOVERNOR, state.governor), *limits]
    return limits


def pin_clocks(
    phone: Phone,
    steps: Mapping[ClockNodes, int],
    journal: RestoreJournal,
    uncapped: Mapping[ClockNodes, int],
) -> None:
    """Pin each clock to its step; ClockSlipped if one does not accept it.

    `uncapped` has the upper limits of clocks under a thermal cap. While it is active, the node
    shows the cap and not the setting. Restoring the cap as if it were the setting would slow the
    phone down permanently.
    """
    states = read_clock_states(phone, steps)
    writes = [
        write
        for nodes, state in states.items()
        for write in limit_writes(
            nodes, state._replace(high=uncapped.get(nodes, state.high)), steps[nodes]
        )
    ]
    # One policy's governor may reset the limits of another.
    writes.sort(key=lambda write: not write.path.endswith("governor"))
    journal.record_changes(node_changes(writes))
    for _ in range(2):  # a vendor daemon may overwrite the first attempt
        phone.shell_batch([write_node_command(write.path, write.value) for write in writes])
        slipped = [
            f"{nodes.name} is {state.low}..{state.high}, requested {steps[nodes]}"
            for nodes, state in read_clock_states(phone, steps).items()
            if not state.low == state.high == steps[nodes]  # guard: clock-read-back
        ]
        if not slipped:
            return
    raise ClockSlipped(f"clock not applied: {'; '.join(slipped)}")


def read_clock_states(phone: Phone, clocks: Iterable[ClockNodes]) -> dict[ClockNodes, ClockState]:
    """Read governors and limits of clocks, in one round trip."""
    wanted = list(clocks)
    found = phone.read_nodes([path for nodes in wanted for path in nodes.paths])
    states = {}
    for nodes in wanted:
        governor, available, low_text, high_text = (found.get(path, "") for path in nodes.paths)
        low, high = first_number(low_text), first_number(high_text)
        if low is None or high is None:
            raise ClockSlipped(f"the limits of {nodes.name} cannot be read")
        governors = tuple(safe_text(word, 32) for word in available.split())
        states[nodes] = ClockState(safe_text(governor, 32), governors, low, high)
    return states


def node_changes(writes: Iterable[NodeWrite]) -> list[ReversibleChange]:
    """The journal entries of some writes."""
    return [
        ReversibleChange(kind=ChangeKind.NODE, key=write.path, old=write.old) for write in writes
    ]
