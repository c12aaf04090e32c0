"""python -m agent.virtual: the same as `farm virtual`."""

from agent.virtual.cli import virtual

virtual()
