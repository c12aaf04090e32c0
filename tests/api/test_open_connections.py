"""Which connection ends when there are too many."""

import pytest

from orchestrator.api.open_connections import (
    PER_PERSON_MAX,
    STRANGERS_MAX,
    STRANGERS_PER_ADDRESS_MAX,
    OpenConnections,
)


class Link:
    """A connection that knows whether it was ended."""

    def __init__(self, is_idle: bool = True) -> None:
        self.is_idle = is_idle
        self.ended = False

    def end(self) -> None:
        self.ended = True


def opened(found: OpenConnections, peers: list[tuple[str, int]]) -> list[Link]:
    links = []
    for peer in peers:
        links.append(Link())
        found.add(peer, links[-1])
    return links


@pytest.mark.parametrize("address", ["10.0.0.1", "fd00::{:x}"])
def test_the_oldest_idle_stranger_of_an_address_ends(address: str) -> None:
    found, most = OpenConnections(), STRANGERS_PER_ADDRESS_MAX
    busy, elsewhere = Link(is_idle=False), Link()
    found.add((address.format(1), 1), busy)
    found.add(("10.0.0.2", 1), elsewhere)
    links = opened(found, [(address.format(port), port) for port in range(2, most + 3)])
    assert [link.ended for link in links] == [True] * 2 + [False] * (most - 1)
    assert [busy.ended, elsewhere.ended] == [False, False]
    assert len(found) == most + 1


def test_a_person_is_no_stranger_and_has_an_own_limit() -> None:
    found = OpenConnections()
    peers = [("10.0.0.1", port) for port in range(PER_PERSON_MAX + 1)]
    links = []
    for peer in peers:
        links += opened(found, [peer])
        found.admit(peer, "anna")
        found.admit(peer, "anna")
    assert [link.ended for link in links] == [True] + [False] * PER_PERSON_MAX
    opened(found, [("10.0.0.1", 1000 + port) for port in range(2 * STRANGERS_PER_ADDRESS_MAX)])
    assert [link.ended for link in links].count(True) == 1
    for peer, link in zip(peers, links, strict=True):
        found.remove(peer, link)
    assert len(found) == STRANGERS_PER_ADDRESS_MAX
    found.admit(("10.0.0.9", 1), "anna")  # it has ended
    found.admit(None, "anna")


def test_the_address_with_the_most_strangers_loses_one_when_all_are_too_many() -> None:
    found = OpenConnections()
    (lonely,) = opened(found, [("10.9.9.9", 1)])
    links = opened(
        found,
        [(f"10.0.{port}.{n}", port) for n in range(20) for port in range(STRANGERS_MAX // 20)],
    )
    more = opened(found, [("10.1.1.1", port) for port in range(40)])
    assert not lonely.ended
    assert not any(link.ended for link in links)
    assert len(found) == STRANGERS_MAX
    assert more[0].ended
    assert not more[-1].ended
