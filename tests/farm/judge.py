"""The judge: what must be so at the end of any history, whatever was broken on the way.

It reads three things only: the store, the agents' spools, and the journals that the phones
themselves kept, which the farm cannot write. Each breach is a sentence. The numbers of the
invariants (I1 ..) are those of tests/FAULTS.md.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from orchestrator.decisions.states import RunState
from orchestrator.store.phone_queries import known_phones
from orchestrator.store.results import telemetry_blob
from tests.farm.conftest import Farm
from workloads.protocol.base import digest_of_bytes

ENDED = {RunState.DONE, RunState.FAILED, RunState.SKIPPED, RunState.BLOCKED, RunState.CANCELLED}
FENCE, CLOCKS = "/fence.", "/cpufreq/"
Skews = Mapping[str, float | None]  # by how much a host's clock is wrong; None: it was set
NO_SKEW: Skews = {}


def breaches(farm: Farm, sweep: str, skew_s: Skews = NO_SKEW) -> list[str]:
    """Everything that is not as promised; an empty list is a clean history.

    A report tells the time by its host's clock, so whoever sets that wrong says by how much.
    """
    serials = [phone.serial for phone in known_phones(farm.db)]
    return [
        *_every_run_ends_once(farm, sweep),
        *_what_counts_is_whole(farm, sweep),
        *(breach for serial in serials for breach in _a_phone_is_respected(farm, serial)),
        *(breach for serial in serials for breach in _it_is_put_back(farm, serial)),
        *(breach for serial in serials for breach in _it_was_run(farm, sweep, serial, skew_s)),
        *_nothing_is_left(farm),
    ]


def _every_run_ends_once(farm: Farm, sweep: str) -> Iterator[str]:
    """I1, I2: nothing vanishes, nothing counts twice; a run that is done has one report."""
    question = (
        "SELECT run.trial, run.repeat, run.state, count(report.id) AS accepted FROM run "
        "LEFT JOIN report ON report.trial = run.trial AND report.repeat = run.repeat "
        "AND report.status = 'accepted' "
        f"WHERE run.sweep = '{sweep}' GROUP BY run.trial, run.repeat, run.state"
    )
    for run in _rows(farm, question):
        name = f"{run.trial}.{run.repeat}"
        if run.state not in ENDED:
            yield f"{name} never ended: it is {run.state}"
        if run.accepted != (1 if run.state == RunState.DONE else 0):
            yield f"{name} is {run.state} with {run.accepted} accepted reports"


def _what_counts_is_whole(farm: Farm, sweep: str) -> Iterator[str]:
    """I5, I6: what is accepted is valid or doubted, whole, and by an attempt that was given."""
    question = (
        "SELECT report.trial, report.repeat, report.attempt, report.validity, report.telemetry, "
        "run.attempt AS held FROM report "
        "JOIN run ON report.trial = run.trial AND report.repeat = run.repeat "
        f"WHERE run.sweep = '{sweep}' AND report.status = 'accepted'"
    )
    for row in _rows(farm, question):
        name = f"{row.trial}.{row.repeat}"
        if row.validity == "void":
            yield f"{name} counts, and is void"
        if row.attempt > row.held:
            yield f"{name} was answered by attempt {row.attempt}, which was never given out"
        if row.telemetry:
            blob = telemetry_blob(farm.db, row.telemetry)
            if blob is None or digest_of_bytes(blob) != row.telemetry:
                yield f"{name} lost its telemetry"


def _a_phone_is_respected(farm: Farm, serial: str) -> Iterator[str]:
    """I3, I7: one run at a time, and fences that only grow."""
    running, fence = 0, 0
    for line in farm.witness(serial, "run_start", "run_stop", "boot", "file_write"):
        match line["event"]:
            case "boot":
                running = 0
            case "run_start" | "run_stop":
                running += 1 if line["event"] == "run_start" else -1
                if running not in (0, 1):
                    yield f"{serial} had {running} runs at once at {line['wall_time']}"
            case "file_write" if FENCE in line["path"] and line["operation"] == "write":
                number = int(line["text"].split()[0])
                if number < fence:
                    yield f"{serial} was touched under fence {number} after {fence}"
                fence = max(fence, number)


def _it_is_put_back(farm: Farm, serial: str) -> Iterator[str]:
    """I4: everything is as it was found."""
    restarted = False
    first: dict[tuple[str, ...], Any] = {}
    last: dict[tuple[str, ...], Any] = {}
    for line in farm.witness(serial, "reboot", "boot", "sysfs_write", "setting_write"):
        match line["event"]:
            case "reboot":
                restarted = True
            case "boot":  # nodes begin anew; settings stay, unless it is a phone just made
                last = {node: value for node, value in last.items() if restarted and node[1]}
                restarted = False
            case _ if "old" in line:
                node = (line["event"], line.get("namespace", ""), line.get("path") or line["name"])
                first.setdefault(node, line["old"])
                last[node] = (line["new"], line.get("text", "").strip())
    for node, values in last.items():
        if first[node] not in values:  # a phone that throttles shows less than it was given
            yield f"{serial} was left with {node[-1]} = {values[0]}, found with {first[node]}"


@dataclass
class _Stretch:
    """A run as its phone saw it; disturbed if somebody wrote a clock while it was timed."""

    started_at_s: float
    ended_at_s: float | None = None
    disturbed: bool = False


def _it_was_run(farm: Farm, sweep: str, serial: str, skew_s: Skews) -> Iterator[str]:
    """I5: whatever counts, the phone itself has run, whole and with its clocks left alone."""
    runs = _stretches(farm, serial)
    question = (
        "SELECT report.trial, report.repeat, report.started_at_s, report.ended_at_s, run.host "
        "FROM report JOIN run ON report.trial = run.trial AND report.repeat = run.repeat "
        f"WHERE run.sweep = '{sweep}' AND report.phone = '{serial}' "
        "AND report.status = 'accepted'"
    )
    for row in _rows(farm, question):
        off = skew_s.get(row.host, 0.0)
        if off is None:
            continue
        since, until = row.started_at_s - off - 0.01, row.ended_at_s - off + 0.01
        mine = [run for run in runs if since <= run.started_at_s <= until]
        if not any(run.ended_at_s is not None and run.ended_at_s <= until for run in mine):
            yield f"{row.trial}.{row.repeat} counts, and {serial} never ran it"
        if any(run.disturbed for run in mine):
            yield f"{row.trial}.{row.repeat} counts, and its clock was written in mid-run"


def _stretches(farm: Farm, serial: str) -> list[_Stretch]:
    runs: list[_Stretch] = []
    for line in farm.witness(serial, "run_start", "run_stop", "sysfs_write", "boot"):
        at = datetime.fromisoformat(line["wall_time"]).timestamp()
        open_ = runs[-1] if runs and runs[-1].ended_at_s is None else None
        match line["event"]:
            case "run_start":
                runs.append(_Stretch(at))
            case "run_stop" if open_ is not None:
                open_.ended_at_s = at
            case "sysfs_write" if open_ is not None and CLOCKS in line["path"]:
                open_.disturbed = True
            case "boot" if open_ is not None:
                runs.pop()
    return runs


def _nothing_is_left(farm: Farm) -> Iterator[str]:
    """I10: agents keep nothing that is stored."""
    if farm.spooled():
        yield f"{farm.spooled()} parcels were never confirmed"


def _rows(farm: Farm, question: str) -> list[Any]:
    with farm.db.read() as connection:
        return list(connection.exec_driver_sql(question).all())
