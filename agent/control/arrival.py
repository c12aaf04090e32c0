"""Arrival: the first round trip of a lane takes the phone and sees what lies there."""

from collections.abc import Sequence
from typing import NamedTuple

from agent.control.fence import take_fence
from agent.control.journal import LEFTOVER_LOOKS, boot_of
from agent.phone.install import looking_for
from agent.phone.phone import Answer, Phone
from kernels.manifest import RunnerBuild


class Arrival(NamedTuple):
    """The phone as a lane finds it."""

    boot_id: str
    runner: Answer  # what looking_for its runner showed
    left: Sequence[Answer]  # what LEFTOVER_LOOKS showed


def arrive(phone: Phone, fence: int, host: str, build: RunnerBuild) -> Arrival:
    """Take the fence, and see which boot this is, whether the runner is there and what was left."""
    runner, *left = take_fence(phone, fence, host, (looking_for(build), *LEFTOVER_LOOKS))
    return Arrival(boot_of(left), runner, left)
