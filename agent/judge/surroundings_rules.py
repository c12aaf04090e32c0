"""Rules of the verdict on what happened around the work: memory clocks, apps, screen. Pure."""

from collections.abc import Iterator, Sequence
from itertools import groupby, pairwise
from statistics import median

from agent.collect.readings import NodeValue
from agent.collect.run_probe import FOREGROUND
from agent.judge.run_observation import RunObservation
from agent.phone.vendor_switches import vendor_switches
from workloads.protocol.condition import Protocol
from workloads.protocol.verdict import Reason, ReasonCode
from workloads.text import safe_text

PARTS, PART_READINGS_MIN = 20, 3
LOWERED_MIN = 0.05  # of the usual clock
LOWERED_PARTS_MIN = 2  # in a row
SHOWN_READINGS_MIN = 2
USED_SLACK_S = 1.0  # the two clocks are read one after the other
NAMES_MAX = 100
LIST_TEXT_MAX = 1000  # a longer list of processes may be cut off


def check_bus_clocks(run: RunObservation) -> Iterator[Reason]:
    """No memory clock stayed below its usual one for a part of a cold run.

    A governor may lower it for moments; in every part of a run of equal steps it comes back.
    """
    if run.condition.protocol is not Protocol.COLD:
        return
    timed = run.readings.within(run.span)
    for node in run.probe.bus_nodes:
        series = timed.series(node)
        parts = min(PARTS, len(series) // PART_READINGS_MIN)
        edges = [len(series) * index // max(parts, 1) for index in range(parts + 1)]
        highest = [max(clock for _, clock in series[i:j]) for i, j in pairwise(edges)]
        stretch = _lowered_parts(highest)
        if stretch:
            yield Reason.suspect(
                ReasonCode.BUS_CLOCK_LOWERED,
                name=safe_text(node.split("/")[-2], 60),
                change=min(highest[part] for part in stretch) / median(highest) - 1,
                share=len(stretch) / len(highest),
                limit=LOWERED_MIN,
                at_s=(series[edges[stretch[0]]][0] - run.span[0]) / 1e9,
            )


def _lowered_parts(highest: Sequence[int]) -> list[int]:
    """The first parts in a row whose highest clock is lower than usual."""
    usual = median(highest) if highest else 0
    lowered = [clock < (1 - LOWERED_MIN) * usual for clock in highest]
    for is_low, parts in groupby(range(len(highest)), key=lambda part: lowered[part]):
        stretch = list(parts)
        if is_low and len(stretch) >= LOWERED_PARTS_MIN:
            return stretch
    return []


def check_foreground(run: RunObservation) -> Iterator[Reason]:
    """No app came to the foreground."""
    timed = run.readings.within(run.span)
    shown = timed.parsed(FOREGROUND, parse_processes)
    known = next((pids for pids in shown if pids is not None), None)
    if known is None:
        return
    for row, pids in enumerate(shown):
        new = (pids or known) - known
        later = shown[row : row + SHOWN_READINGS_MIN]
        if new and all(other and new <= other for other in later):
            at_s = (timed.t_ns[row] - run.span[0]) / 1e9
            yield Reason.suspect(ReasonCode.FOREGROUND_CHANGED, pid=min(new), at_s=at_s)
            return


def check_phone_used(run: RunObservation) -> Iterator[Reason]:
    """The phone was not woken or touched; an unrooted one reports when that last happened."""
    used_at_s = run.views.used_at_s
    start_s, end_s = (moment_ns / 1e9 for moment_ns in run.span)
    if used_at_s is not None and start_s - USED_SLACK_S <= used_at_s <= end_s + USED_SLACK_S:
        yield Reason.suspect(ReasonCode.PHONE_USED, at_s=max(0.0, used_at_s - start_s))


def check_wakefulness(run: RunObservation) -> Iterator[Reason]:
    """The screen stayed on, as the agent left it; phones lower their clocks when it goes off."""
    if run.views.fell_asleep:
        yield Reason.suspect(ReasonCode.SCREEN_WENT_OFF)
    elif run.views.is_asleep:
        yield Reason.remark(ReasonCode.SCREEN_OFF, wakefulness=run.views.before.wakefulness)


def check_refused_settings(run: RunObservation) -> Iterator[Reason]:
    """The phone accepted every setting; the other rules see the run if it did not."""
    if run.refused:
        names = ", ".join(key.split(" ")[-1] for key in run.refused)
        yield Reason.remark(
            ReasonCode.SETTING_REFUSED,
            count=len(run.refused),
            settings=names if len(names) <= NAMES_MAX else f"{names[:NAMES_MAX]}...",
            remedy=vendor_switches(run.probe.facts.model).settings,
        )


def parse_processes(value: NodeValue) -> frozenset[int] | None:
    """Parse a list of processes, 'PID;PID;...'; None if it is none, or too long to be complete."""
    text = "" if value is None else str(value)
    if value is None or len(text) > LIST_TEXT_MAX:
        return None
    return frozenset(int(word) for word in text.split(";") if word.isascii() and word.isdigit())
