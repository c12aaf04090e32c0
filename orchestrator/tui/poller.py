"""The one who looks: a thread of its own, so that a lab that hangs never hangs the screen."""

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import replace

from orchestrator.app.lab_status import LabPoller, LabView
from orchestrator.dispatch.central_broker import CentralBroker
from orchestrator.store.database import Database
from orchestrator.tui.ui_state import NO_TRACE, LabSnapshot, PhoneTrace
from workloads.protocol.faults import BrokerDown, FarmError, StoreDown
from workloads.protocol.messages import Event

LOOK_S = 1.0  # as often as hosts tell of themselves
LOOK_APART_S = 0.25
EVENTS_KEPT = 200
BATCHES_MAX = 4  # of events, between two looks; who is flooded skips
BATCH = 500
PAUSE_S = 0.5


class PollerThread:
    """Looks at the lab until it is told to stop, and says when there is news."""

    def __init__(
        self,
        db: Database,
        broker: CentralBroker,
        sweep: str | None,
        lab: str,
        news: Callable[[], None],
    ) -> None:
        self._broker = broker
        self._sweep = sweep
        self._lookout = LabPoller(db, broker, sweep)
        self._news = news
        self._stop = threading.Event()
        self._cursor, before = broker.latest_events(EVENTS_KEPT)
        mine = (event for event in before if concerns(event, sweep))
        self._events: deque[Event] = deque(mine, maxlen=EVENTS_KEPT)
        self._traces: dict[str, PhoneTrace] = {}
        self._beats: dict[str, object] = {}
        self._missed = 0
        self.seen = self._with(LabSnapshot(self._lookout.poll(), lab=lab))
        self.failure: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="watcher", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End; whatever it waits for is left to itself."""
        self._stop.set()

    def _run(self) -> None:
        looked = time.monotonic()
        while not self._stop.is_set():
            try:
                happened = self._hear(max(0.01, looked + LOOK_S - time.monotonic()))
                since = time.monotonic() - looked
                if not happened and since < LOOK_S:
                    continue
                self._stop.wait(LOOK_APART_S - since)
                self.seen = self._with(replace(self.seen, view=self._lookout.poll(), trouble=""))
            except (BrokerDown, StoreDown) as error:
                self.seen = replace(self.seen, trouble=_briefly(error))
                self._stop.wait(PAUSE_S)
            except Exception as error:  # noqa: BLE001 - the screen must hear of it, and raises it
                self.failure = error
                self._stop.set()
            looked = time.monotonic()
            self._news()

    def _hear(self, wait_s: float) -> bool:
        """Take events in; say whether there were any."""
        heard = 0
        for _ in range(BATCHES_MAX):
            self._cursor, new = self._broker.events(self._cursor, wait_s)
            wait_s = 0.001
            heard += len(new)
            self._events.extend(event for event in new if concerns(event, self._sweep))
            if len(new) < BATCH:
                return heard > 0
        self._cursor = self._broker.newest_cursor()
        self._missed += 1
        return True

    def _with(self, seen: LabSnapshot) -> LabSnapshot:
        self._trace(seen.view)
        events, missed = tuple(self._events), self._missed
        return replace(seen, events=events, missed=missed, traces=dict(self._traces))

    def _trace(self, view: LabView) -> None:
        for phone in view.phones:
            if phone.last_seen_at != self._beats.get(phone.serial):
                self._beats[phone.serial] = phone.last_seen_at
                self._traces[phone.serial] = self._traces.get(phone.serial, NO_TRACE).after(phone)


def concerns(event: Event, sweep: str | None) -> bool:
    """Whether an event belongs on this screen."""
    return sweep is None or event.sweep in ("", sweep)


def _briefly(error: FarmError) -> str:
    return "the broker is gone" if isinstance(error, BrokerDown) else "the store is gone"
