"""Tables and paragraphs of commands on terminals of several widths."""

import pytest

from orchestrator.commands.common import column_widths


@pytest.mark.parametrize(
    ("space", "expected"),
    [
        (60, [23, 18, 19]),  # everything fits
        (50, [23, 14, 13]),  # headings are broken before the cells below them
        (40, [23, 8, 9]),
        (34, [17, 8, 9]),  # the widest cells are broken first
        (20, [6, 8, 9]),  # never within a word
    ],
)
def test_space_is_for_words_then_cells_then_headings(space: int, expected: list[int]) -> None:
    words, bodies, headings = [6, 8, 9], [23, 6, 6], [5, 18, 19]
    assert column_widths(words, bodies, headings, space) == expected
