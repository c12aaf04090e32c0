"""Exceptions that leave the middle of a script: exit, return, break and continue."""


class ShellExit(Exception):
    """`exit` was executed."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


class FunctionReturn(Exception):
    """`return` was executed."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


class LoopJump(Exception):
    """`break` or `continue` was executed."""

    def __init__(self, is_continue: bool, levels: int) -> None:
        super().__init__(is_continue, levels)
        self.is_continue = is_continue
        self.levels = levels

    def continues_loop(self) -> bool:
        """Return whether this loop continues; a jump out of several loops is raised again."""
        if self.levels > 1:
            raise LoopJump(self.is_continue, self.levels - 1)
        return self.is_continue
