"""An enrolled host that lies about everything, with the rights that every host has.

It knows more than a host can know: all phones, all leases, all trials. Each of its actors is one
kind of attack; what it tried and what the broker refused are counted by kind.
"""

import json
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

import redis
from sqlalchemy import select

from orchestrator.store import enrolments
from orchestrator.store.leases import leased_runs
from orchestrator.store.operator_change import Actor
from orchestrator.store.phone_queries import known_phones
from orchestrator.store.tables import trial
from tests.builders import an_announcement
from tests.farm.conftest import Farm, wait_for
from tests.farm.hostile_messages import envelope, hostile_content, hostile_messages
from workloads.protocol.base import digest_of_bytes
from workloads.protocol.host_user import host_user
from workloads.protocol.limits import CHUNK_BYTES_MAX, MIB
from workloads.protocol.messages import (
    DELIVER,
    HostHeartbeat,
    PhoneStatus,
    Report,
    confirmed_key,
    heartbeat_key,
    host_queue,
    results_queue,
    split_into_chunks,
)
from workloads.protocol.metrics import Metric, Provenance, Source
from workloads.protocol.verdict import Validity, Verdict

NAME, SECRET = "infected", "a secret of its own"
BROKER_BYTES = 64 * MIB


def enrol(farm: Farm) -> None:
    """Enrol the host, as its operator did in good faith."""
    enrolments.offer(farm.db, NAME, "offer", time.time() + 60, Actor("admin"), False)
    digest = enrolments.secret_digest(SECRET)
    assert enrolments.accept(farm.db, "offer", digest, time.time() + 1e6)


class HostileHost:
    """Attacks until it is stopped; one attack after the other, in a drawn order."""

    def __init__(self, farm: Farm, seed: int) -> None:
        self._farm = farm
        self._random = random.Random(seed)
        url = farm.lab.broker_url.replace("unix://", f"unix://{host_user(NAME)}:{SECRET}@")
        self._redis = redis.Redis.from_url(url, protocol=2)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._attack, name="hostile", daemon=True)
        self.tried: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self.rounds = 0

    def __enter__(self) -> "HostileHost":
        with redis.Redis.from_url(self._farm.lab.broker_url) as admin:
            admin.config_set("maxmemory", BROKER_BYTES)
            wait_for(lambda: host_user(NAME) in admin.acl_users(), "the host may connect")
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self._redis.close()

    def _attack(self) -> None:
        actors = (
            *(self._claim, self._take_over, self._forge, self._send_chunks),
            *(self._send_nonsense, self._touch_keys, self._beat_without_end),
        )
        while not self._stop.is_set():
            # A host that fills the broker has to wait afterwards, so this comes last.
            for actor in (*self._random.sample(actors, len(actors)), self._fill):
                kind = actor.__name__.strip("_")
                for call in actor():
                    if self._stop.is_set():
                        return
                    self._execute(kind, call)
            self.rounds += 1

    def _execute(self, kind: str, words: Sequence[str | bytes]) -> None:
        self.tried[kind] += 1
        try:
            self._redis.execute_command(*words)  # type: ignore[no-untyped-call]
        except redis.RedisError:
            self.refused[kind] += 1
            self._stop.wait(0.01)

    def _send(self, parcels: Sequence[str]) -> tuple[str, str, str]:
        queue = results_queue(NAME)
        return "LPUSH", queue, json.dumps(envelope(DELIVER, list(parcels), queue))

    def _claim(self) -> Iterator[Sequence[str]]:
        """Say that all phones and runs of others are here, and that all cables are bad."""
        leased = {item.phone: item.run for item in leased_runs(self._farm.db)}
        phones = tuple(
            PhoneStatus(
                serial=phone.serial,
                state="busy" if phone.serial in leased else "idle",
                run=leased.get(phone.serial),
                facts_digest=an_announcement(phone.facts).facts_digest,
                flaps=99,
            )
            for phone in known_phones(self._farm.db)
        )
        beat = HostHeartbeat(
            host=NAME,
            sent_at=datetime.now(UTC),
            max_parallel=60,
            phones=phones,
            unconfirmed=tuple(leased.values()),
        )
        for _ in range(20):
            yield "SET", heartbeat_key(NAME), beat.model_dump_json()
            self._stop.wait(0.05)

    def _take_over(self) -> Iterator[Sequence[str]]:
        """Announce all phones of others as moved here, as they are and as other phones."""
        for phone in known_phones(self._farm.db):
            facts = phone.facts.model_copy(update={"model": "moved", "provenance": None})
            for told in (phone.facts, facts):
                yield self._send([an_announcement(told, NAME).model_dump_json()])

    def _forge(self) -> Iterator[Sequence[str]]:
        """Report runs of others, in its own name and in theirs."""
        for lease in leased_runs(self._farm.db):
            (case,) = self._farm.db.rows(select(trial).where(trial.c.id == lease.trial))
            for attempt, host in ((lease.attempt, NAME), (lease.attempt, lease.host), (999, NAME)):
                now = datetime.now(UTC)
                phone = Provenance(source=Source.PHONE)
                report = Report(
                    run=lease.run.model_copy(update={"attempt": attempt}),
                    host=host,
                    phone=lease.phone,
                    case_digest=case.case_digest,
                    condition_digest=case.condition_digest,
                    started_at=now,
                    ended_at=now,
                    metrics=(Metric(name="step_ms", value=0.001, unit="ms", provenance=phone),),
                    verdict=Verdict(validity=Validity.VALID),
                )
                yield self._send([report.model_dump_json()])

    def _send_chunks(self) -> Iterator[Sequence[str]]:
        """Send telemetry that no report names."""
        for _ in range(40):
            blob = self._random.randbytes(CHUNK_BYTES_MAX // 2)
            (chunk,) = split_into_chunks(digest_of_bytes(blob), blob)
            yield self._send([chunk.model_dump_json()])

    def _send_nonsense(self) -> Iterator[Sequence[str | bytes]]:
        """Send messages that are almost right."""
        seed, queue = self._random.randrange(10**9), results_queue(NAME)
        phones = known_phones(self._farm.db)
        valid = json.loads(an_announcement(phones[0].facts, NAME).model_dump_json())
        for message in hostile_messages(
            DELIVER, [hostile_content(valid, 9, seed)], queue, 60, seed
        ):
            yield "LPUSH", queue, message

    def _touch_keys(self) -> Iterator[Sequence[str]]:
        """Use keys of others and of the centre."""
        hosts = [phone.host for phone in known_phones(self._farm.db)]
        others = (heartbeat_key, results_queue, host_queue, confirmed_key)
        keys = [*(key(host) for key in others for host in set(hosts)), "farm:hosts", "farm:events"]
        for key in (*keys, "farm:scheduler", "farm:ingests", "anything"):
            for words in (("DEL",), ("SET", "x"), ("LPUSH", "x"), ("SREM", "x"), ("RENAME", "y")):
                yield words[0], key, *words[1:]
        yield from (("FLUSHALL",), ("CONFIG", "GET", "*"), ("KEYS", "*"), ("EVAL", "return 1", "0"))
        yield from (("ACL", "LIST"), ("CLIENT", "KILL", "TYPE", "normal"), ("SHUTDOWN",))

    def _beat_without_end(self) -> Iterator[Sequence[str | bytes]]:
        """Send a heartbeat of 8 MB that never expires."""
        yield "SET", heartbeat_key(NAME), bytes(8 * MIB)

    def _fill(self) -> Iterator[Sequence[str | bytes]]:
        """Send until the broker has no memory left."""
        for _ in range(BROKER_BYTES // MIB):
            yield "LPUSH", results_queue(NAME), bytes(MIB)
