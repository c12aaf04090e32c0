"""A JSON-lines file in the runner's folder; a failed write is the fault `io`."""

from agent.virtual.files.file_tree import error_text
from agent.virtual.runner.runner_contract import (
    RunnerExit,
    RunnerFailure,
    RunnerRecord,
    encode_record,
)
from agent.virtual.virtual_phone import VirtualPhone


class JsonlFile:
    """An open file; every line is whole or absent."""

    def __init__(self, phone: VirtualPhone, path: str, uid: int, append: bool = False) -> None:
        self._phone = phone
        self._path = path
        self._uid = uid
        try:
            self._node = phone.tree.open_for_writing(path, uid, append=append)
        except OSError as error:
            raise RunnerFailure(
                RunnerExit.IO, f"cannot write {path}: {error_text(error)}"
            ) from None

    def write(self, record: RunnerRecord) -> None:
        self.write_text(encode_record(record))

    def write_text(self, line: str) -> None:
        """Append a line that is already JSON."""
        try:
            self._phone.tree.append(self._node, f"{line}\n".encode(), self._uid)
        except OSError as error:
            raise RunnerFailure(
                RunnerExit.IO, f"cannot write {self._path}: {error_text(error)}"
            ) from None
