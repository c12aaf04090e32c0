"""The fence: a number on the phone that keeps a late lane out, whatever host it wakes up on.

Looking and acting are one command on the phone itself, so nobody can come in between.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from agent.phone.link import LINK_LOST
from agent.phone.phone import HOME, Answer, Command, Phone
from workloads.fault import FarmError, LeaseLost, ShellFailed
from workloads.text import safe_text

FENCE = f"{HOME}/fence"
UNFENCED = 2**31 - 1  # above every lease, and the highest that a phone's shell counts to
_NEWER = 75
_UNLESS_NEWER = (
    '{ read -r held by <"$0"; } 2>/dev/null; [ "$held" -gt "$1" ] 2>/dev/null'
    f' && echo "$held $by" && exit {_NEWER}; '
)
_DO = _UNLESS_NEWER + 'shift; "$@"'
_TAKE = _UNLESS_NEWER + 'mkdir -p "${0%/*}" && echo "$1 $2" >"$0.$1" && mv -f "$0.$1" "$0"'


def fenced(number: int, words: Sequence[str]) -> Command:
    """A command that is run only while no newer lease than ours stands on the phone."""
    return Command(["sh", "-c", _DO, FENCE, str(number), *words])


def refuse_newer(answer: Answer, number: int) -> None:
    """Fail when a fenced command was not run: somebody with a newer lease has this phone."""
    if answer.status == _NEWER:
        raise LeaseLost(
            f"The phone has seen lease {safe_text(answer.text, 80)}, this run holds {number}. "
            f"If the store was made anew, delete {FENCE} on the phone."
        )


def take_fence(phone: Phone, number: int, host: str, looks: Sequence[Command] = ()) -> list[Answer]:
    """Put our number on the phone, unless a higher one stands there; then look at things."""
    take = Command(["sh", "-c", _TAKE, FENCE, str(number), host])
    taken, *seen = phone.batch([take, *looks])
    refuse_newer(taken, number)
    if taken.status != 0:
        raise ShellFailed(f"{FENCE} cannot be written: {safe_text(taken.text)}")
    return seen


def check_fence(phone: Phone, number: int) -> None:
    """Fail when somebody with a newer lease has this phone."""
    refuse_newer(phone.batch([fenced(number, ["true"])])[0], number)


@contextmanager
def unless_overtaken(phone: Phone, number: int) -> Iterator[None]:
    """Blame nobody for what failed because somebody with a newer lease has this phone."""
    try:
        yield
    except FarmError:
        with suppress(*LINK_LOST):
            check_fence(phone, number)
        raise
