"""The syntax tree of a shell script: words consist of parts, commands of words."""

from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True, slots=True)
class TextPart:
    """Literal characters; quoted ones are neither split nor expanded as globs."""

    value: str
    is_quoted: bool = False


@dataclass(frozen=True, slots=True)
class ParameterPart:
    """$NAME, ${NAME}, ${NAME:-word} and the other operators."""

    name: str
    is_quoted: bool = False
    operator: str = ""
    word: "ShellWord | None" = None


@dataclass(frozen=True, slots=True)
class SubstitutionPart:
    """$( .. ) or backquotes."""

    body: "CommandList"
    is_quoted: bool = False


@dataclass(frozen=True, slots=True)
class ArithmeticPart:
    """$(( .. ))"""

    expression: "ShellWord"
    is_quoted: bool = False


WordPart = TextPart | ParameterPart | SubstitutionPart | ArithmeticPart


@dataclass(frozen=True, slots=True)
class ShellWord:
    """Parts without a blank in between."""

    parts: tuple[WordPart, ...]

    @property
    def literal(self) -> str | None:
        """The word as plain unquoted text, if it is only that."""
        if (
            len(self.parts) == 1
            and isinstance(self.parts[0], TextPart)
            and not self.parts[0].is_quoted
        ):
            return self.parts[0].value
        return None


@dataclass(frozen=True, slots=True)
class Redirect:
    """N> word, N>> word, N< word, N>& word; the target of N<< is the text of the document."""

    descriptor: int
    operator: Literal[">", ">>", "<", ">&", "<<"]
    target: ShellWord


@dataclass(frozen=True, slots=True)
class SimpleCommand:
    """Assignments, then a command with its arguments."""

    assignments: tuple[tuple[str, ShellWord], ...]
    words: tuple[ShellWord, ...]
    redirects: tuple[Redirect, ...]


@dataclass(frozen=True, slots=True)
class GroupCommand:
    """{ ..; } in this shell, or ( .. ) in a subshell."""

    body: "CommandList"
    is_subshell: bool
    redirects: tuple[Redirect, ...] = ()


@dataclass(frozen=True, slots=True)
class IfCommand:
    branches: tuple[tuple["CommandList", "CommandList"], ...]
    otherwise: "CommandList | None"
    redirects: tuple[Redirect, ...] = ()


@dataclass(frozen=True, slots=True)
class LoopCommand:
    """while, or until if `is_until`."""

    condition: "CommandList"
    body: "CommandList"
    is_until: bool
    redirects: tuple[Redirect, ...] = ()


@dataclass(frozen=True, slots=True)
class ForCommand:
    name: str
    words: tuple[ShellWord, ...]
    body: "CommandList"
    redirects: tuple[Redirect, ...] = ()


@dataclass(frozen=True, slots=True)
class CaseCommand:
    subject: ShellWord
    branches: tuple[tuple[tuple[ShellWord, ...], "CommandList"], ...]
    redirects: tuple[Redirect, ...] = ()


@dataclass(frozen=True, slots=True)
class FunctionDefinition:
    """NAME() command: stored, not run."""

    name: str
    body: "ShellCommand"


ShellCommand = (
    SimpleCommand
    | GroupCommand
    | IfCommand
    | LoopCommand
    | ForCommand
    | CaseCommand
    | FunctionDefinition
)


@dataclass(frozen=True, slots=True)
class Pipeline:
    commands: tuple[ShellCommand, ...]
    is_negated: bool = False


@dataclass(frozen=True, slots=True)
class AndOrList:
    """Pipelines joined by && and ||."""

    first: Pipeline
    rest: tuple[tuple[Literal["&&", "||"], Pipeline], ...] = ()
    is_background: bool = False


@dataclass(frozen=True, slots=True)
class CommandList:
    """Commands, one after another."""

    and_or_lists: tuple[AndOrList, ...] = field(default=())
