"""The checkpoint of a virtual run: how far it was, because there is nothing else to keep."""

from dataclasses import dataclass

from agent.virtual.files.file_tree import error_text
from agent.virtual.process_table import Process
from agent.virtual.runner.runner_contract import RunnerExit, RunnerFailure, RunnerRecord
from agent.virtual.virtual_phone import VirtualPhone

_MAGIC = "farmhand-checkpoint-virtual"


@dataclass(slots=True)
class VirtualCheckpoint:
    """A file that is written during a run, and read when one begins."""

    phone: VirtualPhone
    process: Process
    path: str
    every_s: float
    identity: str  # of what has to be the same in the run that continues
    mask: int  # the cores of the run
    written_at: float = 0.0

    def read(self) -> tuple[int, int, RunnerRecord] | None:
        """Return steps and time measured before, and the record "resume"; None: a new run."""
        self.written_at = self.phone.clock.now
        try:
            words = self.phone.tree.read(self.path, self.process.uid).decode().split()
        except FileNotFoundError:
            return None
        except (OSError, UnicodeError):
            words = []
        try:
            magic, identity, mask, steps, measured_ns, wall_s = words
            before = int(steps), int(measured_ns), float(wall_s)
        except ValueError:
            raise self._refusal("is damaged") from None
        if (magic, identity) != (_MAGIC, self.identity):
            raise self._refusal("belongs to another workload or number of threads")
        lost_ns = max(round((self.phone.wall_time() - before[2]) * 1e9), 0)
        record: RunnerRecord = {"line": "resume", "step": before[0], "t_ns": self.phone.uptime_ns()}
        same_cores = mask == f"{self.mask:x}"
        return before[0], before[1], {**record, "same_cores": same_cores, "lost_ns": lost_ns}

    def write_if_due(self, steps: int, measured_ns: int) -> RunnerRecord | None:
        """Write the file if the last one is old enough; return the record "checkpoint"."""
        now = self.phone.clock.now
        if now - self.written_at < self.every_s:
            return None
        progress = (steps, measured_ns, self.phone.wall_time())
        words = (_MAGIC, self.identity, f"{self.mask:x}", *progress)
        try:
            self.phone.tree.write(self.path, " ".join(map(str, words)).encode(), self.process.uid)
        except OSError as error:
            text = f"cannot write the checkpoint of step {steps}: {error_text(error)}"
            raise RunnerFailure(RunnerExit.IO, text) from None
        self.written_at = now
        return {"line": "checkpoint", "step": steps, "t_ns": self.phone.uptime_ns(), "ns": 0}

    def _refusal(self, why: str) -> RunnerFailure:
        text = f"the checkpoint {why}; remove it to begin at the first step"
        return RunnerFailure(RunnerExit.BAD_CHECKPOINT, text)
