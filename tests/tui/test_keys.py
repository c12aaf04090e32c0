"""Keys: what is typed, what it does, and that nothing is changed unasked."""

from datetime import timedelta

import pytest

from orchestrator.app.phone_filter import parse_phone_filter
from orchestrator.tui.keyboard import parse_keys
from orchestrator.tui.keymap import handle_key
from orchestrator.tui.sorting import visible_phones, window
from orchestrator.tui.ui_state import LabSnapshot, Mode, PendingAction, Sort, Ui
from tests.builders import a_phone
from tests.tui.sample_screens import NOW, a_known, a_snapshot, text_of

PHONES = tuple(
    a_known(
        f"PH{at:03d}", "idle", facts=a_phone(f"PH{at:03d}", soc="sdm855" if at % 2 else "gs101")
    )
    for at in range(100)
)
SNAPSHOT = a_snapshot(*PHONES)


def typed(
    ui: Ui, keys: str | list[str], snapshot: LabSnapshot = SNAPSHOT
) -> tuple[Ui, list[PendingAction]]:
    """Press keys one after the other; answer what is shown, and what was asked for."""
    asks = []
    for key in keys:
        ui, ask = handle_key(ui, key, snapshot, NOW, parse_phone_filter)
        asks += [ask] if ask is not None else []
    return ui, asks


@pytest.mark.parametrize(
    ("content", "keys"),
    [
        (b"jk", ["j", "k"]),
        (b"\x1b[A\x1b[B\x1bOA", ["up", "down", "up"]),
        (b"\x1b[5~\x1b[6~\x1b[H\x1b[F", ["pageup", "pagedown", "home", "end"]),
        (b"\x1b", ["escape"]),
        (b"\x1b\x1b[A", ["escape", "up"]),
        (b"\x1b[99;99u\x1b[Zx", ["x"]),  # what we do not know is no key
        ("é宽".encode(), ["é", "宽"]),
        (b"\xff\xfe\x00\x01a", ["a"]),
        (b"\r\x7f", ["enter", "backspace"]),
        (b"\x1b[200~" + b"q" * 3, ["q", "q", "q"]),
    ],
)
def test_bytes_become_keys(content: bytes, keys: list[str]) -> None:
    assert (keys, b"") == parse_keys(content)


def test_a_key_that_comes_in_pieces_is_one_key() -> None:
    keys, rest = parse_keys(b"j\x1b[")
    assert (keys, rest) == (["j"], b"\x1b[")
    assert parse_keys(rest + b"B") == (["down"], b"")


def test_moving_pages_and_ends() -> None:
    ui = Ui(width=80, height=24)
    assert typed(ui, "j")[0].selected == "PH001"
    assert typed(ui, "G")[0].selected == "PH099"
    assert typed(ui, ["G", "g"])[0].selected == "PH000"
    rows = 24 - 3 - 1 - 2 - 5
    assert typed(ui, ["pagedown"])[0].selected == f"PH{rows:03d}"
    assert typed(ui, ["pagedown", "pageup", "up"])[0].selected == "PH000"


def test_the_selected_phone_is_always_on_the_screen() -> None:
    ui = Ui(width=80, height=24)
    for key in [*["pagedown"] * 4, "j", "j", "k", "G", "k", "pageup", "g"]:
        ui, _ = typed(ui, [key])
        assert f"> Model {ui.selected}" in text_of(SNAPSHOT, ui)


def test_the_window_never_leaves_the_list() -> None:
    for count in (0, 1, 5, 100):
        for place in range(max(1, count)):
            for top in (0, 3, 99):
                first = window(place, count, top, 10)
                assert 0 <= first <= max(0, count - 10)
                assert first <= place < first + 10


def test_a_filter_takes_the_selector_grammar() -> None:
    ui, _ = typed(Ui(), ["/", *"soc == sdm855", "enter"])
    assert (ui.mode, ui.filter) == (Mode.TABLE, "soc == sdm855")
    assert len(visible_phones(SNAPSHOT.view.phones, ui, NOW)) == 50
    assert "phones 50 of 100" in text_of(SNAPSHOT, ui)
    cleared, _ = typed(ui, ["escape"])
    assert "phones 100" in text_of(SNAPSHOT, cleared)


def test_a_bad_filter_is_a_sentence_and_changes_nothing() -> None:
    ui, _ = typed(Ui(), ["/", *"soc ==", "enter"])
    assert Mode.FILTER is ui.mode
    assert ui.filter_error
    assert ui.filter == ""
    assert ui.filter_error[:30] in text_of(SNAPSHOT, ui)
    mended, _ = typed(ui, [*" gs101", "enter"])
    assert len(visible_phones(SNAPSHOT.view.phones, mended, NOW)) == 50


def test_sorting_goes_round() -> None:
    ui = Ui()
    for _ in Sort:
        ui, _ = typed(ui, "s")
    assert Sort.STATE is ui.sort


@pytest.mark.parametrize(
    ("key", "verb", "target"),
    [
        ("p", "pause", "sw-1f3a"),
        ("c", "cancel", "sw-1f3a"),
        ("r", "retry", "sw-1f3a"),
        ("+", "raise", "sw-1f3a"),
        ("-", "lower", "sw-1f3a"),
        ("Q", "quarantine", "PH000"),
    ],
)
def test_changing_keys_ask_first(key: str, verb: str, target: str) -> None:
    asked, none = typed(Ui(), [key])
    assert (asked.mode, none) == (Mode.CONFIRM, [])
    assert "y yes  n no" in text_of(SNAPSHOT, asked)
    for no in ("n", "escape", "enter", "q", "c"):
        ui, nothing = typed(asked, [no])
        assert (ui.mode, nothing, ui.quit) == (Mode.TABLE, [], False)
        assert "Nothing was changed." in text_of(SNAPSHOT, ui)
    _, (ask,) = typed(asked, ["y"])
    assert (verb, target) == (ask.kind, ask.target)


def test_a_read_only_screen_changes_nothing() -> None:
    for key in "pcrQ+-":
        ui, asks = typed(Ui(read_only=True), [key, "y"])
        assert asks == []
        assert Mode.TABLE is ui.mode
    ui, _ = typed(Ui(read_only=True), ["p"])
    assert "read-only" in text_of(SNAPSHOT, ui)


def test_an_ill_phone_is_released_by_the_same_key() -> None:
    ill = a_snapshot(a_known("PH1", "idle", health="quarantined", health_reason="hot"))
    _, (ask,) = typed(Ui(), ["Q", "y"], ill)
    assert ask.kind == "release"


def test_q_quits_from_the_table_and_goes_back_from_a_phone() -> None:
    assert typed(Ui(), "q")[0].quit
    back, _ = typed(Ui(), ["enter", "q"])
    assert (back.mode, back.quit) == (Mode.TABLE, False)


def test_keys_on_an_empty_lab_do_no_harm() -> None:
    snapshot = a_snapshot()
    empty = LabSnapshot(type(snapshot.view)(NOW - timedelta(seconds=1), {}, (), ()))
    for key in [*"jkgGspcrQ+-?/", "enter", "pagedown", "escape", "up"]:
        ui, asks = typed(Ui(), [key, "n"], empty)
        assert asks == []
        assert len(text_of(empty, ui).splitlines()) == 24


@pytest.mark.parametrize(("words", "found"), [("mi 9", 1), ("XIAOMI", 2), ("855", 1), ("mi*", 0)])
def test_a_filter_takes_words_of_a_name_as_well_as_selectors(words: str, found: int) -> None:
    models = {"A1": ("Xiaomi MI 9", "sdm855"), "B2": ("Xiaomi Redmi", "sm7125")}
    phones = [
        a_known(serial, "idle", facts=a_phone(serial, model=model, soc=soc))
        for serial, (model, soc) in models.items()
    ]
    ui, _ = typed(Ui(width=80, height=24), ["/", *words, "enter"], a_snapshot(*phones))
    assert found == len(visible_phones(tuple(phones), ui, NOW))
    if not found:
        assert "no phone matches; esc shows all" in text_of(a_snapshot(*phones), ui)
