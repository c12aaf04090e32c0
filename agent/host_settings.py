"""The settings of the agent of one host."""

from dataclasses import dataclass
from pathlib import Path

from agent.timeouts import DEFAULT_TIMEOUTS, Timeouts


@dataclass(frozen=True)
class HostSettings:
    """The settings of an agent."""

    host: str
    broker: str
    state_dir: Path
    connect: tuple[str, ...] = ()
    max_parallel: int = 60
    files: Path | None = None
    timeouts: Timeouts = DEFAULT_TIMEOUTS
    commission: bool = True  # a physical phone before its first run, if it never was
