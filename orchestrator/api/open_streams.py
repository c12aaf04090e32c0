"""Limits the streams that stay open: each occupies one of the API's connections."""

from collections import Counter
from collections.abc import AsyncIterator, Mapping

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from orchestrator.app.app_errors import TooBusy

STREAMS_MAX, STREAMS_PER_PERSON_MAX = 400, 30
TOKEN_CHECK_S = 2.0  # a stream whose token was revoked or has expired ends after so long


class OpenStreams:
    """The number of open streams, by person."""

    def __init__(self) -> None:
        self.open: Counter[str] = Counter()

    def respond(
        self, person: str, lines: AsyncIterator[str], headers: Mapping[str, str]
    ) -> StreamingResponse:
        """Return a stream of events, which is refused if too many are open when it begins."""
        return _CountedStream(self, person, lines, headers)


class _CountedStream(StreamingResponse):
    """Counts from the first byte to the end, whichever side ends it."""

    def __init__(
        self,
        streams: OpenStreams,
        person: str,
        lines: AsyncIterator[str],
        headers: Mapping[str, str],
    ) -> None:
        super().__init__(lines, media_type="text/event-stream", headers=headers)
        self._open, self._person = streams.open, person

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        person = self._person  # nothing else runs between the question and the count
        if self._open[person] >= STREAMS_PER_PERSON_MAX or self._open.total() >= STREAMS_MAX:
            raise TooBusy(f"{person} has too many open streams of events; close some of them")
        self._open[person] += 1
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._open[person] -= 1
            self._open += Counter()  # without those that have none
