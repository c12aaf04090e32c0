"""RestoreSession: journal and watchdog of one lane, from the first change until all is restored."""

import time
from contextlib import suppress
from pathlib import Path

from agent.deadline import Deadline
from agent.phone.phone_driver import Phone
from agent.phone.shell_link import LINK_LOST
from agent.restore.fence import check_fence
from agent.restore.restore_journal import JournalRecord, RestoreJournal
from agent.restore.restore_leftovers import kill_leftover_processes
from agent.restore.watchdog import Watchdog
from workloads.protocol.faults import FarmError, LeaseLost

RETRY_PAUSE_S = 0.2


class RestoreSession:
    """Nothing may be changed before it begins; after it has begun, it must be ended."""

    def __init__(self, phone: Phone, fence: int, state_dir: Path) -> None:
        self.runner_alive = False  # a runner was started and its end was not seen
        self._phone = phone
        self._fence = fence
        self._state_dir = state_dir
        self._journal: RestoreJournal | None = None
        self._watchdog: Watchdog | None = None

    def begin(self, runner: str, boot_id: str) -> None:
        """Open the journal and start the watchdog."""
        serial = self._phone.facts.serial
        record = JournalRecord(serial=serial, boot_id=boot_id, fence=self._fence)
        self._watchdog = Watchdog(self._phone, runner, self._fence)
        self._journal = RestoreJournal(self._phone, self._state_dir, record, self._watchdog)
        self._journal.open()
        self._watchdog.start()

    @property
    def journal(self) -> RestoreJournal:
        """The journal in which every change is recorded first."""
        assert self._journal is not None, "nothing is changed before the session begins"
        return self._journal

    @property
    def has_begun(self) -> bool:
        """Whether there is something to restore."""
        return self._journal is not None

    def check(self) -> None:
        """Fail unless this lane still holds the phone and its watchdog runs."""
        assert self._watchdog is not None, "nothing is started before the session begins"
        self._watchdog.check()

    def send_heartbeat(self) -> None:
        """Show the watchdog that the agent is alive."""
        if self._watchdog is not None:
            with suppress(*LINK_LOST):  # the next command on the phone reports the loss
                self._watchdog.send_heartbeat()  # guard: lane-sends-heartbeat

    def end(self) -> FarmError | None:
        """Restore everything, with retries; restore_leftovers does what is not possible now."""
        try:
            return self._restore(self.journal)
        finally:
            self.journal.close()

    def _restore(self, journal: RestoreJournal) -> FarmError | None:
        retry_until = Deadline.after(self._phone.timeouts.restore_retry_timeout_s)
        while True:
            try:
                if self.runner_alive or journal.changes:
                    check_fence(self._phone, self._fence)  # guard: overtaken-lane-restores-nothing
                if self.runner_alive:  # it continues to run, whatever happened to the link
                    kill_leftover_processes(self._phone)
                journal.restore()
            except LeaseLost:
                # The lane that holds the phone now has restored it before touching it.
                journal.discard()
            except FarmError as error:
                if retry_until.expired:
                    return error
                self._pause(error)
                continue
            return None

    def _pause(self, error: FarmError) -> None:
        """Give the phone a moment by its own clock, or by the host's while there is no link."""
        if not isinstance(error, LINK_LOST):
            with suppress(*LINK_LOST):
                self._phone.sleep(RETRY_PAUSE_S)
                return
        time.sleep(RETRY_PAUSE_S)
