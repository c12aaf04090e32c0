"""Events as groups: routine ones that follow each other are one line. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from workloads.protocol.messages import Event, EventKind

ROUTINE = frozenset((EventKind.ACCEPTED, EventKind.CONVERGED))


@dataclass(frozen=True)
class EventGroup:
    """Events that follow each other: the last one, how many they are, and of which phones."""

    last: Event
    count: int
    phones: frozenset[str]


NEWEST = 3  # events that are shown singly, so that a person sees the lab work


def fold_routine(events: Sequence[Event]) -> list[EventGroup]:
    """Return the events in their order, with routine ones that follow each other as one group."""
    groups: list[EventGroup] = []
    for event in events[:-NEWEST]:
        before = groups[-1] if groups else None
        if before and event.kind in ROUTINE and before.last.kind in ROUTINE:
            groups[-1] = EventGroup(event, before.count + 1, before.phones | {event.phone})
        else:
            groups.append(EventGroup(event, 1, frozenset({event.phone})))
    return groups + [EventGroup(event, 1, frozenset({event.phone})) for event in events[-NEWEST:]]


def group_words(group: EventGroup, kind: str, name: str) -> tuple[str, str]:
    """Return the kind and the phone of a group as they are shown."""
    if group.count == 1:
        return kind, name
    phones = name if len(group.phones) == 1 else f"{len(group.phones)} phones"
    return f"{kind} ×{group.count}", phones
