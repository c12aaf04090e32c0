"""What belongs to which host: the store decides, whatever a heartbeat says.

A heartbeat speaks for the phones and runs of its host. What it says about others is left out before
anybody reads it, and listed, so that it is shown.
"""

import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from orchestrator.dispatch.central_broker import ForeignClaim, HostReading
from orchestrator.store.leases import LeasedRun
from workloads.protocol.messages import HostHeartbeat, PhoneState, RunId

MOVED_AFTER_S = 10.0  # a phone that its host stopped showing may only have lost its connection
OWNER_AWAY_S = 300.0  # a host that sends nothing may only be starting again

RunKey = tuple[str, int, int]
Previous = Callable[[Collection[str]], Mapping[str, str]]


def lease_hosts(leased: Iterable[LeasedRun]) -> dict[RunKey, str]:
    """Return the host of every run that has a lease."""
    return {(item.trial, item.repeat, item.attempt): item.host for item in leased}


def of_their_hosts(named: Mapping[RunId, str], leased: Iterable[LeasedRun]) -> dict[RunId, str]:
    """Return those of the runs that hosts name which are leased to these hosts."""
    host_of = lease_hosts(leased)
    return {run: host for run, host in named.items() if host_of.get(run_key(run)) == host}


def run_key(run: RunId) -> RunKey:
    """Return a run as a plain tuple, which is compared quickly."""
    return run.trial, run.repeat, run.attempt


def own_readings(
    readings: Sequence[HostReading],
    owners: Mapping[str, str],
    previous: Previous,
    lease_host: Mapping[RunKey, str] | None = None,
) -> list[HostReading]:
    """Return readings without what belongs to other hosts; that is listed as their claims.

    `owners` has the host of each phone that the store knows, and `previous` returns the hosts that
    phones left without an operator: if one of these shows its phone again, one of the two hosts is
    wrong, and nobody can know which.
    """
    foreign = {
        phone.serial
        for reading in readings
        if reading.heartbeat is not None
        for phone in reading.heartbeat.phones
        if owners.get(phone.serial, reading.host) != reading.host
    }
    before = previous(foreign) if foreign else {}
    return [_own_part(item, foreign, owners, before, lease_host or {}) for item in readings]


def contested_phones(readings: Iterable[HostReading]) -> set[str]:
    """Return the phones that get no runs until an operator says which host has them."""
    return {claim.name for item in readings for claim in item.claims if claim.is_contested}


def _own_part(
    reading: HostReading,
    foreign: Collection[str],
    owners: Mapping[str, str],
    before: Mapping[str, str],
    lease_host: Mapping[RunKey, str],
) -> HostReading:
    beat, host = reading.heartbeat, reading.host
    if beat is None:
        return reading
    claims = [
        ForeignClaim(phone.serial, owners[phone.serial], before.get(phone.serial) == host)
        for phone in beat.phones
        if phone.serial in foreign and owners[phone.serial] != host
    ]
    runs = {
        run
        for run in (*(phone.run for phone in beat.phones), *beat.unconfirmed)
        if run is not None and lease_host.get(run_key(run), host) != host
    }
    claims += [ForeignClaim(str(run), lease_host[run_key(run)]) for run in sorted(runs, key=str)]
    return (
        replace(reading, heartbeat=_without(beat, claims), claims=tuple(claims))
        if claims
        else reading
    )


def _without(beat: HostHeartbeat, claims: Sequence[ForeignClaim]) -> HostHeartbeat:
    named = {claim.name for claim in claims}
    phones = (phone for phone in beat.phones if phone.serial not in named)
    return beat.model_copy(
        update={
            "phones": tuple(
                phone.model_copy(update={"run": None}) if str(phone.run) in named else phone
                for phone in phones
            ),
            "unconfirmed": tuple(run for run in beat.unconfirmed if str(run) not in named),
        }
    )


class PhoneSightings:
    """When hosts were last heard, and when each last showed its phones; for several threads."""

    def __init__(self, now: float) -> None:
        """Begin at a moment of the monotonic clock: until then every phone may have been shown."""
        self._lock = threading.Lock()
        self._since = now
        self._live: dict[str, set[str]] = {}  # what each host shows now
        self._hosts: dict[str, float] = {}
        self._phones: dict[tuple[str, str], float] = {}

    def update(self, heartbeats: Iterable[HostHeartbeat], now: float) -> None:
        """Take note of all present heartbeats."""
        live = {
            beat.host: {item.serial for item in beat.phones if item.state is not PhoneState.AWAY}
            for beat in heartbeats
        }
        shown = {(host, serial): now for host, phones in live.items() for serial in phones}
        with self._lock:
            kept = {key: at for key, at in self._phones.items() if now - at < OWNER_AWAY_S}
            self._live, self._phones = live, kept | shown
            self._hosts |= dict.fromkeys(live, now)

    def objection(self, serial: str, owner: str, lab: Collection[str] | None, now: float) -> str:
        """Return why a phone has not left its host, or nothing: its cable was moved.

        Where every computer with the password is a host, its users trust each other, and a phone
        has left as soon as its host does not show it. A host that left the lab owns nothing.
        """
        with self._lock:
            silent_s = now - self._hosts.get(owner, self._since)
            unseen_s = now - self._phones.get((owner, serial), self._since)
            is_heard, is_shown = owner in self._live, serial in self._live.get(owner, ())
        if is_shown or (lab is not None and owner in lab and is_heard and unseen_s < MOVED_AFTER_S):
            return f"{serial} is connected to {owner}"
        if lab is not None and owner in lab and not is_heard and silent_s < OWNER_AWAY_S:
            return f"{serial} belongs to {owner}, which may come back"
        return ""
