"""One phone in detail: its last minutes as sparklines, its lease, its hardware."""

from collections.abc import Sequence
from datetime import datetime

from rich.text import Text

from orchestrator.app.lab_status import KnownPhone
from orchestrator.app.screen.lab_snapshot import NO_TRACE, LabSnapshot, PhoneTrace
from orchestrator.app.screen.phone_state_text import (
    activity_text,
    clock_text,
    clock_time,
    remaining_s,
    state_badge,
)
from orchestrator.tui.event_lines import event_panel
from orchestrator.tui.layout import PANE_LINES
from orchestrator.tui.text_cells import Piece, fit, line, rule, safe_cell, spark
from orchestrator.tui.ui_state import Ui
from workloads.command_output import as_typed
from workloads.protocol.metrics import Source
from workloads.protocol.phone_address import is_over_network, is_wireless
from workloads.protocol.phone_facts import BatteryCondition, PhoneFacts
from workloads.protocol.stage import Stage
from workloads.units import format_duration


def phone_pane(
    phone: KnownPhone | None, snapshot: LabSnapshot, width: int, now: datetime
) -> list[Text]:
    """Render the selected phone in five lines."""
    if phone is None:
        return [rule(width, "no phone is selected"), *[line(width)] * (PANE_LINES - 1)]
    trace = snapshot.traces.get(phone.serial, NO_TRACE)
    half = max(36, width * 11 // 20)
    left = curves(phone, trace, half - 1)
    left.append([(fit(_hardware(phone), half - 1), "dim")])
    right = _activity(phone, now)
    lines = [rule(width, safe_cell(f"{phone.facts.model}  {phone.serial}", 80))]
    for index in range(PANE_LINES - 1):
        text = right[index] if index < len(right) else ""
        lines.append(line(width, *left[index], (" ", ""), (safe_cell(text, 200), "")))
    return lines


def curves(phone: KnownPhone, trace: PhoneTrace, width: int) -> list[list[Piece]]:
    """Render temperature, clock and power: current value, last minutes, and their range."""
    quantities = (
        ("temp °C", trace.temps_c, phone.status.temp_c, "red"),
        ("clock GHz", trace.clocks_ghz, _fastest_ghz(phone), "cyan"),
        ("power W", trace.powers_w, phone.status.power_w, "yellow"),
    )
    return [_curve(*quantity, width) for quantity in quantities]


def _curve(
    name: str, values: Sequence[float], value: float | None, style: str, width: int
) -> list[Piece]:
    digits = 1 if name.startswith("temp") else 2
    head: Piece = (fit(name, 10), "dim")
    if not values:
        return [head, (fit("no data yet", width - 10), "dim")]
    shown = "-- " if value is None else f"{value:.{digits}f} "
    span = f" {min(values):.{digits}f} to {max(values):.{digits}f}"
    room = width - 10 - 6 - 15
    drawn = spark(values, room)
    gap = " " * max(0, room - len(drawn))
    ending = (fit(span, 15) + gap, "dim")
    return [head, (fit(shown, 6, right=True), "bold"), (drawn, style), ending]


def _fastest_ghz(phone: KnownPhone) -> float | None:
    known = phone.status.clocks_khz or phone.status.locked_khz
    return max(known.values()) / 1e6 if known else None


def _hardware(phone: KnownPhone) -> str:
    facts = phone.facts
    battery = "" if phone.status.battery_pct is None else f", battery {phone.status.battery_pct} %"
    return f"{safe_cell(facts.soc, 24)}, {facts.ram_mb // 1000} GB, {facts.control}{battery}"


def _activity(phone: KnownPhone, now: datetime) -> list[str]:
    """Describe what a phone does, and its lease."""
    badge = state_badge(phone, now)
    lines = [f"{badge.word}: {activity_text(phone, now)}"]
    lease = phone.lease
    if lease is None:
        return [*lines, f"at {phone.host or 'no host'}; no lease"]
    left = lease.until - now.timestamp()
    expiry = f"lease {clock_time(left)} left" if left > 0 else "lease expired"
    lines.append(f"{expiry}, attempt {lease.attempt}, block {lease.block + 1} of {lease.trial}")
    seconds = remaining_s(phone)
    until = "" if seconds is None else f", {format_duration(seconds)} left"
    if phone.status.progress is not None:
        steps = "" if phone.status.steps is None else f"{phone.status.steps} steps, "
        lines.append(f"{steps}{phone.status.progress:.0%} of the run{until}")
    elif phone.status.stage is Stage.COOL and phone.status.cool_in_s is not None:
        early, late = (format_duration(seconds) for seconds in phone.status.cool_in_s[1:])
        lines.append(f"cool in {format_duration(phone.status.cool_in_s[0])} ({early} to {late})")
    else:
        lines.append(f"stage: {phone.status.stage or Stage.START}{until}")
    locked = " ".join(f"{khz / 1e6:.2f}" for _, khz in sorted(phone.status.locked_khz.items()))
    lines.append(f"clocks {clock_text(phone)}{f', locked at {locked} GHz' if locked else ''}")
    return lines


def phone_page(
    phone: KnownPhone, snapshot: LabSnapshot, ui: Ui, now: datetime, height: int
) -> list[Text]:
    """Render the whole screen for one phone."""
    width = ui.width
    trace = snapshot.traces.get(phone.serial, NO_TRACE)
    lines = [rule(width, safe_cell(f"{phone.facts.model}  {phone.serial}", 80), "esc closes")]
    lines += [line(width, *pieces) for pieces in curves(phone, trace, min(width, 160))]
    lines += [line(width, (text, "")) for text in _activity(phone, now)]
    lines.append(rule(width, "hardware, and what can be controlled"))
    lines += [line(width, (safe_cell(as_typed(text), 400), "")) for text in describe_phone(phone)]
    room = max(4, height // 4)
    events = [event for event in snapshot.events if event.phone == phone.serial]
    names = {phone.serial: phone.facts.model}
    if len(lines) > height - room:
        lines = lines[: height - room - 1]
        lines.append(line(width, (as_typed(f"… see: farm phone show {phone.serial}"), "dim")))
    lines += event_panel(events, names, 0, width, room)
    return lines + [line(width)] * (height - len(lines))


def connection_text(address: str) -> str:
    """Name the connection of a phone by its adb address."""
    if not is_over_network(address):
        return "USB"
    return f"Wi-Fi, {address}" if is_wireless(address) else f"TCP, {address}"


def describe_phone(phone: KnownPhone) -> list[str]:
    """Describe a phone: hardware, sensors, and what can be controlled."""
    facts = phone.facts
    root = "rooted" if facts.rooted else "not rooted"
    lines = [
        f"{phone.serial}  {facts.model}, {facts.soc}, Android {facts.android}, {root}",
        f"at {phone.host}: {phone.status.state} {phone.status.reason}".rstrip(),
        *(
            [f"connected by {connection_text(phone.status.address)}"]
            if phone.status.address
            else []
        ),
        *([f"{phone.health}: {phone.health_reason}"] if phone.health != "good" else []),
        *([f"tags: {', '.join(phone.tags)}"] if phone.tags else []),
        f"{facts.ram_mb} MB of memory, {facts.abi}",
    ]
    for cluster in facts.clusters:
        cpus = ", ".join(map(str, cluster.cpus))
        clocks = _ladder(cluster.ladder_khz)
        lines.append(f"policy{cluster.policy}: cpu {cpus}; {clocks}; capacity {cluster.capacity}")
    if facts.gpu is not None:
        lines.append(f"GPU: {facts.gpu.name}; {_ladder(facts.gpu.ladder_khz)}")
    if facts.opencl is not None:
        lines.append(
            f"OpenCL: {facts.opencl.name}, {facts.opencl.version}; {facts.opencl.memory_mb} MB, "
            f"{facts.opencl.max_alloc_mb} MB per buffer"
        )
    elif facts.backends:
        lines.append("OpenCL: no device was found")
    lines.append(
        f"CPU temperature: {', '.join(zone.type for zone in facts.cpu_zones) or 'no zone'}"
    )
    if facts.gauge is not None:
        sign = "negative" if facts.gauge.discharge_sign < 0 else "positive"
        unit = "µA" if facts.gauge.unit_a < 1e-5 else "mA"
        lines.append(
            f"fuel gauge: current in {unit}, {sign} while discharging, every "
            f"{facts.gauge.period_s:g} s"
        )
    if facts.battery is not None:
        lines.append(f"battery: {battery_text(facts.battery)}")
    lines.append(commission_text(facts))
    lines.append(f"control: {facts.control.value}")
    lines += [f"yes  {text}" for text in facts.controlled]
    lines += [f"no   {text}" for text in facts.uncontrolled]
    if facts.runner_error:
        lines.append(f"no   the runner does not run: {facts.runner_error}")
    return lines


def commission_text(facts: PhoneFacts) -> str:
    """Describe when a phone was commissioned, and the smallest change that its canaries show."""
    if facts.commission is None:
        source = facts.provenance.time if facts.provenance else None
        if source is not None and source.source is Source.PHONE:
            return f"not commissioned: run 'farm phone commission {facts.serial}'"
        return "not commissioned; its references are measured on first use"
    canaries = ", ".join(
        f"{canary.kind} from {canary.detectable:.1%} in {canary.seconds:g} s"
        for canary in facts.commission.canaries
    )
    quick = " (quick)" if facts.commission.quick else ""
    return f"commissioned on {facts.commission.on}{quick}; canaries detect changes: {canaries}"


def battery_text(battery: BatteryCondition) -> str:
    """Describe how worn a battery is; values that the phone does not report are left out."""
    watched = f" since {battery.watched_since:%Y-%m-%d}" if battery.watched_since else ""
    parts = [
        f"in use since {battery.first_used:%Y-%m}" if battery.first_used else "",
        "" if battery.cycles is None else f"{battery.cycles} cycles",
        "" if battery.capacity_share is None else f"{battery.capacity_share:.0%} of its capacity",
        f"health {battery.health}" if battery.health else "",
        f"{battery.hours_above_90} of {battery.hours} h above 90 %{watched}"
        if battery.hours
        else "",
    ]
    return ", ".join(filter(None, parts))


def _ladder(steps_khz: tuple[int, ...]) -> str:
    if not steps_khz:
        return "no clocks reported"
    return f"{len(steps_khz)} clocks, {steps_khz[0] // 1000} to {steps_khz[-1] // 1000} MHz"
