"""Polls the lab in its own thread, so that a lab that hangs never blocks the screen."""

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import replace

from orchestrator.app.app_errors import ApiDown
from orchestrator.app.event_feed import EventFeed
from orchestrator.app.lab_changes import open_poller
from orchestrator.app.lab_connection import LabConnection
from orchestrator.app.lab_status import LabView
from orchestrator.app.screen.lab_snapshot import NO_TRACE, LabSnapshot, PhoneTrace
from workloads.protocol.faults import BrokerDown, FarmError, StoreDown
from workloads.protocol.messages import Event

POLL_INTERVAL_S = 1.0  # hosts send heartbeats once per second
POLL_DISTANCE_MIN_S = 0.25
RETRY_DELAY_S = 0.5
EVENTS_KEPT = 500


class PollerThread:
    """Polls the lab until stopped; `snapshot` is the latest state, `on_news` is called for each."""

    def __init__(
        self, lab: LabConnection, sweep: str | None, lab_name: str, on_news: Callable[[], None]
    ) -> None:
        self._poller = open_poller(lab, sweep)
        self._sweep = sweep
        self._feed = EventFeed(lab, None, EVENTS_KEPT)
        self._on_news = on_news
        self._stop = threading.Event()
        self._events: deque[Event] = deque(self._feed.latest, maxlen=EVENTS_KEPT)
        self._traces: dict[str, PhoneTrace] = {}
        self._traced_at: dict[str, object] = {}
        self.snapshot = self._complete(LabSnapshot(self._poller.poll(), lab=lab_name))
        self.failure: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="poller", daemon=True)

    def start(self) -> None:
        """Start polling."""
        self._thread.start()

    def stop(self) -> None:
        """Stop polling, without waiting for a query that is under way."""
        self._stop.set()

    def follow(self, sweep: str) -> None:
        """Follow another sweep from the next poll on."""
        self._sweep = sweep
        self._poller.follow(sweep)

    def _run(self) -> None:
        polled = time.monotonic()
        while not self._stop.is_set():
            try:
                happened = self._read_events(max(0.01, polled + POLL_INTERVAL_S - time.monotonic()))
                since = time.monotonic() - polled
                if not happened and since < POLL_INTERVAL_S:
                    continue
                self._stop.wait(POLL_DISTANCE_MIN_S - since)
                view = keep_end(self.snapshot.view, self._poller.poll())
                self.snapshot = self._complete(replace(self.snapshot, view=view, outage=""))
            except (ApiDown, BrokerDown, StoreDown) as error:
                self.snapshot = replace(self.snapshot, outage=_outage_text(error))
                self._stop.wait(RETRY_DELAY_S)
            except Exception as error:  # noqa: BLE001 - the screen's thread raises it
                self.failure = error
                self._stop.set()
            polled = time.monotonic()
            self._on_news()

    def _read_events(self, wait_s: float) -> bool:
        """Read new events; return whether there were any."""
        events = self._feed.read(wait_s)
        self._events.extend(events or ())
        return events is not None

    def _complete(self, snapshot: LabSnapshot) -> LabSnapshot:
        self._extend_traces(snapshot.view)
        return replace(
            snapshot,
            events=tuple(
                e for e in self._events if self._sweep is None or e.sweep in ("", self._sweep)
            ),
            skipped=self._feed.skipped,
            traces=dict(self._traces),
        )

    def _extend_traces(self, view: LabView) -> None:
        for phone in view.phones:
            if phone.last_seen_at != self._traced_at.get(phone.serial):
                self._traced_at[phone.serial] = phone.last_seen_at
                trace = self._traces.get(phone.serial, NO_TRACE)
                self._traces[phone.serial] = trace.extended(phone)


def keep_end(shown: LabView, new: LabView) -> LabView:
    """Keep the end that is shown as long as the new interval contains it: a calm estimate."""
    before, now = shown.rest, new.rest
    same = [sweep.id for sweep in shown.sweeps] == [sweep.id for sweep in new.sweeps]
    if not (same and before and now) or before.unknown or now.unknown:
        return new
    likely_s = before.after((new.at - shown.at).total_seconds()).likely_s
    if not now.early_s <= likely_s <= now.late_s:
        return new
    return replace(new, rest=replace(now, likely_s=likely_s))


def _outage_text(error: FarmError) -> str:
    names: dict[type, str] = {BrokerDown: "broker", StoreDown: "store"}
    name = names.get(type(error), "API")
    return f"the {name} does not answer"
