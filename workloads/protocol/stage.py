"""The stages of a job on a phone, in the order in which a lane runs them."""

from workloads.text import TextEnum


class Stage(TextEnum):
    """One stage of a job; reports, faults and heartbeats name it."""

    START = "start", "the job was received"
    RESOLVE = "resolve", "names such as `big4` and `high` become cores and clocks of this phone"
    FENCE = (
        "fence",
        "the fence is written to the phone; settings that an earlier run left changed are restored",
    )
    INSTALL = "install", "the runner is pushed if its digest differs"
    WATCHDOG = (
        "watchdog",
        "the journal of changed settings is written to the phone, and the watchdog is started "
        "there",
    )
    CHARGE = "charge", "the battery is charged to the requested level"
    QUIESCE = (
        "quiesce",
        "the screen is dimmed, radios, updates and background work are disabled, charging is "
        "stopped",
    )
    PREPARE = "prepare", "plan, data and node lists are pushed"
    COOL = "cool", "the agent waits for the start temperature"
    PIN = "pin", "clocks are pinned"
    CANARY_BEFORE = "canary_before", "the canary runs"
    RUN = "run", "the workload runs, detached, with its sampler"
    CANARY_AFTER = "canary_after", "the canary runs again"
    COLLECT = "collect", "output and readings are fetched, parsed and judged"
    RESTORE = "restore", "every changed setting is restored"
    UNKNOWN = "unknown", "the agent stopped during the job, and the stage is not known"
