"""Measured phones for FLASH, in the place of its own three.

FLASH has the times of three devices written into its program. Put this file and train_time.json
beside its models/utils/device_util/device_util.py, speed_distri.json into models/, and in
models/device.py write

    from utils.device_util.measured_phones import MeasuredPhones as Device_Util

A device of a trace is taken for the measured phone of that serial or model, else for any of them.
This file stands alone; it needs numpy, as FLASH does.
"""

import json
from pathlib import Path

import numpy as np


class MeasuredPhones:
    """What FLASH asks of its Device_Util, answered from a table."""

    def __init__(self, table: "str | Path | None" = None) -> None:
        here = Path(__file__).parent
        path = Path(table) if table else next(iter(sorted(here.glob("train_time*.json"))))
        content = json.loads(path.read_text())
        self.batch = int(content["batch"])
        self.devices = content["devices"]
        self._by_model = {row["model"]: phone for phone, row in self.devices.items()}

    def transfer(self, real_device: str) -> str:
        """The measured phone that stands for a device of a trace."""
        if real_device in self.devices:
            return real_device
        return str(self._by_model.get(real_device) or self.unknown())

    def unknown(self) -> str:
        """Any of them."""
        return str(np.random.choice(sorted(self.devices)))

    def is_support(self, real_device: str) -> bool:
        """Whether exactly this device was measured."""
        return real_device in self.devices or real_device in self._by_model

    is_support_tight = is_support

    def get_train_time(self, model: str, num_sample: int, batch_size: int, num_epoch: int) -> float:
        """Seconds of a client's training: FLASH's formula, with the time of a measured batch."""
        if batch_size != self.batch:
            raise ValueError(f"times were measured with batches of {self.batch}; train with those")
        row = self.devices[model]
        batch_s = max(0.0, float(np.random.normal(row["mean_ms"], row["sd_ms"]))) / 1000
        return num_epoch * ((num_sample - 1) // batch_size + 1) * batch_s

    def set_model(self, model: str) -> None:
        """FLASH tells which model; the table knows only one."""

    def set_dataset(self, dataset: str) -> None:
        """Likewise."""
