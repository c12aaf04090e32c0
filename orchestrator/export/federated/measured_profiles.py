"""Client profiles of measured phones for APPFL's virtual-time simulation.

    from measured_profiles import read_profiles
    driver = SyncSimDriver(..., profiles=read_profiles("profiles.json", client_ids))

This file needs only appfl, and profiles.json beside it.
"""

import json
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from appfl.vsim.client_profile import ClientProfile


@dataclass
class MeasuredProfile(ClientProfile):
    """A profile with the measured time of a step, two speeds, and windows of availability."""

    step_s: float = 0.0
    down_mbps: float = 0.0
    up_mbps: float = 0.0
    windows: Sequence[Sequence[float]] = ()
    period_s: float = 86_400.0
    steps: float = 0.0  # for which the time was measured

    def compute_time(
        self, compute_second_per_step: float, num_steps: int, **kwargs: object
    ) -> float:
        """Return the measured time, whatever the simulating computer takes."""
        if self.steps and not 0.5 < num_steps / self.steps < 2:
            warnings.warn(
                f"times hold for rounds of {self.steps:.0f} steps, not {num_steps}; "
                "export them again with --samples",
                stacklevel=2,
            )
        return self.step_s * num_steps

    def download_time(self, model_bytes: float, **kwargs: object) -> float:
        """Return the time of the download."""
        return model_bytes * 8e-6 / self.down_mbps

    def upload_time(self, model_bytes: float, **kwargs: object) -> float:
        """Return the time of the upload."""
        return model_bytes * 8e-6 / self.up_mbps

    def next_available(self, vtime: float) -> float:
        """Return the earliest time at which this client can start."""
        now = vtime % self.period_s
        for start, end in self.windows:
            if now < end:
                return vtime + max(0.0, start - now)
        return vtime + self.period_s - now + self.windows[0][0]


def read_profiles(
    path: "str | Path" = "profiles.json", client_ids: "Iterable[str] | None" = None
) -> "dict[str, MeasuredProfile]":
    """Read the profile of every client; the n-th id of APPFL gets the n-th client."""
    file = Path(path)
    columns = json.loads((file if file.exists() else _simulated(file)).read_text())
    ids = list(columns["client"] if client_ids is None else client_ids)
    if len(ids) > len(columns["client"]):
        raise ValueError(
            f"{file} has {len(columns['client'])} clients, not {len(ids)}; "
            f"export them with --clients {len(ids)}"
        )
    return {
        name: MeasuredProfile(
            step_s=columns["step_s"][index],
            down_mbps=columns["down_mbps"][index],
            up_mbps=columns["up_mbps"][index],
            windows=columns["windows"][index],
            period_s=columns["period_s"],
            steps=columns["samples"] / columns["batch"],
        )
        for index, name in enumerate(ids)
    }


def _simulated(file: Path) -> Path:
    return file.with_name(f"{file.stem}.simulated{file.suffix}")
