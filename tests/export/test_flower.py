"""A small federation in Flower whose nodes the exported strategy chooses."""

import json
import os
import subprocess
import venv
from pathlib import Path

import pytest

from orchestrator.export.federated import CONSUMERS, write_consumer_files
from tests.selection.fleets import a_client_table

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = "flwr[simulation]"
ROUNDS = 4
APP = f"""\
import json

import numpy as np
from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
from flwr.simulation import run_simulation
from fleet_strategy import FleetStrategy, report_partition

client = ClientApp()
client.query()(report_partition)


@client.train()
def train(message, context):
    (weights,) = message.content["arrays"].to_numpy_ndarrays()
    rng = np.random.default_rng(int(context.node_config["partition-id"]))
    x = rng.standard_normal((64, 3))
    y = x @ np.array([1.0, -2.0, 0.5])
    for _ in range(20):
        weights = weights - 0.1 * x.T @ (x @ weights - y) / len(x)
    loss = float(np.mean((x @ weights - y) ** 2))
    said = {{"num-examples": 64, "loss": loss}}
    return Message(
        RecordDict({{"arrays": ArrayRecord([weights]), "metrics": MetricRecord(said)}}),
        reply_to=message,
    )


server = ServerApp()


@server.main()
def main(grid, context):
    strategy = FleetStrategy(
        "fleet.json", k=2, samples=1000000, fraction_evaluate=0.0, min_available_nodes=3
    )
    result = strategy.start(
        grid=grid, initial_arrays=ArrayRecord([np.zeros(3)]), num_rounds={ROUNDS}
    )
    weights = result.arrays.to_numpy_ndarrays()[0].tolist()
    with open("chosen.json", "w") as file:
        json.dump([strategy.chosen_phones, strategy.clock_s, weights], file)


if __name__ == "__main__":
    run_simulation(server, client, num_supernodes=3)
"""


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


@pytest.mark.slow
def test_a_federation_uses_the_recommended_phones(flower: Path, tmp_path: Path) -> None:
    write_consumer_files(
        CONSUMERS["flower"], a_client_table(), tmp_path, None, allow_simulated=False
    )
    (tmp_path / "app.py").write_text(APP)
    result = subprocess.run(
        [flower, "app.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env={**os.environ, "FLWR_HOME": str(tmp_path), "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0"},
    )
    assert result.returncode == 0, result.stderr[-2000:]
    chosen, clock_s, weights = json.loads((tmp_path / "chosen.json").read_text())
    assert len(chosen) == ROUNDS
    assert {len(phones) for phones in chosen} == {2}
    assert set(chosen[0]) == {"sprinter", "steady"}, "the two that are fastest when cold"
    assert "sprinter" not in chosen[1], "it is hot after the first round"
    assert "slow" in {phone for phones in chosen for phone in phones}, "every phone is chosen"
    assert all("tiny" not in phones for phones in chosen), "it has too little memory"
    assert clock_s > 4 * 300, "a round takes minutes of simulated time"
    assert weights == pytest.approx([1.0, -2.0, 0.5], abs=0.05), "the model must learn"
