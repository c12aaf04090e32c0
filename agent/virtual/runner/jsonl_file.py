"""A file of lines in the runner's folder; what cannot be written is the fault io."""

from agent.virtual.files.tree import strerror
from agent.virtual.phone import Phone
from agent.virtual.runner.contract import Exit, Line, RunnerFault, encode_line


class Lines:
    """An open file; lines are whole or absent."""

    def __init__(self, phone: Phone, path: str, uid: int, append: bool = False) -> None:
        self._phone = phone
        self._path = path
        self._uid = uid
        try:
            self._node = phone.tree.open_for_writing(path, uid, append=append)
        except OSError as error:
            raise RunnerFault(Exit.IO, f"cannot write {path}: {strerror(error)}") from None

    def say(self, line: Line) -> None:
        self.say_text(encode_line(line))

    def say_text(self, line: str) -> None:
        """Append a line that is JSON already."""
        try:
            self._phone.tree.append(self._node, f"{line}\n".encode(), self._uid)
        except OSError as error:
            raise RunnerFault(Exit.IO, f"cannot write {self._path}: {strerror(error)}") from None
