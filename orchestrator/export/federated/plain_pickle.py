"""Pickles of plain values, for two simulators; reading one never executes code."""

import io
import pickle
from typing import Any, NoReturn

from workloads.protocol.faults import InvalidRequest


class _PlainUnpickler(pickle.Unpickler):
    """Reads numbers, texts, lists and dicts; refuses anything that names a class."""

    def find_class(self, module: str, name: str) -> NoReturn:
        raise InvalidRequest(
            f"the pickle would run {module}.{name}; it is not a file of 'farm select export'"
        )


def dump(content: object) -> bytes:
    """Pickle with protocol 2, which every version of Python 3 reads."""
    return pickle.dumps(content, protocol=2)


def load(data: bytes) -> Any:
    """Unpickle plain values only."""
    try:
        return _PlainUnpickler(io.BytesIO(data)).load()
    except (pickle.UnpicklingError, EOFError, ValueError) as error:
        raise InvalidRequest(f"not a pickle: {error}") from error
