"""UnusablePhone: a phone that a host sees and cannot use, why, and what to do about it. Pure.

Such a phone has no facts and perhaps no serial number, so it is known by its adb address alone.
"""

from enum import StrEnum

from pydantic import Field

from workloads.protocol.base import WireModel

READY = "device"  # adb's name of the state in which a phone accepts commands


class PhoneProblem(StrEnum):
    """Why a phone cannot be used."""

    UNAUTHORIZED = "unauthorized"
    OFFLINE = "offline"
    NO_RIGHTS = "no_rights"
    STARTING = "starting"
    NOT_ANDROID = "not_android"
    UNREACHABLE = "unreachable"
    PROBE_FAILED = "probe_failed"
    SAME_SERIAL = "same_serial"


# What is wrong; what to do.
ADVICE: dict[PhoneProblem, str] = {
    PhoneProblem.UNAUTHORIZED: "it does not trust this host; tap Allow on its screen",
    PhoneProblem.OFFLINE: "adb gets no answer from it; reconnect its cable or restart it",
    PhoneProblem.NO_RIGHTS: (
        "this user may not open it; install udev rules "
        "(Debian: apt install android-sdk-platform-tools-common)"
    ),
    PhoneProblem.STARTING: "adb is connecting to it; wait, and unlock its screen",
    PhoneProblem.NOT_ANDROID: "it runs a recovery or bootloader; start Android on it",
    PhoneProblem.UNREACHABLE: (
        "nothing answers at this address; check that the phone is on, in the network, and "
        "listens there"
    ),
    PhoneProblem.PROBE_FAILED: (
        "it cannot be probed; restart it, or report it with the file of 'farm phone capture'"
    ),
    PhoneProblem.SAME_SERIAL: "another phone of this host has its serial number; connect only one",
}
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
        return f"{self.text}; {ADVICE[self.problem]}" if self.text else ADVICE[self.problem]
