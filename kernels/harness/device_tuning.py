"""Tunes the matrix product on a device of this computer, timing candidates through pyopencl.

Winners are cached per device, driver and kernels, so that a second call measures nothing.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from kernels.autotuner import (
    MatmulCandidate,
    MatmulShape,
    OpenCLIdentity,
    OpenCLLimits,
    TunedMatmul,
    kernels_digest,
    read_tuned,
    search,
    tuned_text,
)
from kernels.harness.launch_timing import time_in_turns
from kernels.harness.matmul_variants import VARIANTS, Launches, operands, prepare_matmul
from kernels.harness.opencl_device import Device
from workloads.protocol.base import digest_of
from workloads.protocol.faults import BadFile, InvalidRequest

_ROUNDS, _LAUNCHES = 3, 10


def tune_shape(
    device: Device,
    shape: MatmulShape,
    deadline: float,
    on_timed: Callable[[int], None] = lambda count: None,
    known: Iterable[TunedMatmul] = (),
) -> TunedMatmul:
    """Find the fastest candidate for a shape; no new ones start after `deadline` (monotonic)."""
    timer = DeviceTimer(device, shape, on_timed)
    in_time = lambda: time.monotonic() < deadline  # noqa: E731
    winner, seconds, tried = search(shape, limits_of(device), timer.times, in_time, known)
    return TunedMatmul(shape, winner, round(shape.flops / seconds / 1e9, 2), tried)


class DeviceTimer:
    """Times candidates for one shape; each is built once and can be timed repeatedly."""

    def __init__(
        self,
        device: Device,
        shape: MatmulShape,
        on_timed: Callable[[int], None] = lambda count: None,
    ) -> None:
        self._device, self._shape, self._on_timed = device, shape, on_timed
        self._operands = operands(shape, seed=0)
        self._prepared: dict[MatmulCandidate, Launches] = {}

    def times(
        self, wanted: Sequence[MatmulCandidate], patience: int
    ) -> Mapping[MatmulCandidate, float]:
        """Return seconds per candidate (fastest turn), without those that do not fit the device."""
        for candidate in wanted:
            self._prepare(candidate)
        prepared = {one.label: self._prepared[one] for one in wanted if one in self._prepared}
        times = time_in_turns(self._device, prepared, patience * _ROUNDS, _LAUNCHES)
        self._on_timed(len(wanted))
        return {one: times[one.label].wall_s for one in wanted if one.label in times}

    def _prepare(self, candidate: MatmulCandidate) -> None:
        if candidate in self._prepared:
            return
        variant = replace(VARIANTS[candidate.variant], params=dict(candidate.params))
        try:
            launches = prepare_matmul(self._device, self._shape, variant, *self._operands)[1]
            for launch in launches:
                launch()
            self._device.finish()
        except InvalidRequest:
            return
        self._prepared[candidate] = launches


def limits_of(device: Device) -> OpenCLLimits:
    """Return what the device has room for."""
    facts = device.facts
    return OpenCLLimits(facts.local_bytes, facts.max_group, facts.images)


def owner_of(device: Device) -> OpenCLIdentity:
    """Return the device as tuning files identify it."""
    return OpenCLIdentity(device.facts.name, device.facts.version, device.facts.driver)


def cache_path(home: Path, device: Device) -> Path:
    """Return the path of the cached winners for this device, driver and these kernels."""
    key = digest_of({"device": device.facts.digest, "kernels": kernels_digest()})
    return home / "tuned" / f"{key[:16]}.tuned"


def tune_all(
    device: Device,
    shapes: Sequence[MatmulShape],
    seconds: float,
    home: Path,
    retune: bool = False,
    on_timed: Callable[[int], None] = lambda count: None,
) -> list[TunedMatmul]:
    """Return the winner of every shape; cached ones are used unless `retune`."""
    path = cache_path(home, device)
    known = {} if retune else {winner.shape: winner for winner in _cached(path, device)}
    missing = [shape for shape in shapes if shape not in known]
    start = time.monotonic()
    for number, shape in enumerate(missing, start=1):
        deadline = start + seconds * number / len(missing)
        known[shape] = tune_shape(device, shape, deadline, on_timed, known.values())
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(tuned_text(owner_of(device), list(known.values())))
    return [known[shape] for shape in shapes]


def _cached(path: Path, device: Device) -> list[TunedMatmul]:
    """Read the cache; a broken one is ignored."""
    try:
        return read_tuned(path, owner_of(device)) if path.exists() else []
    except BadFile:
        return []
