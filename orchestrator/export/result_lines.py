"""The results of a sweep as lines of canonical JSON, one per report, and their digest.

A line holds what a report says of a phone: case, condition, figures, verdict or fault, and all that
was sampled. It does not hold what only the computer knows: host, dates, boot ids, texts with
addresses. An attempt that the lab's own plumbing ended says nothing of the phone and has no line.
Virtual phones in event time therefore give the same lines on every computer.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from hashlib import sha256
from typing import Any, BinaryIO, NamedTuple

from workloads.catalogue import Case
from workloads.protocol.base import canonical_json
from workloads.protocol.condition import Condition
from workloads.protocol.faults import Blame, InvalidRequest
from workloads.protocol.messages import Report
from workloads.protocol.telemetry import unpack_telemetry

_OF_THE_COMPUTER = {
    *("kind", "version", "host", "started_at", "ended_at", "boot_id", "restore_error"),
    *("case_digest", "condition_digest", "telemetry", "chunks"),
}


class StoredReport(NamedTuple):
    """A report with its case, its condition, and the telemetry that it names."""

    report: Report
    case: Case
    condition: Condition
    telemetry: bytes | None


def result_lines(reports: Iterable[StoredReport]) -> Iterator[bytes]:
    """Yield one line per report, in the order in which they come, and count attempts anew."""
    attempts: Counter[tuple[str, int]] = Counter()
    for stored in reports:
        fault, run = stored.report.fault, stored.report.run
        if fault is not None and fault.blame is Blame.FARM:
            continue
        attempts[run.trial, run.repeat] += 1
        result = _result(stored)
        result["run"]["attempt"] = attempts[run.trial, run.repeat]
        yield canonical_json(result).encode() + b"\n"


def write_results(reports: Iterable[StoredReport], stream: BinaryIO) -> int:
    """Write the lines, and return their number."""
    count = 0
    for line in result_lines(reports):
        stream.write(line)
        count += 1
    return count


def results_digest(reports: Iterable[StoredReport]) -> tuple[str, int]:
    """Return the SHA-256 of all lines, and their number."""
    digest, count = sha256(), 0
    for line in result_lines(reports):
        digest.update(line)
        count += 1
    return digest.hexdigest(), count


def _result(stored: StoredReport) -> dict[str, Any]:
    report = stored.report.model_dump(mode="json", exclude=_OF_THE_COMPUTER)
    if report["fault"] is not None:
        report["fault"].pop("text")
    telemetry = None
    with suppress(InvalidRequest):  # a host may have sent anything
        telemetry = unpack_telemetry(stored.telemetry) if stored.telemetry is not None else None
    return report | {
        "case": stored.case.model_dump(mode="json"),
        "condition": stored.condition.model_dump(mode="json"),
        "telemetry": telemetry,
    }
