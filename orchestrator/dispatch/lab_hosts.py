"""Which hosts belong to the lab: those that settings name, and those that joined."""

import logging
import math
import time
from collections.abc import Collection

from orchestrator.dispatch.central_broker import CentralBroker
from orchestrator.store.database import Database
from orchestrator.store.enrolments import host_accesses, lab_hosts
from workloads.protocol.faults import BrokerDown, StoreDown

log = logging.getLogger("farm.hosts")

INTERVAL_S = 1.0


class LabHosts:
    """The hosts of the lab, read from the store every second."""

    def __init__(
        self, db: Database, named: Collection[str], broker: CentralBroker | None = None
    ) -> None:
        """Use this store; with a broker, also keep the broker's host users up to date."""
        self._db = db
        self._named = frozenset(named)
        self._broker = broker
        self._read_at = -math.inf
        self._hosts: frozenset[str] | None = None
        self._failed = False

    def read(self) -> frozenset[str] | None:
        """Return the names of the hosts; None: every host belongs to the lab.

        While the store is down, they are the ones that it named last.
        """
        now = time.monotonic()
        if now - self._read_at > INTERVAL_S:
            try:
                accesses = host_accesses(self._db)
            except StoreDown:
                if self._read_at == -math.inf:
                    raise
                return self._hosts  # they rarely change
            self._hosts, self._read_at = lab_hosts(accesses, self._named), now
            if self._broker is not None and accesses:
                try:
                    self._broker.set_host_users(accesses)
                    self._failed = False
                except BrokerDown as error:  # a user without the right to do so, for example
                    if not self._failed:
                        log.warning("the broker users of hosts cannot be updated: %s", error)
                    self._failed = True
        return self._hosts
