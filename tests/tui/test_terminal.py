"""The screen in a real terminal: always put back, never flooded, never fooled."""

import os
import re
import signal
import sys
import termios
import threading
import time
from datetime import UTC, datetime

import pytest

from orchestrator.decisions.states import SweepState
from orchestrator.store.sweep_queries import sweep_summaries
from tests.tui.conftest import QuietLab, meet
from tests.tui.pty_screen import OWN, Glass, glass, program
from tests.tui.test_hostile import HOSTILE
from workloads.protocol.messages import Event, EventKind


def an_accepted(text: str) -> Event:
    return Event(occurred_at=datetime.now(UTC), kind=EventKind.ACCEPTED, text=text)


def is_put_back(screen: Glass, before: list[object]) -> None:
    """Cursor, wrapping, the shell's screen and the keys are as they were."""
    text = bytes(screen.raw).decode(errors="replace")
    for entered, left in (("\x1b[?1049h", "\x1b[?1049l"), ("\x1b[?25l", "\x1b[?25h")):
        assert text.rfind(left) > text.rfind(entered)
    assert before == screen.settings()


@pytest.mark.parametrize(
    ("how", "code"), [("q", 0), ("\x03", 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_whatever_ends_it_the_terminal_is_put_back(
    quiet_lab: QuietLab, how: str | int, code: int
) -> None:
    with glass("watch", "--lab", quiet_lab.lab.root) as screen:
        before = screen.settings()
        screen.wait("quiet (sw-00000001)", "● live")
        assert not screen.settings()[3] & termios.ECHO
        if isinstance(how, str):
            screen.press(how)
        else:
            os.kill(screen.pid, how)
        assert code == screen.ended()
        is_put_back(screen, before)
        if how == "\x03":
            assert "The lab is still running" in bytes(screen.raw).decode()


def test_ctrl_z_gives_the_terminal_back_and_takes_it_again(quiet_lab: QuietLab) -> None:
    with program(["/bin/bash", "--norc", "--noprofile", "-i"], PS1="shell> ") as shell:
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
        time.sleep(0.5)
        shell.press("echo $((50+3))\n")
        shell.wait("53")
        shell.press("exit\n")
        assert shell.ended() == 0


def test_keys_change_the_lab_only_after_a_yes(quiet_lab: QuietLab) -> None:
    def state() -> SweepState:
        return sweep_summaries(quiet_lab.db)[0].state

    with glass("watch", "--lab", quiet_lab.lab.root, columns=120) as screen:
        screen.wait("WAITING")
        screen.press("p")
        screen.wait("Pause quiet?", "y yes")
        screen.press("n")
        screen.wait("Nothing was changed.")
        assert SweepState.ACTIVE is state()
        screen.press("py")
        screen.wait("undo with: farm sweep resume sw-00000001", "PAUSED")
        assert SweepState.PAUSED is state()
        screen.press("py")
        screen.wait("resumed")
        assert SweepState.ACTIVE is state()
        screen.press("jQy")
        screen.wait("QUARANT.", "undo with: farm phone release PH1")


def test_a_quiet_lab_is_drawn_once_a_second_and_a_busy_one_four_times(quiet_lab: QuietLab) -> None:
    with glass("watch", "--lab", quiet_lab.lab.root) as screen:
        screen.wait("● live")
        time.sleep(1.0)
        assert screen.redraws(2.0) <= 3

        def chatter() -> None:
            until = time.monotonic() + 2.5
            while time.monotonic() < until:
                quiet_lab.broker.publish_event(
                    Event(occurred_at=datetime.now(UTC), kind=EventKind.ACCEPTED, text="again")
                )
                time.sleep(0.02)

        talking = threading.Thread(target=chatter)
        talking.start()
        assert screen.redraws(2.0) <= 4 * 2 + 1
        talking.join()


def test_ten_thousand_events_a_second_do_not_hold_the_keys_up(quiet_lab: QuietLab) -> None:
    flood = [
        Event(occurred_at=datetime.now(UTC), kind=EventKind.ACCEPTED, text=f"event {at}")
        for at in range(1000)
    ]
    stop = threading.Event()
    sent = [0]

    def pour() -> None:
        while not stop.wait(0.05):  # a thousand at a time, up to twenty times a second
            quiet_lab.broker.confirm("", (), flood)
            sent[0] += len(flood)

    with glass("watch", "--lab", quiet_lab.lab.root) as screen:
        screen.wait("● live")
        pouring = threading.Thread(target=pour)
        began = time.monotonic()
        pouring.start()
        try:
            screen.wait("event ")
            for key, answer in (
                ("?", "keys and terms"),
                ("x", "phones 4"),
                ("\r", "esc closes"),
            ):
                screen.press(key)
                screen.wait(answer, seconds=2.0)
            screen.press("q")
            screen.wait("events skipped", "● live", seconds=5.0)
            assert screen.redraws(2.0) <= 4 * 2 + 1
        finally:
            stop.set()
            pouring.join()
        assert sent[0] / (time.monotonic() - began) > 5_000


def test_no_phone_can_write_to_the_terminal(quiet_lab: QuietLab) -> None:
    for at, evil in enumerate(HOSTILE):
        clean = evil.encode(errors="replace").decode()[:500]
        meet(quiet_lab.db, f"EV{at}", model=clean or "x", soc=clean)
        quiet_lab.said[f"EV{at}"] = clean
        quiet_lab.broker.publish_event(
            Event(occurred_at=datetime.now(UTC), kind=EventKind.HEALTH, text=clean, phone=f"EV{at}")
        )
    with glass("watch", "--lab", quiet_lab.lab.root, columns=120, lines=50) as screen:
        screen.wait("gnp.exe", "EV11", "● live")
        for key in ("\r", "\x1b", "j", "\r", "\x1b"):
            screen.press(key)
            time.sleep(0.1)
        screen.press("q")
        assert screen.ended() == 0
    text = OWN.sub("", bytes(screen.raw).decode())
    left = [letter for letter in text if not letter.isprintable() and letter not in "\r\n"]
    assert left == []


def test_no_color_means_none_and_ascii_means_ascii(quiet_lab: QuietLab) -> None:
    with glass("watch", "--ascii", "--lab", quiet_lab.lab.root, NO_COLOR="1") as screen:
        screen.wait("* live", "phones 4")
        screen.press("q")
        assert screen.ended() == 0
    assert bytes(screen.raw).isascii()
    colours = re.findall(rb"\x1b\[[\d;]*(?:3\d|4\d|9\d)[\d;]*m", bytes(screen.raw))
    assert colours == []


def test_a_window_may_become_tiny_and_large_again(quiet_lab: QuietLab) -> None:
    with glass("watch", "--read-only", "--lab", quiet_lab.lab.root) as screen:
        screen.wait("phones 4")
        for columns, lines, words in (
            (20, 5, "WAITING 0/4"),
            (1, 1, ""),
            (200, 60, "problems"),
            (120, 40, "temp °C"),
            (80, 24, "Model PH3"),
        ):
            screen.resize(columns, lines)
            screen.wait(words)
        screen.press("p")
        screen.wait("read-only")
        screen.press("q")
        assert screen.ended() == 0
