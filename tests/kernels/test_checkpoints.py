"""Training that is killed and continues: the same bits as training that was never interrupted."""

import json
import os
import random
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from tests.kernels.dumps import the_runner
from workloads.catalogue import bind, lower

STEPS = {"decoder-1m": 60, "decoder-1m-lora": 60, "lenet": 3000}
SMALL = {"decoder-1m": {"text_length": 16, "batch_size": 2}, "lenet": {"batch_size": 4}}
SMALL["decoder-1m-lora"] = SMALL["decoder-1m"] | {"micro_batches": 2}
Record = dict[str, Any]


class Training:
    """A run with checkpoints in its own folder."""

    def __init__(
        self, folder: Path, workload: str, threads: int = 1, saved_in: Path | None = None
    ) -> None:
        folder.mkdir(exist_ok=True)
        self.folder = folder
        self.checkpoint = (saved_in or folder) / "checkpoint"
        (folder / "plan").write_bytes(lower(bind(workload, SMALL[workload]), threads))
        where = [str(folder / "plan"), str(folder)]
        limits = ["--steps", str(STEPS[workload]), "--window-ms", "1", "--max-seconds", "300"]
        saves = ["--checkpoint", str(self.checkpoint), "--checkpoint-s", "0.01"]
        self.command = [str(the_runner()), "run", *where, *limits, *saves]

    def start(self, *words: str) -> "subprocess.Popen[bytes]":
        command = [*words, *self.command]
        return subprocess.Popen(command, stdout=subprocess.DEVNULL, restore_signals=False)

    def finish(self, *words: str) -> Record:
        """Run to the end and return the last record."""
        self.start(*words).wait(300)
        return self.records[-1]

    def kill_after(self, seconds: float) -> bool:
        """Start it, kill it after that time; return whether it was still running."""
        process = self.start()
        time.sleep(seconds)
        running = process.poll() is None
        os.kill(process.pid, signal.SIGKILL) if running else None
        process.wait()
        return running

    @property
    def records(self) -> list[Record]:
        text = (self.folder / "out.jsonl").read_text()
        return [json.loads(line) for line in text.splitlines()]


def check_kills(folder: Path, workload: str, threads: int, kills: int, seed: int) -> None:
    undisturbed = Training(folder / "undisturbed", workload, threads)
    started = time.monotonic()
    expected = undisturbed.finish()
    took = time.monotonic() - started
    assert expected["line"] == "done", expected
    draw = random.Random(seed)
    (folder / "link").symlink_to(folder)
    killed = Training(folder / "killed", workload, threads, folder / "link")
    hits = 0
    while hits < kills:
        if not killed.kill_after(draw.uniform(0.02, 0.4 * took)):
            killed.checkpoint.unlink(missing_ok=True)  # it was done: begin again
        hits += killed.checkpoint.exists()
    found = killed.finish()
    assert "resume" in {each["line"] for each in killed.records}
    assert int(expected["digest"], 16) > 0
    for name in ("steps", "digest", "loss_first", "loss_last", "moved"):
        assert found[name] == expected[name], name


@pytest.mark.parametrize("threads", [1, 2])
def test_a_killed_run_continues_with_the_same_bits(tmp_path: Path, threads: int) -> None:
    check_kills(tmp_path, "lenet", threads, kills=2, seed=threads)


@pytest.mark.slow
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("workload", SMALL)
def test_twenty_kills_at_random_moments(tmp_path: Path, workload: str, threads: int) -> None:
    check_kills(tmp_path, workload, threads, kills=20, seed=20 + threads)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    training = Training(tmp_path_factory.mktemp("good"), "lenet")
    assert training.finish()["line"] == "done"
    return training.checkpoint.read_bytes()


@pytest.mark.parametrize(
    ("damage", "text"),
    [
        (lambda content: content[:-1], "is damaged"),
        (lambda content: content + b"x", "is damaged"),
        (lambda content: content[:5000] + b"\xff" + content[5001:], "is damaged"),
        (lambda content: content[:-9] + bytes([content[-9] ^ 1]) + content[-8:], "is damaged"),
        (lambda content: b"", "is damaged"),
        (lambda content: bytes(len(content)), "is damaged"),
        (lambda content: content.replace(b"checkpoint 1", b"checkpoint 2", 1), "another version"),
        (lambda content: content.replace(b" cpu 1 ", b" cpu 2 ", 1), "another workload"),
    ],
)
def test_a_damaged_or_foreign_checkpoint_is_refused(
    tmp_path: Path, checkpoint: bytes, damage: Any, text: str
) -> None:
    training = Training(tmp_path, "lenet")
    bad = damage(checkpoint)
    training.checkpoint.write_bytes(bad)
    fault = training.finish()
    assert (fault["line"], fault["code"]) == ("fault", "bad_checkpoint")
    assert text in fault["text"]
    assert training.checkpoint.read_bytes() == bad


def test_another_plan_of_the_same_case_does_not_continue(tmp_path: Path, checkpoint: bytes) -> None:
    training = Training(tmp_path, "lenet")
    training.checkpoint.write_bytes(checkpoint)
    plan = tmp_path / "plan"
    plan.write_bytes(plan.read_bytes().replace(b"\nseed 17\n", b"\nseed 18\n"))
    fault = training.finish()
    assert (fault["code"], "another workload" in fault["text"]) == ("bad_checkpoint", True)


def test_a_run_that_continues_has_at_least_one_step_left(tmp_path: Path) -> None:
    training = Training(tmp_path, "decoder-1m")  # with these limits, every step is a window
    training.command += ["--steps", "5", "--max-seconds", "4", "--checkpoint-s", "0"]
    done = training.finish()
    saved = [each["step"] for each in training.records if each["line"] == "checkpoint"]
    assert saved == [1, 2, 3, 4]
    again = training.finish()
    assert [again[name] for name in ("steps", "digest")] == [5, done["digest"]]
    (resume,) = [each for each in training.records if each["line"] == "resume"]
    assert (resume["step"], resume["same_cores"]) == (4, True)
    assert 0 < resume["lost_ns"] < 60e9


def test_a_folder_has_the_checkpoint_of_one_run_at_a_time(tmp_path: Path) -> None:
    first = Training(tmp_path / "first", "lenet")
    first.command += ["--steps", "1000000"]
    running = first.start()
    try:
        while not first.checkpoint.exists():
            time.sleep(0.01)
        fault = Training(tmp_path / "second", "lenet", saved_in=first.folder).finish()
        assert (fault["code"], "another run" in fault["text"]) == ("io", True)
        assert running.poll() is None
    finally:
        running.kill()
        running.wait()
    fault = Training(tmp_path / "third", "lenet", saved_in=tmp_path / "missing").finish()
    assert (fault["code"], "No such file" in fault["text"]) == ("io", True)


# The header contains decimal numbers, so two checkpoints may differ by a few bytes.
@pytest.mark.parametrize("share", [0.1, 0.5, 0.9995])
def test_a_disk_that_becomes_full_keeps_the_last_good_checkpoint(
    tmp_path: Path, checkpoint: bytes, share: float
) -> None:
    training = Training(tmp_path, "lenet")
    training.checkpoint.write_bytes(checkpoint)
    training.command += ["--steps", "1000000"]
    fault = training.finish("prlimit", f"--fsize={int(share * len(checkpoint))}")
    assert (fault["line"], fault["code"]) == ("fault", "io")
    assert "File too large; free space on the phone" in fault["text"]
    assert training.checkpoint.read_bytes() == checkpoint
    assert not (tmp_path / "checkpoint.new").exists()


def test_a_full_disk_keeps_the_last_good_checkpoint(tmp_path: Path) -> None:
    training = Training(tmp_path, "lenet")
    while not training.checkpoint.exists():
        training.kill_after(0.1)
    good = training.checkpoint.read_bytes()
    (tmp_path / "checkpoint.new").unlink(missing_ok=True)
    (tmp_path / "checkpoint.new").symlink_to("/dev/full")
    fault = training.finish()
    assert (fault["line"], fault["code"]) == ("fault", "io")
    assert "No space left" in fault["text"]
    assert training.checkpoint.read_bytes() == good
