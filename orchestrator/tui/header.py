"""The header of the screen: the sweep, its progress and end, and the age of the data."""

from collections import Counter
from datetime import datetime, timedelta

from rich.text import Text

from orchestrator.app.lab_status import SweepSummary
from orchestrator.app.screen.lab_snapshot import LabSnapshot, state_of
from orchestrator.app.screen.phone_state_text import clock_time, count, state_badge
from orchestrator.planning.states import RunState, SweepState
from orchestrator.tui.text_cells import Piece, bar, between, line, safe_cell
from orchestrator.tui.ui_state import Ui
from workloads.command_output import as_typed
from workloads.units import format_duration

STALE_AFTER_S = 4.0
TINY, NARROW, WIDE = 40, 80, 110
BUDGET_WARNING = 0.8  # share of a budget
STATE_STYLES = {
    SweepState.ACTIVE: "bold green",
    SweepState.PAUSED: "bold yellow",
    SweepState.CANCELLED: "bold red",
    SweepState.FINISHED: "bold",
}


def data_age(snapshot: LabSnapshot, now: datetime) -> Piece:
    """The age of the data, so that a frozen screen is not mistaken for an idle lab."""
    age_s = (now - snapshot.view.at).total_seconds()
    clock = f"{snapshot.view.at.astimezone():%H:%M:%S}"
    if snapshot.outage and age_s >= STALE_AFTER_S:
        return f"✗ {format_duration(age_s)} old: {safe_cell(snapshot.outage, 60)}", "bold red"
    if age_s >= STALE_AFTER_S:
        return f"○ {format_duration(age_s)} old", "bold red"
    return f"{clock} ● live", "green"


def header(snapshot: LabSnapshot, ui: Ui, now: datetime) -> list[Text]:
    """Render three lines, or fewer on a tiny screen."""
    sweep = snapshot.view.sweeps[0] if snapshot.view.sweeps else None
    if ui.width < TINY or ui.height < 8:
        return _tiny(snapshot, sweep, ui, now)
    first = between(ui.width, _title(snapshot, sweep, ui.width), [_short_age(snapshot, ui, now)])
    if sweep is None:
        hint = line(
            ui.width, (as_typed("no sweep yet; queue one with: farm sweep submit FILE"), "dim")
        )
        return [first, hint, line(ui.width, *_phone_counts(snapshot, now))]
    return [
        first,
        _progress(sweep, snapshot, ui.width, now),
        _counts(sweep, snapshot, ui.width, now),
    ]


def _short_age(snapshot: LabSnapshot, ui: Ui, now: datetime) -> Piece:
    text, style = data_age(snapshot, now)
    return (text if len(text) < ui.width // 2 else text[: ui.width // 2 - 1] + "…"), style


def _title(snapshot: LabSnapshot, sweep: SweepSummary | None, width: int) -> list[Piece]:
    pieces: list[Piece] = [("farm watch  ", "bold")] if width >= NARROW else []
    if sweep is not None:
        state = state_of(sweep)
        pieces += [(safe_cell(sweep.name, 40), "bold"), (f" ({sweep.id})  ", "dim")]
        pieces += [(state.upper(), STATE_STYLES[state]), ("  ", "")]
        if sweep.state_reason and state in (SweepState.PAUSED, SweepState.CANCELLED):
            pieces.append((f"{safe_cell(sweep.state_reason, 60)}  ", "yellow"))
        if width >= WIDE and sweep.owner:
            pieces.append(
                (f"owner {safe_cell(sweep.owner, 20)}  priority {sweep.priority}  ", "dim")
            )
        more = sum(not other.finished for other in snapshot.view.others)
        if more:
            pieces.append((f"+{more} more sweeps (n)  ", "dim"))
    if width >= WIDE and snapshot.lab:
        pieces.append((f"lab {safe_cell(snapshot.lab, 40)}", "dim"))
    return pieces


def _progress(sweep: SweepSummary, snapshot: LabSnapshot, width: int, now: datetime) -> Text:
    ended = sweep.ended
    share = ended / sweep.total if sweep.total else 0.0
    counts = f" {ended}/{sweep.total} runs {share:.0%}  "
    end = _eta(sweep, snapshot, width, now)
    room = max(8, min(60, width - len(counts) - len(end) - 1))
    filled, empty = bar(share, room)
    return line(width, (filled, "green"), (empty, "dim"), (counts, "bold"), (end, ""))


def _eta(sweep: SweepSummary, snapshot: LabSnapshot, width: int, now: datetime) -> str:
    rest = snapshot.view.rest
    if sweep.finished:
        return ""
    if sweep.state is SweepState.PAUSED:
        return "resume with p"
    if rest is None:
        return "ETA: no run has ended yet"
    if rest.unknown:
        return f"ETA unknown: {rest.unknown}"
    ends = [
        now + timedelta(seconds=seconds) for seconds in (rest.likely_s, rest.early_s, rest.late_s)
    ]
    form = "%H:%M:%S" if rest.late_s < 600 else "%H:%M" if rest.late_s < 64_800 else "%a %H:%M"
    likely, early, late = (f"{end.astimezone():{form}}" for end in ends)
    text = f"ETA {likely} ({early}–{late})"
    if width >= WIDE:
        text += f"  {clock_time(rest.likely_s)} left"
        if sweep.deadline is not None:
            slack = (sweep.deadline - now).total_seconds() - rest.likely_s
            text += f"  deadline {'met' if slack >= 0 else 'MISSED'}"
    return text


def _counts(sweep: SweepSummary, snapshot: LabSnapshot, width: int, now: datetime) -> Text:
    left_out = sweep.left_out
    pieces: list[Piece] = [(f"done {count(sweep.done)}", "green")]
    allowed = _allowed(sweep) if sweep.failed or width >= WIDE else ""
    if sweep.failed or allowed:
        style = "bold red" if sweep.failed else "dim"
        pieces.append((f"  failed {count(sweep.failed)}{allowed}", style))
    states = (
        (sweep.runs.get(RunState.BLOCKED, 0), "blocked", "bold red"),
        (left_out.suspect, "suspect", "yellow"),
        (left_out.void, "void", "yellow"),
        (sweep.runs.get(RunState.SKIPPED, 0), "skipped", "dim"),
        (sweep.runs.get(RunState.CANCELLED, 0), "cancelled", "dim"),
        (sweep.runs.get(RunState.QUEUED, 0), "queued", ""),
    )
    pieces += [(f"  {word} {count(number)}", style) for number, word, style in states if number]
    pieces += _budget(sweep, width, now)
    most: list[Piece] = []
    if left_out.reason_text:
        most = [("│ most often: ", "dim"), (safe_cell(left_out.reason_text, 120), "yellow")]
    return line(width, *pieces, ("  │ phones: ", "dim"), *_phone_counts(snapshot, now), *most)


def _allowed(sweep: SweepSummary) -> str:
    """The number of runs that may fail before the sweep is paused."""
    if sweep.failures_max is not None:
        return f" of {count(sweep.failures_max)} allowed"
    share = sweep.failures_share_max
    return "" if share is None else f" of {share:.0%} allowed"


def _budget(sweep: SweepSummary, width: int, now: datetime) -> list[Piece]:
    """The share of its time budget that a sweep has used."""
    if sweep.wall_s is None or sweep.finished:
        return []
    started = sweep.started_at or now
    used_s = max(0.0, (now - started).total_seconds())
    share = used_s / sweep.wall_s
    spent = f"{clock_time(used_s)} of {clock_time(sweep.wall_s)}"
    words = f"  budget {spent if width >= WIDE else f'{share:.0%}'}"
    return [(words, "bold yellow" if share >= BUDGET_WARNING else "")]


def _phone_counts(snapshot: LabSnapshot, now: datetime) -> list[Piece]:
    counted = Counter([state_badge(phone, now) for phone in snapshot.view.phones])
    if not counted:
        return [(as_typed("no phone yet; connect one, or: farm up --virtual"), "dim")]
    names = {"quarant.": "quarantined"}
    return [
        (f"{names.get(word, word)} {number}  ", style)
        for _, word, style, number in sorted(
            (badge.order, badge.word.lower(), badge.style, number)
            for badge, number in counted.items()
        )
    ]


def _tiny(snapshot: LabSnapshot, sweep: SweepSummary | None, ui: Ui, now: datetime) -> list[Text]:
    age, style = data_age(snapshot, now)
    if sweep is None:
        return [line(ui.width, ("no sweep", "")), line(ui.width, (age, style))]
    ended = sweep.ended
    state = state_of(sweep)
    percent = f"{ended / sweep.total:.0%} " if sweep.total else ""
    failed: list[Piece] = [(f" {sweep.failed} failed", "red")] if sweep.failed else []
    return [
        line(ui.width, (percent, "bold"), (safe_cell(sweep.name, 40), "")),
        line(ui.width, (f"{state.upper()} {ended}/{sweep.total}", STATE_STYLES[state]), *failed),
        line(ui.width, (age, style)),
    ]
