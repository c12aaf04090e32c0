"""The fence: a number on the phone that rejects commands of a lane with an expired lease.

The check and the fenced command are one shell command on the phone, so no other command can run in
between.
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from agent.phone.phone_driver import Phone
from agent.phone.phone_paths import HOME
from agent.phone.shell_command import ShellCommand, ShellResult
from agent.phone.shell_link import LINK_LOST
from workloads.protocol.faults import FarmError, LeaseLost, ShellFailed
from workloads.text import safe_text

FENCE_FILE = f"{HOME}/fence"
UNFENCED = 2**31 - 1  # above every lease, and the highest number that a phone's shell can compare
_NEWER = 75
_UNLESS_NEWER = (
    '{ read -r held by <"$0"; } 2>/dev/null; [ "$held" -gt "$1" ] 2>/dev/null'
    f' && echo "$held $by" && exit {_NEWER}; '  # guard: late-lane
)
_RUN = _UNLESS_NEWER + 'shift; "$@"'
_TAKE = _UNLESS_NEWER + 'mkdir -p "${0%/*}" && echo "$1 $2" >"$0.$1" && mv -f "$0.$1" "$0"'


def fenced_command(fence: int, words: Sequence[str]) -> ShellCommand:
    """The command that runs only if the phone has seen no newer lease than this one."""
    return ShellCommand(["sh", "-c", _RUN, FENCE_FILE, str(fence), *words])


def raise_if_overtaken(result: ShellResult, fence: int) -> None:
    """Fail if a fenced command did not run because a newer lease holds the phone."""
    if result.status == _NEWER:
        raise LeaseLost(
            f"the phone has seen lease {safe_text(result.text, 80)}, this run holds lease {fence}; "
            "if no other lab uses the phone, remove it with 'farm phone restore'"
        )


def take_fence(
    phone: Phone, fence: int, host: str, queries: Sequence[ShellCommand] = ()
) -> list[ShellResult]:
    """Write the fence to the phone, unless a higher one is there, and run queries after it."""
    take = ShellCommand(["sh", "-c", _TAKE, FENCE_FILE, str(fence), host])
    taken, *results = phone.shell_batch([take, *queries])
    raise_if_overtaken(taken, fence)
    if taken.status != 0:
        raise ShellFailed(f"{FENCE_FILE} cannot be written: {safe_text(taken.text)}")
    return results


def held_fence(phone: Phone) -> int:
    """Read the fence of the latest lease of this phone; 1 if it has none."""
    number = phone.shell(["cat", FENCE_FILE]).text.split(" ")[0]
    return min(max(int(number), 1), UNFENCED - 1) if re.fullmatch("[0-9]{1,10}", number) else 1


def clear_fence(phone: Phone) -> None:
    """Remove the fence, at the request of an operator who knows that no older lane is active.

    A fence that was forged, or comes from another store, would reject every lease.
    """
    phone.shell_checked(["rm", "-f", FENCE_FILE])


def check_fence(phone: Phone, fence: int) -> None:
    """Fail if a newer lease holds this phone."""
    raise_if_overtaken(phone.shell_batch([fenced_command(fence, ["true"])])[0], fence)


@contextmanager
def blame_lease_loss(phone: Phone, fence: int) -> Iterator[None]:
    """Report any failure as LeaseLost if a newer lease holds the phone by now."""
    try:
        yield
    except FarmError:
        with suppress(*LINK_LOST):
            check_fence(phone, fence)
        raise
