"""The client app: trains a small linear model on its own data; replace `train` with your own."""

import numpy as np
from fleet_app.fleet_strategy import report_partition
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

FEATURES, SAMPLES, STEPS, RATE = 8, 64, 20, 0.1

app = ClientApp()
app.query()(report_partition)


@app.train()
def train(message: Message, context: Context) -> Message:
    """Make some steps of gradient descent on the data of this partition."""
    (weights,) = message.content["arrays"].to_numpy_ndarrays()
    rng = np.random.default_rng(int(context.node_config["partition-id"]))
    x = rng.standard_normal((SAMPLES, FEATURES))
    y = x @ np.arange(1.0, FEATURES + 1)
    loss = float(np.mean((x @ weights - y) ** 2))
    for _ in range(STEPS):
        weights = weights - RATE * x.T @ (x @ weights - y) / SAMPLES
    metrics = MetricRecord({"num-examples": SAMPLES, "loss": loss})
    content = RecordDict({"arrays": ArrayRecord([weights]), "metrics": metrics})
    return Message(content, reply_to=message)
