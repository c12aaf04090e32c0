"""The fence: a number on the phone that keeps a late lane out, whatever host it wakes up on."""

from agent.phone.nodes import first_number
from agent.phone.phone import HOME, Command, Phone
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
    for answer in phone.batch(steps):
        if answer.status != 0:
            raise ShellFailed(f"{FENCE} cannot be written: {safe_text(answer.text)}")
    check_fence(phone, number)


def check_fence(phone: Phone, number: int) -> None:
    """Fail when somebody with a newer lease has this phone."""
    seen = phone.read_nodes([FENCE]).get(FENCE, "")
    if (first_number(seen) or 0) > number:
        raise LeaseLost(
            f"The phone has seen lease {safe_text(seen, 80)}, this run holds {number}. "
            f"If the store was made anew, delete {FENCE} on the phone."
        )
