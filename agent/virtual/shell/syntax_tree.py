"""The shape of a shell script once it is read: words made of parts, commands made of words."""

from dataclasses import dataclass, field
from typing import Literal, Union


@dataclass(frozen=True, slots=True)
class Text:
    """Literal characters; quoted ones neither split nor glob."""

    value: str
    quoted: bool = False


@dataclass(frozen=True, slots=True)
class Parameter:
    """$NAME, ${NAME}, ${NAME:-word} and its relatives."""

    name: str
    quoted: bool = False
    operator: str = ""
    word: "Word | None" = None


@dataclass(frozen=True, slots=True)
class Substitution:
    """$( .. ) or backquotes."""

    body: "Sequence"
    quoted: bool = False


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """$(( .. ))"""

    expression: "Word"
    quoted: bool = False


Part = Text | Parameter | Substitution | Arithmetic


@dataclass(frozen=True, slots=True)
class Word:
    """Parts that stand together without a blank."""

    parts: tuple[Part, ...]

    @property
    def literal(self) -> str | None:
        """The word as plain unquoted text, if it is just that."""
        if len(self.parts) == 1 and isinstance(self.parts[0], Text) and not self.parts[0].quoted:
            return self.parts[0].value
        return None


@dataclass(frozen=True, slots=True)
class Redirect:
    """N> word, N>> word, N< word, N>& word; N<< has its text for a target"""

    descriptor: int
    operator: Literal[">", ">>", "<", ">&", "<<"]
    target: Word


@dataclass(frozen=True, slots=True)
class Simple:
    """Assignments, then a command with its arguments."""

    assignments: tuple[tuple[str, Word], ...]
    words: tuple[Word, ...]
    redirects: tuple[Redirect, ...]


@dataclass(frozen=True, slots=True)
class Group:
    """{ ..; } in this shell, or ( .. ) in a copy of it."""

    body: "Sequence"
    copied: bool
    redirects: tuple[Redirect, ...] = ()


@dataclass(frozen=True, slots=True)
class If:
    branches: tuple[tuple["Sequence", "Sequence"], ...]
    otherwise: "Sequence | None"
    redirects: tuple[Redirect, ...] = ()


@dataclass(frozen=True, slots=True)
class Loop:
    """while, or until where `stop_on` is true."""

    condition: "Sequence"
    body: "Sequence"
    stop_on: bool
    redirects: tuple[Redirect, ...] = ()


@dataclass(frozen=True, slots=True)
class For:
    name: str
    words: tuple[Word, ...]
    body: "Sequence"
    redirects: tuple[Redirect, ...] = ()


@dataclass(frozen=True, slots=True)
class Case:
    subject: Word
    branches: tuple[tuple[tuple[Word, ...], "Sequence"], ...]
    redirects: tuple[Redirect, ...] = ()


@dataclass(frozen=True, slots=True)
class Function:
    """NAME() command: remembered, not run."""

    name: str
    body: "Command"


Command = Union[Simple, Group, If, Loop, For, Case, Function]  # noqa: UP007 (quoted members)


@dataclass(frozen=True, slots=True)
class Pipeline:
    commands: tuple[Command, ...]
    negated: bool = False


@dataclass(frozen=True, slots=True)
class Chain:
    """Pipelines joined by && and ||."""

    first: Pipeline
    rest: tuple[tuple[Literal["&&", "||"], Pipeline], ...] = ()
    background: bool = False


@dataclass(frozen=True, slots=True)
class Sequence:
    """Chains, one after another."""

    chains: tuple[Chain, ...] = field(default=())
