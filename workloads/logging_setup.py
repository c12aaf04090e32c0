"""Configure logging the same way in every service."""

import logging

# Values follow the message as key=value.
LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s %(message)s"


def configure_logging(level: str = "INFO") -> None:
    """Log to stderr; libraries from WARNING on.

    The farm's loggers have their own level, because Celery sets that of the root logger.
    """
    logging.basicConfig(format=LOG_FORMAT, level="WARNING")
    logging.getLogger("farm").setLevel(level)
