"""Notices: what is reported, once; and deliveries that are signed, spooled and retried."""

import hashlib
import hmac
import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from orchestrator.decisions.notice_rules import (
    NoticeInputs,
    PhoneView,
    SweepView,
    conditions,
    new_conditions,
)
from orchestrator.dispatch.central_broker import CentralBroker
from orchestrator.dispatch.notice_service import NoticeService
from orchestrator.store import notices
from orchestrator.store.database import Database
from orchestrator.store.finished_sweeps import mark_finished
from orchestrator.store.notices import DeliveryState
from orchestrator.store.tables import sweep
from workloads.service_metrics import Service, ServiceMetrics
from workloads.service_settings import NoticeKind, NoticeSettings, NoticeTarget

GOOD = PhoneView("host-a", "good", "")


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


def service(db: Database, folder: Path, **targets: Any) -> NoticeService:
    (folder / "secret").write_text("a key\n")
    settings = NoticeSettings(targets={k: NoticeTarget(**v) for k, v in targets.items()})
    broker = CentralBroker("unix:///nowhere")  # deliveries do not use it
    return NoticeService(db, broker, settings, folder, ServiceMetrics(Service.SCHEDULER))


def add(db: Database, kind: NoticeKind = NoticeKind.SWEEP_ENDED, subject: str = "sw-1") -> int:
    with db.write() as connection:
        return notices.add_event(connection, kind, subject, "it has ended: 3 done")


def make_due(db: Database) -> None:
    with db.write() as connection:
        connection.exec_driver_sql("UPDATE notice_delivery SET next_try_s = 0")


def test_every_condition_is_found_and_a_host_stands_for_its_phones() -> None:
    view = NoticeInputs(
        phones={
            "ill": PhoneView("host-a", "quarantined", "no sensor"),
            "lost": GOOD,
            "late": GOOD,
            "far": PhoneView("host-b", "good", ""),
        },
        phones_away_s={"lost": 400, "late": 100, "far": 400},
        hosts_away_s={"host-b": 400},
        sweeps={
            "spent": SweepView("a", "paused", "budget", "used up"),
            "paused": SweepView("b", "paused", "person", "lunch"),
            "poison": SweepView("c", "active", None, "", 2, frozenset({"late"})),
            "stuck": SweepView("d", "active", None, "", 0, frozenset({"ill", "lost"})),
            "slow": SweepView("e", "active", None, "", 0, frozenset({"ill", "late"})),
        },
        disk_free_bytes={"/lab": 1e9},
    )
    assert conditions(view, 300, 2e9).keys() == {
        (NoticeKind.PHONE_QUARANTINED, "ill"),
        (NoticeKind.PHONE_AWAY, "lost"),
        (NoticeKind.HOST_AWAY, "host-b"),
        (NoticeKind.BUDGET_SPENT, "spent"),
        (NoticeKind.SWEEP_BLOCKED, "poison"),
        (NoticeKind.SWEEP_BLOCKED, "stuck"),
        (NoticeKind.DISK_LOW, "/lab"),
    }


def test_a_condition_that_comes_and_goes_is_not_reported_every_time() -> None:
    key = (NoticeKind.PHONE_AWAY, "lost")
    found = {key: "it is away"}
    assert new_conditions(found, (), {}, 1000) == found
    assert new_conditions(found, {key}, {key: 900}, 1000) == {}
    assert new_conditions(found, (), {key: 900}, 1000) == {}
    assert new_conditions(found, (), {key: 300}, 1000) == found
    assert new_conditions(found, (), {key: 5000}, 1000) == found, "the clock was set back"


def test_a_condition_is_stored_once_until_it_ends(store: Database) -> None:
    key = (NoticeKind.HOST_AWAY, "host-a")
    for _ in range(2):  # as two schedulers would
        notices.update_notices(store, {key: "away"}, (), 100.0)
    assert notices.open_notices(store, 101.0)[0] == {key}
    assert len(notices.latest_notices(store, 10)) == 1
    notices.update_notices(store, {}, {key}, 200.0)
    assert notices.open_notices(store, 201.0) == (set(), {key: 100.0})
    notices.update_notices(store, {key: "away again"}, (), 900.0)
    assert [item.text for item in notices.latest_notices(store, 10)] == ["away again", "away"]


def test_a_webhook_is_signed_and_retried_until_it_succeeds(
    store: Database, tmp_path: Path, receiver: Receiver
) -> None:
    sender = service(store, tmp_path, office={"webhook": receiver.url, "secret_file": "secret"})
    number = add(store)
    receiver.failures = 1
    sender.deliver_due()
    sender.deliver_due()  # it is not due yet
    assert len(receiver.requests) == 1
    (waiting,) = notices.latest_notices(store, 1)[0].deliveries
    assert waiting.state is DeliveryState.WAITING
    assert "500" in waiting.error
    make_due(store)
    sender = service(store, tmp_path, office={"webhook": receiver.url, "secret_file": "secret"})
    sender.deliver_due()  # by the next scheduler
    (sent,) = notices.latest_notices(store, 1)[0].deliveries
    assert sent.state is DeliveryState.SENT
    headers, body = receiver.requests[-1]
    signed = headers["Farm-Timestamp"].encode() + b"." + body
    expected = hmac.new(b"a key", signed, hashlib.sha256).hexdigest()
    assert headers["Farm-Signature"] == f"sha256={expected}"
    assert headers["Farm-Notice"] == str(number) == str(json.loads(body)["id"])
    assert json.loads(body)["kind"] == "sweep_ended"
    make_due(store)
    sender.deliver_due()
    assert len(receiver.requests) == 2


def test_a_redirect_is_not_followed_and_a_lost_target_is_given_up(
    store: Database, tmp_path: Path, receiver: Receiver
) -> None:
    sender = service(store, tmp_path, office={"webhook": receiver.url, "secret_file": "secret"})
    add(store)
    receiver.failures, receiver.status = 9, 302
    sender.deliver_due()
    (moved,) = notices.latest_notices(store, 1)[0].deliveries
    assert "302" in moved.error
    with store.write() as connection:
        connection.exec_driver_sql("UPDATE notice SET raised_at_s = raised_at_s - 400000")
    make_due(store)
    service(store, tmp_path).deliver_due()  # lab.toml names it no longer
    (lost,) = notices.latest_notices(store, 1)[0].deliveries
    assert lost.state is DeliveryState.GIVEN_UP


def test_a_command_gets_the_notice_and_no_variable_of_the_service(
    store: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FARM_BROKER", "redis://user:password@x")
    out = tmp_path / "out"
    targets = {
        "good": {"command": ("sh", "-c", f"cat > {out}; env >> {out}")},
        "bad": {"command": ("sh", "-c", "echo broken >&2; exit 3")},
        "missing": {"command": ("/no/such/program",)},
    }
    add(store)
    service(store, tmp_path, **targets).deliver_due()
    content = out.read_text()
    assert '"kind": "sweep_ended"' in content
    assert "FARM_BROKER" not in content
    state = {each.target: each for each in notices.latest_notices(store, 1)[0].deliveries}
    assert state["good"].state is DeliveryState.SENT
    assert "code 3: broken" in state["bad"].error
    assert "cannot be run" in state["missing"].error


def test_targets_get_what_they_ask_for(store: Database, tmp_path: Path) -> None:
    row = {"source": "", "seed": 1, "name": "x", "policy": {}, "state": "active"}
    with store.write() as connection:
        for name, notify in (("sw-1", ["mine"]), ("sw-2", [])):
            added = {**row, "id": name, "notify": notify, "created_at": _now()}
            connection.execute(sweep.insert().values(added))
    assert sorted(mark_finished(store)) == ["sw-1", "sw-2"]
    command = {"command": ("true",)}
    targets = {
        "mine": {**command, "only_requested": True},
        "all": command,
        "disks": {**command, "kinds": ("disk_low",)},
    }
    add(store, NoticeKind.TEST, "mine")
    service(store, tmp_path, **targets).deliver_due()
    found = notices.latest_notices(store, 10)
    reported = {item.subject: {each.target for each in item.deliveries} for item in found}
    assert reported == {"sw-1": {"mine", "all"}, "sw-2": {"all"}, "mine": {"mine"}}
    assert mark_finished(store) == []
    assert len(notices.latest_notices(store, 10)) == 3


def _now() -> Any:
    from datetime import UTC, datetime

    return datetime.fromtimestamp(time.time(), UTC)


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"webhook": "https://x", "command": ("true",), "secret_file": "s"},
        {"webhook": "https://x"},
        {"webhook": "ftp://x", "secret_file": "s"},
        {"command": ("true",), "kinds": ("everything",)},
    ],
)
def test_a_target_that_cannot_work_is_refused(values: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        NoticeTarget(**values)
