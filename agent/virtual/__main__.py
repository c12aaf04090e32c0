"""`python -m agent.virtual` is `farm virtual` without the rest of the farm."""

from agent.virtual.cli import virtual

virtual()
