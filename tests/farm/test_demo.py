"""The demo: what it shows, and that nothing is left of it, however it ends."""

import csv
import os
import signal
import time
from pathlib import Path

import pytest

from orchestrator.store.sweep_queries import find_sweep
from tests.documents import blocks, commands
from tests.farm.conftest import Farm, wait_for
from tests.farm.judge import breaches
from tests.farm.terminal import nothing_left, pids_of, processes_of, start
from workloads.lab_settings import Lab

# By a piece of their command.
VICTIMS = ("server unixsocket", "service scheduler", "service ingest", "--host host-a")
VICTIMS += ("nodaemon server", "virtual up", "--host host-b", "server unixsocket")


def test_the_demo_answers_three_questions_and_leaves_nothing_behind(tmp_path: Path) -> None:
    demo = start(tmp_path, "demo", "--dir", "lab", HOME=str(tmp_path / "home"))
    out, err = demo.communicate(timeout=180)
    assert demo.returncode == 0, err
    for phone in ("Redmi Note 9 Pro", "MI 9", "Mate 30", "Meizu 16T", "S8+", "Honor 8"):
        assert phone in out
    sentences = [line for line in out.splitlines() if line.startswith("- ")]
    assert len(sentences) == 3
    assert all("imulated" in sentence for sentence in sentences)
    assert "Plug in a real phone" in out
    page = (tmp_path / "lab" / "report.html").read_text()
    assert "simulat" in page
    assert "://" not in page, "the page works offline"
    assert "simulated" in (tmp_path / "lab" / "comparison.csv").read_text()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["lab"], "nothing beside the folder"
    nothing_left(tmp_path)
    choose_as_documented(tmp_path)


def choose_as_documented(folder: Path) -> None:
    """What the documents do with a demo's figures, with fewer seeds: a cohort, and its file."""
    shown = [
        words for block in blocks("sh") if block.setting == "demo" for words in commands(block)
    ]
    for words in shown:
        if words[1] != "demo":
            here = [
                "lab" if word == "demo-lab" else "2" if word == "30" else word for word in words
            ]
            process = start(folder, *here[1:])
            out, err = process.communicate(timeout=120)
            assert (process.returncode, bool(out)) == (0, True), f"{words}: {err}"
    assert (folder / "demo-fedscale" / "device_capacity.simulated.pickle").exists()


def test_whatever_is_killed_meanwhile_the_demo_ends_with_a_whole_table(tmp_path: Path) -> None:
    """Every process of the demo but itself, one after the other, each with a real kill -9."""
    demo = start(tmp_path, "demo", "--dir", "lab")
    wait_for((tmp_path / "lab" / "agents" / "host-b" / "lanes").exists, "runs are under way")
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
        assert f"{service} ended and is started again: killed by SIGKILL" in err
    with (tmp_path / "lab" / "comparison.csv").open() as file:
        cells = [row for row in csv.DictReader(file) if row["unit"] == "ms"]
    assert len({(row["phone"], row["parameters"], row["protocol"]) for row in cells}) == 6 * 4
    assert {"2"} == {row["n"] for row in cells}, "every phone, both batches, cold and hot, twice"
    farm = Farm(Lab.read(tmp_path / "lab", {}), [])
    assert breaches(farm, find_sweep(farm.db, "demo").id) == []
    nothing_left(tmp_path)


@pytest.mark.parametrize(
    "sign",
    [
        "lab/logs/virtual.log",  # the phones are being started
        "lab/farm.db",  # the services are being started
        "lab/agents/host-b/lanes",  # runs are under way
    ],
)
def test_the_demo_leaves_nothing_behind_after_ctrl_c(tmp_path: Path, sign: str) -> None:
    demo = start(tmp_path, "demo", "--dir", "lab")
    wait_for((tmp_path / sign).exists, sign)
    os.kill(demo.pid, signal.SIGINT)
    _, err = demo.communicate(timeout=60)
    assert demo.returncode == 130
    assert "Traceback" not in err
    nothing_left(tmp_path)


def test_the_demo_leaves_nothing_behind_even_when_it_is_killed(tmp_path: Path) -> None:
    demo = start(tmp_path, "demo", "--dir", "lab")
    wait_for((tmp_path / "lab" / "farm.db").exists, "the lab comes up")
    demo.kill()
    demo.communicate(timeout=60)
    wait_for(lambda: not processes_of(tmp_path / "lab"), "all gone", 30)
