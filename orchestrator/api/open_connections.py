"""Which connections stay open: some of each address, more of each person with a token.

Where there are too many, the one that has been idle for the longest ends. Nobody who sends a
request is refused because others only hold connections.
"""

import ipaddress
from collections import Counter
from typing import Protocol

STRANGERS_PER_ADDRESS_MAX, STRANGERS_MAX = 512, 1024  # no token yet; a lab may share one address
PER_PERSON_MAX = 96  # more than the streams and requests that a person may have

Peer = tuple[str, int]


class Connection(Protocol):
    """An open connection."""

    @property
    def is_idle(self) -> bool:
        """Whether no request on it is being answered."""

    def end(self) -> None:
        """Close it at once."""


class OpenConnections:
    """All connections by their peer, oldest first, each with its address or its person."""

    def __init__(self) -> None:
        self._open: dict[Peer, tuple[str, Connection]] = {}
        self._persons: set[Peer] = set()

    def __len__(self) -> int:
        return len(self._open)

    def add(self, peer: Peer, connection: Connection) -> None:
        """Take note of a new connection, whose peer is a stranger until it shows a token."""
        self._open[peer] = (_network(peer[0]), connection)
        self._limit(peer, STRANGERS_PER_ADDRESS_MAX)
        strangers = Counter(
            group for peer, (group, _) in self._open.items() if peer not in self._persons
        )
        if strangers.total() > STRANGERS_MAX:
            self._end_one(strangers.most_common(1)[0][0], is_person=False)

    def admit(self, peer: Peer | None, person: str) -> None:
        """Count a connection for a person: a request on it had a valid token."""
        if peer is None or (entry := self._open.get(peer)) is None:
            return
        self._persons.add(peer)
        if entry[0] != person:
            self._open[peer] = (person, entry[1])
            self._limit(peer, PER_PERSON_MAX)

    def remove(self, peer: Peer, connection: Connection) -> None:
        """Forget a connection that has ended; another one may have its peer by now."""
        if peer in self._open and self._open[peer][1] is connection:
            del self._open[peer]
            self._persons.discard(peer)

    def _limit(self, peer: Peer, most: int) -> None:
        group, is_person = self._open[peer][0], peer in self._persons
        if len(self._members(group, is_person)) > most:
            self._end_one(group, is_person)

    def _members(self, group: str, is_person: bool) -> list[Peer]:
        return [
            peer
            for peer, (name, _) in self._open.items()
            if name == group and (peer in self._persons) == is_person
        ]

    def _end_one(self, group: str, is_person: bool) -> None:
        members = self._members(group, is_person)
        idle = (peer for peer in members if self._open[peer][1].is_idle)
        peer = next(idle, members[0])
        connection = self._open[peer][1]
        self.remove(peer, connection)
        connection.end()


def _network(address: str) -> str:
    """Return the address; of IPv6 the network, because a computer has many addresses in it."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(parsed, ipaddress.IPv6Address) and parsed.ipv4_mapped is None:
        return str(ipaddress.ip_network((parsed, 64), strict=False))
    return address
