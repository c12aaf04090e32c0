"""The same job with Workload Automation, as a workload plugin.

Its phases do what lane_devlib.py does in one function; WA calls them. Each job appends three times
to the file that PEER_MOMENTS names: its start, and start and end of the run. A job ends when WA has
finished it, which is when the next one starts.
"""

import os
import time
from pathlib import Path
from typing import Any

from lane_devlib import CLOCKS, PHONE_FOLDER, ZONES, read_nodes, run
from wa import Workload


class FarmRun(Workload):  # type: ignore[misc]
    """One run of the runner."""

    name = "farmrun"
    description = "the runner on a plan, with readings of sensors and clocks around it"

    def setup(self, context: Any) -> None:
        """Push the plan and read the nodes."""
        super().setup(context)
        self.times = [time.monotonic()]
        self.target.push(os.environ["PEER_PLAN"], f"{PHONE_FOLDER}/peer-plan")
        self.target.execute(f"mkdir -p {PHONE_FOLDER}/peer-out")
        read_nodes(self.target, ZONES + CLOCKS)

    def run(self, context: Any) -> None:
        """Execute the run."""
        super().run(context)
        self.times.append(time.monotonic())
        run(self.target, os.environ["PEER_RUNNER"])
        self.times.append(time.monotonic())

    def extract_results(self, context: Any) -> None:
        """Pull the output and read the clocks again."""
        super().extract_results(context)
        self.target.pull(f"{PHONE_FOLDER}/peer-out/out.jsonl", f"{os.environ['PEER_PLAN']}.wa")
        read_nodes(self.target, CLOCKS)
        with Path(os.environ["PEER_MOMENTS"]).open("a") as file:
            file.write(" ".join(map(str, self.times)) + "\n")
