"""Two agents that use one name see each other, for as long as both run."""

from datetime import UTC, datetime

import pytest

from agent.heartbeat import RivalWatch
from workloads.protocol.messages import HostHeartbeat


class Agent:
    """The heartbeats of an agent, as it sends them."""

    def __init__(self, instance: str) -> None:
        self._instance = instance
        self.watch = RivalWatch(instance)

    def send(self, before: bytes | None) -> bytes:
        """Return the heartbeat that replaces another one."""
        beat = HostHeartbeat(
            host="host-a",
            sent_at=datetime.now(UTC),
            max_parallel=1,
            instance=self._instance,
            rival=self.watch.instance,
        )
        self.watch.look(before)
        return beat.model_dump_json().encode()


@pytest.mark.parametrize("order", ["ab", "aab", "abb", "aaaaab"])
def test_both_agents_see_each_other_in_every_heartbeat(order: str) -> None:
    agents = {"a": Agent("aaaaaaaaaaaaaaaa"), "b": Agent("bbbbbbbbbbbbbbbb")}
    beat: bytes | None = None
    for name in order * 3:
        beat = agents[name].send(beat)
    for name in order * 3:
        beat = agents[name].send(beat)
        assert agents[name].watch.instance is not None, name
        assert b'"rival":"' in beat


def test_an_agent_that_was_restarted_has_no_rival() -> None:
    beat = Agent("aaaaaaaaaaaaaaaa").send(None)
    again = Agent("cccccccccccccccc")
    for _ in range(4):
        beat = again.send(beat)
    assert again.watch.instance is None
