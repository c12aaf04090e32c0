"""`farm watch` in a real terminal: restores it, limits redraws, and escapes hostile text."""

import os
import re
import signal
import sys
import termios
import threading
import time
from datetime import UTC, datetime

import pytest

from orchestrator.planning.states import SweepState
from orchestrator.store.sweep_queries import sweep_summaries
from tests.tui.conftest import QuietLab, announce_phone
from tests.tui.pty_screen import OWN_ESCAPES, PtyScreen, open_farm_screen, open_screen
from tests.tui.test_hostile import HOSTILE
from workloads.protocol.messages import Event, EventKind


def an_accepted_event(text: str) -> Event:
    """Build the event of an accepted run."""
    return Event(occurred_at=datetime.now(UTC), kind=EventKind.ACCEPTED, text=text)


def check_restored(screen: PtyScreen, settings: list[object]) -> None:
    """Check that the main screen, the cursor and the terminal attributes are restored."""
    text = bytes(screen.raw).decode(errors="replace")
    for entry, exit_ in (("\x1b[?1049h", "\x1b[?1049l"), ("\x1b[?25l", "\x1b[?25h")):
        assert text.rfind(exit_) > text.rfind(entry)
    assert screen.settings() == settings


@pytest.mark.parametrize(
    ("end", "code"), [("q", 0), ("\x03", 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_the_terminal_is_restored_at_every_end(
    quiet_lab: QuietLab, end: str | int, code: int
) -> None:
    with open_farm_screen("watch", "--lab", quiet_lab.lab.root) as screen:
        settings = screen.settings()
        screen.wait("quiet (sw-00000001)", "● live")
        assert not screen.settings()[3] & termios.ECHO
        if isinstance(end, str):
            screen.press(end)
        else:
            os.kill(screen.pid, end)
        assert screen.wait_for_end() == code
        check_restored(screen, settings)
        if end == "\x03":
            assert "The lab is still running" in bytes(screen.raw).decode()


def test_ctrl_z_restores_the_terminal_and_fg_continues(quiet_lab: QuietLab) -> None:
    with open_screen(["/bin/bash", "--norc", "--noprofile", "-i"], PS1="shell> ") as shell:
        shell.wait("shell> ")
        shell.press(f"{sys.executable} -m orchestrator watch --lab {quiet_lab.lab.root}\n")
        shell.wait("● live")
        shell.press("\x1a")
        shell.wait("Stopped", "shell> ")
        shell.press("echo $((40+2))\n")
        shell.wait("42")
        shell.press("fg\n")
        shell.wait("● live", "phones 4")
        shell.press("q")
        shell.wait("shell> ")
        shell.press("echo $((50+3))\n")
        shell.wait("53")
        shell.press("exit\n")
        assert shell.wait_for_end() == 0


def test_keys_change_the_lab_only_after_a_confirmation(quiet_lab: QuietLab) -> None:
    def state() -> SweepState:
        return sweep_summaries(quiet_lab.db)[0].state

    with open_farm_screen("watch", "--lab", quiet_lab.lab.root, columns=120) as screen:
        screen.wait("ACTIVE")
        screen.press("p")
        screen.wait("Pause quiet?", "y yes")
        screen.press("n")
        screen.wait("Nothing was changed.")
        assert state() is SweepState.ACTIVE
        screen.press("py")
        screen.wait("undo with: farm sweep resume sw-00000001", "PAUSED")
        assert state() is SweepState.PAUSED
        screen.press("py")
        screen.wait("resumed")
        assert state() is SweepState.ACTIVE
        screen.press("jQy")
        screen.wait("QUARANT.", "undo with: farm phone release PH1")


def check_redraws(screen: PtyScreen, per_second: int) -> None:
    """Check the number of redraws; up to three that were written before may still be read."""
    redraws, elapsed_s = screen.count_redraws(2.0)
    assert redraws <= per_second * elapsed_s + 3


@pytest.mark.slow
def test_an_idle_screen_is_drawn_once_per_second_and_a_busy_one_four_times(
    quiet_lab: QuietLab,
) -> None:
    stop = threading.Event()

    def publish_events() -> None:
        while not stop.wait(0.02):
            quiet_lab.broker.publish_event(an_accepted_event("again"))

    with open_farm_screen("watch", "--lab", quiet_lab.lab.root) as screen:
        screen.wait("● live")
        check_redraws(screen, per_second=1)
        publisher = threading.Thread(target=publish_events)
        publisher.start()
        try:
            screen.wait("again")
            check_redraws(screen, per_second=4)
        finally:
            stop.set()
            publisher.join()


def test_keys_work_while_many_thousands_of_events_arrive(quiet_lab: QuietLab) -> None:
    events = [an_accepted_event(f"event {index}") for index in range(5000)]
    stop = threading.Event()

    def publish_events() -> None:
        while not stop.is_set():
            quiet_lab.broker.confirm("", (), events)

    with open_farm_screen("watch", "--lab", quiet_lab.lab.root) as screen:
        screen.wait("● live")
        publisher = threading.Thread(target=publish_events)
        publisher.start()
        try:
            screen.wait("event ")
            for key, text in (("?", "keys and terms"), ("x", "phones 4"), ("\r", "esc closes")):
                screen.press(key)
                screen.wait(text)
            screen.press("q")
            screen.wait("events skipped", "● live")
            check_redraws(screen, per_second=4)
            assert publisher.is_alive()
        finally:
            stop.set()
            publisher.join()


def test_phones_cannot_send_escape_sequences_to_the_terminal(quiet_lab: QuietLab) -> None:
    for index, hostile in enumerate(HOSTILE):
        serial, text = f"EV{index}", hostile.encode(errors="replace").decode()[:500]
        announce_phone(quiet_lab.db, serial, model=text or "x", soc=text)
        quiet_lab.reasons[serial] = text
        quiet_lab.broker.publish_event(
            Event(occurred_at=datetime.now(UTC), kind=EventKind.HEALTH, text=text, phone=serial)
        )
    with open_farm_screen("watch", "--lab", quiet_lab.lab.root, columns=120, lines=50) as screen:
        screen.wait("gnp.exe", "EV11", "● live")
        for key in ("\r", "\x1b", "j", "\r", "\x1b"):
            screen.press(key)
            time.sleep(0.1)
        screen.press("q")
        assert screen.wait_for_end() == 0
    text = OWN_ESCAPES.sub("", bytes(screen.raw).decode())
    control = [letter for letter in text if not letter.isprintable() and letter not in "\r\n"]
    assert control == []


def test_no_color_disables_colours_and_ascii_is_ascii(quiet_lab: QuietLab) -> None:
    with open_farm_screen("watch", "--ascii", "--lab", quiet_lab.lab.root, NO_COLOR="1") as screen:
        screen.wait("* live", "phones 4")
        screen.press("q")
        assert screen.wait_for_end() == 0
    assert bytes(screen.raw).isascii()
    colours = re.findall(rb"\x1b\[[\d;]*(?:3\d|4\d|9\d)[\d;]*m", bytes(screen.raw))
    assert colours == []


def test_the_window_can_become_tiny_and_large_again(quiet_lab: QuietLab) -> None:
    with open_farm_screen("watch", "--read-only", "--lab", quiet_lab.lab.root) as screen:
        screen.wait("phones 4")
        for columns, lines, text in (
            (20, 5, "ACTIVE 0/4"),
            (1, 1, ""),
            (200, 60, "problems"),
            (120, 40, "temp °C"),
            (80, 24, "Model PH3"),
        ):
            screen.resize(columns, lines)
            screen.wait(text)
        screen.press("p")
        screen.wait("read-only")
        screen.press("q")
        assert screen.wait_for_end() == 0
