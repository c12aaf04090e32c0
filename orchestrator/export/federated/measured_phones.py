"""Measured phones for FLASH, which replace the three devices in its source code.

Copy this file and train_time.json into the folder models/utils/device_util/, speed_distri.json into
models/, and write in models/device.py

    from utils.device_util.measured_phones import MeasuredPhones as Device_Util

A device of a trace gets the times of the measured phone with that serial or model, or of a random
one. This file needs only numpy, as FLASH does.
"""

import json
from pathlib import Path

import numpy as np


class MeasuredPhones:
    """FLASH's interface Device_Util, implemented with a table of measured phones."""

    def __init__(self, table: "str | Path | None" = None) -> None:
        folder = Path(__file__).parent
        path = Path(table) if table else next(iter(sorted(folder.glob("train_time*.json"))))
        content = json.loads(path.read_text())
        self.batch = int(content["batch"])
        self.devices = content["devices"]
        self._by_model = {row["model"]: phone for phone, row in self.devices.items()}

    def transfer(self, real_device: str) -> str:
        """Return the measured phone that replaces a device of a trace."""
        if real_device in self.devices:
            return real_device
        return str(self._by_model.get(real_device) or self.unknown())

    def unknown(self) -> str:
        """Return a random phone."""
        return str(np.random.choice(sorted(self.devices)))

    def is_support(self, real_device: str) -> bool:
        """Return whether this device was measured."""
        return real_device in self.devices or real_device in self._by_model

    is_support_tight = is_support

    def get_train_time(self, model: str, num_sample: int, batch_size: int, num_epoch: int) -> float:
        """Return the seconds of a client's training: FLASH's formula with measured batch times."""
        if batch_size != self.batch:
            raise ValueError(f"times were measured with batch size {self.batch}; use this size")
        row = self.devices[model]
        batch_s = max(0.0, float(np.random.normal(row["mean_ms"], row["sd_ms"]))) / 1000
        return num_epoch * ((num_sample - 1) // batch_size + 1) * batch_s

    def set_model(self, model: str) -> None:
        """Ignore the model that FLASH sets: the table has only one."""

    def set_dataset(self, dataset: str) -> None:
        """Ignore the data set that FLASH sets: the table has only one."""
