"""Following a lab: a live screen on a terminal, plain lines or JSON in a pipe."""

import json
import os
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Protocol

from orchestrator.app.lab_status import LabPoller, LabView
from orchestrator.dispatch.central_broker import CentralBroker
from orchestrator.store.database import Database
from orchestrator.tui.event_lines import event_line, summary_line
from orchestrator.tui.keyboard import keys_of
from orchestrator.tui.keymap import Read, handle_key
from orchestrator.tui.panels import screen
from orchestrator.tui.poller import PollerThread, concerns
from orchestrator.tui.terminal import Terminal
from orchestrator.tui.ui_state import PendingAction, Ui
from workloads.protocol.faults import BrokerDown, FarmError, StoreDown
from workloads.protocol.messages import Event

REDRAW_S = 0.25  # at most four times a second
TICK_S = 1.0  # the age of the data goes on, whatever happens
SUMMARY_S = 60.0
LINGER_S = 1.0  # a finished sweep stays on the screen for a moment

Done = Callable[[LabView], bool]


class Actions(Protocol):
    """Whoever carries out what the reader of a screen has confirmed."""

    def do(self, ask: PendingAction) -> str:
        """Do it, and say what was changed and how to undo it."""


@dataclass(frozen=True)
class WatchOptions:
    """How somebody wants to follow."""

    sweep: str | None = None
    lab: str = ""
    read_only: bool = False
    ascii_only: bool = False


def is_live() -> bool:
    """Whether to redraw: decided by the terminal alone, because FORCE_COLOR deceives Rich."""
    ends = (sys.stdin, sys.stdout)
    return os.environ.get("TERM") != "dumb" and all(end and end.isatty() for end in ends)


def run_watch(
    db: Database,
    broker: CentralBroker,
    wish: WatchOptions,
    done: Done,
    read: Read,
    hands: Actions | None = None,
) -> LabView:
    """Follow until the look at the lab says that it is done, or the reader has seen enough."""
    if not is_live():
        return print_events(db, broker, wish.sweep, done)
    terminal = Terminal(sys.stdin.fileno(), sys.stdout.fileno(), wish.ascii_only)
    watcher = PollerThread(db, broker, wish.sweep, wish.lab, terminal.wake)
    watcher.start()
    try:
        with terminal.open():
            return _Live(terminal, watcher, wish, read, hands).run(done)
    finally:
        watcher.stop()


class _Live:
    """The loop of the screen: keys in, lines out, and no judgement of its own."""

    def __init__(
        self,
        terminal: Terminal,
        watcher: PollerThread,
        wish: WatchOptions,
        read: Read,
        hands: Actions | None,
    ) -> None:
        self._terminal = terminal
        self._watcher = watcher
        self._read = read
        self._hands = hands
        self._ui = Ui(read_only=wish.read_only or hands is None)
        self._pending = b""
        self._notes: list[str] = []

    def run(self, done: Done) -> LabView:
        """Until it is done or quit."""
        drawn, shown = 0.0, None
        finished: float | None = None
        while not self._ui.quit:
            now = time.monotonic()
            due = shown is not self._watcher.seen or now - drawn >= TICK_S
            if due and now - drawn >= REDRAW_S:
                shown, drawn = self._watcher.seen, now
                self._draw()
                if done(shown.view):
                    finished = finished or now
            if finished is not None and now - finished >= LINGER_S:
                break
            next_look = drawn + (REDRAW_S if shown is not self._watcher.seen else TICK_S)
            typed = self._terminal.read(max(0.0, min(next_look - now, LINGER_S)))
            if self._watcher.failure is not None:
                raise self._watcher.failure
            if self._take(typed) or self._notes or self._resized():
                self._draw()
        return self._watcher.seen.view

    def _take(self, typed: bytes) -> bool:
        if not typed:
            return False
        keys, self._pending = keys_of(self._pending + typed)
        for key in keys:
            if key == "redraw":
                self._terminal.forget()
            now = datetime.now(UTC)
            self._ui, ask = handle_key(self._ui, key, self._watcher.seen, now, self._read)
            if self._ui.quit:
                break
            if ask is not None:
                self._ui = self._ui.with_(note="…")
                threading.Thread(target=self._do, args=(ask,), daemon=True).start()
        return bool(keys)

    def _do(self, ask: PendingAction) -> None:
        """Carry a change out, away from the screen: the store may take its time."""
        assert self._hands is not None
        try:
            self._notes.append(self._hands.do(ask))
        except FarmError as error:
            self._notes.append(f"not done: {error}")
        self._terminal.wake()

    def _resized(self) -> bool:
        return self._terminal.size() != (self._ui.width, self._ui.height)

    def _draw(self) -> None:
        width, height = self._terminal.size()
        if (width, height) != (self._ui.width, self._ui.height):
            self._terminal.forget()
        note = self._notes.pop() if self._notes else self._ui.note
        self._ui = self._ui.with_(width=width, height=height, note=note)
        self._terminal.draw(screen(self._watcher.seen, self._ui, datetime.now(UTC)))


def print_events(db: Database, broker: CentralBroker, sweep: str | None, done: Done) -> LabView:
    """Follow as plain lines, for pipes and logs."""
    return _follow_text(db, broker, sweep, done, event_line, summary_line)


def print_json_events(
    db: Database, broker: CentralBroker, sweep: str | None, done: Done
) -> LabView:
    """Follow as one JSON object per line, for programs."""
    return _follow_text(db, broker, sweep, done, lambda event: event.model_dump_json(), _as_json)


def _follow_text(
    db: Database,
    broker: CentralBroker,
    sweep: str | None,
    done: Done,
    show_event: Callable[[Event], str],
    show_view: Callable[[LabView], str],
) -> LabView:
    cursor = broker.newest_cursor()
    lookout = LabPoller(db, broker, sweep)
    view = lookout.poll()
    print_line(show_view(view))
    if done(view):
        return view
    summed = time.monotonic()
    while not done(view):
        try:
            cursor, new = broker.events(cursor, 1.0)
            for event in new:
                if concerns(event, sweep):
                    print_line(show_event(event))
            view = lookout.poll()
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
    rest = asdict(view.rest) if view.rest is not None else None
    said = {"kind": "summary", "at": view.at, "sweeps": sweeps, "remaining": rest}
    return json.dumps(said, default=str)


def print_line(text: str) -> None:
    """Print a line at once, so that a pipe sees it when it happens."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()
