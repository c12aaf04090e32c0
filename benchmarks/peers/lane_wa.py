"""Workload Automation's turns at the same job: a workload of its own kind, found as a plugin.

Its phases do what lane_devlib.py does in one go; the frame around them is WA's. Each job notes
three moments in the file that PEER_MOMENTS names: its beginning, and those of the run. It is over
when the frame is done with it, which is when the next one begins.
"""

import os
import time
from pathlib import Path
from typing import Any

from lane_devlib import CLOCKS, THERE, ZONES, look, run
from wa import Workload


class FarmRun(Workload):  # type: ignore[misc]
    """One run of the runner."""

    name = "farmrun"
    description = "the runner on a plan, with looks at heat and clocks around it"

    def setup(self, context: Any) -> None:
        """Bring the plan and look."""
        super().setup(context)
        self.moments = [time.monotonic()]
        self.target.push(os.environ["PEER_PLAN"], f"{THERE}/peer-plan")
        self.target.execute(f"mkdir -p {THERE}/peer-out")
        look(self.target, ZONES + CLOCKS)

    def run(self, context: Any) -> None:
        """The run itself."""
        super().run(context)
        self.moments.append(time.monotonic())
        run(self.target, os.environ["PEER_RUNNER"])
        self.moments.append(time.monotonic())

    def extract_results(self, context: Any) -> None:
        """Fetch what it wrote, and look again."""
        super().extract_results(context)
        self.target.pull(f"{THERE}/peer-out/out.jsonl", f"{os.environ['PEER_PLAN']}.wa")
        look(self.target, CLOCKS)
        with Path(os.environ["PEER_MOMENTS"]).open("a") as told:
            told.write(" ".join(map(str, self.moments)) + "\n")
