"""One phone: its last minutes as little curves, its lease, and what it is."""

from collections.abc import Sequence
from datetime import datetime

from rich.text import Text

from orchestrator.nouns import KnownPhone
from orchestrator.tui.cells import Piece, fit, line, rule, said, spark
from orchestrator.tui.events import event_panel
from orchestrator.tui.state import NO_TRACE, Seen, Trace, Ui
from orchestrator.tui.words import clock_time, clocks, doing, left_s, look_of
from workloads.units import format_duration

PANE_LINES = 5


def phone_pane(phone: KnownPhone | None, seen: Seen, width: int, now: datetime) -> list[Text]:
    """The selected phone in five lines."""
    if phone is None:
        return [rule(width, "no phone is selected"), *[line(width)] * (PANE_LINES - 1)]
    trace = seen.traces.get(phone.serial, NO_TRACE)
    half = max(36, width * 11 // 20)
    left = curves(phone, trace, half - 1)
    left.append([(fit(_what(phone), half - 1), "dim")])
    right = _course(phone, now)
    lines = [rule(width, said(f"{phone.facts.model}  {phone.serial}", 80))]
    for at in range(PANE_LINES - 1):
        words = right[at] if at < len(right) else ""
        lines.append(line(width, *left[at], (" ", ""), (said(words, 200), "")))
    return lines


def curves(phone: KnownPhone, trace: Trace, width: int) -> list[list[Piece]]:
    """Temperature, clock and power: what it is now, the last minutes, and their span."""
    now = (
        ("temp °C", trace.temps_c, phone.temp_c, "red"),
        ("clock GHz", trace.clocks_ghz, _fastest_ghz(phone), "cyan"),
        ("power W", trace.powers_w, phone.power_w, "yellow"),
    )
    return [_curve(*each, width) for each in now]


def _curve(
    name: str, values: Sequence[float], value: float | None, style: str, width: int
) -> list[Piece]:
    digits = 1 if name.startswith("temp") else 2
    head: Piece = (fit(name, 10), "dim")
    if not values:
        return [head, (fit("not told yet", width - 10), "dim")]
    shown = "-- " if value is None else f"{value:.{digits}f} "
    span = f" {min(values):.{digits}f} to {max(values):.{digits}f}"
    room = width - 10 - 6 - 15
    drawn = spark(values, room)
    gap = " " * max(0, room - len(drawn))
    ending = (fit(span, 15) + gap, "dim")
    return [head, (fit(shown, 6, right=True), "bold"), (drawn, style), ending]


def _fastest_ghz(phone: KnownPhone) -> float | None:
    known = phone.clocks_khz or phone.locked_khz
    return max(known.values()) / 1e6 if known else None


def _what(phone: KnownPhone) -> str:
    facts = phone.facts
    battery = "" if phone.battery_pct is None else f", battery {phone.battery_pct} %"
    return f"{said(facts.soc, 24)}, {facts.ram_mb // 1000} GB, {facts.control}{battery}"


def _course(phone: KnownPhone, now: datetime) -> list[str]:
    """What it does and under which lease."""
    look = look_of(phone, now)
    lines = [f"{look.word}: {doing(phone, now)}"]
    lease = phone.lease
    if lease is None:
        return [*lines, f"at {phone.host or 'no host'}; no lease"]
    left = lease.until - now.timestamp()
    held = f"lease {clock_time(left)} left" if left > 0 else "lease ran out"
    lines.append(f"{held}, attempt {lease.attempt}, block {lease.repeat + 1} of {lease.trial}")
    seconds = left_s(phone)
    until = "" if seconds is None else f", {format_duration(seconds)} left"
    if phone.progress is not None:
        steps = "" if phone.steps is None else f"{phone.steps} steps, "
        lines.append(f"{steps}{phone.progress:.0%} of the run{until}")
    elif phone.stage == "cool" and phone.ready_s is not None:
        early, late = (format_duration(each) for each in phone.ready_s[1:])
        lines.append(f"cool in {format_duration(phone.ready_s[0])} ({early} to {late})")
    else:
        lines.append(f"stage: {said(phone.stage, 20) or 'start'}{until}")
    locked = " ".join(f"{khz / 1e6:.2f}" for _, khz in sorted(phone.locked_khz.items()))
    lines.append(f"clocks {clocks(phone)}{f', locked at {locked} GHz' if locked else ''}")
    return lines


def phone_page(phone: KnownPhone, seen: Seen, ui: Ui, now: datetime, height: int) -> list[Text]:
    """The whole screen for one phone."""
    width = ui.width
    trace = seen.traces.get(phone.serial, NO_TRACE)
    lines = [rule(width, said(f"{phone.facts.model}  {phone.serial}", 80), "esc goes back")]
    lines += [line(width, *pieces) for pieces in curves(phone, trace, min(width, 160))]
    lines += [line(width, (words, "")) for words in _course(phone, now)]
    lines.append(rule(width, "what it is, and what can be held on it"))
    lines += [line(width, (said(words, 400), "")) for words in describe(phone)]
    room = max(4, height // 4)
    own = [event for event in seen.events if event.phone == phone.serial]
    names = {phone.serial: phone.facts.model}
    if len(lines) > height - room:
        lines = lines[: height - room - 1]
        lines.append(line(width, (f"… all of it: farm phone show {phone.serial}", "dim")))
    lines += event_panel(own, names, 0, width, room)
    return lines + [line(width)] * (height - len(lines))


def describe(phone: KnownPhone) -> list[str]:
    """A phone in words."""
    facts = phone.facts
    root = "rooted" if facts.rooted else "not rooted"
    lines = [
        f"{phone.serial}  {facts.model}, {facts.soc}, Android {facts.android}, {root}",
        f"at {phone.host}: {phone.state} {phone.why}".rstrip(),
        *([f"{phone.health}: {phone.health_why}"] if phone.health != "good" else []),
        *([f"tags: {', '.join(phone.tags)}"] if phone.tags else []),
        f"{facts.ram_mb} MB of memory, {facts.abi}",
    ]
    for cluster in facts.clusters:
        cpus = ", ".join(map(str, cluster.cpus))
        clocks_ = _ladder(cluster.ladder_khz)
        lines.append(f"policy{cluster.policy}: cpu {cpus}; {clocks_}; capacity {cluster.capacity}")
    if facts.gpu is not None:
        lines.append(f"GPU: {facts.gpu.name}; {_ladder(facts.gpu.ladder_khz)}")
    lines.append(f"CPU heat: {', '.join(zone.type for zone in facts.cpu_zones) or 'nothing'}")
    if facts.gauge is not None:
        sign = "negative" if facts.gauge.discharge_sign < 0 else "positive"
        unit = "µA" if facts.gauge.unit_a < 1e-5 else "mA"
        lines.append(f"gauge: {sign} while discharging, in {unit}, each {facts.gauge.period_s:g} s")
    lines.append(f"control: {facts.control.value}")
    lines += [f"  holds  {text}" for text in facts.controlled]
    lines += [f"  lacks  {text}" for text in facts.uncontrolled]
    if facts.runner_absent:
        lines.append(f"  lacks  {facts.runner_absent}")
    return lines


def _ladder(steps_khz: tuple[int, ...]) -> str:
    if not steps_khz:
        return "no clocks are told"
    return f"{len(steps_khz)} clocks, {steps_khz[0] // 1000} to {steps_khz[-1] // 1000} MHz"
