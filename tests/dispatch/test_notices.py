"""Notices: what is reported, once; and deliveries that are signed, spooled and retried."""

import hashlib
import hmac
import json
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import ValidationError

from orchestrator.app.lab_connection import LabConnection
from orchestrator.app.lab_status import LabView
from orchestrator.app.services.notice_service import (
    NoticeService,
    lasting_conditions,
    present_conditions,
)
from orchestrator.dispatch.host_notices import HostNotice, HostProblem
from orchestrator.planning.states import PausedBy, RunState, SweepState
from orchestrator.store import notices
from orchestrator.store.database import Database
from orchestrator.store.finished_sweeps import mark_finished
from orchestrator.store.notices import DeliveryState, new_conditions
from orchestrator.store.phone_queries import phone_from_row
from orchestrator.store.sweep_queries import SweepSummary
from orchestrator.store.tables import sweep
from tests.builders import a_phone
from workloads.lab.service_metrics import Service, ServiceMetrics
from workloads.lab.service_settings import NoticeKind, NoticeSettings
from workloads.lab.settings import Lab
from workloads.protocol.faults import BrokerDown
from workloads.protocol.messages import PhoneStatus


class Receiver:
    """A web server that keeps what it gets, and fails as often as a test wants."""

    def __init__(self) -> None:
        self.failures = 0
        self.status = 500
        self.requests: list[tuple[dict[str, str], bytes]] = []
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                receiver.requests.append((dict(self.headers), body))
                fails = receiver.failures > 0
                receiver.failures -= fails
                self.send_response(receiver.status if fails else 204)
                self.send_header("Location", "http://127.0.0.1:1/")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Stay quiet."""

        self._server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/hook"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    server = Receiver()
    yield server
    server.close()


def service(db: Database, folder: Path, **values: Any) -> NoticeService:
    (folder / "secret").write_text("a key\n")
    lab = Lab.read(folder, {})
    settings = lab.settings.model_copy(update={"notices": NoticeSettings(**values)})
    connection = LabConnection(Lab(folder, settings))
    connection.__dict__["store"] = db  # deliveries use nothing else of the lab
    return NoticeService(connection, ServiceMetrics(Service.SCHEDULER))


def add(db: Database, kind: NoticeKind = NoticeKind.SWEEP_ENDED, subject: str = "sw-1") -> int:
    with db.write() as connection:
        return notices.add_event(connection, kind, subject, "it has ended: 3 done")


def make_due(db: Database) -> None:
    with db.write() as connection:
        connection.exec_driver_sql("UPDATE notice_delivery SET next_try_s = 0")


def a_view(**changes: Any) -> LabView:
    known = [phone_from_row(row, a_phone(row.serial)) for row in changes.pop("phones")]
    view = LabView(datetime.now(UTC), {"host-a": datetime.now(UTC)}, tuple(known), ())
    return replace(view, **changes)


def a_row(serial: str, host: str = "host-a", health: str = "good", reason: str = "") -> Any:
    return SimpleNamespace(
        serial=serial,
        host=host,
        health=health,
        health_reason=reason,
        last_seen_at=datetime.now(UTC),
        tags=(),
        reserved_by="",
        reserved_until=0.0,
        reserved_reason="",
    )


def a_sweep(name: str, state: SweepState = SweepState.ACTIVE, **changes: Any) -> SweepSummary:
    return SweepSummary(name, name, datetime.now(UTC), 1, state=state, **changes)


def test_the_conditions_of_a_lab_are_found() -> None:
    view = a_view(
        phones=[a_row("ill", health="quarantined", reason="no sensor"), a_row("far", "host-b")],
        sweeps=(a_sweep("poison", runs={RunState.BLOCKED: 2, RunState.QUEUED: 1}),),
        others=(
            a_sweep("spent", SweepState.PAUSED, paused_by=PausedBy.BUDGET, state_reason="used up"),
            a_sweep("lunch", SweepState.PAUSED, paused_by=PausedBy.PERSON),
            a_sweep("ended", SweepState.FINISHED, runs={RunState.BLOCKED: 1}),
        ),
        host_problems=(
            HostNotice("host-c", HostProblem.DROPPED, "ingest dropped 3 of its messages"),
            HostNotice("host-a", HostProblem.OTHER_SOFTWARE, "it runs version 1"),
        ),
    )
    assert present_conditions(view).keys() == {
        (NoticeKind.PHONE_QUARANTINED, "ill"),
        (NoticeKind.SWEEP_STUCK, "poison"),
        (NoticeKind.SWEEP_STUCK, "spent"),
        (NoticeKind.HOST_TROUBLE, "host-c"),
    }


def test_what_is_away_is_a_condition_only_if_it_lasts() -> None:
    idle = PhoneStatus(serial="here", state="idle")
    view = a_view(
        phones=[a_row("here"), a_row("ill", health="quarantined"), a_row("far", "host-b")]
    )
    here, *others = view.phones
    view = replace(
        view,
        phones=(replace(here, status=idle), *others),
        sweeps=(a_sweep("works"), a_sweep("stuck")),
    )
    found = lasting_conditions(view, {"works": {"here", "ill"}, "stuck": {"ill", "far"}})
    assert found.keys() == {(NoticeKind.HOST_TROUBLE, "host-b"), (NoticeKind.SWEEP_STUCK, "stuck")}
    assert "with 1 phone sends nothing" in found[NoticeKind.HOST_TROUBLE, "host-b"]


def test_a_condition_that_comes_and_goes_is_not_reported_every_time() -> None:
    key = (NoticeKind.HOST_TROUBLE, "host-a")
    found = {key: "it is away"}
    assert new_conditions(found, (), {}, 1000) == found
    assert new_conditions(found, {key}, {key: 900}, 1000) == {}
    assert new_conditions(found, (), {key: 900}, 1000) == {}
    assert new_conditions(found, (), {key: 300}, 1000) == found
    assert new_conditions(found, (), {key: 5000}, 1000) == found, "the clock was set back"


def test_a_condition_is_stored_once_until_it_ends(store: Database) -> None:
    key = (NoticeKind.HOST_TROUBLE, "host-a")
    for new in ({key}, set()):  # as two schedulers would
        assert notices.update_conditions(store, {key: "away"}, 100.0) == new
    assert len(notices.latest_notices(store, 10)) == 1
    assert notices.update_conditions(store, {}, 200.0) == set()
    (over,) = notices.latest_notices(store, 10)
    assert over.cleared_at_s == 200.0
    assert notices.update_conditions(store, {key: "away again"}, 300.0) == set(), "too soon"
    assert notices.update_conditions(store, {key: "away again"}, 900.0) == {key}
    assert [item.text for item in notices.latest_notices(store, 10)] == ["away again", "away"]


def test_a_webhook_is_signed_and_retried_until_it_succeeds(
    store: Database, tmp_path: Path, receiver: Receiver
) -> None:
    sender = service(store, tmp_path, webhook=receiver.url, secret_file="secret")
    number = add(store)
    receiver.failures = 1
    sender.deliver_due()
    sender.deliver_due()  # it is not due yet
    assert len(receiver.requests) == 1
    (waiting,) = notices.latest_notices(store, 1)
    assert waiting.delivery is DeliveryState.WAITING
    assert "500" in waiting.error
    make_due(store)
    sender = service(store, tmp_path, webhook=receiver.url, secret_file="secret")
    sender.deliver_due()  # by the next scheduler
    (sent,) = notices.latest_notices(store, 1)
    assert sent.delivery is DeliveryState.SENT
    headers, body = receiver.requests[-1]
    signed = headers["Farm-Timestamp"].encode() + b"." + body
    expected = hmac.new(b"a key", signed, hashlib.sha256).hexdigest()
    assert headers["Farm-Signature"] == f"sha256={expected}"
    assert headers["Farm-Notice"] == str(number) == str(json.loads(body)["id"])
    assert json.loads(body)["kind"] == "sweep_ended"
    make_due(store)
    sender.deliver_due()
    assert len(receiver.requests) == 2


def test_a_redirect_is_not_followed_and_a_webhook_is_given_up_after_days(
    store: Database, tmp_path: Path, receiver: Receiver
) -> None:
    sender = service(store, tmp_path, webhook=receiver.url, secret_file="secret")
    add(store)
    receiver.failures, receiver.status = 9, 302
    sender.deliver_due()
    (moved,) = notices.latest_notices(store, 1)
    assert "302" in moved.error
    with store.write() as connection:
        connection.exec_driver_sql("UPDATE notice SET raised_at_s = raised_at_s - 400000")
    make_due(store)
    sender.deliver_due()
    (lost,) = notices.latest_notices(store, 1)
    assert lost.delivery is DeliveryState.GIVEN_UP


def test_a_command_gets_the_notice_and_no_variable_of_the_service(
    store: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FARM_BROKER", "redis://user:password@x")
    out = tmp_path / "out"
    add(store)
    service(store, tmp_path, command=("sh", "-c", f"cat > {out}; env >> {out}")).deliver_due()
    content = out.read_text()
    assert '"kind": "sweep_ended"' in content
    assert "FARM_BROKER" not in content
    assert notices.latest_notices(store, 1)[0].delivery is DeliveryState.SENT


@pytest.mark.parametrize(
    ("command", "error"),
    [
        (("sh", "-c", "echo broken >&2; exit 3"), "code 3: broken"),
        (("/no/such/program",), "cannot be run"),
    ],
)
def test_a_command_that_fails_is_run_again_later(
    store: Database, tmp_path: Path, command: tuple[str, ...], error: str
) -> None:
    add(store)
    service(store, tmp_path, command=command).deliver_due()
    (found,) = notices.latest_notices(store, 1)
    assert (found.delivery, found.tries) == (DeliveryState.WAITING, 1)
    assert error in found.error


def test_the_end_of_a_sweep_is_reported_once(store: Database) -> None:
    row = {"source": "", "seed": 1, "name": "x", "policy": {}, "state": "active", "notify": []}
    with store.write() as connection:
        connection.execute(sweep.insert().values({**row, "id": "sw-1", "created_at": _now()}))
    assert mark_finished(store) == ["sw-1"]
    assert mark_finished(store) == []
    (found,) = notices.latest_notices(store, 10)
    assert (found.kind, found.subject) == (NoticeKind.SWEEP_ENDED, "sw-1")


def test_an_outage_is_reported_without_the_store_once_it_lasts(
    store: Database, tmp_path: Path, receiver: Receiver
) -> None:
    sender = service(store, tmp_path, webhook=receiver.url, secret_file="secret", away_after_s=60)
    receiver.failures = 1
    for moment in (100.0, 159.0, 161.0, 162.0, 163.0):
        sender.report_outage(BrokerDown(), moment)
    assert len(receiver.requests) == 2, "once it lasts a minute, until it was received"
    content = json.loads(receiver.requests[-1][1])
    assert (content["kind"], content["subject"]) == ("service_down", "broker")


def _now() -> datetime:
    return datetime.fromtimestamp(time.time(), UTC)


@pytest.mark.parametrize(
    "values",
    [
        {"webhook": "https://x", "command": ("true",), "secret_file": "s"},
        {"webhook": "https://x"},
        {"webhook": "ftp://x", "secret_file": "s"},
    ],
)
def test_a_target_that_cannot_work_is_refused(values: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        NoticeSettings(**values)
