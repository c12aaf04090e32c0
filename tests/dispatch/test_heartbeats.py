"""What the scheduler derives from heartbeats."""

from datetime import UTC, datetime, timedelta

import pytest

from orchestrator.dispatch.central_broker import HostReading
from orchestrator.dispatch.heartbeat_summary import clock_skews, summarize_heartbeats
from orchestrator.dispatch.host_notices import HostProblem, host_notices
from orchestrator.dispatch.ownership import (
    MOVED_AFTER_S,
    OWNER_AWAY_S,
    PhoneSightings,
    contested_phones,
    own_readings,
    run_key,
)
from orchestrator.dispatch.scheduler import phones_freed_by
from orchestrator.store.phone_queries import OwnedPhone
from tests.builders import a_run
from workloads.protocol.messages import Event, HostHeartbeat, PhoneStatus

DIGEST = "ab" * 32
KNOWN = {"PH1": OwnedPhone("host-a", DIGEST), "PH2": OwnedPhone("host-a", DIGEST)}


def a_heartbeat(*phones: PhoneStatus, host: str = "host-a") -> HostHeartbeat:
    """Build a heartbeat of phones."""
    return HostHeartbeat(host=host, sent_at=datetime.now(UTC), max_parallel=8, phones=phones)


@pytest.mark.parametrize(
    ("phone", "idle"),
    [
        (PhoneStatus(serial="PH1", state="idle", facts_digest=DIGEST), True),  # idle and known
        (PhoneStatus(serial="PH1", state="away", facts_digest=DIGEST), False),  # away
        (PhoneStatus(serial="PH9", state="idle", facts_digest=DIGEST), False),  # unknown
        (
            PhoneStatus(serial="PH1", state="idle", facts_digest="cd" * 32),
            False,
        ),  # its facts changed
        (PhoneStatus(serial="PH1", state="idle"), False),  # not yet probed
        (
            PhoneStatus(serial="PH1", state="busy", facts_digest=DIGEST),
            False,
        ),  # being commissioned
    ],
)
def test_only_a_present_and_known_phone_is_idle(phone: PhoneStatus, idle: bool) -> None:
    assert idle == ("PH1" in summarize_heartbeats([a_heartbeat(phone)], KNOWN).idle)


def test_a_busy_phone_is_idle_only_if_the_store_knows_the_end_of_its_run() -> None:
    busy = PhoneStatus(serial="PH1", state="busy", facts_digest=DIGEST, run=a_run())
    summary = summarize_heartbeats([a_heartbeat(busy)], KNOWN)
    assert {"PH1": a_run()} == summary.unconfirmed
    assert {a_run(): "host-a"} == summary.running


def test_a_contested_phone_is_not_used() -> None:
    phone = PhoneStatus(serial="PH1", state="idle", facts_digest=DIGEST)
    assert summarize_heartbeats([a_heartbeat(phone)], KNOWN, contested={"PH1"}).idle == {}


def test_a_heartbeat_speaks_only_for_what_its_host_owns() -> None:
    own = PhoneStatus(serial="PH1", state="busy", facts_digest=DIGEST, run=a_run(1))
    stolen = PhoneStatus(serial="PH1", state="idle", facts_digest=DIGEST, flaps=9)
    liar = PhoneStatus(serial="PH3", state="busy", facts_digest=DIGEST, run=a_run(1))
    forged = a_heartbeat(stolen, liar, host="host-b")
    forged = forged.model_copy(update={"unconfirmed": (a_run(1), a_run(2))})
    readings = [HostReading("host-a", a_heartbeat(own)), HostReading("host-b", forged)]
    owners, leases = {"PH1": "host-a", "PH3": "host-b"}, {run_key(a_run(1)): "host-a"}
    honest, lying = own_readings(readings, owners, lambda serials: {}, leases)
    assert honest == readings[0]
    assert {claim.name for claim in lying.claims} == {"PH1", str(a_run(1))}
    assert lying.heartbeat is not None
    assert [(phone.serial, phone.run) for phone in lying.heartbeat.phones] == [("PH3", None)]
    assert lying.heartbeat.unconfirmed == (a_run(2),)
    (notice,) = (item for item in host_notices([lying]) if item.problem is HostProblem.CLAIMS)
    assert notice.text.startswith("it names PH1 of host-a, and 1 more")
    assert contested_phones([lying]) == set()


def test_a_phone_that_its_former_host_shows_again_is_contested() -> None:
    phone = PhoneStatus(serial="PH1", state="idle", facts_digest=DIGEST)
    readings = [
        HostReading(host, a_heartbeat(phone, host=host)) for host in ("host-a", "host-b", "host-c")
    ]
    own = own_readings(readings, {"PH1": "host-b"}, lambda serials: {"PH1": "host-a"})
    assert contested_phones(own) == {"PH1"}
    text = next(item.text for item in host_notices([own[0]]) if item.problem is HostProblem.CLAIMS)
    assert "farm phone move PH1" in text


def test_a_phone_leaves_its_host_when_the_host_no_longer_shows_it() -> None:
    lab = {"host-a", "host-b"}
    shown = a_heartbeat(PhoneStatus(serial="PH1", state="idle"))
    sightings = PhoneSightings(0.0)
    sightings.update([shown], 1.0)
    assert "is connected to host-a" in sightings.objection("PH1", "host-a", lab, 1.0)
    sightings.update([a_heartbeat()], 2.0)  # it may only be restarting
    assert "is connected to host-a" in sightings.objection("PH1", "host-a", lab, 2.0)
    assert sightings.objection("PH1", "host-a", None, 2.0) == ""  # where users trust each other
    assert sightings.objection("PH1", "host-a", lab, 1.0 + MOVED_AFTER_S) == ""


def test_the_phones_of_a_silent_host_wait_for_it() -> None:
    lab = {"host-a", "host-b"}
    sightings = PhoneSightings(0.0)
    sightings.update([a_heartbeat(host="host-b")], 30.0)
    assert "may come back" in sightings.objection("PH1", "host-a", lab, 30.0)
    assert sightings.objection("PH1", "host-a", lab, OWNER_AWAY_S) == ""
    assert sightings.objection("PH1", "host-a", {"host-b"}, 30.0) == ""  # revoked
    assert sightings.objection("PH1", "host-a", None, 30.0) == ""


def test_a_host_with_an_unknown_phone_is_asked_to_announce_it() -> None:
    phone = PhoneStatus(serial="PH9", state="idle", facts_digest=DIGEST)
    assert summarize_heartbeats([a_heartbeat(phone)], KNOWN).unknown_hosts == {"host-a"}


@pytest.mark.parametrize(
    ("kinds", "freed"),
    [
        (("accepted", "void"), {"PH1"}),  # the lane has ended and the phone still answered
        (("accepted", "fault"), set()),  # the phone may be away: the next heartbeat decides
        (("accepted", "submitted"), set()),  # other phones have work as well
        ((), set()),
    ],
)
def test_only_a_clean_end_frees_a_phone_before_the_next_heartbeat(
    kinds: tuple[str, ...], freed: set[str]
) -> None:
    at = datetime.now(UTC)
    events = [Event(occurred_at=at, kind=kind, text="", phone="PH1") for kind in kinds]
    assert freed == phones_freed_by(events)


def test_a_host_gets_at_most_max_parallel_jobs() -> None:
    phones = [
        PhoneStatus(serial=name, state="idle", facts_digest=DIGEST) for name in ("PH1", "PH2")
    ]
    limited = a_heartbeat(*phones).model_copy(update={"max_parallel": 1})
    assert summarize_heartbeats([limited], KNOWN).idle == {"PH1": "host-a"}


def test_the_clock_skew_of_a_host_is_found() -> None:
    now = datetime.now(UTC)
    wrong_clock = a_heartbeat(host="host-b").model_copy(
        update={"sent_at": now + timedelta(seconds=47)}
    )
    assert clock_skews([a_heartbeat(), wrong_clock], now, lease_timeout_s=30) == {"host-b": 47.0}
