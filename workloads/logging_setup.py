"""Configure logging the same way in every service."""

import logging
import os

from workloads.text import safe_text

# Values follow the message as key=value.
LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s %(message)s"
MESSAGE_MAX = 4000


class SafeFormatter(logging.Formatter):
    """Writes every message as one line without control characters, whoever sent its parts."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, followed by the traceback if there is one."""
        record.msg, record.args = safe_text(record.getMessage(), MESSAGE_MAX), ()
        return super().format(record)


def configure_logging(level: str = "INFO") -> None:
    """Log to stderr; libraries from WARNING on. The files that a service writes are private.

    The farm's loggers have their own level, because Celery sets that of the root logger.
    """
    os.umask(0o077)
    handler = logging.StreamHandler()
    handler.setFormatter(SafeFormatter(LOG_FORMAT))
    logging.basicConfig(handlers=[handler], level="WARNING")
    logging.getLogger("farm").setLevel(level)
