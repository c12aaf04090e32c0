"""Waits of a lane: on the phone, in its shell, by the phone's own clock.

What a lane waits for is physics: a phone cools, charges or trains. Its own clock counts that,
however busy the host is. Every piece of a wait renews the watchdog's heartbeat in the same round
trip. Cancelling a lane closes the shell that waits.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TypeVar

from agent.deadline import Deadline
from agent.phone.phone_driver import Phone
from agent.phone.phone_paths import HEARTBEAT, UPTIME, lane_file
from agent.phone.shell_command import ShellCommand
from agent.phone.shell_link import LINK_LOST, MIB, ShellReply
from workloads.protocol.faults import Cancelled

Answer = TypeVar("Answer")
RECONNECT_PAUSE_S = 0.1  # by the host's clock: there is no link
PIECE_MAX_S = 15.0  # a quarter of the watchdog's patience
HEARTBEAT_COMMAND = ShellCommand(["cat", UPTIME], into=lane_file(HEARTBEAT))


class Cancellation:
    """Whether a lane has to stop; setting it ends a wait at once."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self._lock = threading.Lock()
        self._end_wait: Callable[[], None] | None = None

    def set(self) -> None:
        """Cancel the lane."""
        with self._lock:
            self._event.set()
            end_wait = self._end_wait
        if end_wait is not None:
            end_wait()

    def clear(self) -> None:
        """Begin with a lane that is not cancelled."""
        self._event.clear()

    def is_set(self) -> bool:
        """Whether the lane was cancelled."""
        return self._event.is_set()

    def pause(self, host_s: float) -> None:
        """Wait on the host, where the phone cannot be asked; raise Cancelled at once."""
        if self._event.wait(host_s):
            raise Cancelled

    @contextmanager
    def ending(self, end_wait: Callable[[], None]) -> Iterator[None]:
        """Let a cancellation end the wait in this block, which then raises Cancelled."""
        with self._lock:
            if self._event.is_set():
                raise Cancelled
            self._end_wait = end_wait
        try:
            yield
        except LINK_LOST:
            if self._event.is_set():
                raise Cancelled from None
            raise
        finally:
            with self._lock:
                self._end_wait = None


class PhoneWaits:
    """The waits of one lane."""

    def __init__(self, phone: Phone, cancellation: Cancellation) -> None:
        self.cancellation = cancellation
        self._phone = phone

    def sleep(self, seconds: float) -> None:
        """Wait seconds of the phone's clock; raise Cancelled as soon as the lane is cancelled."""
        while seconds > 0:
            piece_s = min(seconds, PIECE_MAX_S)
            self.keep_trying(partial(self._sleep_piece, piece_s))
            seconds -= piece_s

    def _sleep_piece(self, piece_s: float) -> None:
        self.run_piece([ShellCommand(["sleep", f"{piece_s:.3f}"])], piece_s)

    def keep_trying(self, action: Callable[[], Answer]) -> Answer:
        """Do something that may be done twice: a link that is lost for a moment fails nothing."""
        deadline: Deadline | None = None
        while True:
            try:
                return action()
            except LINK_LOST:
                deadline = deadline or Deadline.after(self._phone.timeouts.reconnect_timeout_s)
                if deadline.expired:
                    raise
                self.cancellation.pause(RECONNECT_PAUSE_S)

    def run_piece(
        self, commands: Sequence[ShellCommand], seconds: float, limit: int = MIB
    ) -> tuple[ShellReply, ...]:
        """Run commands that wait at most so long, in one round trip with a heartbeat."""
        deadline = Deadline.after(2 * seconds + self._phone.timeouts.command_timeout_s)
        with self.cancellation.ending(self._phone.close):
            replies = self._phone.shell_batch_raw([HEARTBEAT_COMMAND, *commands], deadline, limit)
        return replies[1:]
