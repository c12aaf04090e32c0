"""Checks the rows of a bundle: types, values, and that all of them belong to its one sweep.

A bundle is untrusted input: its checksums only prove that it was not changed since it was written.
"""

import base64
import math
import re
from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from time import time
from typing import Any, NamedTuple

from pydantic import ValidationError
from sqlalchemy import JSON, BigInteger, Table

from orchestrator.planning.states import PausedBy, ReportStatus, RunState, SweepState
from orchestrator.store.ingest import report_row
from orchestrator.store.metric_checks import metric_objection
from orchestrator.sweepfile.policy import Policy
from orchestrator.sweepfile.sweep_file import NAME_PATTERN
from workloads.catalogue import Case, is_known
from workloads.protocol.condition import Condition
from workloads.protocol.faults import InvalidRequest
from workloads.protocol.limits import CHUNK_BYTES_MAX, REPORT_BYTES_MAX
from workloads.protocol.messages import PhoneAnnouncement, Report
from workloads.text import safe_text

PHONE_COLUMNS = ["serial", "host", "facts", "facts_digest"]
CHUNKS_MAX = 64
_UNFINISHED = (RunState.QUEUED, RunState.LEASED)
_FROM_ELSEWHERE = "belongs to something that is not in the bundle"
Row = dict[str, Any]


class _CheckedTrial(NamedTuple):
    phone: str
    case_digest: str
    condition_digest: str


class BundleChecker:
    """Checks rows one by one, and remembers what later rows may refer to."""

    def __init__(self, sweep: str) -> None:
        self._sweep = sweep
        self._has_sweep = False
        self._phones: set[str] = set()
        self._trials: dict[str, _CheckedTrial] = {}
        self._runs: dict[tuple[str, int], RunState] = {}
        self._blobs: set[str] = set()
        self._accepted: list[Report] = []
        self._accepted_runs: set[tuple[str, int]] = set()

    def check(self, table: Table, row: Mapping[str, Any]) -> Row:
        """Return the values of a row for the store; InvalidRequest says what is wrong."""
        checks = {
            "phone": self._check_phone,
            "sweep": self._check_sweep,
            "trial": self._check_trial,
            "run": self._check_run,
            "report": self._check_report,
            "chunk": self._check_chunk,
        }
        try:
            values = {name: _column_value(table, name, value) for name, value in row.items()}
            return checks[table.name](values)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"]))
            reason = f"{where}: {first['msg']}" if where else first["msg"]
        except (ValueError, TypeError, OverflowError, RecursionError) as error:
            reason = str(error)
        shown = safe_text(reason, 200)
        raise InvalidRequest(f"part '{table.name}' has a row that is not valid: {shown}")

    @property
    def trials(self) -> Collection[str]:
        """The trials that were checked."""
        return self._trials.keys()

    def take_accepted(self) -> list[Report]:
        """Return the accepted reports that were checked since the last call."""
        reports, self._accepted = self._accepted, []
        return reports

    def _check_phone(self, values: Row) -> Row:
        serial = values.pop("serial")
        announced = PhoneAnnouncement.model_validate(values)
        _require(announced.facts.serial == serial, "its facts are those of another phone")
        self._phones.add(serial)
        never = datetime.fromtimestamp(0, UTC)
        return {**values, "serial": serial, "last_seen_at": never, "fence": int(time())}

    def _check_sweep(self, values: Row) -> Row:
        _require(values["id"] == self._sweep, "its id is not that of the manifest")
        _require(re.fullmatch(NAME_PATTERN, values["name"]) is not None, "its name")
        Policy.model_validate(values["policy"])
        _require(0 <= values["priority"] <= 100, "its priority")
        self._has_sweep = True
        SweepState(values["state"])
        PausedBy(values["paused_by"] or PausedBy.PERSON)
        return values

    def _check_trial(self, values: Row) -> Row:
        _require(self._has_sweep and values["sweep"] == self._sweep)
        _require(values["phone"] in self._phones)
        case, condition = (
            Case.model_validate(values["case"]),
            Condition.model_validate(values["condition"]),
        )
        _require(is_known(case), "this version does not have its workload with its parameters")
        digests = values["case_digest"], values["condition_digest"]
        _require(digests == (case.digest, condition.digest), "its digests are wrong")
        self._trials[values["id"]] = _CheckedTrial(values["phone"], *digests)
        return values

    def _check_run(self, values: Row) -> Row:
        checked, state = self._trials.get(values["trial"]), RunState(values["state"])
        _require(values["sweep"] == self._sweep and checked is not None)
        assert checked is not None
        _require(values["phone"] == checked.phone, "its phone is not that of its trial")
        _require(state not in _UNFINISHED, "it is unfinished and would start here")
        _require(isinstance(values["tries"], dict), "its tries")
        self._runs[values["trial"], values["repeat"]] = state
        return values | {"lease_until": 0.0, "not_before": 0.0}

    def _check_report(self, values: Row) -> Row:
        _require(len(values["payload"]) <= REPORT_BYTES_MAX, "its length")
        message, status = (
            Report.model_validate_json(values["payload"]),
            ReportStatus(values["status"]),
        )
        key = message.run.trial, message.run.repeat
        _require(key in self._runs)
        reported = _CheckedTrial(message.phone, message.case_digest, message.condition_digest)
        _require(reported == self._trials[key[0]], "it is about another trial")
        from_payload = report_row(message, status)
        columns = set(values) - {"payload", "received_at"}
        wrong = sorted(name for name in columns if values[name] != from_payload[name])
        _require(not wrong, f"its payload has another {', '.join(wrong)}")
        if status == ReportStatus.ACCEPTED:
            _require(self._runs[key] is RunState.DONE, "it is accepted, but its run is not done")
            _require(message.fault is None and message.verdict is not None, "it has no verdict")
            objection = metric_objection(message.metrics, None)
            _require(not objection, objection)
            _require(key not in self._accepted_runs, "its run is accepted twice")
            self._accepted_runs.add(key)
            self._accepted.append(message)
        if message.telemetry is not None:
            self._blobs.add(message.telemetry)
        return values | {"judged": values["validity"]}

    def _check_chunk(self, values: Row) -> Row:
        _require(values["digest"] in self._blobs)
        _require(0 <= values["part"] < values["parts"] <= CHUNKS_MAX, "its number")
        _require(len(values["data"]) <= CHUNK_BYTES_MAX, "its length")
        return values


def _require(is_met: bool, reason: str = _FROM_ELSEWHERE) -> None:
    if not is_met:
        raise ValueError(reason)


def _column_value(table: Table, name: str, value: Any) -> Any:
    """Return a value as the column holds it; the types of JSON are checked, not converted."""
    column = table.columns[name]
    if value is None and column.nullable:
        return None
    fits, convert = _reader(column.type)
    _require(fits(value), f"{name} is not of its type")
    return convert(value)


def _reader(kind: Any) -> tuple[Any, Any]:
    """Return what a JSON value of a column must fulfil, and how the column's value is made."""
    if isinstance(kind, JSON):
        return (lambda value: isinstance(value, dict | list)), (lambda value: value)
    bits = 63 if isinstance(kind, BigInteger) else 31
    readers: dict[type, tuple[Any, Any]] = {
        bytes: (_is_text, lambda value: base64.b64decode(value, validate=True)),
        datetime: (_is_text, _aware_time),
        bool: (lambda value: isinstance(value, bool), bool),
        float: (_is_number, float),
        int: (lambda value: type(value) is int and abs(value) < 2**bits, int),
    }
    return readers.get(kind.python_type, (_is_text, str))


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and "\0" not in value and bool(value.encode() or True)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and type(value) is not bool and math.isfinite(value)


def _aware_time(value: str) -> datetime:
    moment = datetime.fromisoformat(value)
    _require(moment.tzinfo is not None, "a time without its zone")
    return moment
