"""The user of a host at the broker, and all that it may do there.

Derived from what an agent sends (redis-py, Celery and kombu), and no more: a host reads its own
queue, writes its own results, and keeps its own heartbeat.
"""

from workloads.protocol.messages import (
    confirmed_key,
    heartbeat_key,
    host_queue,
    results_queue,
)

USER_PREFIX = "host."


def host_user(host: str) -> str:
    """Return the name of a host's user."""
    return f"{USER_PREFIX}{host}"


def host_rights(host: str, has_setinfo: bool) -> tuple[str, ...]:
    """Return the rights of a host as rules of Redis 7; each group has its own keys.

    redis-py sends CLIENT SETINFO on every connection; Redis knows it since version 7.2.
    """
    heartbeat, confirmed = heartbeat_key(host), confirmed_key(host)
    return (
        *("resetchannels", "-@all", "+ping", *["+client|setinfo"] * has_setinfo),
        f"(+lpush %W~{results_queue(host)})",
        f"(+brpop ~{host_queue(host)})",
        f"(+set +del ~{heartbeat})",
        f"(+blpop +lpop +del ~{confirmed})",
    )
