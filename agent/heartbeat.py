"""The heartbeat of a host: its phones, its unconfirmed runs and what it refused."""

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from pydantic import ValidationError

from agent.host_broker import HostBroker
from agent.host_settings import HostSettings
from agent.phone_registry import PhoneRegistry
from agent.phone_slot import PhoneSlot
from workloads.lab.process_identity import new_instance, software_version
from workloads.lab.service_health import ServiceHealth
from workloads.protocol.faults import BrokerDown
from workloads.protocol.limits import HEARTBEAT_BYTES_MAX
from workloads.protocol.messages import (
    COUNT_MAX,
    BadMessage,
    HostHeartbeat,
    PhoneState,
    PhoneStatus,
    RunId,
    decode,
)

log = logging.getLogger("farm.agent")

RIVAL_KEPT_S = 10.0
UNCONFIRMED_MAX = 1000


class HeartbeatSender:
    """Sends a heartbeat every second, and at once if something changed."""

    def __init__(
        self,
        settings: HostSettings,
        registry: PhoneRegistry,
        unconfirmed_runs: Callable[[], Sequence[RunId]],
        health: ServiceHealth,
    ) -> None:
        self._settings = settings
        self._registry = registry
        self._unconfirmed_runs = unconfirmed_runs
        self._health = health
        self._broker = HostBroker(settings.broker, settings.host)
        self._instance = new_instance()
        self._rival = RivalWatch(self._instance)
        self._refused, self._refusal = 0, ""
        self._has_phones = True
        self._stop, self._changed = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._send, name="heartbeat", daemon=True)

    def start(self) -> None:
        """Begin to send."""
        self._thread.start()

    def send_now(self) -> None:
        """Send the next heartbeat at once."""
        self._changed.set()

    def withdraw_phones(self) -> None:
        """Announce no phones any more."""
        self._has_phones = False
        self.send_now()

    def stop(self) -> None:
        """Withdraw the heartbeat and end."""
        self._stop.set()
        self.send_now()
        self._thread.join()

    def refuse(self, reason: str) -> None:
        """Count a message that this agent cannot read; the heartbeat shows it to the lab."""
        self._refused, self._refusal = self._refused + 1, reason
        self._health.metrics.add("farm_messages_refused_total")
        if self._refused & (self._refused - 1) == 0:  # the first, and after every doubling
            log.warning("refused a message: %s refused=%d", reason, self._refused)
        self.send_now()

    def _send(self) -> None:
        broker_down = False
        pause_s = self._settings.timeouts.heartbeat_min_interval_s
        while not self._stop.is_set():
            self._changed.clear()
            try:
                beat = self._current_heartbeat()
                self._count(beat)
                before = self._broker.publish_heartbeat(beat)
                self._rival.look(before)
                broker_down = False
                self._health.set_trouble("broker")
            except BrokerDown as error:
                self._health.set_trouble("broker", str(error))
                if not broker_down:
                    log.warning("%s", error)
                broker_down = True
            except Exception:  # one broken phone must not stop the heartbeat of the whole host
                log.exception("the heartbeat failed")
            self._stop.wait(pause_s)
            self._changed.wait(self._settings.timeouts.heartbeat_interval_s - pause_s)
        try:
            self._broker.withdraw_heartbeat()
        except BrokerDown:
            log.info("the broker is not reachable; the heartbeat expires by itself")

    def _count(self, beat: HostHeartbeat) -> None:
        self._health.beat()
        self._health.metrics.set_by_label(
            "farm_phones", Counter(phone.state for phone in beat.phones)
        )
        self._health.metrics.set("farm_reports_waiting", len(beat.unconfirmed))

    def _current_heartbeat(self) -> HostHeartbeat:
        slots = self._registry.slots() if self._has_phones else []
        return HostHeartbeat(
            host=self._settings.host,
            sent_at=datetime.now(UTC),
            max_parallel=self._settings.max_parallel,
            phones=tuple(
                status for slot in slots if (status := plausible_status(slot)) is not None
            ),
            unusable=tuple(self._registry.unusable() if self._has_phones else []),
            software=software_version(),
            instance=self._instance,
            rival=self._rival.instance,
            refused=min(self._refused, COUNT_MAX),
            refusal=self._refusal,
            unconfirmed=tuple(self._unconfirmed_runs()[-UNCONFIRMED_MAX:]),
        )


def plausible_status(slot: PhoneSlot) -> PhoneStatus | None:
    """Return the status of a phone; without values that no phone can have, None without a name.

    One phone that prints nonsense must not stop the heartbeat of its host.
    """
    try:
        return slot.phone_status()
    except ValidationError:
        pass
    try:
        return PhoneStatus(
            serial=slot.facts.serial,
            state=PhoneState.BUSY if slot.is_busy else PhoneState.IDLE,
            facts_digest=slot.facts_digest,
            run=slot.job.run if slot.job else None,
        )
    except ValidationError:
        return None


class RivalWatch:
    """Finds another agent that sends heartbeats under this host's name.

    An agent that was restarted finds the last heartbeat of the one before it once, and only before
    its own second heartbeat.
    """

    def __init__(self, instance: str) -> None:
        # As a field: the heartbeat of a rival names this agent, too, as its own rival.
        self._own = f'"instance":"{instance}"'.encode()
        self._beats = 0
        self._seen_at = 0.0
        self._seen: str | None = None

    def look(self, before: bytes | None) -> None:
        """Look at the heartbeat that the newest one replaced."""
        self._beats += 1
        if self._beats == 1 or before is None or self._own in before:
            return
        try:
            other = decode(HostHeartbeat, before, HEARTBEAT_BYTES_MAX).instance
        except BadMessage:
            return
        if self.instance is None:
            log.error("another agent with this host's name is running instance=%s", other)
        self._seen, self._seen_at = other, time.monotonic()

    @property
    def instance(self) -> str | None:
        """The id of the other agent, for some seconds after it was last seen."""
        return self._seen if time.monotonic() - self._seen_at < RIVAL_KEPT_S else None
