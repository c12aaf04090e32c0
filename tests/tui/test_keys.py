"""Keys of the terminal view: parsing, effects, and confirmation before changes."""

from dataclasses import replace
from datetime import timedelta

import pytest

from orchestrator.app.screen.lab_snapshot import LabSnapshot
from orchestrator.planning.states import RunState
from orchestrator.store.live_views import CellProgress
from orchestrator.tui.keyboard import parse_keys
from orchestrator.tui.keymap import BINDINGS, handle_key
from orchestrator.tui.layout import visible_phones, window
from orchestrator.tui.ui_state import Mode, PendingAction, Sort, Ui
from tests.builders import a_phone
from tests.tui.sample_screens import NOW, SWEEP, a_known_phone, a_snapshot, screen_text
from workloads.protocol.messages import Event

PHONES = tuple(
    a_known_phone(
        f"PH{n:03d}", "idle", facts=a_phone(f"PH{n:03d}", soc="sdm855" if n % 2 else "gs101")
    )
    for n in range(100)
)
SNAPSHOT = a_snapshot(*PHONES)


def press(
    ui: Ui, keys: str | list[str], snapshot: LabSnapshot = SNAPSHOT
) -> tuple[Ui, list[PendingAction]]:
    """Press keys one after the other; return the new state and the confirmed actions."""
    actions = []
    for key in keys:
        ui, action = handle_key(ui, key, snapshot, NOW)
        actions += [action] if action is not None else []
    return ui, actions


@pytest.mark.parametrize(
    ("content", "keys"),
    [
        (b"jk", ["j", "k"]),
        (b"\x1b[A\x1b[B\x1bOA", ["up", "down", "up"]),
        (b"\x1b[5~\x1b[6~\x1b[H\x1b[F", ["pageup", "pagedown", "home", "end"]),
        (b"\x1b", ["escape"]),
        (b"\x1b\x1b[A", ["escape", "up"]),
        (b"\x1b[99;99u\x1b[Zx", ["x"]),  # unknown sequences are ignored
        ("é宽".encode(), ["é", "宽"]),
        (b"\xff\xfe\x00\x01a", ["a"]),
        (b"\r\x7f", ["enter", "backspace"]),
        (b"\x1b[200~" + b"q" * 3, ["q", "q", "q"]),
    ],
)
def test_bytes_become_keys(content: bytes, keys: list[str]) -> None:
    assert parse_keys(content) == (keys, b"")


def test_a_key_that_arrives_in_pieces_is_one_key() -> None:
    keys, rest = parse_keys(b"j\x1b[")
    assert (keys, rest) == (["j"], b"\x1b[")
    assert parse_keys(rest + b"B") == (["down"], b"")


def test_keys_move_the_selection() -> None:
    ui = Ui(width=80, height=24)
    assert press(ui, "j")[0].selected == "PH001"
    assert press(ui, "G")[0].selected == "PH099"
    assert press(ui, ["G", "g"])[0].selected == "PH000"
    rows = 24 - 3 - 1 - 2 - 5
    assert press(ui, ["pagedown"])[0].selected == f"PH{rows:03d}"
    assert press(ui, ["pagedown", "pageup", "up"])[0].selected == "PH000"


def test_the_selected_phone_is_always_on_the_screen() -> None:
    ui = Ui(width=80, height=24)
    for key in [*["pagedown"] * 4, "j", "j", "k", "G", "k", "pageup", "g"]:
        ui, _ = press(ui, [key])
        assert f"> Model {ui.selected}" in screen_text(SNAPSHOT, ui)


def test_the_window_never_leaves_the_list() -> None:
    for count in (0, 1, 5, 100):
        for index in range(max(1, count)):
            for top in (0, 3, 99):
                first = window(index, count, top, 10)
                assert 0 <= first <= max(0, count - 10)
                assert first <= index < first + 10


def test_a_filter_can_be_a_selector() -> None:
    ui, _ = press(Ui(), ["/", *"soc == sdm855", "enter"])
    assert (ui.mode, ui.filter) == (Mode.TABLE, "soc == sdm855")
    assert len(visible_phones(SNAPSHOT.view.phones, ui, NOW)) == 50
    assert "phones 50 of 100" in screen_text(SNAPSHOT, ui)
    cleared, _ = press(ui, ["escape"])
    assert "phones 100" in screen_text(SNAPSHOT, cleared)


def test_a_bad_filter_shows_an_error_and_changes_nothing() -> None:
    ui, _ = press(Ui(), ["/", *"soc ==", "enter"])
    assert ui.mode is Mode.FILTER
    assert ui.filter_error
    assert ui.filter == ""
    assert ui.filter_error[:30] in screen_text(SNAPSHOT, ui)
    corrected, _ = press(ui, [*" gs101", "enter"])
    assert len(visible_phones(SNAPSHOT.view.phones, corrected, NOW)) == 50


def test_a_filter_works_while_it_is_typed_and_escape_restores_the_old_one() -> None:
    ui, _ = press(Ui(), ["/", *"soc == gs101"])
    assert ui.mode is Mode.FILTER
    assert len(visible_phones(SNAPSHOT.view.phones, ui, NOW)) == 50
    unfinished, _ = press(ui, [*" and"])
    assert len(visible_phones(SNAPSHOT.view.phones, unfinished, NOW)) == 50
    assert unfinished.filter_error == ""
    cancelled, _ = press(unfinished, ["escape"])
    assert (cancelled.mode, cancelled.filter, cancelled.matches) == (Mode.TABLE, "", None)


def test_events_are_searched_while_words_are_typed() -> None:
    found = Event(occurred_at=NOW, kind="fault", text="the cable came loose", phone="PH1")
    others = [Event(occurred_at=NOW, kind="accepted", text=f"run {n}") for n in range(40)]
    snapshot = replace(a_snapshot(a_known_phone()), events=(found, *others))
    ui, _ = press(Ui(120, 40), ["e", *"cable fault"])
    text = screen_text(snapshot, ui)
    assert "the cable came loose" in text
    assert "run 39" not in text
    assert "1 found" in text
    kept, _ = press(ui, ["enter"])
    assert kept.search == "cable fault"
    cleared, _ = press(kept, ["e", "escape"])
    assert "run 39" in screen_text(snapshot, cleared)


def test_a_key_follows_the_other_sweeps_in_turn() -> None:
    first = a_snapshot(a_known_phone())
    later = [replace(SWEEP, id=f"sw-{n}", created_at=NOW + timedelta(hours=n)) for n in (1, 2)]
    snapshot = replace(first, view=replace(first.view, others=tuple(later)))
    ui, seen = Ui(), []
    for key in ("n", "n", "n", "N"):
        ui, _ = handle_key(ui, key, snapshot, NOW)
        seen.append(ui.sweep)
    assert seen == ["sw-1", "sw-2", SWEEP.id, "sw-2"]
    alone, _ = handle_key(Ui(), "n", first, NOW)
    assert (alone.sweep, alone.note) == ("", "There is no other sweep.")


def test_the_matrix_scrolls_to_a_cell_and_describes_it() -> None:
    runs = {RunState.FAILED: 3, RunState.DONE: 1}
    many = tuple(
        CellProgress(f"mlp-4 batch_size={case}", f"cold big{row}", runs, suspect=int(case == 90))
        for case in range(100)
        for row in range(30)
    )
    empty = a_snapshot(a_known_phone())
    snapshot = replace(empty, view=replace(empty.view, cells=many))
    ui, _ = handle_key(Ui(80, 24), "m", snapshot, NOW)
    for key in ["pagedown"] * 9 + ["right"] * 25:
        ui, _ = handle_key(ui, key, snapshot, NOW)
    text = screen_text(snapshot, ui)
    assert "mlp-4 batch_size=90, cold big25: 1 done, 3 failed, 1 suspect" in text
    assert any(row.startswith("mlp-4 b90 ") for row in text.splitlines())
    opened, _ = handle_key(ui, "enter", snapshot, NOW)
    assert (opened.mode, opened.opened) == (Mode.CELL, "mlp-4 batch_size=90 cold big25")
    assert "reading …" in screen_text(snapshot, opened)
    back, _ = handle_key(opened, "escape", snapshot, NOW)
    assert (back.mode, back.cell) == (Mode.MATRIX, (90, 25))
    for key in ["left"] * 40 + ["up"] * 100:
        ui, _ = handle_key(ui, key, snapshot, NOW)
    assert ui.cell == (0, 0)
    closed, _ = handle_key(ui, "escape", snapshot, NOW)
    assert closed.mode is Mode.TABLE


def test_the_sort_key_cycles_through_all_orders() -> None:
    ui = Ui()
    for _ in Sort:
        ui, _ = press(ui, "s")
    assert ui.sort is Sort.STATE


@pytest.mark.parametrize(
    ("key", "kind", "target"),
    [
        ("p", "pause", "sw-1f3a"),
        ("c", "cancel", "sw-1f3a"),
        ("r", "retry", "sw-1f3a"),
        ("+", "raise", "sw-1f3a"),
        ("-", "lower", "sw-1f3a"),
        ("Q", "quarantine", "PH000"),
    ],
)
def test_keys_that_change_the_lab_ask_for_confirmation(key: str, kind: str, target: str) -> None:
    asking, actions = press(Ui(), [key])
    assert (asking.mode, actions) == (Mode.CONFIRM, [])
    assert "y yes  n no" in screen_text(SNAPSHOT, asking)
    for no in ("n", "escape", "enter", "q", "c"):
        ui, actions = press(asking, [no])
        assert (ui.mode, actions, ui.quit) == (Mode.TABLE, [], False)
        assert "Nothing was changed." in screen_text(SNAPSHOT, ui)
    _, (action,) = press(asking, ["y"])
    assert (action.kind, action.target) == (kind, target)


def test_a_read_only_screen_changes_nothing() -> None:
    for key in "pcrQ+-":
        ui, actions = press(Ui(read_only=True), [key, "y"])
        assert actions == []
        assert ui.mode is Mode.TABLE
    ui, _ = press(Ui(read_only=True), ["p"])
    assert "read-only" in screen_text(SNAPSHOT, ui)


def test_the_quarantine_key_releases_a_quarantined_phone() -> None:
    quarantined = a_known_phone("PH1", "idle", health="quarantined", health_reason="hot")
    _, (action,) = press(Ui(), ["Q", "y"], a_snapshot(quarantined))
    assert action.kind == "release"


def test_a_key_has_one_meaning_in_each_mode() -> None:
    pairs = [(mode, key) for each in BINDINGS for mode in each.words for key in each.keys]
    assert len(pairs) == len(set(pairs))


def test_the_matrix_has_the_keys_that_its_footer_names() -> None:
    matrix, _ = press(Ui(), "m")
    last = screen_text(SNAPSHOT, matrix).splitlines()[-1]
    assert all(word in last for word in ("move", "back", "pause", "cancel", "retry", "help"))
    for key in "pcr?":
        assert press(matrix, key)[0].mode in (Mode.CONFIRM, Mode.HELP)
    assert "quarantine" not in last, "no phone is selected in the matrix"
    assert press(matrix, "Q")[0].mode is Mode.MATRIX


def test_q_quits_from_the_table_and_returns_from_a_phone() -> None:
    assert press(Ui(), "q")[0].quit
    back, _ = press(Ui(), ["enter", "q"])
    assert (back.mode, back.quit) == (Mode.TABLE, False)


def test_keys_have_no_effect_on_an_empty_lab() -> None:
    snapshot = a_snapshot()
    empty = LabSnapshot(type(snapshot.view)(NOW - timedelta(seconds=1), {}, (), ()))
    for key in [*"jkgGspcrQ+-?/", "enter", "pagedown", "escape", "up"]:
        ui, actions = press(Ui(), [key, "n"], empty)
        assert actions == []
        assert len(screen_text(empty, ui).splitlines()) == 24


@pytest.mark.parametrize(("text", "count"), [("mi 9", 1), ("XIAOMI", 2), ("855", 1), ("mi*", 0)])
def test_a_filter_can_be_part_of_a_name(text: str, count: int) -> None:
    models = {"A1": ("Xiaomi MI 9", "sdm855"), "B2": ("Xiaomi Redmi", "sm7125")}
    phones = [
        a_known_phone(serial, "idle", facts=a_phone(serial, model=model, soc=soc))
        for serial, (model, soc) in models.items()
    ]
    ui, _ = press(Ui(width=80, height=24), ["/", *text, "enter"], a_snapshot(*phones))
    assert len(visible_phones(tuple(phones), ui, NOW)) == count
    if not count:
        assert "no phone matches; esc shows all" in screen_text(a_snapshot(*phones), ui)
