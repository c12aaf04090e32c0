"""UnusablePhone: a phone that a host sees and cannot use, why, and what to do about it. Pure.

Such a phone has no facts and perhaps no serial number, so it is known by its adb address alone.
"""

from pydantic import Field

from workloads.protocol.base import WireModel
from workloads.text import TextEnum

READY = "device"  # adb's name of the state in which a phone accepts commands


class PhoneProblem(TextEnum):
    """Why a phone cannot be used: what is wrong; what to do."""

    UNAUTHORIZED = "unauthorized", "it does not trust this host; tap Allow on its screen"
    OFFLINE = "offline", "adb gets no answer from it; reconnect its cable or restart it"
    NO_RIGHTS = (
        "no_rights",
        "this user may not open it; install udev rules "
        "(Debian: apt install android-sdk-platform-tools-common)",
    )
    STARTING = "starting", "adb is connecting to it; wait, and unlock its screen"
    NOT_ANDROID = "not_android", "it runs a recovery or bootloader; start Android on it"
    UNREACHABLE = (
        "unreachable",
        "nothing answers at this address; check that the phone is on, in the network, and "
        "listens there",
    )
    PROBE_FAILED = (
        "probe_failed",
        "it cannot be probed; remove the cause that is named, else restart it, or report it with "
        "the file of 'farm phone capture'",
    )
    SAME_SERIAL = (
        "same_serial",
        "another phone of this host has its serial number; connect only one",
    )


_STATES = {
    "unauthorized": PhoneProblem.UNAUTHORIZED,
    "authorizing": PhoneProblem.STARTING,
    "connecting": PhoneProblem.STARTING,
    "offline": PhoneProblem.OFFLINE,
    "no": PhoneProblem.NO_RIGHTS,  # adb prints a sentence: no permissions (...)
    "bootloader": PhoneProblem.NOT_ANDROID,
    "recovery": PhoneProblem.NOT_ANDROID,
    "rescue": PhoneProblem.NOT_ANDROID,
    "sideload": PhoneProblem.NOT_ANDROID,
}


def problem_of_state(state: str) -> PhoneProblem | None:
    """The problem that a state in adb's list means; None if the phone accepts commands."""
    if state == READY:
        return None
    return _STATES.get(state.partition(" ")[0], PhoneProblem.OFFLINE)


class UnusablePhone(WireModel):
    """A phone that its host cannot use."""

    address: str = Field(max_length=120, description="as adb lists it; not an identity")
    problem: PhoneProblem
    text: str = Field(default="", max_length=300, description="what failed, for people")

    @property
    def advice(self) -> str:
        """What is wrong and what to do, as one sentence."""
        return f"{self.text}; {self.problem.text}" if self.text else self.problem.text
