"""Measured phones for FLASH, which replace the three devices in its source code.

Copy this file and train_time*.json into the folder models/utils/device_util/, speed_distri*.json to
models/speed_distri.json, state_traces*.json to data/state_traces.json, and write in
models/device.py

    from utils.device_util.measured_phones import MeasuredPhones as Device_Util

A user of this trace gets the times of its client. A user of another trace gets those of a client
with the same model, or of a random one. This file needs only numpy, as FLASH does.
"""

import json
import warnings
from pathlib import Path

import numpy as np


def _plain(name: str) -> str:
    return "".join(letter for letter in name.casefold() if letter.isalnum())


class MeasuredPhones:
    """FLASH's interface Device_Util, implemented with a table of measured phones."""

    def __init__(self, table: "str | Path | None" = None) -> None:
        folder = Path(__file__).parent
        path = Path(table) if table else next(iter(sorted(folder.glob("train_time*.json"))))
        content = json.loads(path.read_text())
        self.batch = int(content["batch"])
        self.samples = float(content["samples"])
        self.clients = content["clients"]  # by name: model, mean and deviation of a batch in ms
        self._by_model: dict[str, list[str]] = {}
        for name, (model, _, _) in self.clients.items():
            self._by_model.setdefault(_plain(model), []).append(name)

    def _same_model(self, real_device: str) -> "list[str]":
        """Return the clients of a model; 'MI 9' is 'Xiaomi MI 9'."""
        wanted = _plain(real_device)
        if not wanted:
            return []
        for model, names in self._by_model.items():
            if model.endswith(wanted) or wanted.endswith(model):
                return names
        return []

    def transfer(self, real_device: str) -> str:
        """Return the client that replaces a device of a trace."""
        if real_device in self.clients:
            return real_device
        return str(np.random.choice(self._same_model(real_device) or list(self.clients)))

    def unknown(self) -> str:
        """Return a random client."""
        return str(np.random.choice(list(self.clients)))

    def is_support(self, real_device: str) -> bool:
        """Return whether this device was measured."""
        return real_device in self.clients or bool(self._same_model(real_device))

    is_support_tight = is_support

    def get_train_time(self, model: str, num_sample: int, batch_size: int, num_epoch: int) -> float:
        """Return the seconds of a client's training: FLASH's formula with measured batch times."""
        if batch_size != self.batch:
            raise ValueError(f"times were measured with batch size {self.batch}; use this size")
        steps = num_epoch * ((num_sample - 1) // batch_size + 1)
        if not 0.5 < steps * batch_size / self.samples < 2:
            warnings.warn(
                f"times hold for rounds of {self.samples:.0f} samples, not {steps * batch_size}; "
                "export them again with --samples",
                stacklevel=2,
            )
        _, mean_ms, sd_ms = self.clients[model]
        return float(steps * max(0.0, float(np.random.normal(mean_ms, sd_ms))) / 1000)

    def set_model(self, model: str) -> None:
        """Ignore the model that FLASH sets: the table has only one."""

    def set_dataset(self, dataset: str) -> None:
        """Ignore the data set that FLASH sets: the table has only one."""
