"""Whether a plan fits into a phone: foretold before the run, and found out by how a runner died.

What is foretold not to fit is refused, unless somebody asks to try; a death for want of memory is
told from any other by how much was left when the runner was last seen.
"""

import json
import re

from agent.run.activity import parse_memory
from workloads.fault import TooLarge
from workloads.fit import ALLOWANCE_MB

USABLE = 0.9  # of MemAvailable: the kernel's guess is a hopeful one
STARVED = 0.1  # of all memory; phones begin to kill at about that much

_LEFT = re.compile(r"MemTotal:\s+(\d{1,12}) kB.*?MemAvailable:\s+(\d{1,12}) kB")


def planned_mb(plan: bytes) -> float | None:
    """Memory that a plan asks for, as its header tells by kind."""
    try:
        header = json.loads(plan.split(b"\n", 2)[1])
        return sum(map(int, header["memory"].values())) / 2**20
    except (ValueError, KeyError, IndexError, TypeError, AttributeError):
        return None


def check_fits(plan: bytes, meminfo: str) -> None:
    """Refuse a plan that is predicted to be too large for what a phone has left."""
    planned = planned_mb(plan)
    rows = parse_memory(meminfo.splitlines())
    available = rows.get("MemAvailable", 0) / 1024
    if planned is None or not available:
        return
    needed = planned + ALLOWANCE_MB
    if needed > USABLE * available:
        raise TooLarge(
            f"It needs {needed:,.0f} MB; {available:,.0f} MB are available, and nine tenths of it "
            "can be counted on: predicted not to fit, and not tried. Use a smaller batch, or write "
            "too_large: try."
        )


def was_starved(readings: str) -> bool:
    """Whether hardly any memory was left in the last of some readings."""
    left = _LEFT.findall(readings)
    return bool(left) and int(left[-1][1]) < STARVED * int(left[-1][0])
