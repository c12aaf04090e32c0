"""The GPU's clock: held at one step by its devfreq folder, and read back."""

from agent.control.change import Change
from agent.control.clocks import STEADY, NodeWrite
from agent.control.journal import Journal
from agent.phone.nodes import first_number
from agent.phone.phone import Phone, writing
from workloads.fault import ClockSlipped, Refused
from workloads.phone import Gpu, PhoneFacts, choose_step
from workloads.text import safe_text

_NAMES = ("governor", "available_governors", "min_freq", "max_freq")


def choose_gpu_clock(facts: PhoneFacts, freq: str | None) -> int | None:
    """The GPU clock in kHz that a condition asks for on this phone; None leaves it alone."""
    if freq is None or freq == "free":
        return None
    if facts.gpu is None:
        raise Refused(f"{facts.model} shows no GPU clock; leave gpu_freq out.")
    if not facts.gpu.writable:
        raise Refused(f"The clock of the {facts.gpu.name} cannot be written; leave gpu_freq out.")
    return choose_step(facts.gpu.ladder_khz, freq, facts.gpu.name)


def pin_gpu(phone: Phone, khz: int, journal: Journal) -> None:
    """Hold the GPU at one clock; ClockSlipped when it does not take it."""
    gpu = phone.known.gpu
    assert gpu is not None, "a clock was chosen, so there is a GPU"
    writes = order_gpu_writes(gpu, _read(phone, gpu), khz * 1000)
    journal.note([Change(kind="node", key=write.path, old=write.old) for write in writes])
    for _ in range(2):  # a vendor's daemon may win the first round
        phone.batch([writing(write.path, write.value) for write in writes])
        state = _read(phone, gpu)
        low, high = (first_number(state[name]) for name in ("min_freq", "max_freq"))
        if low == high == khz * 1000:
            return
    raise ClockSlipped(f"The {gpu.name} stands at {low}..{high} Hz, asked {khz * 1000}.")


def order_gpu_writes(gpu: Gpu, state: dict[str, str], hertz: int) -> list[NodeWrite]:
    """Writes that pin the GPU; the lower limit must not exceed the upper one on the way."""
    low = NodeWrite(f"{gpu.folder}/min_freq", str(hertz), state["min_freq"])
    high = NodeWrite(f"{gpu.folder}/max_freq", str(hertz), state["max_freq"])
    limits = [high, low] if hertz >= (first_number(state["min_freq"]) or 0) else [low, high]
    if STEADY in state["available_governors"].split() and state["governor"] != STEADY:
        return [NodeWrite(f"{gpu.folder}/governor", STEADY, state["governor"]), *limits]
    return limits


def _read(phone: Phone, gpu: Gpu) -> dict[str, str]:
    nodes = phone.read_nodes([f"{gpu.folder}/{name}" for name in _NAMES])
    state = {name: safe_text(nodes.get(f"{gpu.folder}/{name}", ""), 200) for name in _NAMES}
    if first_number(state["min_freq"]) is None or first_number(state["max_freq"]) is None:
        raise ClockSlipped(f"The {gpu.name} does not show its limits.")
    return state
