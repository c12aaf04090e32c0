"""Text from phones cannot harm a terminal: no escapes, no bidi overrides, no markup, no floods."""

import unicodedata
from dataclasses import replace

import pytest
from rich.cells import cell_len

from orchestrator.tui.panels import screen
from orchestrator.tui.ui_state import Mode, Ui
from tests.builders import a_phone
from tests.tui.sample_screens import LEASE, NOW, SIZES, a_known_phone, a_snapshot, an_event
from workloads.protocol.stage import Stage

HOSTILE = [
    "\x1b]52;c;ZXZpbA==\x07",  # writes the clipboard
    "\x1b]0;owned\x07\x1b[2J\x1b[H",
    "\x9b31mred\x9c",  # C1
    "\u202egnp.exe\u2066\u2069",  # bidi
    "[/red][link=file:///etc/passwd]x[/link]",
    "\ud800 lone surrogate",
    "Z" + "\u0300" * 500,
    "宽" * 300,
    "👩‍👩‍👧‍👦" * 50,
    "a\r\nb\tc\x00\x08\x7f",
    "x" * 100_000,
    "\u2028\u2029\ufeff\u200b",
    "%s{0}${IFS}`id`",
]


def control_characters(text: str) -> list[str]:
    """Return the characters that a terminal may interpret."""
    bad = ("Cc", "Cf", "Cs", "Zl", "Zp")
    return [letter for letter in text if unicodedata.category(letter) in bad]


@pytest.mark.parametrize("hostile", HOSTILE)
@pytest.mark.parametrize(("width", "height"), [*SIZES, (20, 5)])
@pytest.mark.parametrize("mode", [Mode.TABLE, Mode.PHONE])
def test_hostile_text_keeps_every_line_plain_and_as_wide_as_the_screen(
    hostile: str, width: int, height: int, mode: Mode
) -> None:
    facts = a_phone("PH1", model=hostile, soc=hostile, android=hostile, uncontrolled=(hostile,))
    phone = a_known_phone(
        facts=facts,
        reason=hostile,
        health_reason=hostile,
        lease=replace(LEASE, label=hostile),
        stage=Stage.RUN,
        reserved_by=hostile,
    )
    unhealthy = a_known_phone(
        "PH2", "away", facts=facts, reason=hostile, health="held", health_reason=hostile
    )
    snapshot = a_snapshot(
        phone, unhealthy, events=(an_event(text=hostile, phone=hostile),), lab=hostile
    )
    ui = Ui(width=width, height=height, mode=mode, filter=hostile, note=hostile)
    for text in screen(snapshot, ui, NOW):
        assert control_characters(text.plain) == []
        assert cell_len(text.plain) == width


@pytest.mark.parametrize("hostile", HOSTILE)
def test_a_letter_has_at_most_two_combining_marks(hostile: str) -> None:
    lines = screen(a_snapshot(a_known_phone(facts=a_phone(model=hostile))), Ui(), NOW)
    for line in lines:
        count = 0
        for letter in line.plain:
            count = count + 1 if unicodedata.combining(letter) else 0
            assert count <= 2
