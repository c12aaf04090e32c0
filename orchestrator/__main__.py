"""`python -m orchestrator` is the farm command."""

from orchestrator.cli import main

main()
