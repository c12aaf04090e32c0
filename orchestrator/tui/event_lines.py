"""Events as lines: on the screen, newest at the bottom, and for a pipe."""

import re
from collections.abc import Mapping, Sequence

from rich.text import Text

from orchestrator.app.lab_status import LabView
from orchestrator.app.screen.event_groups import EventGroup, fold_routine, group_words
from orchestrator.app.screen.phone_state_text import shorten_label
from orchestrator.tui.text_cells import fit, fit_name, line, rule, safe_cell
from workloads.protocol.messages import Event, EventKind

EVENT_STYLES = {
    EventKind.ACCEPTED: "green",
    EventKind.SUSPECT: "yellow",
    EventKind.VOID: "yellow",
    EventKind.STALE: "yellow",
    EventKind.FAULT: "red",
    EventKind.EXPIRED: "red",
    EventKind.HEALTH: "magenta",
}
_PROVENANCE = re.compile(
    r"simulated \((?:(?:extrapolated|uncalibrated), error unknown|fitted,( ±\d+%))\)"
)
KIND_WIDTH = 9
WORDS = {
    EventKind.SUSPECT: "SUSPECT",
    EventKind.FAULT: "FAULT",
    EventKind.VOID: "VOID",
    EventKind.STALE: "late",
    EventKind.EXPIRED: "EXPIRED",
}


def matching_events(
    events: Sequence[Event], names: Mapping[str, str], words: str
) -> Sequence[Event]:
    """Return the events that contain every word: in their kind, their phone or their text."""
    wanted = words.lower().split()
    if not wanted:
        return events
    return [
        event
        for event in events
        if all(
            word in f"{event.kind} {names.get(event.phone, event.phone)} {event.text}".lower()
            for word in wanted
        )
    ]


def event_panel(
    events: Sequence[Event],
    names: Mapping[str, str],
    skipped: int,
    width: int,
    height: int,
    search: str = "",
) -> list[Text]:
    """Render a heading and as many of the latest events as fit; a search finds single ones."""
    if height <= 0:
        return []
    more = (f"events skipped {skipped} times",) if skipped else ()
    more = (search, f"{len(events)} found", *more) if search else more
    lines = [rule(width, "events", *more)]
    groups = (
        [EventGroup(each, 1, frozenset()) for each in events] if search else fold_routine(events)
    )
    shown = groups[-(height - 1) :] if height > 1 else []
    kind = max([KIND_WIDTH, *(len(_words(group, names)[0]) for group in shown)])
    lines += [_line(group, names, width, kind) for group in shown]
    if not shown and height > 1:
        empty = "no event matches; e changes the search" if search else "no events yet"
        lines.append(line(width, (empty, "dim")))
    return lines + [line(width)] * (height - len(lines))


def _words(group: EventGroup, names: Mapping[str, str]) -> tuple[str, str]:
    event = group.last
    kind = WORDS.get(event.kind, event.kind.value)
    return group_words(group, kind, names.get(event.phone, event.phone))


def _line(group: EventGroup, names: Mapping[str, str], width: int, kind_width: int) -> Text:
    event = group.last
    style = EVENT_STYLES.get(event.kind, "")
    kind, name = _words(group, names)
    return line(
        width,
        (f"{event.occurred_at.astimezone():%H:%M:%S}  ", "dim"),
        (fit(kind, kind_width) + " ", style),
        (fit_name(safe_cell(name, 80), max(10, min(26, width // 6))) + " ", ""),
        (shorten_label(_PROVENANCE.sub(r"simulated\1", event.text)), ""),
    )


def event_line(event: Event) -> str:
    """Render an event as a plain line, for pipes."""
    where = " ".join(part for part in (event.sweep, event.phone) if part)
    return safe_cell(
        f"{event.occurred_at:%Y-%m-%dT%H:%M:%SZ} {event.kind} {where} {event.text}", 300
    )


def summary_line(view: LabView) -> str:
    """Render the state of a sweep as a plain line, for pipes."""
    if not view.sweeps:
        return f"{view.at:%Y-%m-%dT%H:%M:%SZ} no sweep"
    sweep = view.sweeps[0]
    counts = f"done={sweep.done} failed={sweep.failed} left={sweep.left} total={sweep.total}"
    rest = view.rest if sweep.left else None
    end = f" eta_s={'unknown' if rest.unknown else round(rest.likely_s)}" if rest else ""
    return f"{view.at:%Y-%m-%dT%H:%M:%SZ} sweep {sweep.id} {sweep.state} {counts}{end}"
