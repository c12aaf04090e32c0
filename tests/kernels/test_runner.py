"""The runner on this computer: what it counts, what it refuses, and its files."""

import json
import platform
import re
import resource
import subprocess
from pathlib import Path
from typing import Any

import pytest

from kernels.runner_builds import runner_for
from tests.kernels.plans import a_body, a_plan, perceptron, product

Line = dict[str, Any]
pytestmark = pytest.mark.skipif(
    platform.machine() != "x86_64", reason="there is no runner for this computer"
)


@pytest.fixture
def runner(tmp_path: Path) -> Path:
    path = tmp_path / "runner"
    path.write_bytes(runner_for("x86_64").content)
    path.chmod(0o755)
    (tmp_path / "dir").mkdir()
    return path


def run(runner: Path, plan: bytes, *words: str, verb: str = "run") -> tuple[int, list[Line]]:
    """Return exit status and records of a run."""
    (runner.parent / "plan").write_bytes(plan)
    done = subprocess.run(
        [runner, verb, "plan", "dir", *words],
        cwd=runner.parent,
        capture_output=True,
        timeout=600,
        check=False,
    )
    out = runner.parent / "dir" / "out.jsonl" if verb == "run" else None
    records = out.read_bytes() if out is not None and out.exists() else done.stdout
    return done.returncode, [json.loads(line) for line in records.splitlines()]


def fault_of(runner: Path, plan: bytes, *words: str) -> tuple[int, str, str]:
    status, records = run(runner, plan, *words)
    assert records[-1]["line"] == "fault"
    return status, records[-1]["code"], records[-1]["text"]


def test_a_run_learns_and_counts_its_work(runner: Path) -> None:
    status, records = run(runner, perceptron(), "--steps", "60")
    done = records[-1]
    assert status == 0
    assert done["loss_last"] < 0.5 * done["loss_first"]
    assert (done["parameters"], done["learned"], done["moved"]) == (32 * 16 + 32 + 4 * 32 + 4, 4, 4)
    assert done["macs"] == 8 * (32 * 16 + 4 * 32)
    assert done["peak_rss_kb"] > 1000
    losses = [record["loss"] for record in records if record["line"] == "window"]
    assert 0 < losses[-1] <= losses[0] < 10


def test_every_window_has_the_mean_loss_of_its_steps(runner: Path) -> None:
    sums = []
    for limits in (("--window-ms", "0", "--max-seconds", "1"), ("--window-ms", "900")):
        _, records = run(runner, perceptron(), "--warmup", "0", "--steps", "400", *limits)
        windows = [record for record in records if record["line"] == "window"]
        sums.append((len(windows), sum(window["loss"] * window["n"] for window in windows)))
    (many, expected), (one, found) = sums
    assert many > one == 1
    assert found == pytest.approx(expected, rel=1e-6)


def test_two_threads_learn_the_same(runner: Path) -> None:
    losses = {
        threads: run(runner, perceptron(batch=32, threads=threads), "--steps", "40")[1][-1]
        for threads in (1, 2)
    }
    assert losses[1]["loss_last"] == pytest.approx(losses[2]["loss_last"], rel=1e-4)


def test_the_same_plan_gives_bit_identical_losses(runner: Path) -> None:
    first, second = (run(runner, perceptron(), "--steps", "30")[1][-1] for _ in range(2))
    assert (first["loss_first"], first["loss_last"]) == (second["loss_first"], second["loss_last"])


def test_the_result_of_a_product_is_checked(runner: Path) -> None:
    done = run(runner, product(100), "--steps", "3")[1][-1]
    assert 0 < done["answer_error"] < 1e-6
    assert done["macs"] == 100**3
    assert (
        done["loss_first"],
        done["loss_last"],
        done["parameters_changed"],
    ) == (None, None, False)


def test_a_plan_that_trains_nothing_is_the_fault_wrong_answer(runner: Path) -> None:
    status, code, text = fault_of(runner, perceptron(rate=0))
    assert (status, code) == (6, "wrong_answer")
    assert "nothing was trained" in text


def test_a_loss_that_is_not_finite_is_the_fault_wrong_answer(runner: Path) -> None:
    status, code, text = fault_of(runner, perceptron(rate=1e30))
    assert (status, code) == (6, "wrong_answer")
    assert re.search(r"the loss of step \d+ is not finite", text)


def test_a_plan_without_a_body_can_only_be_simulated(runner: Path) -> None:
    status, code, text = fault_of(runner, a_plan(""))
    assert (status, code) == (4, "unsupported")
    assert "can only run on a simulated phone" in text


def test_evaluations_are_between_windows(runner: Path) -> None:
    records = run(runner, perceptron(evaluate=10), "--steps", "30")[1]
    evaluations = [line for line in records if line["line"] == "evaluation"]
    assert [line["step"] for line in evaluations] == [10, 20, 30]
    assert evaluations[-1]["accuracy"] == 1
    assert [line["n"] for line in records if line["line"] == "window"] == [10, 10, 10]


def test_a_plan_larger_than_the_memory_never_starts(runner: Path) -> None:
    lists = "tensor 0 float activation 0 1 4 none\nop forward 0 copy 0 : 0 : :\n"
    status, code, text = fault_of(runner, a_plan(a_body(lists, arena=1 << 41)))
    assert (status, code) == (5, "out_of_memory")
    assert "use a smaller batch" in text


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("farmhand-body 1", "farmhand-body 2", "line 1 of the plan's body: '2' is not a version"),
        ("threads 1", "threads 0", "line 4 of the plan's body: '0' is out of range"),
        ("threads 1", "threads  1", "line 4 of the plan's body: words must be separated by"),
        ("samples 8", "samples 8 9", "line 6 of the plan's body: expected 'samples' with 1 words"),
        ("seed 7", "seed 7.5", "line 7 of the plan's body: '7.5' is not an integer"),
        ("arena state", "arena stage", "'stage' is not the next arena"),
        ("tensor 3 float", "tensor 4 float", "'4' is out of range"),
        ("tensor 3 float", "tensor 3 double", "'double' is not a type"),
        ("parameter 4096 1 32", "parameter 4097 1 32", "offset is not a multiple of 64"),
        ("parameter 4096 1 32", "parameter 1048576 1 32", "'3' lies outside its arena"),
        ("1 32 zero", "1 32 uniform nan", "'nan' is not a number"),
        ("1 32 zero", "1 0 zero", "'0' is out of range"),
        ("rows 4 |", "dreams 4 |", "'dreams' is not a generator of this build"),
        ("relu_forward 10 : 10", "relu_forward 99 : 10", "'99' is out of range"),
        ("relu_forward 10 : 10", "relu_forward 10 : 11", "relu_forward: "),
        ("op backward 7", "op sideways 7", "'sideways' is not a phase"),
        ("loss 13", "loss 1", "the loss is not a float"),
        ("loss 13\nend\n", "loss 13\n", "before its 'end'"),
        ("end\n", "end\nmore\n", "continues after its 'end'"),
    ],
)
def test_a_broken_line_is_named(runner: Path, old: str, new: str, expected: str) -> None:
    plan = perceptron()
    head, _, body = plan.partition(b"farmhand-body")
    text = ("farmhand-body" + body.decode()).replace(old, new, 1)
    assert text.encode() != b"farmhand-body" + body
    status, code, text = fault_of(runner, head + text.encode())
    assert (status, code) == (3, "bad_plan")
    assert expected in text


def test_an_operation_that_the_build_lacks_is_unsupported(runner: Path) -> None:
    plan = perceptron().replace(b"relu_forward", b"wish_forward")
    status, code, text = fault_of(runner, plan)
    assert (status, code) == (4, "unsupported")
    assert "this build has no operation 'wish_forward'" in text


def test_a_plan_truncated_anywhere_is_refused(runner: Path) -> None:
    plan = perceptron()
    for length in range(0, len(plan), 97):
        assert fault_of(runner, plan[:length])[0] in {3, 4}


def test_a_full_disk_leaves_complete_lines(runner: Path) -> None:
    """A limit on the file size acts like a full disk."""
    (runner.parent / "plan").write_bytes(perceptron())
    done = subprocess.run(
        [runner, "run", "plan", "dir", "--seconds", "1", "--max-seconds", "4"],
        cwd=runner.parent,
        capture_output=True,
        timeout=600,
        check=False,
        preexec_fn=_small_files,
    )
    assert done.returncode == 8
    assert json.loads(done.stdout)["code"] == "io"
    out = (runner.parent / "dir" / "out.jsonl").read_bytes()
    assert out.endswith(b"}\n")
    assert json.loads(out.splitlines()[0])["line"] == "hello"


def _small_files() -> None:
    import signal

    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (600, 600))  # less than the shortest run writes


def test_dump_writes_every_tensor_after_every_step(runner: Path) -> None:
    status, records = run(runner, perceptron(), "--steps", "2", verb="dump")
    assert (status, records[-1]["line"], records[-1]["steps"]) == (0, "done", 2)
    values = 8 * 16 + 8 + 2 * (32 * 16 + 32 + 4 * 32 + 4) + 2 * 8 * 32 + 3 * 8 * 4 + 2
    dump = (runner.parent / "dir" / "dump.bin").read_bytes()
    assert 3 * (8 + 4 * values) == len(dump)
    moments = [dump[at : at + 8] for at in range(0, len(dump), 8 + 4 * values)]
    assert [int.from_bytes(moment, "little") for moment in moments] == [0, 1, 2]


def test_the_version_is_that_of_the_project(runner: Path) -> None:
    project = (Path(__file__).parents[2] / "pyproject.toml").read_text()
    version = re.search(r'^version = "(.*)"', project, re.MULTILINE)
    info = json.loads(subprocess.run([runner, "info"], capture_output=True, check=True).stdout)
    assert version is not None
    assert f"farmhand {version[1]}" == info["runner"]
    assert info["provenance"]["time"] == {"source": "host"}
    assert [info["provenance"][name] for name in ("clock", "heat", "energy")] == [None, None, None]
