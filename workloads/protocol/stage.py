"""The stages of a job on a phone, in the order in which a lane runs them."""

from enum import StrEnum


class Stage(StrEnum):
    """One stage of a job; reports, faults and heartbeats name it."""

    START = "start"
    RESOLVE = "resolve"
    FENCE = "fence"
    INSTALL = "install"
    WATCHDOG = "watchdog"
    CHARGE = "charge"
    QUIESCE = "quiesce"
    PREPARE = "prepare"
    COOL = "cool"
    PIN = "pin"
    CANARY_BEFORE = "canary_before"
    RUN = "run"
    CANARY_AFTER = "canary_after"
    COLLECT = "collect"
    RESTORE = "restore"
    UNKNOWN = "unknown"  # the agent stopped during the job and cannot know where
