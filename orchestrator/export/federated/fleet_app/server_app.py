"""The server app: federated averaging with FleetStrategy; writes what happened to rounds.json."""

import json
from pathlib import Path

import numpy as np
from fleet_app.client_app import FEATURES
from fleet_app.fleet_strategy import FleetStrategy
from flwr.app import ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Train, and write the virtual clock and the figures of every selected phone."""
    config = context.run_config
    fleet = Path(str(config["fleet"]))
    strategy = FleetStrategy(
        fleet,
        k=int(config["clients-per-round"]),
        over_selection=float(config["over-selection"]),
        deadline_s=float(config["deadline-s"]) or None,
        fraction_evaluate=0.0,
    )
    result = strategy.start(
        grid=grid,
        initial_arrays=ArrayRecord([np.zeros(FEATURES)]),
        num_rounds=int(config["num-server-rounds"]),
    )
    document = {
        "clock_s": strategy.clock_s,
        "rounds": strategy.rounds,
        "metrics": {number: dict(m) for number, m in result.train_metrics_clientapp.items()},
        "weights": result.arrays.to_numpy_ndarrays()[0].tolist(),
    }
    fleet.with_name("rounds.json").write_text(json.dumps(document, indent=1))
