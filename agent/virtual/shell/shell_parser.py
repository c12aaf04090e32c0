"""The parser of the shell: lists, pipelines, redirections, groups, if, loops and case."""

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Literal

from agent.virtual.shell.shell_lexer import IncompleteScript, ShellLexer, ShellSyntaxError
from agent.virtual.shell.syntax_tree import (
    AndOrList,
    CaseCommand,
    CommandList,
    ForCommand,
    FunctionDefinition,
    GroupCommand,
    IfCommand,
    LoopCommand,
    Pipeline,
    Redirect,
    ShellCommand,
    ShellWord,
    SimpleCommand,
    TextPart,
)

__all__ = ["IncompleteScript", "ShellSyntaxError", "parse"]

_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
_REDIRECT = re.compile(r"(\d?)(>>|>&|<<<|<<-|<<|>\||>|<&|<)")
_FUNCTION = re.compile(r"([A-Za-z_][\w.-]*)[ \t]*\([ \t]*\)")
_PLAIN = re.compile(r"[^ \t\n;&|()<>]+")
_RESERVED = {"then", "fi", "else", "elif", "do", "done", "}", "esac"}


def parse(text: str) -> CommandList:
    """Parse a whole script; short ones are cached because agents send them again and again."""
    return _parse_short(text) if len(text) < 4096 else _parse(text)


@lru_cache(maxsize=256)
def _parse_short(text: str) -> CommandList:
    return _parse(text)


def _parse(text: str) -> CommandList:
    lexer = ShellLexer(text, lambda inner, end: _ShellParser(inner).parse_list(end))
    script = _ShellParser(lexer).parse_list("")
    lexer.skip_blanks()
    if lexer.current:
        raise ShellSyntaxError(f"syntax error: unexpected '{lexer.current}'")
    return script


class _ShellParser:
    def __init__(self, lexer: ShellLexer) -> None:
        self.lexer = lexer

    def parse_list(self, end: str, *stops: str) -> CommandList:
        """Parse commands up to a closing token or a reserved word, which is left in place."""
        and_or_lists: list[AndOrList] = []
        lexer = self.lexer
        while True:
            self._skip_separators()
            if not lexer.current or (end and lexer.is_at(end)) or self._is_at_word(*stops):
                break
            if not stops and self._is_at_word(*_RESERVED):
                break
            and_or_lists.append(self._parse_and_or())
            lexer.skip_blanks()
            ended = and_or_lists[-1].is_background or not lexer.current or lexer.current in ";\n"
            if not ended and not (end and lexer.is_at(end)):
                raise ShellSyntaxError(f"syntax error: unexpected '{lexer.current}'")
        return CommandList(tuple(and_or_lists))

    def _parse_and_or(self) -> AndOrList:
        first = self._parse_pipeline()
        rest: list[tuple[Literal["&&", "||"], Pipeline]] = []
        while True:
            self.lexer.skip_blanks()
            if self.lexer.consume("&&"):
                self._skip_newlines()
                rest.append(("&&", self._parse_pipeline()))
            elif self.lexer.consume("||"):
                self._skip_newlines()
                rest.append(("||", self._parse_pipeline()))
            else:
                break
        is_background = self.lexer.current == "&" and self.lexer.consume("&")
        return AndOrList(first, tuple(rest), is_background)

    def _parse_pipeline(self) -> Pipeline:
        is_negated = False
        while self._take_word("!"):
            is_negated = not is_negated
        commands = [self._parse_command()]
        while True:
            self.lexer.skip_blanks()
            if self.lexer.is_at("||") or not self.lexer.consume("|"):
                return Pipeline(tuple(commands), is_negated)
            self._skip_newlines()
            commands.append(self._parse_command())

    def _parse_command(self) -> ShellCommand:
        self.lexer.skip_blanks()
        if self.lexer.consume("("):
            body = self.parse_list(")")
            self._expect(")")
            return GroupCommand(body, True, self._parse_redirects())
        if (function_match := _FUNCTION.match(self.lexer.text, self.lexer.position)) is not None:
            self.lexer.position = function_match.end()
            return self._parse_function_body(function_match[1])
        compounds: dict[str, Callable[[], ShellCommand]] = {
            "function": self._parse_function_keyword,
            "{": self._parse_braces,
            "if": self._parse_if,
            "while": self._parse_while,
            "until": self._parse_until,
            "for": self._parse_for,
            "case": self._parse_case,
        }
        word = self._peek_word()
        if word not in compounds:
            return self._parse_simple()
        self.lexer.position += len(word)
        return compounds[word]()

    def _parse_function_keyword(self) -> FunctionDefinition:
        self.lexer.skip_blanks()
        name = self.lexer.read_name()
        self.lexer.skip_blanks()
        if self.lexer.consume("("):
            self._expect(")")
        return self._parse_function_body(name)

    def _parse_function_body(self, name: str) -> FunctionDefinition:
        self._skip_newlines()
        return FunctionDefinition(name, self._parse_command())

    def _parse_simple(self) -> SimpleCommand:
        assignments: list[tuple[str, ShellWord]] = []
        words: list[ShellWord] = []
        redirects: list[Redirect] = []
        while True:
            self.lexer.skip_blanks()
            redirect = self._parse_redirect()
            if redirect is not None:
                redirects.append(redirect)
                continue
            word = self.lexer.read_word()
            if word is None:
                break
            first = word.parts[0]
            if not words and isinstance(first, TextPart) and _is_assignment(first):
                name, _, start = first.value.partition("=")
                rest = (TextPart(start), *word.parts[1:]) if start else word.parts[1:]
                assignments.append((name, ShellWord(rest)))
            else:
                words.append(word)
        if not (assignments or words or redirects):
            unexpected = self.lexer.current or "end of file"
            if not self.lexer.current:
                raise IncompleteScript("syntax error: unexpected end of file")
            raise ShellSyntaxError(f"syntax error: unexpected '{unexpected}'")
        return SimpleCommand(tuple(assignments), tuple(words), tuple(redirects))

    def _parse_redirects(self) -> tuple[Redirect, ...]:
        redirects: list[Redirect] = []
        while True:
            self.lexer.skip_blanks()
            redirect = self._parse_redirect()
            if redirect is None:
                return tuple(redirects)
            redirects.append(redirect)

    def _parse_redirect(self) -> Redirect | None:
        match = _REDIRECT.match(self.lexer.text, self.lexer.position)
        if match is None:
            return None
        self.lexer.position = match.end()
        number, operator = match[1], match[2]
        target = self.lexer.read_word()
        if target is None:
            raise ShellSyntaxError("syntax error: redirection without a target")
        descriptor = int(number) if number else (0 if operator.startswith("<") else 1)
        if operator in ("<<", "<<-"):
            return Redirect(descriptor, "<<", self._parse_here_document(target, operator == "<<-"))
        if operator == "<<<":
            return Redirect(
                descriptor, "<<", ShellWord((*target.parts, TextPart("\n", is_quoted=True)))
            )
        kind = {">": ">", ">|": ">", ">>": ">>", "<": "<", ">&": ">&", "<&": ">&"}[operator]
        return Redirect(descriptor, kind, target)  # type: ignore[arg-type]

    def _parse_here_document(self, delimiter: ShellWord, tabs: bool) -> ShellWord:
        """Return the lines up to the delimiter; a quoted delimiter makes them literal."""
        plain = all(isinstance(part, TextPart) and not part.is_quoted for part in delimiter.parts)
        end = "".join(part.value for part in delimiter.parts if isinstance(part, TextPart))
        text = self.lexer.cut_here_document(end, tabs)
        if not plain:
            return ShellWord((TextPart(text, is_quoted=True),))
        return self.lexer.nested(text).read_here_document()

    def _parse_braces(self) -> GroupCommand:
        body = self.parse_list("", "}")
        self._expect_word("}")
        return GroupCommand(body, False, self._parse_redirects())

    def _parse_if(self) -> IfCommand:
        branches: list[tuple[CommandList, CommandList]] = []
        otherwise: CommandList | None = None
        while True:
            condition = self.parse_list("", "then")
            self._expect_word("then")
            branches.append((condition, self.parse_list("", "elif", "else", "fi")))
            if not self._take_word("elif"):
                break
        if self._take_word("else"):
            otherwise = self.parse_list("", "fi")
        self._expect_word("fi")
        return IfCommand(tuple(branches), otherwise, self._parse_redirects())

    def _parse_while(self) -> LoopCommand:
        return self._parse_loop(is_until=False)

    def _parse_until(self) -> LoopCommand:
        return self._parse_loop(is_until=True)

    def _parse_loop(self, is_until: bool) -> LoopCommand:
        condition = self.parse_list("", "do")
        body = self._parse_do_body()
        return LoopCommand(condition, body, is_until, self._parse_redirects())

    def _parse_for(self) -> ForCommand:
        self.lexer.skip_blanks()
        name = self.lexer.read_name()
        self._skip_newlines()
        words: list[ShellWord] = []
        if self._take_word("in"):
            while (word := self.lexer.read_word()) is not None:
                words.append(word)
        self._skip_separators()
        return ForCommand(name, tuple(words), self._parse_do_body(), self._parse_redirects())

    def _parse_do_body(self) -> CommandList:
        self._expect_word("do")
        body = self.parse_list("", "done")
        self._expect_word("done")
        return body

    def _parse_case(self) -> CaseCommand:
        subject = self.lexer.read_word()
        self._skip_newlines()
        self._expect_word("in")
        branches: list[tuple[tuple[ShellWord, ...], CommandList]] = []
        while True:
            self._skip_newlines()
            if subject is None or self._take_word("esac"):
                break
            self.lexer.consume("(")
            patterns: list[ShellWord] = []
            while (pattern := self.lexer.read_word()) is not None:
                patterns.append(pattern)
                self.lexer.skip_blanks()
                if not self.lexer.consume("|"):
                    break
            self._expect(")")
            branches.append((tuple(patterns), self.parse_list(";;", "esac")))
            self.lexer.consume(";;")
        if subject is None:
            raise ShellSyntaxError("syntax error: case needs a word")
        return CaseCommand(subject, tuple(branches), self._parse_redirects())

    # -- tokens

    def _skip_separators(self) -> None:
        while True:
            self.lexer.skip_blanks()
            if self.lexer.is_at(";;") or not (self.lexer.consume(";") or self.lexer.consume("\n")):
                return

    def _skip_newlines(self) -> None:
        self.lexer.skip_blanks()
        while self.lexer.consume("\n"):
            self.lexer.skip_blanks()

    def _is_at_word(self, *words: str) -> bool:
        return bool(words) and self._peek_word() in words

    def _peek_word(self) -> str:
        """Return the characters up to the next blank or operator without consuming them."""
        self.lexer.skip_blanks()
        match = _PLAIN.match(self.lexer.text, self.lexer.position)
        return match[0] if match else ""

    def _take_word(self, word: str) -> bool:
        if self._is_at_word(word):
            self.lexer.position += len(word)
            return True
        return False

    def _expect_word(self, word: str) -> None:
        self._skip_separators()
        if not self._take_word(word):
            self._fail_expected(word)

    def _expect(self, token: str) -> None:
        self._skip_newlines()
        if not self.lexer.consume(token):
            self._fail_expected(token)

    def _fail_expected(self, expected: str) -> None:
        if not self.lexer.current:
            raise IncompleteScript(f"syntax error: '{expected}' is missing")
        raise ShellSyntaxError(f"syntax error: unexpected '{self.lexer.current}'")


def _is_assignment(first: TextPart) -> bool:
    return not first.is_quoted and _ASSIGNMENT.match(first.value) is not None
