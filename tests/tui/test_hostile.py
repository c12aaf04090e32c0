"""Nothing a phone says can harm a terminal: no escape, no override, no markup, no flood."""

import unicodedata
from dataclasses import replace

import pytest
from rich.cells import cell_len

from orchestrator.tui.panels import screen
from orchestrator.tui.ui_state import Mode, Ui
from tests.builders import a_phone
from tests.tui.sample_screens import LEASE, NOW, SIZES, a_known, a_snapshot, an_event
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
    """What could steer a terminal."""
    bad = ("Cc", "Cf", "Cs", "Zl", "Zp")
    return [letter for letter in text if unicodedata.category(letter) in bad]


@pytest.mark.parametrize("evil", HOSTILE)
@pytest.mark.parametrize(("width", "height"), [*SIZES, (20, 5)])
@pytest.mark.parametrize("mode", [Mode.TABLE, Mode.PHONE])
def test_whatever_a_phone_says_the_screen_is_plain_and_straight(
    evil: str, width: int, height: int, mode: Mode
) -> None:
    facts = a_phone("PH1", model=evil, soc=evil, android=evil, uncontrolled=(evil,))
    phone = a_known(
        facts=facts,
        reason=evil,
        health_reason=evil,
        lease=replace(LEASE, label=evil),
        stage=Stage.RUN,
        reserved_by=evil,
    )
    ill = a_known("PH2", "away", facts=facts, reason=evil, health="suspect", health_reason=evil)
    snapshot = a_snapshot(phone, ill, events=(an_event(text=evil, phone=evil),), lab=evil)
    ui = Ui(width=width, height=height, mode=mode, filter=evil, note=evil)
    for text in screen(snapshot, ui, NOW):
        assert control_characters(text.plain) == []
        assert width == cell_len(text.plain)


@pytest.mark.parametrize("evil", HOSTILE)
def test_marks_that_pile_up_are_cut(evil: str) -> None:
    text = screen(a_snapshot(a_known(facts=a_phone(model=evil))), Ui(), NOW)
    for line in text:
        piled = max((len(run) for run in _marks(line.plain)), default=0)
        assert piled <= 2


def _marks(text: str) -> list[str]:
    runs, run = [], ""
    for letter in text:
        run = run + letter if unicodedata.combining(letter) else ""
        runs.append(run)
    return runs
