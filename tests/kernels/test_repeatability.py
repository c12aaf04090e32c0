"""The same plan with the same number of threads gives the same bits."""

from hashlib import sha256
from pathlib import Path

import pytest

from tests.kernels.dumps import run_plan
from workloads.catalogue import bind, lower


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("workload", ["lenet", "resnet20"])
def test_two_runs_end_with_the_same_bits(tmp_path: Path, workload: str, threads: int) -> None:
    plan = lower(bind(workload, {"batch_size": 4}), threads)
    digests = []
    for _ in range(2):
        ended = run_plan("dump", plan, tmp_path, "--steps", "2")
        assert ended.returncode == 0, ended.stdout
        digests.append(sha256((tmp_path / "dump.bin").read_bytes()).hexdigest())
    assert digests[0] == digests[1]
