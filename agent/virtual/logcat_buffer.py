"""The log buffer behind `logcat`: keeps the last lines and wakes readers that wait for more."""

import asyncio
from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime

_LINES_MAX = 2000


class LogcatBuffer:
    """The log of one phone."""

    def __init__(self, wall_time: Callable[[], float]) -> None:
        self._wall_time = wall_time
        self._lines: deque[str] = deque(maxlen=_LINES_MAX)
        self._count = 0
        self._waiters: set[asyncio.Future[None]] = set()

    def write(self, level: str, tag: str, text: str, pid: int = 1) -> None:
        when = datetime.fromtimestamp(self._wall_time(), UTC).strftime("%m-%d %H:%M:%S.%f")[:-3]
        for line in text.splitlines() or [""]:
            self._lines.append(f"{when} {pid:>5} {pid:>5} {level} {tag:<8}: {line}")
            self._count += 1
        for future in self._waiters:
            if not future.done():
                future.set_result(None)
        self._waiters.clear()

    def clear(self) -> None:
        self._lines.clear()

    def lines_after(self, count: int) -> tuple[list[str], int]:
        """Return the kept lines after the first `count`, and how many lines there were in total."""
        available = min(self._count - count, len(self._lines))
        return list(self._lines)[len(self._lines) - available :], self._count

    async def wait_for_line(self) -> None:
        """Wait until the next line is written."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.add(future)
        try:
            await future
        finally:
            self._waiters.discard(future)
