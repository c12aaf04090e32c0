"""What the scheduler derives from heartbeats."""

from datetime import UTC, datetime, timedelta

import pytest

from orchestrator.dispatch.heartbeat_summary import clock_skews, summarize_heartbeats
from orchestrator.dispatch.scheduler import phones_freed_by
from tests.builders import a_run
from workloads.protocol.messages import Event, HostHeartbeat, PhoneStatus

DIGEST = "ab" * 32
KNOWN = {"PH1": DIGEST, "PH2": DIGEST}


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


def test_a_phone_that_two_hosts_claim_is_not_used() -> None:
    phone = PhoneStatus(serial="PH1", state="idle", facts_digest=DIGEST)
    summary = summarize_heartbeats([a_heartbeat(phone), a_heartbeat(phone, host="host-b")], KNOWN)
    assert summary.idle == {}


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
