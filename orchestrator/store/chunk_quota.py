"""Limits the chunks that a host may store before a report refers to them; they could fill the disk.

Chunks arrive before the report that refers to them, and are counted until it arrives; beyond the
limit, further chunks have to wait. The files of command results are small and are counted until the
process ends. `farm store prune` removes old chunks without a report.
"""

import time
from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime

from sqlalchemy import Connection, select

from orchestrator.store.tables import report
from workloads.protocol.messages import Chunk

UNNAMED_BYTES_MAX = 2**30  # per host
CHUNK_BYTES_MIN = 2**14  # what a chunk counts at least: its row, and the memory of its digest
LOOK_INTERVAL_S = 60.0  # another ingest service may have stored the report: asking takes a while


class ChunkQuota:
    """The chunks of every host that this process has stored and no report has named."""

    def __init__(self, bytes_max: int = UNNAMED_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._since = datetime.now(UTC)
        self._unnamed: dict[str, dict[str, dict[int, int]]] = {}  # bytes by host, digest, part
        self._sums: Counter[str] = Counter()
        self._looked_at: dict[str, float] = {}

    def admits(self, connection: Connection, host: str, chunk: Chunk) -> bool:
        """Return whether a host may store a chunk, and count it once."""
        parts = self._unnamed.setdefault(host, {}).setdefault(chunk.digest, {})
        if chunk.index in parts:
            return True
        size = max(CHUNK_BYTES_MIN, len(chunk.data) * 3 // 4)
        if self._sums[host] + size > self._bytes_max:
            self._forget_named(connection, host)
        if self._sums[host] + size > self._bytes_max:
            return False
        parts[chunk.index] = size
        self._sums[host] += size
        return True

    def forget(self, host: str, named: Iterable[str | None]) -> None:
        """Stop counting blobs that are named now."""
        unnamed = self._unnamed.get(host, {})
        for digest in named:
            self._sums[host] -= sum(unnamed.pop(digest or "", {}).values())

    def _forget_named(self, connection: Connection, host: str) -> None:
        """Stop counting the chunks that a stored report or result refers to."""
        now = time.monotonic()
        if now - self._looked_at.get(host, -LOOK_INTERVAL_S) >= LOOK_INTERVAL_S:
            self._looked_at[host] = now
            recent = (report.c.host == host, report.c.received_at >= self._since)
            found = connection.execute(select(report.c.telemetry).where(*recent))
            self.forget(host, found.scalars())
