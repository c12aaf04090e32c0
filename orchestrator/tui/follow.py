"""Following a lab: looks, shows, waits for the next event. Live on a terminal, lines in a pipe."""

import json
import os
import sys
import time
from collections import deque
from collections.abc import Callable
from dataclasses import asdict
from datetime import UTC, datetime

from rich.console import Console
from rich.live import Live

from orchestrator.dispatch.broker import Broker
from orchestrator.lab_view import LabView, look
from orchestrator.store.database import Database
from orchestrator.tui.panels import event_line, screen, summary_line
from workloads.fault import BrokerDown, StoreDown
from workloads.messages import Event

REDRAW_S = 0.25
SUMMARY_S = 60.0
EVENTS_SHOWN = 200

Done = Callable[[LabView], bool]


def is_live(stream: object = None) -> bool:
    """Whether to redraw: decided by the terminal alone, because FORCE_COLOR deceives Rich."""
    shown = stream or sys.stdout
    fileno = getattr(shown, "fileno", None)
    return fileno is not None and os.isatty(fileno()) and os.environ.get("TERM") != "dumb"


def follow(db: Database, broker: Broker, sweep: str | None, done: Done) -> LabView:
    """Follow until the look at the lab says that it is done."""
    return (_follow_live if is_live() else _follow_lines)(db, broker, sweep, done)


def _follow_live(db: Database, broker: Broker, sweep: str | None, done: Done) -> LabView:
    console = Console()
    events: deque[Event] = deque(maxlen=EVENTS_SHOWN)
    cursor = broker.newest_event()
    view = look(db, broker, sweep)
    with Live(console=console, auto_refresh=False, screen=True) as live:
        while not done(view):
            now = datetime.now(UTC)
            drawing = screen(view, tuple(events), now, console.width, console.height)
            live.update(drawing, refresh=True)
            drawn = time.monotonic()
            try:
                cursor, new = broker.events(cursor, REDRAW_S)
                events.extend(event for event in new if _concerns(event, sweep))
                view = look(db, broker, sweep)
            except (BrokerDown, StoreDown):
                time.sleep(REDRAW_S)  # the age of the last look is on the screen
            time.sleep(max(0.0, drawn + REDRAW_S - time.monotonic()))
    return view


def _follow_lines(db: Database, broker: Broker, sweep: str | None, done: Done) -> LabView:
    return _follow_text(db, broker, sweep, done, event_line, summary_line)


def follow_json(db: Database, broker: Broker, sweep: str | None, done: Done) -> LabView:
    """Follow as one JSON object per line, for programs."""
    return _follow_text(db, broker, sweep, done, lambda event: event.model_dump_json(), _as_json)


def _follow_text(
    db: Database,
    broker: Broker,
    sweep: str | None,
    done: Done,
    show_event: Callable[[Event], str],
    show_view: Callable[[LabView], str],
) -> LabView:
    cursor = broker.newest_event()
    view = look(db, broker, sweep)
    print_line(show_view(view))
    if done(view):
        return view
    summed = time.monotonic()
    while not done(view):
        try:
            cursor, new = broker.events(cursor, 1.0)
            for event in new:
                if _concerns(event, sweep):
                    print_line(show_event(event))
            view = look(db, broker, sweep)
        except (BrokerDown, StoreDown) as error:
            sys.stderr.write(f"waiting: {error}\n")
            time.sleep(1.0)
        if time.monotonic() - summed > SUMMARY_S:
            summed = time.monotonic()
            print_line(show_view(view))
    print_line(show_view(view))
    return view


def _as_json(view: LabView) -> str:
    sweeps = [asdict(item) for item in view.sweeps]
    return json.dumps({"kind": "summary", "at": view.at, "sweeps": sweeps}, default=str)


def print_line(text: str) -> None:
    """Print a line at once, so that a pipe sees it when it happens."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def _concerns(event: Event, sweep: str | None) -> bool:
    return sweep is None or event.sweep in ("", sweep)
