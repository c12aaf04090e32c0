"""`farm demo`: its results, and that it leaves no process behind, however it ends."""

import csv
import os
import re
import signal
import time
from pathlib import Path

import pytest

from docs.demo_table import demo_hook, demo_table
from orchestrator.store.sweep_queries import find_sweep
from tests.documents import blocks, commands
from tests.farm.conftest import ROOT, Farm, wait_for
from tests.farm.history_check import violations
from tests.farm.terminal import check_nothing_left, pids_of, processes_of, start
from tests.tui.pty_screen import PtyScreen, open_farm_screen
from workloads.lab.settings import Lab

# Processes of the demo, by a part of their command.
VICTIMS = ("server unixsocket", "service scheduler", "service ingest", "--host host-a")
VICTIMS += ("nodaemon server", "virtual up", "--host host-b", "server unixsocket")


def test_the_demo_answers_and_leaves_nothing_behind(tmp_path: Path) -> None:
    demo = start(tmp_path, "demo", "--dir", "lab", HOME=str(tmp_path / "home"))
    out, err = demo.communicate(timeout=300)
    assert demo.returncode == 0, err
    for phone in ("Redmi Note 9 Pro", "MI 9", "Mate 30", "Meizu 16T", "S8+", "Pixel 6"):
        assert phone in out
    heading, *rows = out[out.index("PHONE\t") :].splitlines()[:7]
    assert heading.split("\t")[1:3] == ["CPU COLD, ms/step", "CPU AFTER 10 MIN, ms/step"]
    cells = {row.split("\t")[0]: row.split("\t")[1:] for row in rows}
    assert all(cell != "-" for row in cells.values() for cell in row[:5])
    order, cost, cohort = (line for line in out.splitlines() if line.startswith("- "))
    chosen = {phone for phone, row in cells.items() if row[5] == "chosen"}
    assert len(chosen) == 3
    assert all(name in cohort for name in chosen)
    fastest = min(cells, key=lambda phone: float(cells[phone][0].split()[0]))
    assert f"{fastest} is fastest with {cells[fastest][0].split()[0]} ms per step" in order
    assert re.search(
        r"a step takes \d+ % longer than when cold \(repeated simulated runs: \d+ to \d+ %\)", cost
    )
    assert re.search(
        r"MEASURED: .* ms per step on .* \(source: host\)\. Verdict: (valid|suspect|void)", out
    )
    assert "all runs have ended; stopping all processes" in err
    assert "INCOMPLETE" not in out
    assert out.splitlines()[-3] == "Next:"
    page = (tmp_path / "lab" / "report.html").read_text()
    assert "simulat" in page
    assert "://" not in page, "the page must work offline"
    assert "simulated" in (tmp_path / "lab" / "comparison.csv").read_text()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["lab"]
    check_nothing_left(tmp_path)
    readme = (ROOT / "README.md").read_text()
    assert demo_table(out) in readme, "run ./farm docs"
    assert demo_hook(out) in readme, "run ./farm docs"
    run_documented_commands(tmp_path)


def run_documented_commands(folder: Path) -> None:
    """Run the documented commands on the results of a demo, with fewer seeds."""
    documented = [
        words for block in blocks("sh") if block.setting == "demo" for words in commands(block)
    ]
    replaced = {"demo-lab": "lab", "30": "2"}
    for words in documented:
        if words[1] != "demo":
            process = start(folder, *(replaced.get(word, word) for word in words[1:]))
            out, err = process.communicate(timeout=120)
            assert (process.returncode, bool(out)) == (0, True), f"{words}: {err}"
    assert (folder / "demo-fedscale" / "device_capacity.simulated.pickle").exists()


def test_a_demo_that_is_left_early_states_what_is_missing(tmp_path: Path) -> None:
    with open_farm_screen("demo", "--dir", tmp_path / "lab", columns=160, lines=50) as screen:
        wait_for(lambda: re.search(r" [1-9]\d*/54 runs", screen.text), "a run has ended", 120)
        screen.press("q")
        assert screen.wait_for_end(300) == 5
        out = after_the_screen(screen)
    assert re.search(r"left at \d+ of 54 runs; stopping all processes", out)
    assert "all runs have ended" not in out
    assert re.search(r"INCOMPLETE: by now \d+ of 54 runs have ended\.", out)
    rows = out[out.index("PHONE ") :].splitlines()[1:7]
    assert any(" - " in row for row in rows), "not every value was measured"
    can_choose = "Some phones have no result yet" not in out
    assert sum(row.rstrip().endswith("chosen") for row in rows) == 3 * can_choose
    for name in ("report.html", "comparison.tex"):
        assert "Incomplete: " in (tmp_path / "lab" / name).read_text()
    check_nothing_left(tmp_path)


def test_a_demo_that_is_left_at_once_has_no_results(tmp_path: Path) -> None:
    words = ("demo", "--dir", tmp_path / "lab", "--speed", "1")  # no run can end meanwhile
    with open_farm_screen(*words, columns=160, lines=50) as screen:
        screen.wait("0/54 runs", seconds=120)
        screen.press("q")
        assert screen.wait_for_end(300) == 5
        out = after_the_screen(screen)
    assert "left at 0 of 54 runs; stopping all processes" in out
    assert "No run has ended, so there are no results." in out
    assert "SIMULATED" not in out
    check_nothing_left(tmp_path)


def after_the_screen(screen: PtyScreen) -> str:
    """Return the text that a program wrote after its screen was closed."""
    text = bytes(screen.raw).rpartition(b"\x1b[?1049l")[2].decode()
    return re.sub(r"\x1b\[[\d;]*m", "", text).replace("\r", "")


@pytest.mark.slow  # test_soak.py kills processes in the default suite
def test_the_demo_completes_although_every_other_process_is_killed(tmp_path: Path) -> None:
    demo = start(tmp_path, "demo", "--dir", "lab")
    wait_for((tmp_path / "lab" / "agents" / "host-b" / "lanes").exists, "runs are in progress")
    for name in VICTIMS:
        victims = pids_of(tmp_path / "lab", name)
        assert victims, name
        for pid in victims:
            os.kill(pid, signal.SIGKILL)
        time.sleep(1.5)
        assert demo.poll() is None, demo.communicate()
    _, err = demo.communicate(timeout=180)
    assert demo.returncode == 0, err
    for service in ("broker", "scheduler", "ingest", "agent-host-a", "agent-host-b", "virtual"):
        assert f"{service} ended and is restarted: killed by SIGKILL" in err
    with (tmp_path / "lab" / "comparison.csv").open() as file:
        cells = [row for row in csv.DictReader(file) if row["unit"] == "ms"]
    assert len({(row["phone"], row["parameters"], row["protocol"]) for row in cells}) == 6 * 2
    assert {row["n"] for row in cells} == {"3"}, "three repeats per phone and protocol"
    farm = Farm(Lab.read(tmp_path / "lab", {}), [])
    assert violations(farm, find_sweep(farm.db, "demo").id) == []
    check_nothing_left(tmp_path)


@pytest.mark.parametrize(
    "path",
    [
        "lab/logs/virtual-host-a.log",  # the phones are being started
        "lab/farm.db",  # the services are being started
        # runs are in progress
        pytest.param("lab/agents/host-b/lanes", marks=pytest.mark.slow),
    ],
)
def test_the_demo_leaves_nothing_behind_after_ctrl_c(tmp_path: Path, path: str) -> None:
    demo = start(tmp_path, "demo", "--dir", "lab")
    wait_for((tmp_path / path).exists, f"{path} exists")
    os.kill(demo.pid, signal.SIGINT)
    _, err = demo.communicate(timeout=300)
    assert demo.returncode == 130
    assert "Traceback" not in err
    check_nothing_left(tmp_path)


def test_the_demo_leaves_nothing_behind_even_when_it_is_killed(tmp_path: Path) -> None:
    demo = start(tmp_path, "demo", "--dir", "lab")
    wait_for((tmp_path / "lab" / "farm.db").exists, "the lab is being started")
    demo.kill()
    demo.communicate(timeout=300)
    wait_for(lambda: not processes_of(tmp_path / "lab"), "all processes end", 30)
