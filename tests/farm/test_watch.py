"""`farm watch` on a running farm: three sizes, keys, pipes, JSON, SVG."""

import json
from pathlib import Path

import pytest

from orchestrator.planning.states import SweepState
from orchestrator.store.sweep_queries import find_sweep
from tests.farm.conftest import Farm, wait_for
from tests.tui.pty_screen import open_farm_screen

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
    file.write_text(SWEEP.replace("repeat: 3", "repeat: 60"))  # longer than the test
    result = farm.command("sweep", "submit", file)
    assert result.returncode == 0, result.stderr
    sweep = find_sweep(farm.db, "watched").id
    with open_farm_screen("watch", sweep, "--lab", farm.lab.root) as screen:
        screen.wait("watched", "● live", "phones 6", "Meizu 16T")
        screen.wait("mlp-4 b", "/720 runs")
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
        screen.wait("median ms per step", "cold big2 high", "problems", "hosts 2")
        screen.press("py")
        screen.wait("PAUSED", "undo with: farm sweep resume")
        assert find_sweep(farm.db, "watched").state is SweepState.PAUSED
        screen.press("py")
        screen.wait("resumed")
        screen.press("cy")
        screen.wait("CANCELLED")
        assert screen.wait_for_end() == 0
    wait_for(lambda: len(farm.idle_phones()) == 6, "all phones are idle again")


def test_the_exit_status_of_a_sweep_without_all_its_results(farm: Farm, tmp_path: Path) -> None:
    file = tmp_path / "left.yaml"
    file.write_text(SWEEP.replace("watched", "left"))
    assert farm.command("sweep", "submit", file).returncode == 0
    assert farm.command("sweep", "pause", "left").returncode == 0
    for words, code in ((("--exit-status",), 5), ((), 0)):
        with open_farm_screen("watch", "left", *words, "--lab", farm.lab.root) as screen:
            screen.wait("PAUSED")
            screen.press("q")
            assert screen.wait_for_end() == code
    assert farm.command("sweep", "cancel", "left").returncode == 0
    assert farm.command("watch", "left", "--exit-status").returncode == 5
    wait_for(lambda: len(farm.idle_phones()) == 6, "all phones are idle again")


def test_a_finished_sweep_is_shown_in_every_format(farm: Farm, tmp_path: Path) -> None:
    file = tmp_path / "shown.yaml"
    file.write_text(SWEEP.replace("watched", "shown").replace("mlp-4", "noop").split("matrix")[0])
    assert farm.command("sweep", "submit", file).returncode == 0
    piped = farm.command("watch", "shown", "--exit-status")
    assert (piped.returncode, "left=0" in piped.stdout) == (0, True)
    assert "\x1b" not in piped.stdout
    (line,) = farm.command("watch", "shown", "--json").stdout.splitlines()
    assert json.loads(line)["kind"] == "summary"
    once = farm.command("watch", "shown", "--once", "--size", "80x24", "--ascii")
    assert (once.returncode, len(once.stdout.splitlines())) == (0, 24)
    assert once.stdout.isascii()
    assert "FINISHED" in once.stdout
    picture = tmp_path / "screen.svg"
    result = farm.command("watch", "shown", "--svg", picture, "--size", "120x30")
    assert result.returncode == 0, result.stderr
    text = picture.read_text()
    assert "<svg" in text
    assert "Meizu" in text
    assert "https://" not in text.replace("http://www.w3.org", ""), "the picture must work offline"
    wrong = farm.command("watch", "shown", "--once", "--size", "huge")
    assert (wrong.returncode, "write COLUMNSxLINES, e.g. 120x40" in wrong.stderr) == (2, True)


@pytest.mark.slow
def test_watching_ends_when_only_a_person_can_continue_the_sweep(
    own_farm: Farm, tmp_path: Path
) -> None:
    file = tmp_path / "stuck.yaml"
    file.write_text("farm: 1\nname: stuck\nworkload: noop\nphones: all\nrepeat: 1\n")
    serials = own_farm.idle_phones()
    for serial in serials:
        assert own_farm.command("phone", "quarantine", serial, "--why", "test").returncode == 0
    submitted = own_farm.command("sweep", "submit", file)
    assert submitted.returncode == 0, submitted.stderr
    for words in (("watch", "stuck"), ("watch", "stuck", "--json")):
        watched = own_farm.command(*words)
        assert watched.returncode == 7, watched.stderr
        text = "quarantined with runs left; release them with 'farm phone release'"
        assert f"farm: stuck does not continue by itself: {', '.join(serials)}: {text}" in (
            watched.stderr
        )
    for serial in serials:
        assert own_farm.command("phone", "release", serial).returncode == 0
    assert own_farm.command("watch", "stuck", "--exit-status").returncode == 0
