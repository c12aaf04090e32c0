"""Keeps one host from filling the broker, which would stop all others.

A host cannot be trusted to send heartbeats or to wait for answers. So every results queue is
measured, whoever it belongs to, and one that is too large is cut: agents resend from their spools.
"""

from collections.abc import Collection, Iterator, Mapping

from orchestrator.dispatch.central_broker import CentralBroker
from workloads.units import format_bytes

QUEUE_SHARE, QUEUES_SHARE = 8, 2  # an eighth for one queue, half for all of them
CONNECTIONS_MAX = 64  # of a host; an agent has fewer than ten
UNLIMITED_BYTES = 384 * 1024**2  # what counts as the memory of a broker without a limit


def queues_to_cut(sizes: Mapping[str, int], limit: int) -> list[str]:
    """Return the hosts whose queues are too large; the largest ones if all together are."""
    large = sorted(sizes, key=lambda host: (-sizes[host], host))
    left, cut = sum(sizes.values()), []
    for host in large:
        if sizes[host] <= limit / QUEUE_SHARE and left <= limit / QUEUES_SHARE:
            break
        cut.append(host)
        left -= sizes[host]
    return cut


def limit_queues(broker: CentralBroker, lab: Collection[str] | None) -> Iterator[tuple[str, str]]:
    """Measure and cut; yield each host that was found, and what was done about it."""
    found = broker.found_hosts()
    for host in () if lab is None else set(found).difference(lab):
        broker.forget_host(host)
    hosts = list(found) if lab is None else sorted(lab)
    sizes = broker.host_memory(hosts)
    for host in queues_to_cut(sizes, broker.memory_limit() or UNLIMITED_BYTES):
        broker.cut_results(host)
        yield host, f"its results filled {format_bytes(sizes[host])} of the broker and were deleted"
    for host, count in broker.limit_connections(CONNECTIONS_MAX).items():
        yield host, f"it had {count} connections to the broker, and has to wait for a minute"
    for host in broker.limit_heartbeats([*{*found, *hosts}]):
        yield host, "its heartbeat was too long and was deleted"
