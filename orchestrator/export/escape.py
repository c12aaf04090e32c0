"""Escapes the text of a cell. Phones choose their own names, and programs may execute them.

A spreadsheet runs text that begins with `=` as a formula, so such text gets a leading apostrophe.
Markdown and LaTeX get their special characters escaped. Numbers are not changed.
"""

from workloads.text import safe_text

TEXT_MAX = 2000
_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")
_LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    "×": r"$\times$",
    "°": r"$^\circ$",
    **{letter: f"\\{letter}" for letter in "&%$#_{}"},
}
_MARKDOWN = {letter: f"\\{letter}" for letter in "\\`*_[]|"} | {"<": "&lt;", ">": "&gt;"}


def text_cell(text: object) -> str:
    """Make text safe for a spreadsheet."""
    plain = safe_text(text, TEXT_MAX)
    # Both are checked: safe_text may remove a space in front of a formula.
    risky = plain.startswith(_FORMULA_STARTS) or str(text).startswith(_FORMULA_STARTS)
    return f"'{plain}" if risky else plain


def latex_cell(text: object) -> str:
    """Make text safe for LaTeX."""
    return "".join(_LATEX.get(letter, letter) for letter in safe_text(text, TEXT_MAX))


def markdown_cell(text: object) -> str:
    """Make text safe for a Markdown table."""
    return "".join(_MARKDOWN.get(letter, letter) for letter in safe_text(text, TEXT_MAX))
