"""Pin the GPU clock: hold it at one step through its limits, and verify it."""

from agent.phone.kernel_nodes import first_number
from agent.phone.phone_driver import Phone
from agent.phone.shell_command import write_node_command
from agent.prepare.cpu_pinning import PERFORMANCE_GOVERNOR, NodeWrite, node_changes
from agent.restore.restore_journal import RestoreJournal
from workloads.protocol.faults import ClockSlipped
from workloads.protocol.phone_facts import Gpu
from workloads.text import safe_text

_GOVERNORS = ("governor", "available_governors")


def pin_gpu(phone: Phone, khz: int, journal: RestoreJournal) -> None:
    """Pin the GPU to one clock; ClockSlipped if it does not accept it."""
    gpu = phone.facts.gpu
    assert gpu is not None, "a clock was chosen, so there is a GPU"
    clock = khz * 1000 // gpu.unit_hz
    writes = gpu_writes(gpu, _read_state(phone, gpu), clock)
    journal.record_changes(node_changes(writes))
    for _ in range(2):  # a vendor daemon may overwrite the first attempt
        phone.shell_batch([write_node_command(write.path, write.value) for write in writes])
        state = _read_state(phone, gpu)
        low, high = (first_number(state[name]) for name in gpu.limits)
        if low == high == clock:
            return
    raise ClockSlipped(
        f"GPU clock not applied: the limits of the {gpu.name} are {low} and {high}, "
        f"requested {clock}"
    )


def gpu_writes(gpu: Gpu, state: dict[str, str], clock: int) -> list[NodeWrite]:
    """The writes that pin the GPU; the lower limit must not exceed the upper one on the way."""
    low, high = (NodeWrite(f"{gpu.folder}/{name}", str(clock), state[name]) for name in gpu.limits)
    limits = [high, low] if clock >= (first_number(low.old) or 0) else [low, high]
    available = state["available_governors"].split()
    if PERFORMANCE_GOVERNOR in available and state["governor"] != PERFORMANCE_GOVERNOR:
        path = f"{gpu.folder}/governor"
        return [NodeWrite(path, PERFORMANCE_GOVERNOR, state["governor"]), *limits]
    return limits


def _read_state(phone: Phone, gpu: Gpu) -> dict[str, str]:
    names = (*_GOVERNORS, *gpu.limits)
    nodes = phone.read_nodes([f"{gpu.folder}/{name}" for name in names])
    state = {name: safe_text(nodes.get(f"{gpu.folder}/{name}", ""), 200) for name in names}
    if any(first_number(state[name]) is None for name in gpu.limits):
        raise ClockSlipped(f"the limits of the {gpu.name} cannot be read")
    return state
