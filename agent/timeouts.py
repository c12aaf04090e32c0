"""All timeouts and polling intervals of the agent.

They travel as one value from the host's settings through the lane's context to the phone, so that
a test constructs shorter ones and patches nothing. Limits of the host's clock detect a link without
progress; limits on what a phone does are in seconds of the phone's clock.
"""

from dataclasses import dataclass, fields, replace
from typing import Self


@dataclass(frozen=True)
class Timeouts:
    """How long the agent waits for something, and how often it looks."""

    # adb and the shell
    adb_start_timeout_s: float = 20.0  # a server that looks for USB phones needs 3 s and more
    adb_request_timeout_s: float = 5.0
    adb_connect_timeout_s: float = 5.0
    pairing_timeout_s: float = 30.0
    shell_open_timeout_s: float = 10.0
    shell_prompt_timeout_s: float = 1.0
    root_grant_timeout_s: float = 5.0  # a root manager may ask on the screen, without an answer
    command_timeout_s: float = 15.0
    transfer_timeout_s: float = 60.0
    probe_timeout_s: float = 60.0
    ping_timeout_s: float = 3.0

    # the phones of a host
    registry_poll_interval_s: float = 2.0
    idle_snapshot_interval_s: float = 5.0
    idle_snapshot_timeout_s: float = 3.0

    # by the phone's clock
    watchdog_timeout_s: float = 60.0
    daemon_stop_timeout_s: float = 1.0  # `stop` returns before the daemon has exited
    runner_start_timeout_s: float = 20.0
    runner_stop_timeout_s: float = 1.0
    tuning_search_timeout_s: float = 60.0

    # restoring a phone, and following a run
    restore_retry_timeout_s: float = 5.0
    reconnect_timeout_s: float = 30.0  # how long a run may continue without a link to its phone
    canary_timeout_s: float = 20.0
    program_cleanup_timeout_s: float = 5.0
    output_parse_timeout_s: float = 20.0
    tuning_call_timeout_s: float = 120.0  # the runner builds every candidate that it is given

    # the host
    heartbeat_interval_s: float = 1.0
    heartbeat_min_interval_s: float = 0.1
    lane_free_timeout_s: float = 2.0  # a snapshot of an idle phone holds its lane for a moment
    lane_shutdown_timeout_s: float = 30.0
    outbox_drain_timeout_s: float = 3.0
    outbox_resend_interval_s: float = 5.0
    outbox_resend_interval_max_s: float = 60.0
    outbox_batch_interval_s: float = 0.05
    outbox_retry_interval_s: float = 0.5

    def with_patience(self, factor: float) -> Self:
        """These limits, with longer ones where the phones share a busy computer with the agent."""
        changed = {
            limit.name: factor * getattr(self, limit.name)
            for limit in fields(self)
            if limit.name in _LINK_LIMITS
        }
        return replace(self, **changed)


_LINK_LIMITS = {
    *("adb_request_timeout_s", "adb_connect_timeout_s", "shell_open_timeout_s"),
    *("root_grant_timeout_s", "command_timeout_s", "transfer_timeout_s", "probe_timeout_s"),
    *("ping_timeout_s", "idle_snapshot_timeout_s", "canary_timeout_s", "shell_prompt_timeout_s"),
    *("program_cleanup_timeout_s", "output_parse_timeout_s", "reconnect_timeout_s"),
}
DEFAULT_TIMEOUTS = Timeouts()
