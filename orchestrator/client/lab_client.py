"""A lab for programs and notebooks: the operations of the command line and of the API."""

import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Self

from orchestrator.app.compare_results import CompareRequest, ComparisonTable, compare_results
from orchestrator.app.control_hosts import HostSummary, list_hosts
from orchestrator.app.control_phones import list_phones
from orchestrator.app.control_sweeps import find_sweep, list_sweeps
from orchestrator.app.lab_status import KnownPhone, LabView, read_lab_status
from orchestrator.app.open_lab import open_lab
from orchestrator.app.plan_sweep import SweepPlan, plan_sweep
from orchestrator.app.read_trials import TrialDetails, show_trial
from orchestrator.app.remote.operation_types import load_operations
from orchestrator.app.submit_sweep import submit_sweep
from orchestrator.client.sweep_client import SweepClient
from workloads.cli_options import DEFAULT_LAB
from workloads.input_file import read_input
from workloads.protocol.faults import InvalidRequest
from workloads.text import suggestion

SweepFile = str | Path


class LabClient(AbstractContextManager["LabClient"]):
    """A lab. `Lab()` finds it as `farm` does; `Lab(url, token)` uses the API of another computer.

    `Lab(folder)` is a lab of this computer that is not in `./lab` or FARM_LAB.
    """

    def __init__(self, place: str | Path = "", token: str = "", ca_file: str = "") -> None:
        is_url = "://" in str(place)
        folder = Path(place if place and not is_url else os.environ.get("FARM_LAB", DEFAULT_LAB))
        self.connection = open_lab(folder, os.environ, str(place) if is_url else "", token, ca_file)

    def __repr__(self) -> str:
        return f"Lab({self.connection.place!r})"

    def submit(self, file: SweepFile) -> SweepClient:
        """Queue the runs of a sweep file that the lab does not have yet."""
        text, fetch = _read(file)
        submitted = submit_sweep(self.connection, text, fetch)
        return self.sweep(submitted.sweep.id)

    def plan(self, file: SweepFile) -> SweepPlan:
        """Return what a sweep file would run, and how long it would take."""
        return plan_sweep(self.connection, *_read(file))

    def sweep(self, name: str) -> SweepClient:
        """Find a sweep by its name, by its id or by the beginning of its id."""
        return SweepClient(self.connection, find_sweep(self.connection, name))

    def sweeps(self) -> list[SweepClient]:
        """List all sweeps, newest first."""
        return [SweepClient(self.connection, each) for each in list_sweeps(self.connection)]

    def phones(self, selector: str = "") -> list[KnownPhone]:
        """List the phones, or those that match a selector such as `root and big >= 4`."""
        return list_phones(self.connection, selector)

    def hosts(self) -> list[HostSummary]:
        """List the hosts."""
        return list_hosts(self.connection)

    def status(self) -> LabView:
        """Return what the phones and the newest sweeps do at the moment."""
        return read_lab_status(self.connection)

    def trial(self, prefix: str) -> TrialDetails:
        """Return a trial with its reports, by the beginning of its id."""
        return show_trial(self.connection, prefix)

    def compare(self, base: str, candidate: str, metric: str = "") -> ComparisonTable:
        """Compare two sides, each SWEEP or SWEEP:KEY=VALUE,..."""
        return compare_results(self.connection, base, candidate, CompareRequest(metric))

    def call(self, operation: str, **arguments: Any) -> Any:
        """Call any operation by its name, such as `tag_phone`; /docs of a lab lists them."""
        known = load_operations()
        if operation not in known:
            hint = suggestion(operation, list(known))
            raise InvalidRequest(f"there is no operation '{operation}'; {hint}")
        if self.connection.remote is None:
            return known[operation].function(self.connection, **arguments)
        return self.connection.remote.call(known[operation], (), arguments)

    def close(self) -> None:
        """Close the connections; the next call opens them again."""
        self.connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _read(file: SweepFile) -> tuple[str, Callable[[str], str]]:
    """Return a sweep file, and what reads the files beside it that it names."""
    path = Path(file)
    return read_input(path).decode(), lambda name: read_input(path.parent / name).decode()
