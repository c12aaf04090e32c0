"""Limits the streams of events that stay open: each occupies one of the API's connections."""

from collections import Counter
from collections.abc import AsyncIterator

from orchestrator.app.app_errors import InvalidState

STREAMS_MAX, STREAMS_PER_PERSON_MAX = 120, 30
TOKEN_CHECK_S = 2.0  # a stream whose token was revoked or has expired ends after so long


class OpenStreams:
    """The number of open streams, by person."""

    def __init__(self) -> None:
        self._open: Counter[str] = Counter()

    def counted(self, person: str, lines: AsyncIterator[str]) -> AsyncIterator[str]:
        """Return the lines of a new stream; InvalidState if too many streams are open."""
        if self._open[person] >= STREAMS_PER_PERSON_MAX or self._open.total() >= STREAMS_MAX:
            raise InvalidState(f"{person} has too many open streams of events; close some of them")
        return self._until_closed(person, lines)

    async def _until_closed(self, person: str, lines: AsyncIterator[str]) -> AsyncIterator[str]:
        self._open[person] += 1
        try:
            async for line in lines:
                yield line
        finally:
            self._open[person] -= 1
