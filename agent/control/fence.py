"""The fence: a number on the phone that keeps a late lane out, whatever host it wakes up on."""

from agent.phone.nodes import first_number
from agent.phone.phone import HOME, Command, Phone, reading, split_nodes
from workloads.fault import LeaseLost, ShellFailed
from workloads.text import safe_text

FENCE = f"{HOME}/fence"


def take_fence(phone: Phone, number: int, host: str) -> None:
    """Put our number on the phone, unless a higher one stands there."""
    check_fence(phone, number)
    part = f"{FENCE}.{number}"
    steps = [
        Command(["mkdir", "-p", HOME]),
        Command(["echo", f"{number} {host}"], into=part),
        Command(["mv", "-f", part, FENCE]),
    ]
    *written, seen = phone.batch([*steps, reading([FENCE])])
    for answer in written:
        if answer.status != 0:
            raise ShellFailed(f"{FENCE} cannot be written: {safe_text(answer.text)}")
    _refuse_newer(split_nodes(seen.text).get(FENCE, ""), number)


def check_fence(phone: Phone, number: int) -> None:
    """Fail when somebody with a newer lease has this phone."""
    _refuse_newer(phone.read_nodes([FENCE]).get(FENCE, ""), number)


def _refuse_newer(seen: str, number: int) -> None:
    if (first_number(seen) or 0) > number:
        raise LeaseLost(
            f"The phone has seen lease {safe_text(seen, 80)}, this run holds {number}. "
            f"If the store was made anew, delete {FENCE} on the phone."
        )
