"""What logcat shows: the last lines that anybody logged, and the next ones to those who wait."""

import asyncio
from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime

_LINES_MAX = 2000


class LogBuffer:
    """One phone's log."""

    def __init__(self, wall: Callable[[], float]) -> None:
        self._wall = wall
        self._lines: deque[str] = deque(maxlen=_LINES_MAX)
        self._count = 0
        self._waiting: set[asyncio.Future[None]] = set()

    def write(self, level: str, tag: str, text: str, pid: int = 1) -> None:
        when = datetime.fromtimestamp(self._wall(), UTC).strftime("%m-%d %H:%M:%S.%f")[:-3]
        for line in text.splitlines() or [""]:
            self._lines.append(f"{when} {pid:>5} {pid:>5} {level} {tag:<8}: {line}")
            self._count += 1
        for future in self._waiting:
            if not future.done():
                future.set_result(None)
        self._waiting.clear()

    def clear(self) -> None:
        self._lines.clear()

    def since(self, count: int) -> tuple[list[str], int]:
        """Lines after so many, as far as they are kept, and how many there were by now."""
        missing = min(self._count - count, len(self._lines))
        return list(self._lines)[len(self._lines) - missing :], self._count

    async def wait(self) -> None:
        """Until somebody logs."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.add(future)
        try:
            await future
        finally:
            self._waiting.discard(future)
