"""Words to commands: lists, pipes, redirections, groups, if, loops and case."""

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Literal

from agent.virtual.shell.grammar import (
    Case,
    Chain,
    Command,
    For,
    Function,
    Group,
    If,
    Loop,
    Pipeline,
    Redirect,
    Sequence,
    Simple,
    Text,
    Word,
)
from agent.virtual.shell.reader import BadSyntax, Reader, Unfinished

__all__ = ["BadSyntax", "Unfinished", "parse"]

_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
_REDIRECT = re.compile(r"(\d?)(>>|>&|<<<|<<-|<<|>\||>|<&|<)")
_FUNCTION = re.compile(r"([A-Za-z_][\w.-]*)[ \t]*\([ \t]*\)")
_PLAIN = re.compile(r"[^ \t\n;&|()<>]+")
_RESERVED = {"then", "fi", "else", "elif", "do", "done", "}", "esac"}


def parse(text: str) -> Sequence:
    """Read a whole script; short ones, which come again and again, are remembered."""
    return _parse_short(text) if len(text) < 4096 else _parse(text)


@lru_cache(maxsize=256)
def _parse_short(text: str) -> Sequence:
    return _parse(text)


def _parse(text: str) -> Sequence:
    reader = Reader(text, lambda inner, end: _Parser(inner).sequence(end))
    script = _Parser(reader).sequence("")
    reader.skip_blanks()
    if reader.here:
        raise BadSyntax(f"syntax error: unexpected '{reader.here}'")
    return script


class _Parser:
    def __init__(self, reader: Reader) -> None:
        self.reader = reader

    def sequence(self, end: str, *stops: str) -> Sequence:
        """Chains up to a closing mark or a reserved word, which is left in place."""
        chains: list[Chain] = []
        reader = self.reader
        while True:
            self._skip_separators()
            if not reader.here or (end and reader.looking_at(end)) or self._at_word(*stops):
                break
            if not stops and self._at_word(*_RESERVED):
                break
            chains.append(self._chain())
            reader.skip_blanks()
            ended = chains[-1].background or not reader.here or reader.here in ";\n"
            if not ended and not (end and reader.looking_at(end)):
                raise BadSyntax(f"syntax error: unexpected '{reader.here}'")
        return Sequence(tuple(chains))

    def _chain(self) -> Chain:
        first = self._pipeline()
        rest: list[tuple[Literal["&&", "||"], Pipeline]] = []
        while True:
            self.reader.skip_blanks()
            if self.reader.take("&&"):
                self._skip_newlines()
                rest.append(("&&", self._pipeline()))
            elif self.reader.take("||"):
                self._skip_newlines()
                rest.append(("||", self._pipeline()))
            else:
                break
        background = self.reader.here == "&" and self.reader.take("&")
        return Chain(first, tuple(rest), background)

    def _pipeline(self) -> Pipeline:
        negated = False
        while self._take_word("!"):
            negated = not negated
        commands = [self._command()]
        while True:
            self.reader.skip_blanks()
            if self.reader.looking_at("||") or not self.reader.take("|"):
                return Pipeline(tuple(commands), negated)
            self._skip_newlines()
            commands.append(self._command())

    def _command(self) -> Command:
        self.reader.skip_blanks()
        if self.reader.take("("):
            body = self.sequence(")")
            self._expect(")")
            return Group(body, True, self._redirects())
        if (named := _FUNCTION.match(self.reader.text, self.reader.at)) is not None:
            self.reader.at = named.end()
            return self._function(named[1])
        compounds: dict[str, Callable[[], Command]] = {
            "function": self._spelled_function,
            "{": self._braces,
            "if": self._if,
            "while": self._while,
            "until": self._until,
            "for": self._for,
            "case": self._case,
        }
        word = self._plain_word()
        if word not in compounds:
            return self._simple()
        self.reader.at += len(word)
        return compounds[word]()

    def _spelled_function(self) -> Function:
        self.reader.skip_blanks()
        name = self.reader.name()
        self.reader.skip_blanks()
        if self.reader.take("("):
            self._expect(")")
        return self._function(name)

    def _function(self, name: str) -> Function:
        self._skip_newlines()
        return Function(name, self._command())

    def _simple(self) -> Simple:
        assignments: list[tuple[str, Word]] = []
        words: list[Word] = []
        redirects: list[Redirect] = []
        while True:
            self.reader.skip_blanks()
            redirect = self._redirect()
            if redirect is not None:
                redirects.append(redirect)
                continue
            word = self.reader.word()
            if word is None:
                break
            first = word.parts[0]
            if not words and isinstance(first, Text) and _is_assignment(first):
                name, _, start = first.value.partition("=")
                rest = (Text(start), *word.parts[1:]) if start else word.parts[1:]
                assignments.append((name, Word(rest)))
            else:
                words.append(word)
        if not (assignments or words or redirects):
            unexpected = self.reader.here or "end of file"
            if not self.reader.here:
                raise Unfinished("syntax error: unexpected end of file")
            raise BadSyntax(f"syntax error: unexpected '{unexpected}'")
        return Simple(tuple(assignments), tuple(words), tuple(redirects))

    def _redirects(self) -> tuple[Redirect, ...]:
        redirects: list[Redirect] = []
        while True:
            self.reader.skip_blanks()
            redirect = self._redirect()
            if redirect is None:
                return tuple(redirects)
            redirects.append(redirect)

    def _redirect(self) -> Redirect | None:
        match = _REDIRECT.match(self.reader.text, self.reader.at)
        if match is None:
            return None
        self.reader.at = match.end()
        number, operator = match[1], match[2]
        target = self.reader.word()
        if target is None:
            raise BadSyntax("syntax error: redirection without a target")
        descriptor = int(number) if number else (0 if operator.startswith("<") else 1)
        if operator in ("<<", "<<-"):
            return Redirect(descriptor, "<<", self._here_text(target, operator == "<<-"))
        if operator == "<<<":
            return Redirect(descriptor, "<<", Word((*target.parts, Text("\n", quoted=True))))
        kind = {">": ">", ">|": ">", ">>": ">>", "<": "<", ">&": ">&", "<&": ">&"}[operator]
        return Redirect(descriptor, kind, target)  # type: ignore[arg-type]

    def _here_text(self, mark: Word, tabs: bool) -> Word:
        """The lines up to the mark; a quoted mark takes them as they are."""
        plain = all(isinstance(part, Text) and not part.quoted for part in mark.parts)
        end = "".join(part.value for part in mark.parts if isinstance(part, Text))
        text = self.reader.cut_here_text(end, tabs)
        if not plain:
            return Word((Text(text, quoted=True),))
        return self.reader.inner(text).here_word()

    def _braces(self) -> Group:
        body = self.sequence("", "}")
        self._expect_word("}")
        return Group(body, False, self._redirects())

    def _if(self) -> If:
        branches: list[tuple[Sequence, Sequence]] = []
        otherwise: Sequence | None = None
        while True:
            condition = self.sequence("", "then")
            self._expect_word("then")
            branches.append((condition, self.sequence("", "elif", "else", "fi")))
            if not self._take_word("elif"):
                break
        if self._take_word("else"):
            otherwise = self.sequence("", "fi")
        self._expect_word("fi")
        return If(tuple(branches), otherwise, self._redirects())

    def _while(self) -> Loop:
        return self._loop(stop_on=False)

    def _until(self) -> Loop:
        return self._loop(stop_on=True)

    def _loop(self, stop_on: bool) -> Loop:
        condition = self.sequence("", "do")
        body = self._do_body()
        return Loop(condition, body, stop_on, self._redirects())

    def _for(self) -> For:
        self.reader.skip_blanks()
        name = self.reader.name()
        self._skip_newlines()
        words: list[Word] = []
        if self._take_word("in"):
            while (word := self.reader.word()) is not None:
                words.append(word)
        self._skip_separators()
        return For(name, tuple(words), self._do_body(), self._redirects())

    def _do_body(self) -> Sequence:
        self._expect_word("do")
        body = self.sequence("", "done")
        self._expect_word("done")
        return body

    def _case(self) -> Case:
        subject = self.reader.word()
        self._skip_newlines()
        self._expect_word("in")
        branches: list[tuple[tuple[Word, ...], Sequence]] = []
        while True:
            self._skip_newlines()
            if subject is None or self._take_word("esac"):
                break
            self.reader.take("(")
            patterns: list[Word] = []
            while (pattern := self.reader.word()) is not None:
                patterns.append(pattern)
                self.reader.skip_blanks()
                if not self.reader.take("|"):
                    break
            self._expect(")")
            branches.append((tuple(patterns), self.sequence(";;", "esac")))
            self.reader.take(";;")
        if subject is None:
            raise BadSyntax("syntax error: case without a word")
        return Case(subject, tuple(branches), self._redirects())

    # -- small steps

    def _skip_separators(self) -> None:
        while True:
            self.reader.skip_blanks()
            if self.reader.looking_at(";;") or not (
                self.reader.take(";") or self.reader.take("\n")
            ):
                return

    def _skip_newlines(self) -> None:
        self.reader.skip_blanks()
        while self.reader.take("\n"):
            self.reader.skip_blanks()

    def _at_word(self, *words: str) -> bool:
        return bool(words) and self._plain_word() in words

    def _plain_word(self) -> str:
        """The characters up to the next blank or operator, which are left in place."""
        self.reader.skip_blanks()
        found = _PLAIN.match(self.reader.text, self.reader.at)
        return found[0] if found else ""

    def _take_word(self, word: str) -> bool:
        if self._at_word(word):
            self.reader.at += len(word)
            return True
        return False

    def _expect_word(self, word: str) -> None:
        self._skip_separators()
        if not self._take_word(word):
            self._missing(word)

    def _expect(self, mark: str) -> None:
        self._skip_newlines()
        if not self.reader.take(mark):
            self._missing(mark)

    def _missing(self, what: str) -> None:
        if not self.reader.here:
            raise Unfinished(f"syntax error: '{what}' is missing")
        raise BadSyntax(f"syntax error: unexpected '{self.reader.here}'")


def _is_assignment(first: Text) -> bool:
    return not first.quoted and _ASSIGNMENT.match(first.value) is not None
