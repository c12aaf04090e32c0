"""Makes reports in the background, so that a page can say what it waits for."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future

from orchestrator.app.app_errors import InvalidState
from orchestrator.app.control_sweeps import SweepSummary
from orchestrator.app.export_results import ReportFile

KEPT = 8  # reports of different sweeps
FRESH_S = 30.0  # a report of a sweep that continues is shown again for so long


class ReportTask:
    """A report that is being made or was made, of a sweep as it was then."""

    def __init__(self, sweep: SweepSummary) -> None:
        self.sweep = sweep
        self.report: Future[ReportFile] = Future()
        self._started = time.monotonic()
        self._ended: float | None = None

    def run(self, make: Callable[[str], ReportFile]) -> None:
        """Make the report; an error is the result, too."""
        try:
            self.report.set_result(make(self.sweep.id))
        except Exception as error:  # noqa: BLE001 - whoever waits for the report raises it
            self.report.set_exception(error)
        self._ended = time.monotonic()

    @property
    def seconds(self) -> float:
        """For how long it has been under way."""
        return time.monotonic() - self._started

    def serves(self, sweep: SweepSummary) -> bool:
        """Return whether the sweep has the same results, or had them until a moment ago."""
        if self._ended is None or self.sweep == sweep:
            return True
        return time.monotonic() - self._ended < FRESH_S


class ReportMaker:
    """Makes one report at a time: each takes much memory."""

    def __init__(self, make: Callable[[str], ReportFile]) -> None:
        self._make = make
        self._tasks: dict[str, ReportTask] = {}
        self._lock = threading.Lock()
        self._making = threading.Lock()

    def task(self, sweep: SweepSummary) -> ReportTask:
        """Return the report of a sweep; it is begun if there is none, or an old one."""
        with self._lock:
            task = self._tasks.pop(sweep.id, None)
            if task is None or not task.serves(sweep):
                if sum(not each.report.done() for each in self._tasks.values()) >= KEPT - 1:
                    raise InvalidState("other reports are being made; open this one again later")
                task = ReportTask(sweep)
                threading.Thread(target=self._run, args=(task,), daemon=True).start()
            self._tasks[sweep.id] = task  # the newest at the end
            if len(self._tasks) > KEPT:
                self._tasks.pop(next(iter(self._tasks)))
            return task

    def _run(self, task: ReportTask) -> None:
        with self._making:
            task.run(self._make)
