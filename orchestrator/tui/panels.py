"""What the screen shows: pure, from one look at the lab to Rich renderables.

Everything that came from a phone goes through safe_text into Text, never into markup.
"""

from collections.abc import Sequence
from datetime import datetime

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from orchestrator.lab_view import LabView
from orchestrator.nouns import KnownPhone, SweepSummary
from workloads.messages import Event
from workloads.text import safe_text
from workloads.units import format_duration

STATE_STYLES = {"busy": "green", "idle": "default", "away": "red", "unfit": "yellow"}
EVENT_STYLES = {"accepted": "green", "void": "yellow", "stale": "yellow", "expired": "red"}
STALE_AFTER_S = 5.0
WIDE = 100  # columns from which everything is shown


def screen(
    view: LabView, events: Sequence[Event], now: datetime, width: int, height: int
) -> RenderableType:
    """The whole screen, fitted to its size."""
    room = max(3, height - len(view.phones) - 5)
    return Group(
        header(view, now),
        phones_table(view.phones, wide=width >= WIDE),
        events_list(events[-room:]),
    )


def header(view: LabView, now: datetime) -> RenderableType:
    """The sweep, how far it is, and how old all of this is."""
    age = (now - view.at).total_seconds()
    live = Text("● live", "green") if age < STALE_AFTER_S else Text(f"○ {age:.0f} s old", "red")
    line = Table.grid(expand=True)
    line.add_column(ratio=1)
    line.add_column(justify="right")
    shown = view.sweeps[0] if view.sweeps else None
    title = Text("no sweep") if shown is None else Text(f"{shown.name} ({shown.id})", "bold")
    line.add_row(title, live)
    if shown is None:
        return line
    bar = Table.grid(padding=(0, 2))
    done = shown.done + shown.failed
    bar.add_row(ProgressBar(total=max(1, shown.total), completed=done, width=40), _counts(shown))
    return Group(line, bar)


def _counts(sweep: SweepSummary) -> Text:
    text = Text(f"{sweep.done}/{sweep.total} done")
    if sweep.failed:
        text.append(f", {sweep.failed} failed", "red")
    return text


def phones_table(phones: Sequence[KnownPhone], wide: bool) -> Table:
    """One line per phone; on a narrow screen without host and battery."""
    table = Table(box=None, expand=True, pad_edge=False, header_style="dim")
    columns = (("PHONE", 16), ("HOST", 8), ("STATE", 5), ("STAGE", 12), ("°C", 5), ("BAT", 5))
    for heading, least in columns:
        if wide or heading not in ("HOST", "BAT"):
            table.add_column(heading, no_wrap=True, min_width=least)
    table.add_column("RUN", no_wrap=True, ratio=1)
    for phone in phones:
        style = STATE_STYLES.get(phone.state, "default")
        temp = "--" if phone.temp_c is None else f"{phone.temp_c:.1f}"
        battery = "--" if phone.battery_pct is None else f"{phone.battery_pct} %"
        table.add_row(
            Text(safe_text(phone.facts.model, 24 if wide else 16)),
            *([Text(safe_text(phone.host, 16))] if wide else []),
            Text(phone.state, style),
            Text(_stage(phone)),
            Text(temp),
            *([Text(battery)] if wide else []),
            Text(safe_text(phone.run or phone.why, 60)),
        )
    return table


def _stage(phone: KnownPhone) -> str:
    if phone.progress is not None:
        return f"{safe_text(phone.stage, 12)} {phone.progress:.0%}"
    if phone.stage == "cool" and phone.ready_s is not None:
        return f"cool, {format_duration(phone.ready_s[0])}"
    return safe_text(phone.stage, 12)


def events_list(events: Sequence[Event]) -> Table:
    """The latest events, oldest first."""
    table = Table.grid(padding=(0, 2))
    for event in events:
        table.add_row(
            Text(f"{event.at.astimezone():%H:%M:%S}", "dim"),
            Text(safe_text(event.kind, 12), EVENT_STYLES.get(event.kind, "default")),
            Text(safe_text(event.phone, 20)),
            Text(safe_text(event.text, 160), overflow="ellipsis", no_wrap=True),
        )
    return table


def event_line(event: Event) -> str:
    """An event as a plain line, for pipes."""
    where = " ".join(part for part in (event.sweep, event.phone) if part)
    return safe_text(f"{event.at:%Y-%m-%dT%H:%M:%SZ} {event.kind} {where} {event.text}", 300)


def summary_line(view: LabView) -> str:
    """The state of a sweep as a plain line, for pipes."""
    if not view.sweeps:
        return f"{view.at:%Y-%m-%dT%H:%M:%SZ} no sweep"
    sweep = view.sweeps[0]
    counts = f"done={sweep.done} failed={sweep.failed} left={sweep.left} total={sweep.total}"
    return f"{view.at:%Y-%m-%dT%H:%M:%SZ} sweep {sweep.id} {counts}"
