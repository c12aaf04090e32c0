"""What the page of a lab shows, as JSON: the whole lab at first, then only what changed."""

import json
import threading
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from orchestrator.app.control_sweeps import find_sweep, list_notes
from orchestrator.app.lab_changes import difference
from orchestrator.app.lab_connection import LabConnection
from orchestrator.app.lab_status import KnownPhone, LabView, RemainingTime, SweepSummary
from orchestrator.app.read_trials import (
    AttemptReport,
    TrialResult,
    TrialSummary,
    list_trial_results,
    show_trial,
)
from orchestrator.app.screen.event_groups import EventGroup, fold_routine, group_words
from orchestrator.app.screen.lab_problems import phone_advice
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
from orchestrator.app.screen.waiting_sweep import availability_of
from orchestrator.planning.states import PhoneAvailability, RunState
from workloads.protocol.reason_advice import REASON_ADVICE
from workloads.text import list_text, safe_text
from workloads.units import step_time_text

IDLE_S = 60.0  # the lab is not polled longer than this after the last reader has left
CONTENT_INTERVAL_S = 0.9  # for how long a content is sent to every reader
EVENTS_SHOWN = 30
TRIALS_SHOWN = 500
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

    def phone(self, serial: str) -> PageContent:
        """Return what a phone is, and its last minutes."""
        snapshot = self.snapshot()
        trace = snapshot.traces.get(serial, NO_TRACE)
        phone = next((each for each in snapshot.view.phones if each.serial == serial), None)
        return {
            "facts": [] if phone is None else _facts(phone),
            "curves": {
                "temperature, °C": trace.temps_c,
                "clock, GHz": trace.clocks_ghz,
                "power, W": trace.powers_w,
            },
        }

    def sweep(self, name: str) -> PageContent:
        """Return a sweep with its notes and what each trial measured."""
        found, snapshot = find_sweep(self._lab, name), self.snapshot()
        known = {each.id: each for each in (*snapshot.view.sweeps, *snapshot.view.others)}
        names = display_names(snapshot.view.phones)
        trials = list_trial_results(self._lab, found.id, TRIALS_SHOWN)
        return {
            "sweep": _sweep(known.get(found.id, found), snapshot),
            "notes": [
                [note.written_at.isoformat(timespec="seconds"), note.person, note.text]
                for note in list_notes(self._lab, found.id)
            ],
            "trials": [_trial(each, names) for each in trials],
        }

    def trial(self, prefix: str) -> PageContent:
        """Return a trial with every attempt at it."""
        details = show_trial(self._lab, prefix)
        summary, names = details.summary, display_names(self.snapshot().view.phones)
        return {
            "id": summary.id,
            "label": safe_text(summary.label, 200),
            "sweep": summary.sweep,
            "phone": [summary.phone, names.get(summary.phone, summary.phone)],
            "runs": _runs_text(summary),
            "attempts": [_attempt(item, summary.headline) for item in details.reports],
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
        "events": [_event(group, names) for group in fold_routine(snapshot.events)[-EVENTS_SHOWN:]],
        "phones": {phone.serial: _row(phone, names, now) for phone in view.phones},
    }


def _event(group: EventGroup, names: Mapping[str, str]) -> list[str]:
    event = group.last
    name = names.get(event.phone, safe_text(event.phone, 40))
    words = group_words(group, event.kind.value, name)
    at = event.occurred_at.isoformat(timespec="seconds")
    return [at, *words, safe_text(event.text, 300)]


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
        *(activity_text(phone, now), safe_text(", ".join(phone.tags), 80)),
    ]


def _facts(phone: KnownPhone) -> list[list[str]]:
    facts = phone.facts
    return [
        ["serial", safe_text(phone.serial, 80)],
        ["SoC", safe_text(facts.soc, 80)],
        ["Android", safe_text(facts.android, 40)],
        ["memory", f"{facts.ram_mb} MB"],
        ["control", str(facts.control)],
        ["tags", safe_text(", ".join(phone.tags), 200) or "none"],
    ]


def _trial(result: TrialResult, names: Mapping[str, str]) -> list[str]:
    summary = result.summary
    value = "" if result.value is None else step_time_text(summary.headline, result.value)
    return [
        *(summary.id, safe_text(names.get(summary.phone, summary.phone), 60)),
        *(safe_text(summary.label, 200), value, result.source, _runs_text(summary)),
    ]


def _runs_text(summary: TrialSummary) -> str:
    return ", ".join(f"{count} {state}" for state, count in sorted(summary.runs.items()) if count)


def _attempt(item: AttemptReport, headline: str) -> list[Any]:
    """Return an attempt: when, which, its status, verdict and value, and what was wrong."""
    report, verdict = item.report, item.verdict
    metric = next((each for each in report.metrics if each.name == headline), None)
    value = "" if metric is None else step_time_text(headline, metric.value)
    wrong = [str(report.fault)] if report.fault else []
    reasons = verdict.reasons if verdict else ()
    wrong += [f"{each.text}. {REASON_ADVICE[each.code]}" for each in reasons]
    return [
        *(item.received_at.isoformat(timespec="seconds"), item.block + 1, item.attempt),
        *(item.status, str(verdict.validity) if verdict else "", value),
        [safe_text(text, 400) for text in wrong],
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
    """Group what is wrong: the reason, what it is and what to do, and the phones it concerns."""
    view = snapshot.view
    groups: list[tuple[str, str, Sequence[str]]] = []
    followed = view.sweeps[0].id if view.sweeps else ""
    for failed in view.failures:
        text = f"{failed.text}; next: farm trial list {followed} --state failed"
        groups.append((failed.title, text, [names.get(p, p) for p in failed.phones]))
    by_reason: dict[tuple[str, str], list[str]] = {}
    for host in view.host_problems:
        by_reason.setdefault(("HOST", safe_text(host.text, 300)), []).append(host.host)
    for problem in view.problems:
        by_reason.setdefault(("UNUSABLE", problem.text), []).append(problem.address)
    for key, serials in _phones_by_reason(view, now).items():
        by_reason[key] = [names[serial] for serial in serials]
    for (word, text), phones in sorted(by_reason.items(), key=lambda item: -len(item[1])):
        count = f" ×{len(phones)}" if len(phones) > 1 else ""
        groups.append((f"{word}{count}", text, phones))
    for sweep in view.sweeps:
        left_out = sweep.left_out
        if left_out.suspect or left_out.void:
            state = "suspect" if left_out.suspect else "void"
            see = f"farm trial list {sweep.id} --state {state}"
            groups.append((left_out.counts, f"{left_out.reason_text}; next: {see}", []))
    return groups


def _phones_by_reason(view: LabView, now: datetime) -> dict[tuple[str, str], list[str]]:
    """Return the phones that get no runs, by the word for it and the reason with what to do."""
    found: dict[tuple[str, str, PhoneAvailability], list[str]] = {}
    for phone in view.phones:
        badge = state_badge(phone, now)
        waits = badge is BADGES["reserved"] and phone.queued
        if badge.order <= BADGES["away"].order or waits:
            reason = activity_text(phone, now) if waits else phone.health_reason
            text = safe_text(reason or phone.status.reason or "no host reports it", 200)
            state = phone.availability or availability_of(phone, now, view.drained)
            found.setdefault((badge.word, text, state), []).append(phone.serial)
    groups: dict[tuple[str, str], list[str]] = {}
    for (word, text, state), serials in found.items():
        advice = phone_advice(state, serials)
        key = (word, f"{text}; next: {advice}" if advice else text)
        groups.setdefault(key, []).extend(serials)
    return groups
