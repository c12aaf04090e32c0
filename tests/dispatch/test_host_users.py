"""The user of a host at the broker: what an agent needs, and nothing more."""

from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
import redis

from agent.host_broker import HostBroker
from orchestrator.dispatch.central_broker import CentralBroker
from orchestrator.store.enrolments import Access, HostAccess, secret_digest
from workloads.lab.celery_setup import broker_errors, celery_app, send_task
from workloads.protocol.faults import BrokerDown
from workloads.protocol.host_user import host_user
from workloads.protocol.messages import HostHeartbeat

HOST, OTHER = "host-a", "host-b"
KEYS = (
    *(f"farm.results.{OTHER}", f"farm.host.{OTHER}", f"farm:heartbeat:{OTHER}"),
    *(f"farm:confirmed:{OTHER}", "farm.results.", "farm.results.host-aa", "farm.host.host-a2"),
    *("farm:status", "farm:events", "farm:ingests", "unacked", "anything"),
)
DENIED = [
    *(command.split() for command in ("KEYS *", "SCAN 0", "CONFIG GET *", "FLUSHALL", "FLUSHDB")),
    *(command.split() for command in ("ACL LIST", "ACL WHOAMI", "CLIENT LIST", "CLIENT KILL x")),
    *(command.split() for command in ("MONITOR", "INFO", "DBSIZE", "SHUTDOWN", "SAVE", "SELECT 1")),
    *(command.split() for command in ("PUBLISH c m", "SUBSCRIBE c", "SCRIPT FLUSH", "MULTI")),
    ["EVAL", "return redis.call('keys', '*')", "0"],
    *([*words, key] for key in KEYS for words in (["GET"], ["DEL"], ["RPOP"], ["LRANGE"])),
    *([name, key, "x"] for key in KEYS for name in ("SET", "LPUSH", "SADD", "XADD")),
    # its own keys, in other ways than an agent uses them
    *([name, f"farm.results.{HOST}"] for name in ("RPOP", "LLEN", "DEL", "GET")),
    ["LPUSH", f"farm.host.{HOST}", "x"],
    ["RPUSH", f"farm:confirmed:{HOST}", "x"],
    ["BRPOP", f"farm.host.{HOST}", f"farm.host.{OTHER}", "1"],
]


def access_of(host: str, password: str, access: Access = Access.ENROLLED) -> HostAccess:
    """Return the access of a host with a password."""
    return HostAccess(host, access, 1.0, 0.0, secret_digest(password))


def url_of(broker_url: str, password: str, host: str = HOST) -> str:
    """Return the URL of the broker for a host."""
    return broker_url.replace("unix://", f"unix://{host_user(host)}:{password}@")


@pytest.fixture
def centre(broker_url: str) -> Iterator[CentralBroker]:
    """The broker as the centre uses it, with the users of two hosts."""
    with CentralBroker(broker_url) as broker:
        broker.set_host_users([access_of(HOST, "secret-a"), access_of(OTHER, "secret-b")])
        yield broker


def test_a_host_can_do_what_its_agent_does(centre: CentralBroker, broker_url: str) -> None:
    url = url_of(broker_url, "secret-a")
    with HostBroker(url, HOST) as agent, redis.Redis.from_url(url, protocol=2) as raw:
        beat = HostHeartbeat(host=HOST, sent_at=datetime.now(UTC), max_parallel=1)
        assert agent.publish_heartbeat(beat) is None
        assert agent.publish_heartbeat(beat) is not None
        assert [beat.host for beat in centre.heartbeats({HOST})] == [HOST]
        centre.confirm(HOST, ["p-1", "p-2", "p-3"])
        assert agent.take_confirmations(1) == ["p-1", "p-2", "p-3"]
        app = celery_app("test", url)
        with broker_errors():
            send_task(app, "farm.deliver", ["x"], f"farm.results.{HOST}")
            with pytest.raises(BrokerDown, match=r"(?i)permission"), broker_errors():
                send_task(app, "farm.deliver", ["x"], f"farm.results.{OTHER}")
        assert raw.brpop([f"farm.host.{HOST}"], timeout=1) is None
        agent.withdraw_heartbeat()
        assert centre.heartbeats({HOST}) == []


def test_everything_else_is_denied(centre: CentralBroker, broker_url: str) -> None:
    with redis.Redis.from_url(url_of(broker_url, "secret-a"), protocol=2) as raw:
        for words in DENIED:
            more = ["0", "-1"] if words[0] == "LRANGE" else []
            more += ["y", "z"] if words[0] == "XADD" else []
            with pytest.raises(redis.ResponseError, match=r"(?i)permission|no permissions"):
                raw.execute_command(*words, *more)


KEYS_OF_LAB = (
    *(
        text.format(host)
        for host in (HOST, OTHER, "host-aa", "")
        for text in ("farm.results.{}", "farm.host.{}", "farm:heartbeat:{}", "farm:confirmed:{}")
    ),
    *("farm:events", "farm:scheduler", "farm:ingests", "farm:ingest:0123456789abcdef"),
    *("farm:hosts", "_kombu.binding.celery", "celery", "unacked", "unacked_index", "anything"),
)
ALLOWED = {
    *{("lpush", f"farm.results.{HOST}"), ("brpop", f"farm.host.{HOST}")},
    *{("set", f"farm:heartbeat:{HOST}"), ("del", f"farm:heartbeat:{HOST}")},
    *((name, f"farm:confirmed:{HOST}") for name in ("blpop", "lpop", "del")),
}
# They touch no key: what every client may do, and what every connection begins with.
WITHOUT_KEYS = {"auth", "client|setinfo", "hello", "ping", "quit", "reset"}


def calls_of(command: str, arity: int) -> list[tuple[str, ...]]:
    """Return calls of a command on one key, wherever its arguments name keys; {} is the key."""
    words = tuple(command.split("|"))
    least = max(0, abs(arity) - len(words))
    counts = range(least, least + (1 if arity > 0 else 4))
    alike = [words + ("{}",) * count for count in counts]
    return alike + [
        (*words, *("1" if place == index else "{}" for place in range(count)))
        for count in counts
        for index in range(count)
    ]


def commands_of(broker: "redis.Redis[bytes]") -> dict[str, int]:
    """Return every command and subcommand of the broker with its number of arguments."""
    found: dict[str, int] = {}
    for entry in broker.execute_command("COMMAND").values():  # type: ignore[no-untyped-call]
        found[entry["name"]] = entry["arity"]
        for sub in entry.get("subcommands") or ():
            found[sub[0].decode()] = sub[1]
    return found


def test_every_command_on_every_key_of_the_lab(centre: CentralBroker, broker_url: str) -> None:
    """What the broker would let a host do, asked for all commands without executing any."""

    def may_call(calls: list[tuple[str, str, tuple[str, ...]]]) -> dict[str, set[str]]:
        """Return which commands the host may call, on which keys; without a key: on others."""
        found: dict[str, set[str]] = {}
        for start in range(0, len(calls), 5000):
            part = calls[start : start + 5000]
            with admin.pipeline(transaction=False) as pipe:
                for _, key, words in part:
                    sent = [word.format(key) for word in words]
                    pipe.execute_command("ACL DRYRUN", host_user(HOST), *sent)  # type: ignore[no-untyped-call]
                answers = pipe.execute(raise_on_error=False)
            for (name, key, _), answer in zip(part, answers, strict=True):
                if "to run the" not in str(answer):
                    found.setdefault(name, set()).update({key} if answer == b"OK" else ())
        return found

    with redis.Redis.from_url(broker_url, protocol=2) as admin:
        commands = commands_of(admin)
        first = [
            (name, key, calls_of(name, arity)[0])
            for name, arity in commands.items()
            for key in KEYS_OF_LAB
        ]
        more = [
            (name, key, words)
            for name in may_call(first)
            for words in calls_of(name, commands[name])
            for key in KEYS_OF_LAB
        ]
        allowed = may_call(more)
    assert len(first) > 5000
    assert {
        (name, key) for name in allowed.keys() - WITHOUT_KEYS for key in allowed[name]
    } == ALLOWED


def test_users_follow_the_store_whatever_happened_to_the_broker(
    centre: CentralBroker, broker_url: str
) -> None:
    with HostBroker(url_of(broker_url, "secret-a"), HOST) as agent:
        agent.check()
        # Another password: connections with the old one end, too.
        centre.set_host_users([access_of(HOST, "new"), access_of(OTHER, "secret-b")])
        with pytest.raises(BrokerDown, match="invalid username-password pair"):
            agent.check()
    HostBroker(url_of(broker_url, "secret-b", OTHER), OTHER).check()
    with redis.Redis.from_url(broker_url) as admin:
        admin.acl_deluser(host_user(HOST))
        admin.execute_command("ACL", "SETUSER", "host.stranger", "on", "nopass", "+@all", "~*")
        admin.execute_command("ACL", "SETUSER", "someone", "on", "nopass")
        accesses = [access_of(HOST, "new"), access_of(OTHER, "secret-b", Access.REVOKED)]
        centre.set_host_users(accesses)
        assert set(admin.acl_users()) == {"default", "someone", host_user(HOST)}
    HostBroker(url_of(broker_url, "new"), HOST).check()
