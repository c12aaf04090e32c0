"""What a process is: the version that it runs, and an id that differs in every start."""

import functools
import secrets
from importlib.metadata import PackageNotFoundError, version


@functools.cache
def software_version() -> str:
    """Return the version of Farmhand that this process runs."""
    try:
        return version("farmhand")
    except PackageNotFoundError:
        return ""


def new_instance() -> str:
    """Return the id of a process."""
    return secrets.token_hex(8)
