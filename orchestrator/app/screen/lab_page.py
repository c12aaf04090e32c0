"""What the page of a lab shows, as JSON: the whole lab at first, then only what changed."""

import json
import threading
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from orchestrator.app.lab_changes import difference
from orchestrator.app.lab_connection import LabConnection
from orchestrator.app.lab_status import KnownPhone, RemainingTime, SweepSummary
from orchestrator.app.screen.lab_snapshot import NO_TRACE, LabSnapshot, state_of
from orchestrator.app.screen.lab_watcher import PollerThread
from orchestrator.app.screen.phone_state_text import (
    BADGES,
    activity_text,
    clock_text,
    display_names,
    remaining_s,
    state_badge,
)
from orchestrator.planning.states import RunState
from workloads.text import list_text, safe_text

IDLE_S = 60.0  # the lab is not polled longer than this after the last reader has left
CONTENT_INTERVAL_S = 0.9  # for how long a content is sent to every reader
EVENTS_SHOWN = 30
PHONES_NAMED = 5

PageContent = dict[str, Any]


class LabPage:
    """The page of a lab: one poller for all its readers, which stops without readers."""

    def __init__(self, lab: LabConnection) -> None:
        self._lab = lab
        self._lock = threading.Lock()
        self._poller: PollerThread | None = None
        self._read_at = self._content_at = 0.0
        self._writing = threading.Lock()
        self._number = 0
        self._contents: dict[int, PageContent] = {}  # the newest two, by their number
        self._changes: dict[int, str] = {}  # to the newest one, by what a reader has

    def snapshot(self) -> LabSnapshot:
        """Return the latest snapshot; the first reader starts the poller."""
        with self._lock:
            self._read_at = time.monotonic()
            if self._poller is None or self._poller.failure is not None:
                self._poller = PollerThread(self._lab, None, self._lab.lab.root.name, self._rest)
                self._poller.start()
            return self._poller.snapshot

    def _rest(self) -> None:
        """Stop the poller when no client reads."""
        with self._lock:
            if self._poller is not None and time.monotonic() - self._read_at > IDLE_S:
                self._poller.stop()
                self._poller = None

    def message(self, sent: int) -> tuple[int, str]:
        """Return the number of the newest content, and how it differs from what a reader has.

        Content and differences are computed once for all readers. One that has missed a content is
        sent everything.
        """
        snapshot = self.snapshot()
        with self._writing:
            if time.monotonic() - self._content_at >= CONTENT_INTERVAL_S:
                self._number += 1
                self._contents[self._number] = page_content(snapshot, datetime.now(UTC))
                self._contents.pop(self._number - 2, None)
                self._changes, self._content_at = {}, time.monotonic()
            known = sent if sent in self._contents else 0
            if known not in self._changes:
                change = difference(self._contents.get(known, {}), self._contents[self._number])
                text = json.dumps(change, separators=(",", ":"), ensure_ascii=False)
                self._changes[known] = text
            return self._number, self._changes[known]

    def curves(self, serial: str) -> PageContent:
        """Return the last minutes of a phone."""
        trace = self.snapshot().traces.get(serial, NO_TRACE)
        return {
            "temperature, °C": trace.temps_c,
            "clock, GHz": trace.clocks_ghz,
            "power, W": trace.powers_w,
        }


def page_content(snapshot: LabSnapshot, now: datetime) -> PageContent:
    """Return the content of the page."""
    view = snapshot.view
    names = display_names(view.phones)
    return {
        "lab": safe_text(snapshot.lab, 60),
        "age": round((now - view.at).total_seconds(), 1),
        "outage": snapshot.outage,
        "sweeps": [_sweep(item, snapshot) for item in (*view.sweeps, *view.others)],
        "problems": [
            [title, text, list_text([safe_text(phone, 60) for phone in phones], PHONES_NAMED)]
            for title, text, phones in group_problems(snapshot, names, now)
        ],
        "hosts": _hosts(snapshot),
        "events": [
            [
                *(event.occurred_at.isoformat(timespec="seconds"), event.kind.value),
                *(names.get(event.phone, safe_text(event.phone, 40)), safe_text(event.text, 300)),
            ]
            for event in snapshot.events[-EVENTS_SHOWN:]
        ],
        "phones": {phone.serial: _row(phone, names, now) for phone in view.phones},
    }


def _row(phone: KnownPhone, names: Mapping[str, str], now: datetime) -> list[Any]:
    """Return a phone: name, host, mark and word of its state, order, readings, activity."""
    badge, status = state_badge(phone, now), phone.status
    left, progress = remaining_s(phone), status.progress
    return [
        *(names[phone.serial], safe_text(phone.host, 63), badge.mark, badge.word, badge.order),
        None if status.temp_c is None else round(status.temp_c, 1),
        status.battery_pct,
        clock_text(phone),
        None if progress is None else round(100 * progress),
        None if left is None else round(left),
        activity_text(phone, now),
    ]


def _sweep(sweep: SweepSummary, snapshot: LabSnapshot) -> PageContent:
    rest = snapshot.view.rest if sweep in snapshot.view.sweeps else None
    return {
        "id": sweep.id,
        "name": safe_text(sweep.name, 60),
        "state": state_of(sweep),
        "why": safe_text(sweep.state_reason, 200),
        "total": sweep.total,
        "ended": sweep.total - sweep.left,
        "done": sweep.done,
        "failed": sweep.failed,
        "blocked": sweep.runs.get(RunState.BLOCKED, 0),
        "suspect": sweep.left_out.suspect,
        "void": sweep.left_out.void,
        "reason": safe_text(sweep.left_out.reason_text, 200),
        "end": None if rest is None or sweep.finished else _end(rest),
    }


def _end(rest: RemainingTime) -> PageContent:
    """Return the remaining seconds and their interval, and why the end is unknown."""
    return {
        "seconds": [round(s) for s in (rest.likely_s, rest.early_s, rest.late_s)],
        "unknown": safe_text(rest.unknown, 200),
    }


def _hosts(snapshot: LabSnapshot) -> list[list[Any]]:
    phones = [phone.host for phone in snapshot.view.phones]
    return [[safe_text(host, 63), phones.count(host)] for host in sorted(snapshot.view.hosts)]


def group_problems(
    snapshot: LabSnapshot, names: Mapping[str, str], now: datetime
) -> list[tuple[str, str, Sequence[str]]]:
    """Group what is wrong: the reason first, a text, and the phones that it concerns."""
    view = snapshot.view
    groups: list[tuple[str, str, Sequence[str]]] = []
    for failed in view.failures:
        groups.append((failed.title, failed.text, [names.get(p, p) for p in failed.phones]))
    by_reason: dict[tuple[str, str], list[str]] = {}
    for host in view.host_problems:
        by_reason.setdefault(("HOST", safe_text(host.text, 300)), []).append(host.host)
    for problem in view.problems:
        by_reason.setdefault(("UNUSABLE", problem.text), []).append(problem.address)
    for phone in view.phones:
        badge = state_badge(phone, now)
        waits = badge is BADGES["reserved"] and phone.queued
        if badge.order <= BADGES["away"].order or waits:
            reason = activity_text(phone, now) if waits else phone.health_reason
            text = safe_text(reason or phone.status.reason or "no host reports it", 200)
            by_reason.setdefault((badge.word, text), []).append(names[phone.serial])
    for (word, text), phones in sorted(by_reason.items(), key=lambda item: -len(item[1])):
        count = f" ×{len(phones)}" if len(phones) > 1 else ""
        groups.append((f"{word}{count}", text, phones))
    for sweep in view.sweeps:
        left_out = sweep.left_out
        if left_out.suspect or left_out.void:
            groups.append((left_out.counts, left_out.reason_text, []))
    return groups
