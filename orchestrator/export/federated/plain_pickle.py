"""Pickles of plain values: what two simulators want, read back without running anything."""

import io
import pickle
from typing import Any, NoReturn

from workloads.protocol.faults import InvalidRequest


class _Plain(pickle.Unpickler):
    """Numbers, texts, lists and tables; anything that names a class is refused."""

    def find_class(self, module: str, name: str) -> NoReturn:
        raise InvalidRequest(
            f"the file wants to run {module}.{name}; it was not written by the farm"
        )


def dump(content: object) -> bytes:
    """The oldest form that every Python 3 reads."""
    return pickle.dumps(content, protocol=2)


def load(data: bytes) -> Any:
    """Read plain values only."""
    try:
        return _Plain(io.BytesIO(data)).load()
    except (pickle.UnpicklingError, EOFError, ValueError) as error:
        raise InvalidRequest(f"the file is no pickle: {error}") from error
