"""Follows a lab: a live screen on a terminal, plain lines or JSON when piped."""

import json
import os
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime

from orchestrator.app import control_phones, control_sweeps
from orchestrator.app.app_errors import ApiDown
from orchestrator.app.event_feed import EventFeed
from orchestrator.app.lab_changes import open_poller
from orchestrator.app.lab_connection import LabConnection
from orchestrator.app.lab_status import LabView
from orchestrator.app.read_trials import TrialResult, list_trial_results
from orchestrator.app.screen.lab_watcher import PollerThread
from orchestrator.app.screen.waiting_sweep import SweepWait
from orchestrator.tui.event_lines import event_line, summary_line
from orchestrator.tui.keyboard import parse_keys
from orchestrator.tui.keymap import handle_key
from orchestrator.tui.panels import screen
from orchestrator.tui.terminal import Terminal
from orchestrator.tui.ui_state import ActionKind, Mode, PendingAction, Ui
from workloads.command_output import as_typed
from workloads.protocol.faults import BrokerDown, FarmError, StoreDown
from workloads.protocol.messages import Event

REDRAW_INTERVAL_MIN_S = 0.25
REDRAW_INTERVAL_MAX_S = 1.0  # the age of the data is shown, so the screen changes every second
SUMMARY_INTERVAL_S = 60.0
FINISHED_DELAY_S = 1.0  # how long a finished sweep stays on the screen
EVENT_WAIT_S = 1.0
RETRY_DELAY_S = 1.0

PRIORITY_STEP = 10
CELL_TRIALS_MAX = 500

IsFinished = Callable[[LabView], bool]


@dataclass(frozen=True)
class WatchOptions:
    """How the lab is followed."""

    sweep: str | None = None
    lab_name: str = ""
    read_only: bool = False
    ascii_only: bool = False


def is_live() -> bool:
    """Whether to draw a screen: only on a terminal (Rich alone would believe FORCE_COLOR)."""
    ends = (sys.stdin, sys.stdout)
    return os.environ.get("TERM") != "dumb" and all(end and end.isatty() for end in ends)


def run_watch(lab: LabConnection, options: WatchOptions, is_finished: IsFinished) -> LabView:
    """Follow the lab until it is finished or the user quits."""
    if not is_live():
        return print_events(lab, options.sweep, is_finished, as_json=False)
    terminal = Terminal(sys.stdin.fileno(), sys.stdout.fileno(), options.ascii_only)
    poller = PollerThread(lab, options.sweep, options.lab_name, terminal.wake)
    poller.start()
    try:
        with terminal.open():
            return _LiveScreen(terminal, poller, lab, options.read_only).run(is_finished)
    finally:
        poller.stop()


class _LiveScreen:
    """The loop of the screen: reads keys, draws lines, decides nothing."""

    def __init__(
        self, terminal: Terminal, poller: PollerThread, lab: LabConnection, read_only: bool
    ) -> None:
        self._terminal = terminal
        self._poller = poller
        self._lab = lab
        self._ui = Ui(read_only=read_only)
        self._unparsed = b""
        self._notes: list[str] = []
        self._cells: list[tuple[str, tuple[TrialResult, ...]]] = []  # that were read

    def run(self, is_finished: IsFinished) -> LabView:
        """Run until the lab is finished or the user quits."""
        drawn_at, drawn = 0.0, None
        finished_at: float | None = None
        while not self._ui.quit:
            now = time.monotonic()
            due = drawn is not self._poller.snapshot or now - drawn_at >= REDRAW_INTERVAL_MAX_S
            if due and now - drawn_at >= REDRAW_INTERVAL_MIN_S:
                drawn, drawn_at = self._poller.snapshot, now
                self._draw()
                if is_finished(drawn.view) and not self._ui.sweep:  # the user chose another one
                    finished_at = finished_at or now
            if finished_at is not None and now - finished_at >= FINISHED_DELAY_S:
                break
            is_old = drawn is not self._poller.snapshot
            next_draw = drawn_at + (REDRAW_INTERVAL_MIN_S if is_old else REDRAW_INTERVAL_MAX_S)
            typed = self._terminal.read(max(0.0, min(next_draw - now, FINISHED_DELAY_S)))
            if self._poller.failure is not None:
                raise self._poller.failure
            resized = self._terminal.size() != (self._ui.width, self._ui.height)
            if self._handle(typed) or self._notes or self._cells or resized:
                self._draw()
        return self._poller.snapshot.view

    def _handle(self, typed: bytes) -> bool:
        if not typed:
            return False
        keys, self._unparsed = parse_keys(self._unparsed + typed)
        for key in keys:
            if key == "redraw":
                self._terminal.forget()
            now, snapshot = datetime.now(UTC), self._poller.snapshot
            followed = self._ui.sweep
            self._ui, action = handle_key(self._ui, key, snapshot, now)
            if self._ui.mode is Mode.CELL and self._ui.trials is None:
                followed_now = snapshot.view.sweeps[0].id
                cell = (followed_now, self._ui.opened)
                threading.Thread(target=self._read_cell, args=cell, daemon=True).start()
            if self._ui.sweep != followed:
                self._poller.follow(self._ui.sweep)
            if self._ui.quit:
                break
            if action is not None:
                self._ui = self._ui.with_(note="…")
                threading.Thread(target=self._execute, args=(action,), daemon=True).start()
        return bool(keys)

    def _execute(self, action: PendingAction) -> None:
        """Execute an action in its own thread: the store may be slow."""
        try:
            self._notes.append(_change_lab(self._lab, action))
        except FarmError as error:
            self._notes.append(f"not done: {error}")
        self._terminal.wake()

    def _read_cell(self, sweep: str, label: str) -> None:
        """Read the trials of a cell in its own thread."""
        try:
            trials = list_trial_results(self._lab, sweep, CELL_TRIALS_MAX, label)
            self._cells.append((label, tuple(trials)))
        except FarmError as error:
            self._notes.append(f"cannot be read: {error}")
        self._terminal.wake()

    def _draw(self) -> None:
        width, height = self._terminal.size()
        if (width, height) != (self._ui.width, self._ui.height):
            self._terminal.forget()
        note = self._notes.pop() if self._notes else self._ui.note
        self._ui = self._ui.with_(width=width, height=height, note=note)
        while self._cells:
            label, trials = self._cells.pop(0)
            if label == self._ui.opened:
                self._ui = self._ui.with_(trials=trials)
        self._terminal.draw(screen(self._poller.snapshot, self._ui, datetime.now(UTC)))


def _change_lab(lab: LabConnection, action: PendingAction) -> str:
    """Make a change as its command does; return what was changed and how to undo it."""
    target = action.target
    match action.kind:
        case ActionKind.PAUSE:
            change = control_sweeps.pause_sweep(lab, target)
        case ActionKind.RESUME:
            change = control_sweeps.resume_sweep(lab, target)
        case ActionKind.CANCEL:
            change = control_sweeps.cancel_sweep(lab, target)
        case ActionKind.RETRY:
            change = control_sweeps.retry_sweep(lab, target)
        case ActionKind.RAISE | ActionKind.LOWER:
            step = PRIORITY_STEP if action.kind is ActionKind.RAISE else -PRIORITY_STEP
            priority = control_sweeps.find_sweep(lab, target).priority + step
            priority = min(control_sweeps.PRIORITY_MAX, max(0, priority))
            change = control_sweeps.set_sweep_priority(lab, target, priority)
        case ActionKind.QUARANTINE:
            reason = f"by {lab.user}, from farm watch"
            change = control_phones.quarantine_phone(lab, target, reason)
        case ActionKind.RELEASE:
            change = control_phones.release_phone(lab, target)
    return "  ".join(change.lines)


def print_events(
    lab: LabConnection, sweep: str | None, is_finished: IsFinished, as_json: bool
) -> LabView:
    """Follow the lab as plain lines, for pipes and logs, or as JSON lines, for programs."""
    show_event = Event.model_dump_json if as_json else event_line
    show_view = _summary_json if as_json else summary_line
    feed = EventFeed(lab, sweep)
    poller = open_poller(lab, sweep)
    view = poller.poll()
    print_line(as_typed(show_view(view)))
    if is_finished(view):
        return view
    summarized, wait = time.monotonic(), SweepWait()
    while not is_finished(view):
        try:
            for event in feed.read(EVENT_WAIT_S) or ():
                print_line(as_typed(show_event(event)))
            view = poller.poll()
            if sweep is not None and (text := wait.news(view)):
                sys.stderr.write(f"waiting: {text}\n")
        except (ApiDown, BrokerDown, StoreDown) as error:
            sys.stderr.write(f"waiting: {error}\n")
            time.sleep(RETRY_DELAY_S)
        if time.monotonic() - summarized > SUMMARY_INTERVAL_S:
            summarized = time.monotonic()
            print_line(as_typed(show_view(view)))
    print_line(as_typed(show_view(view)))
    return view


def _summary_json(view: LabView) -> str:
    sweeps = [asdict(item) for item in view.sweeps]
    remaining = asdict(view.rest) if view.rest is not None else None
    summary = {"kind": "summary", "at": view.at, "sweeps": sweeps, "remaining": remaining}
    return json.dumps(summary, default=str)


def print_line(text: str) -> None:
    """Print a line and flush it, so that a pipe receives it at once."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()
