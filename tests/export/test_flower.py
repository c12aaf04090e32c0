"""The exported Flower app, started with `flwr run`: its nodes are a drawn population."""

import json
import os
import signal
import subprocess
import venv
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.export.federated import CONSUMERS, write_consumer_files
from orchestrator.selection.population import LINKS, PopulationPlan
from orchestrator.selection.recommend import LocalWork
from tests.analysis.builders import FITTED
from tests.selection.fleets import a_client_table

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = "flwr[simulation]"
ROUNDS, CLIENTS, K = 4, 7, 2


@pytest.fixture
def flower() -> Path:
    """A Python with Flower: that of FLOWER_PYTHON, or a new environment installed from PyPI."""
    if path := os.environ.get("FLOWER_PYTHON"):
        return Path(path)
    folder = ROOT / ".cache" / "flower"
    python = folder / "bin" / "python"
    check = [python, "-c", "import flwr.simulation, ray"]
    if not python.exists() or subprocess.run(check, check=False).returncode:
        venv.create(folder, with_pip=True)
        result = subprocess.run(
            [python, "-m", "pip", "install", "-q", PACKAGE],
            capture_output=True,
            text=True,
            check=False,
        )
        if result.returncode:
            pytest.skip(f"{PACKAGE} cannot be installed: {result.stderr.strip().splitlines()[-1]}")
    return python


@pytest.fixture(autouse=True)
def stopped_superlink(tmp_path: Path) -> Iterator[None]:
    """Stop the server that `flwr run` leaves behind: the next run would use it."""
    yield
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().decode().split("\0")
            if any(str(tmp_path) in word for word in words):
                os.kill(int(process.name), signal.SIGTERM)
        except (OSError, UnicodeDecodeError):
            continue


def run(flower: Path, folder: Path, nodes: int) -> subprocess.CompletedProcess[str]:
    """Run the exported app with this number of nodes."""
    config = f"fleet='{folder / 'fleet.json'}' num-server-rounds={ROUNDS} clients-per-round={K}"
    return subprocess.run(
        [
            *(flower.with_name("flwr"), "run", ".", "--stream", "--run-config", config),
            *("--federation-config", f"num-supernodes={nodes}"),
        ],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
        env={
            **os.environ,
            "PATH": f"{flower.parent}:{os.environ['PATH']}",
            "FLWR_HOME": str(folder / "flwr-home"),
            "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
        },
    )


@pytest.mark.slow
def test_an_app_trains_on_the_recommended_clients(flower: Path, tmp_path: Path) -> None:
    plan = PopulationPlan(CLIENTS, 1, links=LINKS["flash-wifi"], rhythm=True)
    table, work = a_client_table(provenance=FITTED), LocalWork(samples=5000.0)
    write_consumer_files(CONSUMERS["flower"], table, tmp_path, plan, work, allow_simulated=True)
    result = run(flower, tmp_path, CLIENTS)
    assert (tmp_path / "rounds.json").exists(), result.stderr[-2000:] + result.stdout[-3000:]
    document = json.loads((tmp_path / "rounds.json").read_text())
    rounds = document["rounds"]
    assert len(rounds) == ROUNDS
    assert {len(asked) for asked in rounds} == {3}, "1.3 times two, rounded up"
    assert {sum(row["in_time"] for row in asked) for asked in rounds} == {K}
    fleet = json.loads((tmp_path / "fleet.simulated.json").read_text())
    at_midnight = {
        client
        for client, windows in zip(fleet["client"], fleet["windows"], strict=True)
        if windows[0][0] == 0
    }
    assert {row["client"] for asked in rounds for row in asked} == at_midnight, "all are asked"
    for asked in rounds:
        assert all(row["seconds"] > 1.5 and row["joules"] > 5 for row in asked), "2 mJ per sample"
        assert all(0 < row["heat"] < 1 and 0.2 < row["charge"] < 1 for row in asked)
    assert document["clock_s"] > ROUNDS * 3.5, "the work, and a gap after every round"
    for metrics in document["metrics"].values():
        assert {"train-time-s", "energy-j", "heat", "charge"} <= set(metrics)
    assert document["weights"] == pytest.approx([1, 2, 3, 4, 5, 6, 7, 8], abs=0.2), "it learns"


@pytest.mark.slow
def test_a_node_without_a_client_is_refused(flower: Path, tmp_path: Path) -> None:
    plan = PopulationPlan(3, 1, links=LINKS["flash-wifi"])
    table = a_client_table()
    write_consumer_files(CONSUMERS["flower"], table, tmp_path, plan, LocalWork(), False)
    result = run(flower, tmp_path, 5)
    log = (tmp_path / "flwr-home" / "local-superlink" / "superlink.log").read_text()
    assert "export it with --clients" in result.stdout + result.stderr + log
    assert not (tmp_path / "rounds.json").exists()
