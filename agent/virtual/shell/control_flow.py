"""Ways out of the middle of a script."""


class ShellExit(Exception):
    """`exit` was said."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


class Return(Exception):
    """`return` was said."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


class LoopJump(Exception):
    """`break` or `continue` was said."""

    def __init__(self, again: bool, levels: int) -> None:
        super().__init__(again, levels)
        self.again = again
        self.levels = levels

    def stays(self) -> bool:
        """Whether this loop goes on; a jump for an outer loop travels on."""
        if self.levels > 1:
            raise LoopJump(self.again, self.levels - 1)
        return self.again
