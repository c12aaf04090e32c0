"""Configure logging the same way in every service: lines for people, or JSON for programs.

A log call names its values in the format string, `lease expired run=%s phone=%s`. The JSON form has
these names as keys. They are taken from the format string and never from the text of a value, so
that no phone or host can add a key.
"""

import json
import logging
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from types import MappingProxyType

from workloads.text import safe_text

# Values follow the message as key=value.
LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s %(message)s"
MESSAGE_MAX = 4000
VALUE_MAX = 500
TRACEBACK_MAX = 20_000
_CONVERSION = re.compile(r"(?: ?(\w+)=)?%[-+ #0]*\d*(?:\.\d+)?([a-zA-Z%])")
_NO_VALUES: Mapping[str, object] = MappingProxyType({})
_context: ContextVar[Mapping[str, object]] = ContextVar("log_values", default=_NO_VALUES)


@contextmanager
def log_values(**values: object) -> Iterator[None]:
    """Add values to every JSON line that this thread logs inside the block."""
    token = _context.set({**_context.get(), **values})
    try:
        yield
    finally:
        _context.reset(token)


class SafeFormatter(logging.Formatter):
    """Writes every message as one line without control characters."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, followed by the traceback if there is one."""
        record.msg, record.args = safe_text(record.getMessage(), MESSAGE_MAX), ()
        return super().format(record)


class JsonFormatter(logging.Formatter):
    """Writes every message as one JSON object on one line."""

    def __init__(self, service: str) -> None:
        super().__init__()
        self._service = service

    def format(self, record: logging.LogRecord) -> str:
        """Return the object: time, level, logger, message, and the named values."""
        message, values = _split_values(record)
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "service": self._service,
            "logger": record.name,
            "message": safe_text(message, MESSAGE_MAX),
        }
        for name, value in {**_context.get(), **values}.items():
            line |= _parts(name, value)
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)[-TRACEBACK_MAX:]
        return json.dumps(line, ensure_ascii=True)


def _split_values(record: logging.LogRecord) -> tuple[str, dict[str, object]]:
    """Return the message without its named values, and these."""
    arguments = record.args
    if not isinstance(record.msg, str) or not isinstance(arguments, tuple):
        return record.getMessage(), {}
    values: dict[str, object] = {}
    rest: list[object] = []
    waiting = iter(arguments)

    def take(match: re.Match[str]) -> str:
        name, conversion = match.groups()
        if conversion == "%":
            return match[0]
        value = next(waiting, None)
        if name:
            values[name] = value
            return ""
        rest.append(value)
        return match[0]

    template = _CONVERSION.sub(take, record.msg)
    return (template % tuple(rest) if arguments else record.msg), values


def _parts(name: str, value: object) -> dict[str, object]:
    """Return a value as JSON has it; a run is its trial, repeat and attempt."""
    if name == "run" and hasattr(value, "attempt"):
        return {key: getattr(value, key) for key in ("trial", "repeat", "attempt")}
    if value is None or isinstance(value, bool | int | float):
        return {name: value}
    return {name: safe_text(value, VALUE_MAX)}


def configure_logging(service: str = "", form: str = "text") -> None:
    """Log to stderr; libraries from WARNING on. The files that a service writes are private.

    The farm's loggers have their own level, because Celery sets that of the root logger.
    """
    os.umask(0o077)
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter(service) if form == "json" else SafeFormatter(LOG_FORMAT))
    logging.basicConfig(handlers=[handler], level="WARNING", force=True)
    logging.getLogger("farm").setLevel("INFO")
