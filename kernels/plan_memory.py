"""The memory that a plan needs, computed by the engine: `runner memory` on this computer.

The workspace of the engine's threads follows from how each operation is divided among them, which
only the engine knows; it is the same on every processor.
"""

import json
import os
import platform
import subprocess
from functools import cache, lru_cache

from kernels.runner_builds import runner_for
from workloads.catalogue import Case, lower
from workloads.memory_budget import needed_bytes
from workloads.protocol.memory_outcome import RUNNER_MB

PHONE_CORES = 8  # of most phones: as many threads, unless a workload has its own number
_ABIS = {"aarch64": "arm64-v8a"}
_TIMEOUT_S = 10


@lru_cache(maxsize=8)
def memory_of_plan(plan: bytes) -> dict[str, int] | None:
    """Return the bytes of a plan by kind, workspace included; None if no runner starts here."""
    try:
        runner = _open_runner()
        ended = subprocess.run(
            [f"/proc/self/fd/{runner}", "memory", "/dev/stdin"],
            input=plan,
            capture_output=True,
            pass_fds=(runner,),
            check=True,
            timeout=_TIMEOUT_S,
        )
        record = json.loads(ended.stdout)
        return {kind: int(size) for kind, size in record.items() if kind != "line"}
    except (OSError, subprocess.SubprocessError, ValueError):
        return None


def needed_with_threads(case: Case, threads: int) -> int:
    """Return the memory that a case takes with this many threads; at most that, if unknown here."""
    memory = memory_of_plan(lower(case, threads))
    return needed_bytes(case) if memory is None else sum(memory.values()) + int(RUNNER_MB * 2**20)


@cache
def _open_runner() -> int:
    """Put the runner of this processor where no file system forbids to execute it."""
    build = runner_for(_ABIS.get(platform.machine(), platform.machine()))
    while build.fallback is not None:  # the static build, which needs no Android
        build = build.fallback
    runner = os.memfd_create("runner", os.MFD_CLOEXEC)
    with os.fdopen(os.dup(runner), "wb") as file:
        file.write(build.content)
    return runner
