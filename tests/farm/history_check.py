"""Checks the invariants that hold at the end of any history, whatever faults occurred.

It reads the store, the agents' spools, and the journals of the virtual phones, which the farm
cannot write. The invariants are numbered as in tests/FAULTS.md.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from orchestrator.planning.states import RunState
from orchestrator.store.phone_queries import known_phones
from orchestrator.store.results import telemetry_blob
from tests.farm.conftest import PROCESSES, Farm, node_name
from workloads.protocol.base import digest_of_bytes

ENDED = {RunState.DONE, RunState.FAILED, RunState.SKIPPED, RunState.BLOCKED, RunState.CANCELLED}
FENCE, CLOCKS = "/fence.", "/cpufreq/"
Skews = Mapping[str, float | None]  # error of each host's clock in seconds; None: it changed
NO_SKEW: Skews = {}


def violations(farm: Farm, sweep: str, skew_s: Skews = NO_SKEW) -> list[str]:
    """Return every violated invariant as text.

    Reports have the time of their host's clock; `skew_s` corrects hosts whose clock is wrong.
    """
    found = [*_check_run_ends(farm, sweep), *_check_accepted_reports(farm, sweep)]
    for phone in known_phones(farm.db):
        found += _check_exclusive_use(farm, phone.serial)
        found += _check_restored(farm, phone.serial)
        found += _check_executed(farm, sweep, phone.serial, skew_s)
    return [*found, *_check_spools(farm)]


def _check_run_ends(farm: Farm, sweep: str) -> Iterator[str]:
    """I1, I2: every run has ended; a run that is done has exactly one accepted report."""
    query = (
        "SELECT run.trial, run.repeat, run.state, count(report.id) AS accepted FROM run "
        "LEFT JOIN report ON report.trial = run.trial AND report.repeat = run.repeat "
        "AND report.status = 'accepted' "
        f"WHERE run.sweep = '{sweep}' GROUP BY run.trial, run.repeat, run.state"
    )
    for run in _rows(farm, query):
        name = f"{run.trial}.{run.repeat}"
        if run.state not in ENDED:
            yield f"{name} has not ended: it is {run.state}"
        if run.accepted != (1 if run.state == RunState.DONE else 0):
            yield f"{name} is {run.state} with {run.accepted} accepted reports"


def _check_accepted_reports(farm: Farm, sweep: str) -> Iterator[str]:
    """I5, I6: an accepted report is not void, complete, and of an attempt that was leased."""
    query = (
        "SELECT report.trial, report.repeat, report.attempt, report.validity, report.telemetry, "
        "run.attempt AS last_attempt FROM report "
        "JOIN run ON report.trial = run.trial AND report.repeat = run.repeat "
        f"WHERE run.sweep = '{sweep}' AND report.status = 'accepted'"
    )
    for row in _rows(farm, query):
        name = f"{row.trial}.{row.repeat}"
        if row.validity == "void":
            yield f"{name} was accepted, but it is void"
        if row.attempt > row.last_attempt:
            yield f"{name} was reported by attempt {row.attempt}, which was never leased"
        if row.telemetry:
            blob = telemetry_blob(farm.db, row.telemetry)
            if blob is None or digest_of_bytes(blob) != row.telemetry:
                yield f"{name} lost its telemetry"


def _check_exclusive_use(farm: Farm, serial: str) -> Iterator[str]:
    """I3, I7: a phone executes one run at a time, and its fences only grow."""
    running, fence = 0, 0
    for line in farm.journal(serial, "run_start", "run_stop", "boot", "file_write"):
        match line["event"]:
            case "boot":
                running = 0
            case "run_start" | "run_stop":
                running += 1 if line["event"] == "run_start" else -1
                if running not in (0, 1):
                    yield f"{serial} had {running} concurrent runs at {line['wall_time']}"
            case "file_write" if FENCE in line["path"] and line["operation"] == "write":
                number = int(line["text"].split()[0])
                if number < fence:
                    yield f"{serial} was changed with fence {number} after {fence}"
                fence = max(fence, number)


def _check_restored(farm: Farm, serial: str) -> Iterator[str]:
    """I4: every node and setting of a phone has its original value."""
    rebooting = False
    first: dict[tuple[str, ...], Any] = {}
    last: dict[tuple[str, ...], Any] = {}
    for line in farm.journal(serial, "reboot", "boot", "sysfs_write", "setting_write"):
        match line["event"]:
            case "reboot":
                rebooting = True
            case "boot":  # resets kernel nodes; without a reboot before it, settings as well
                last = {node: value for node, value in last.items() if rebooting and node[1]}
                rebooting = False
            case _ if "old" in line and not line.get("path", "").endswith(PROCESSES):
                name = node_name(line.get("path") or line["name"])
                node = (line["event"], line.get("namespace", ""), name)
                first.setdefault(node, line["old"])
                last[node] = (line["new"], line.get("text", "").strip())
    for node, values in last.items():
        if first[node] not in values:  # a throttled phone shows less than what was written
            yield f"{serial} was left with {node[-1]} = {values[0]} instead of {first[node]}"


@dataclass
class _ExecutedRun:
    """A run in the journal of its phone; disturbed if a clock was written during the run."""

    started_at_s: float
    ended_at_s: float | None = None
    disturbed: bool = False


def _check_executed(farm: Farm, sweep: str, serial: str, skew_s: Skews) -> Iterator[str]:
    """I5: the phone executed every accepted run completely, with undisturbed clocks."""
    runs = _executed_runs(farm, serial)
    query = (
        "SELECT report.trial, report.repeat, report.started_at_s, report.ended_at_s, run.host "
        "FROM report JOIN run ON report.trial = run.trial AND report.repeat = run.repeat "
        f"WHERE run.sweep = '{sweep}' AND report.phone = '{serial}' "
        "AND report.status = 'accepted'"
    )
    for row in _rows(farm, query):
        skew = skew_s.get(row.host, 0.0)
        if skew is None:
            continue
        since, until = row.started_at_s - skew - 0.01, row.ended_at_s - skew + 0.01
        matching = [run for run in runs if since <= run.started_at_s <= until]
        if not any(run.ended_at_s is not None and run.ended_at_s <= until for run in matching):
            yield f"{row.trial}.{row.repeat} was accepted, but {serial} never executed it"
        if any(run.disturbed for run in matching):
            yield f"{row.trial}.{row.repeat} was accepted, but its clock was written during the run"


def _executed_runs(farm: Farm, serial: str) -> list[_ExecutedRun]:
    runs: list[_ExecutedRun] = []
    for line in farm.journal(serial, "run_start", "run_stop", "sysfs_write", "boot"):
        at = datetime.fromisoformat(line["wall_time"]).timestamp()
        open_ = runs[-1] if runs and runs[-1].ended_at_s is None else None
        match line["event"]:
            case "run_start":
                runs.append(_ExecutedRun(at))
            case "run_stop" if open_ is not None:
                open_.ended_at_s = at
            case "sysfs_write" if open_ is not None and CLOCKS in line["path"]:
                open_.disturbed = True
            case "boot" if open_ is not None:
                runs.pop()
    return runs


def _check_spools(farm: Farm) -> Iterator[str]:
    """I10: the spools of the agents are empty."""
    if farm.spooled_parcels():
        yield f"{farm.spooled_parcels()} parcels were never confirmed"


def _rows(farm: Farm, query: str) -> list[Any]:
    with farm.db.read() as connection:
        return list(connection.exec_driver_sql(query).all())
