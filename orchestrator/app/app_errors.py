"""Why an operation of the lab is refused or ends without an answer."""

from workloads.protocol.faults import FarmTrouble, InvalidRequest


class NoPhoneMatches(InvalidRequest):
    """No phone matches the sweep."""


class InvalidState(InvalidRequest):
    """The lab's state does not allow it."""


class TimedOut(FarmTrouble):
    """The time to wait is up."""
