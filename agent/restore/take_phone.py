"""The first round trip of a lane: it takes the fence and reads the state of the phone."""

from collections.abc import Sequence
from typing import NamedTuple

from agent.phone.phone_driver import Phone
from agent.phone.runner_install import runner_digest_command
from agent.phone.shell_command import ShellCommand, ShellResult
from agent.restore.fence import take_fence
from agent.restore.restore_leftovers import LEFTOVER_QUERIES, parse_boot_id
from kernels.runner_builds import RunnerBuild


class TakenPhone(NamedTuple):
    """The state of a phone at the moment when a lane took it."""

    boot_id: str
    runner_digest: ShellResult  # of runner_digest_command
    leftovers: Sequence[ShellResult]  # of LEFTOVER_QUERIES
    answers: Sequence[ShellResult]  # to the caller's queries


def take_phone(
    phone: Phone, fence: int, host: str, build: RunnerBuild, queries: Sequence[ShellCommand] = ()
) -> TakenPhone:
    """Take the fence, and read the boot id, the runner's digest and what an earlier lane left.

    Other queries are answered in the same round trip.
    """
    ours = (runner_digest_command(phone, build), *LEFTOVER_QUERIES)
    runner_digest, *results = take_fence(phone, fence, host, (*ours, *queries))
    leftovers, answers = results[: len(LEFTOVER_QUERIES)], results[len(LEFTOVER_QUERIES) :]
    return TakenPhone(parse_boot_id(leftovers), runner_digest, leftovers, answers)
