"""The tuner on a device of this computer: candidates built and timed through pyopencl.

Results are kept per device, driver and kernels, so that asking twice measures once.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from kernels.harness.device import Device
from kernels.harness.products import WAYS, Launches, make_bench, operands
from kernels.harness.timing import take_turns
from kernels.tuning import (
    Candidate,
    Limits,
    Shape,
    Tuned,
    TunedFor,
    kernels_digest,
    read_tuned,
    search,
    tuned_text,
)
from workloads.fault import BadFile, Refused
from workloads.noun import digest_of

_ROUNDS, _LAUNCHES = 3, 10


def tune(
    device: Device,
    shape: Shape,
    until: float,
    step: Callable[[int], None] = lambda count: None,
    known: Iterable[Tuned] = (),
) -> Tuned:
    """Find the fastest way for a shape; no new look begins after `until` (monotonic)."""
    bench = TuningBench(device, shape, step)
    in_time = lambda: time.monotonic() < until  # noqa: E731
    winner, seconds, tried = search(shape, limits_of(device), bench.timed, in_time, known)
    return Tuned(shape, winner, round(shape.flops / seconds / 1e9, 2), tried)


class TuningBench:
    """One shape's operands on a device; candidates are built once and timed as often as asked."""

    def __init__(
        self, device: Device, shape: Shape, step: Callable[[int], None] = lambda count: None
    ) -> None:
        self._device, self._shape, self._step = device, shape, step
        self._operands = operands(shape, seed=0)
        self._ready: dict[Candidate, Launches] = {}

    def timed(self, wanted: Sequence[Candidate], patience: int) -> Mapping[Candidate, float]:
        """The least seconds of each candidate; one that the device has no room for is left out."""
        for candidate in wanted:
            self._prepare(candidate)
        contenders = {each.label: self._ready[each] for each in wanted if each in self._ready}
        found = take_turns(self._device, contenders, patience * _ROUNDS, _LAUNCHES)
        self._step(len(wanted))
        return {each: found[each.label].wall_s for each in wanted if each.label in found}

    def _prepare(self, candidate: Candidate) -> None:
        if candidate in self._ready:
            return
        way = replace(WAYS[candidate.way], defines=dict(candidate.numbers))
        try:
            launches = make_bench(self._device, self._shape, way, *self._operands)[1]
            for launch in launches:
                launch()
            self._device.finish()
        except Refused:
            return
        self._ready[candidate] = launches


def limits_of(device: Device) -> Limits:
    """What the device has room for."""
    facts = device.facts
    return Limits(facts.local_bytes, facts.max_group, facts.images)


def owner_of(device: Device) -> TunedFor:
    """Whom its tuning file is for."""
    return TunedFor(device.facts.name, device.facts.version, device.facts.driver)


def cache_path(home: Path, device: Device) -> Path:
    """Where this device's results are kept, for this driver and these kernels."""
    key = digest_of({"device": device.facts.digest, "kernels": kernels_digest()})
    return home / "tuned" / f"{key[:16]}.tuned"


def tune_all(
    device: Device,
    shapes: Sequence[Shape],
    seconds: float,
    home: Path,
    again: bool = False,
    step: Callable[[int], None] = lambda count: None,
) -> list[Tuned]:
    """The winner of every shape; what was found before, and kept below `home`, is taken."""
    path = cache_path(home, device)
    known = {} if again else {tuned.shape: tuned for tuned in _kept(path, device)}
    missing = [shape for shape in shapes if shape not in known]
    began = time.monotonic()
    for done, shape in enumerate(missing, start=1):
        until = began + seconds * done / len(missing)
        known[shape] = tune(device, shape, until, step, known.values())
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(tuned_text(owner_of(device), list(known.values())))
    return [known[shape] for shape in shapes]


def _kept(path: Path, device: Device) -> list[Tuned]:
    """What the cache has; a broken one is as good as none."""
    try:
        return read_tuned(path, owner_of(device)) if path.exists() else []
    except BadFile:
        return []
