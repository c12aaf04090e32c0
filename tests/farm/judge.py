"""The judge: what must be so at the end of any history, whatever was broken on the way.

It reads two things only: the store, and the journals that the phones themselves kept, which the
farm cannot write. Each breach is a sentence.
"""

from collections.abc import Iterator
from typing import Any

from orchestrator.nouns import RunState
from orchestrator.store.queries import known_phones, telemetry
from tests.farm.conftest import Farm

ENDED = {RunState.DONE, RunState.FAILED, RunState.SPARED, RunState.HELD, RunState.CANCELLED}
FENCE = "/fence."


def breaches(farm: Farm, sweep: str) -> list[str]:
    """Everything that is not as promised; an empty list is a clean history."""
    serials = [phone.serial for phone in known_phones(farm.db)]
    return [
        *_every_run_ends_once(farm, sweep),
        *_what_counts_is_whole(farm, sweep),
        *(breach for serial in serials for breach in _a_phone_is_respected(farm, serial)),
    ]


def _every_run_ends_once(farm: Farm, sweep: str) -> Iterator[str]:
    """Nothing vanishes and nothing counts twice: a run that is done has one accepted report."""
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
    """What is accepted is valid or doubted, by the attempt that holds the run, and all there."""
    question = (
        "SELECT report.trial, report.repeat, report.attempt, report.standing, report.telemetry, "
        "run.attempt AS held FROM report "
        "JOIN run ON report.trial = run.trial AND report.repeat = run.repeat "
        f"WHERE run.sweep = '{sweep}' AND report.status = 'accepted'"
    )
    for row in _rows(farm, question):
        name = f"{row.trial}.{row.repeat}"
        if row.standing == "void":
            yield f"{name} counts, and is void"
        if row.attempt > row.held:
            yield f"{name} was answered by attempt {row.attempt}, which was never given out"
        if row.telemetry and telemetry(farm.db, row.telemetry) is None:
            yield f"{name} lost its telemetry"


def _a_phone_is_respected(farm: Farm, serial: str) -> Iterator[str]:
    """One run at a time, fences that only grow, and everything as it was found."""
    running, fence = 0, 0
    first: dict[tuple[str, ...], Any] = {}
    last: dict[tuple[str, ...], Any] = {}
    for line in farm.witness(serial, "run_start", "run_stop", "file", "sysfs", "setting", "boot"):
        match line["event"]:
            case "boot":
                running = 0
            case "run_start" | "run_stop":
                running += 1 if line["event"] == "run_start" else -1
                if running not in (0, 1):
                    yield f"{serial} had {running} runs at once at {line['wall']}"
            case "file" if FENCE in line["path"] and line["how"] == "write":
                number = int(line["text"].split()[0])
                if number < fence:
                    yield f"{serial} was touched under fence {number} after {fence}"
                fence = max(fence, number)
            case "sysfs" | "setting" if "old" in line:
                node = (line["event"], line.get("space", ""), line.get("path") or line["name"])
                first.setdefault(node, line["old"])
                last[node] = line["new"]
    for node, value in last.items():
        if value != first[node]:
            yield f"{serial} was left with {node[-1]} = {value}, and was found with {first[node]}"


def _rows(farm: Farm, question: str) -> list[Any]:
    with farm.db.read() as connection:
        return list(connection.exec_driver_sql(question).all())
