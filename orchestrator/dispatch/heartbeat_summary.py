"""What heartbeats say: which runs are running, which phones are idle, and when each was last seen.

Everything here is a function of its arguments; times are those of the scheduler's monotonic clock.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from orchestrator.store.phone_queries import OwnedPhone
from workloads.protocol.messages import HostHeartbeat, PhoneState, RunId

HOLD_MAX_S = 900.0  # a report that is not stored for longer than this is not waited for


@dataclass(frozen=True)
class HeartbeatSummary:
    """The content of all heartbeats, sorted for the tick."""

    running: dict[RunId, str]  # the host of each run
    idle: dict[str, str]  # the host of each idle phone
    unconfirmed: dict[str, RunId]  # idle if the store knows the end of this run
    unknown_hosts: frozenset[str]  # with phones whose facts the store lacks
    flaps: dict[str, int] = field(default_factory=dict)


def summarize_heartbeats(
    heartbeats: Sequence[HostHeartbeat],
    known: Mapping[str, OwnedPhone],
    stopped: Collection[str] = (),
    contested: Collection[str] = (),
) -> HeartbeatSummary:
    """Sort heartbeats: which runs are running, which phones are idle, which facts are missing.

    The store decides whether a phone is idle. A heartbeat that still shows the last run of a phone
    is merely late, unless the store has no report of that run yet (unconfirmed). A contested phone
    is not used, and a stopped host gets no runs.
    """
    idle: dict[str, str] = {}
    unconfirmed: dict[str, RunId] = {}
    unknown_hosts: set[str] = set()
    for beat in heartbeats:
        present = [phone for phone in beat.phones if phone.state in ("idle", "busy")]
        for phone in present[: beat.max_parallel] if beat.host not in stopped else ():
            if known.get(phone.serial) != (beat.host, phone.facts_digest):
                unknown_hosts.add(beat.host)
                continue
            if phone.state is PhoneState.BUSY and phone.run is None:
                continue  # it is being commissioned
            idle[phone.serial] = beat.host
            if phone.run is not None:
                unconfirmed[phone.serial] = phone.run
    for serial in contested:
        idle.pop(serial, None)  # guard: contested-phone
    flaps = {
        phone.serial: phone.flaps for beat in heartbeats for phone in beat.phones if phone.flaps
    }
    return HeartbeatSummary(
        running_runs(heartbeats), idle, unconfirmed, frozenset(unknown_hosts), flaps
    )


def clock_skews(
    heartbeats: Sequence[HostHeartbeat], now: datetime, lease_timeout_s: float
) -> dict[str, float]:
    """Return the hosts whose clock is wrong, and by how many seconds.

    The host that takes a job compares the job's expiry with its own clock. The delay of a heartbeat
    looks like a small error, so only errors that matter for a lease count.
    """
    skews = {beat.host: (beat.sent_at - now).total_seconds() for beat in heartbeats}
    return {
        host: skew
        for host, skew in skews.items()
        if abs(skew) > lease_timeout_s / 2  # guard: host-clock-skew
    }


@dataclass(frozen=True)
class LastSeen:
    """When hosts and runs were last seen: a heartbeat stays in the broker longer than its agent."""

    hosts: Mapping[str, tuple[datetime, float]] = field(default_factory=dict)
    runs: Mapping[RunId, float] = field(default_factory=dict)
    unconfirmed: Mapping[RunId, float] = field(default_factory=dict)  # first seen

    def after(
        self,
        heartbeats: Sequence[HostHeartbeat],
        running: Iterable[RunId],
        moment: float,
        keep_s: float,
    ) -> "LastSeen":
        """Return what is known after new heartbeats; runs are forgotten after some time."""
        hosts, runs = dict(self.hosts), dict.fromkeys(running, moment)
        for beat in heartbeats:
            if beat.host not in hosts or hosts[beat.host][0] != beat.sent_at:
                hosts[beat.host] = (beat.sent_at, moment)
        recent = {run: seen for run, seen in self.runs.items() if seen > moment - keep_s}
        named = {run for beat in heartbeats for run in beat.unconfirmed}
        unconfirmed = {run: self.unconfirmed.get(run, moment) for run in named}
        return LastSeen(hosts, recent | runs, unconfirmed)

    def reports_under_way(
        self, heartbeats: Sequence[HostHeartbeat], moment: float
    ) -> dict[RunId, str]:
        """Return the runs whose report is on its way, with their host, for a limited time."""
        return {
            run: beat.host
            for beat in heartbeats
            for run in beat.unconfirmed
            if moment - self.unconfirmed[run] < HOLD_MAX_S
        }

    def alive_until(
        self, runs: Mapping[RunId, str], moment: float, until: float
    ) -> dict[RunId, float]:
        """Return the end of each run's lease, which is `until` if its host was seen just now."""
        return {run: until - moment + self.hosts[host][1] for run, host in runs.items()}


def running_runs(heartbeats: Sequence[HostHeartbeat]) -> dict[RunId, str]:
    """Return the runs that heartbeats name, with their host."""
    return {
        phone.run: beat.host
        for beat in heartbeats
        for phone in beat.phones
        if phone.run is not None
    }
