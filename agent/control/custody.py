"""Custody: a phone in a lane's hands, from the first note in the journal until it is put back."""

import time
from contextlib import suppress
from pathlib import Path

from agent.control.fence import check_fence
from agent.control.guard import Guard
from agent.control.journal import Journal, Page, kill_runner
from agent.phone.link import LINK_LOST
from agent.phone.phone import Phone
from workloads.fault import FarmError, LeaseLost

RESTORE_PATIENCE_S = 5.0


class Custody:
    """Journal and dead-man of one lane. Before it begins nothing is changed, and nothing held."""

    def __init__(self, phone: Phone, fence: int, state_dir: Path, silence_s: float) -> None:
        self.working = False  # whether a runner was started whose end nobody has seen
        self._phone = phone
        self._fence = fence
        self._state_dir = state_dir
        self._silence_s = silence_s
        self._journal: Journal | None = None
        self._guard: Guard | None = None

    def begin(self, runner: str, boot_id: str) -> None:
        """Open the journal and start the dead-man."""
        page = Page(serial=self._phone.known.serial, boot_id=boot_id, fence=self._fence)
        self._guard = Guard(self._phone, runner, self._fence, self._silence_s)
        self._journal = Journal(self._phone, self._state_dir, page, self._guard)
        self._journal.open()
        self._guard.start()

    @property
    def journal(self) -> Journal:
        """Where every change is noted first."""
        assert self._journal is not None, "nothing is changed before custody begins"
        return self._journal

    @property
    def held(self) -> bool:
        """Whether it has begun."""
        return self._journal is not None

    def check(self) -> None:
        """Fail unless the phone is still ours and its dead-man there."""
        assert self._guard is not None, "nothing is started before custody begins"
        self._guard.check()

    def feed(self) -> None:
        """Show the dead-man that somebody lives."""
        if self._guard is not None:
            with suppress(*LINK_LOST):  # whoever looks at the phone next finds out
                self._guard.feed()

    def end(self) -> FarmError | None:
        """Put everything back, with some patience; what remains is left to whoever comes next."""
        try:
            return self._put_back(self.journal)
        finally:
            self.journal.close()

    def _put_back(self, journal: Journal) -> FarmError | None:
        patience = time.monotonic() + RESTORE_PATIENCE_S
        while True:
            try:
                if self.working or journal.page.changes:
                    check_fence(self._phone, self._fence)
                if self.working:  # it works on, whatever became of our link
                    kill_runner(self._phone)
                journal.restore()
            except LeaseLost:
                # Whoever holds the phone now has put it back before touching it.
                journal.forget()
            except FarmError as error:
                if time.monotonic() > patience:
                    return error
                time.sleep(0.2)
                continue
            return None
