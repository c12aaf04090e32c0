"""`farm watch` while a farm works: three sizes, keys, pipes, pictures."""

import json
from pathlib import Path

from orchestrator.decisions.states import SweepState
from orchestrator.store.sweep_queries import find_sweep
from tests.farm.conftest import Farm, wait_for
from tests.tui.pty_screen import glass

SWEEP = """farm: 1
name: watched
workload: mlp-4
phones: all
matrix:
  batch_size: [32, 256]
conditions: {cores: big2, freq: high}
repeat: 3
"""


def test_a_working_lab_is_watched_at_three_sizes(farm: Farm, tmp_path: Path) -> None:
    file = tmp_path / "watched.yaml"
    file.write_text(SWEEP)
    made = farm.command("sweep", "submit", file)
    assert made.returncode == 0, made.stderr
    sweep = find_sweep(farm.db, "watched").id
    with glass("watch", sweep, "--lab", farm.lab.root) as screen:
        screen.wait("watched", "● live", "phones 6", "Meizu 16T")
        screen.wait("mlp-4 b", "/36 runs")
        screen.resize(120, 40)
        screen.wait("temp °C", "GHz", "lease ")
        screen.press("/meizu*\r")
        screen.wait("phones 1 of 6", "filter: meizu*")
        screen.press("\r")
        screen.wait("esc closes", "policy7")
        screen.press("\x1b")
        screen.wait("phones 1 of 6")
        screen.press("\x1b")
        screen.wait("phones 6 ─")
        screen.resize(200, 60)
        screen.wait("matrix: 1 conditions x 2 cases", "what is wrong", "hosts 2")
        screen.press("py")
        screen.wait("PAUSED", "undo with: farm sweep resume")
        assert SweepState.PAUSED is find_sweep(farm.db, "watched").state
        screen.press("py")
        screen.wait("resumed")
        screen.wait("FINISHED", seconds=60)
        assert screen.ended() == 0
    wait_for(lambda: len(farm.idle()) == 6, "all phones idle again")


def test_a_finished_sweep_can_be_looked_at_in_every_form(farm: Farm, tmp_path: Path) -> None:
    file = tmp_path / "still.yaml"
    file.write_text(SWEEP.replace("watched", "still").replace("mlp-4", "noop").split("matrix")[0])
    assert farm.command("sweep", "submit", file).returncode == 0
    piped = farm.command("watch", "still", "--exit-status")
    assert (piped.returncode, "left=0" in piped.stdout) == (0, True)
    assert "\x1b" not in piped.stdout
    (line,) = farm.command("watch", "still", "--json").stdout.splitlines()
    assert json.loads(line)["kind"] == "summary"
    once = farm.command("watch", "still", "--once", "--size", "80x24", "--ascii")
    assert (once.returncode, len(once.stdout.splitlines())) == (0, 24)
    assert once.stdout.isascii()
    assert "FINISHED" in once.stdout
    picture = tmp_path / "screen.svg"
    drawn = farm.command("watch", "still", "--svg", picture, "--size", "120x30")
    assert drawn.returncode == 0, drawn.stderr
    text = picture.read_text()
    assert "<svg" in text
    assert "Meizu" in text
    assert "https://" not in text.replace("http://www.w3.org", ""), "it needs no network"
    wrong = farm.command("watch", "still", "--once", "--size", "huge")
    assert (wrong.returncode, "write it like 120x40" in wrong.stderr) == (2, True)
