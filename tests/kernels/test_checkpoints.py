"""Training that is killed and continues: the same bits as training that was never interrupted."""

import json
import os
import random
import re
import signal
import struct
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.kernels.dumps import the_runner
from tests.kernels.opencl_runs import run_records
from tests.kernels.pocl import shared_pocl
from workloads.catalogue import bind, lower

STEPS = {"decoder-1m": 60, "decoder-1m-lora": 60, "lenet": 3000}
SMALL = {"decoder-1m": {"text_length": 16, "batch_size": 2}, "lenet": {"batch_size": 4}}
SMALL["decoder-1m-lora"] = SMALL["decoder-1m"] | {"micro_batches": 2}
PROGRESS_BYTES = 72 + 2 * 8 + 3 * 8 + 4 * 4096  # struct run_record of run_checkpoint.h
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
        (lambda content: content + b"x", "is damaged"),
        (lambda content: b"", "is damaged"),
        (lambda content: bytes(len(content)), "is damaged"),
        (lambda content: content + content, "is damaged"),
        (lambda content: content.replace(b" ", b"\0", 1), "is damaged"),
        (lambda content: content.replace(b"checkpoint 2", b"checkpoint 3", 1), "another version"),
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


def head_length(checkpoint: bytes) -> int:
    return checkpoint.index(b"\n") + 1


def test_a_flipped_bit_in_any_field_is_noticed(tmp_path: Path, checkpoint: bytes) -> None:
    training = Training(tmp_path, "lenet")
    places = [match.start() for match in re.finditer(rb"(?<= )\S", checkpoint[:400])][:10]
    arenas = (head_length(checkpoint), head_length(checkpoint) + PROGRESS_BYTES)
    for place in (*places, *arenas, len(checkpoint) // 2, len(checkpoint) - 1):
        bad = bytearray(checkpoint)
        bad[place] ^= 1 << place % 7
        training.checkpoint.write_bytes(bad)
        assert training.finish()["code"] == "bad_checkpoint", place
        assert training.checkpoint.read_bytes() == bad


def test_a_truncated_checkpoint_is_noticed(tmp_path: Path, checkpoint: bytes) -> None:
    training, head = Training(tmp_path, "lenet"), head_length(checkpoint)
    parts = (head, head + PROGRESS_BYTES, len(checkpoint))
    for length in (1, 30, *(end + change for end in parts for change in (-1, 0))):
        if length < len(checkpoint):
            training.checkpoint.write_bytes(checkpoint[:length])
            fault = training.finish()
            assert (fault["code"], "is damaged" in fault["text"]) == ("bad_checkpoint", True)


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_only_a_regular_file_is_a_checkpoint(tmp_path: Path, make: Callable[[Path], None]) -> None:
    training = Training(tmp_path, "lenet")
    make(training.checkpoint)
    fault = training.finish()
    assert (fault["code"], "not a regular file" in fault["text"]) == ("bad_checkpoint", True)


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("/dev/full")])
def test_what_an_earlier_run_left_beside_the_checkpoint_is_replaced(
    tmp_path: Path, make: Callable[[Path], None]
) -> None:
    training = Training(tmp_path, "lenet")
    make(tmp_path / "checkpoint.new")
    assert training.finish()["line"] == "done"
    assert training.checkpoint.stat().st_size > 1000


def test_another_build_of_the_runner_does_not_continue(tmp_path: Path, checkpoint: bytes) -> None:
    training = Training(tmp_path, "lenet")
    training.checkpoint.write_bytes(checkpoint)
    other = tmp_path / "runner"
    other.write_bytes(the_runner().read_bytes() + b"\0")
    other.chmod(0o755)
    training.command[0] = str(other)
    fault = training.finish()
    assert (fault["code"], "build of the runner" in fault["text"]) == ("bad_checkpoint", True)


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("--warmup", "4"), "other settings"),
        (("--steps", "10"), "and more"),
        (("--max-seconds", "0.01"), "and more"),  # those before the checkpoint count
    ],
)
def test_a_run_with_other_limits_does_not_continue(
    tmp_path: Path, checkpoint: bytes, words: tuple[str, str], text: str
) -> None:
    training = Training(tmp_path, "lenet")
    training.checkpoint.write_bytes(checkpoint)
    training.command += words
    fault = training.finish()
    assert (fault["code"], text in fault["text"]) == ("bad_checkpoint", True)


def hash_of(content: bytes, start: int) -> int:
    """hash_bytes() of the engine."""
    value, whole = start, len(content) // 8 * 8
    for word in (*struct.unpack(f"<{whole // 8}Q", content[:whole]), *content[whole:]):
        value = (value ^ word) * 0x9E3779B97F4A7C15 % 2**64
        value ^= value >> 29
    return value


@pytest.mark.parametrize(("age_s", "is_known"), [(10 * 365 * 86400, True), (1, False)])
def test_after_a_restart_the_lost_time_is_that_of_the_wall_clock(
    tmp_path: Path, checkpoint: bytes, age_s: int, is_known: bool
) -> None:
    head, body = checkpoint[: head_length(checkpoint)], checkpoint[head_length(checkpoint) :]
    written_ns = time.time_ns() - age_s * 10**9
    body = struct.pack("<qq40s", written_ns, 0, b"another boot") + body[56:]
    *identity, step, _ = head.split()
    parts = (body[:PROGRESS_BYTES], body[PROGRESS_BYTES:])  # the arenas have whole words
    digest = f"{hash_of(parts[1], hash_of(parts[0], int(step))):x}".encode()
    training = Training(tmp_path, "lenet")
    training.checkpoint.write_bytes(b" ".join([*identity, step, digest]) + b"\n" + body)
    assert training.finish()["line"] == "done"
    (resume,) = [each for each in training.records if each["line"] == "resume"]
    if is_known:
        assert resume["lost_ns"] / 1e9 == pytest.approx(age_s, abs=60)
    else:
        assert resume["lost_ns"] is None, "this boot is older than that"


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


def test_a_full_disk_keeps_the_last_good_checkpoint(tmp_path: Path, checkpoint: bytes) -> None:
    disk, good = tmp_path / "disk", tmp_path / "good"
    disk.mkdir()
    good.write_bytes(checkpoint)
    training = Training(tmp_path, "lenet", saved_in=disk)
    training.command += ["--steps", "1000000"]
    script = 'mount -t tmpfs -o size="$1" tmpfs "$2" && cp "$3" "$2/checkpoint" || exit 77; '
    script += 'good="$3" disk="$2"; shift 3; "$@"; cmp "$good" "$disk/checkpoint" && ls "$disk"'
    words = ["unshare", "-rm", "sh", "-c", script, "sh", str(3 * len(checkpoint) // 2)]
    words += [str(disk), str(good), *training.command]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode == 77 or "unshare" in done.stderr:
        pytest.skip("this user may not mount a small disk")
    fault = training.records[-1]
    assert (fault["line"], fault["code"]) == ("fault", "io")
    assert "No space left on device; free space on the phone" in fault["text"]
    assert done.stdout.splitlines()[-1] == "checkpoint", done


@pytest.mark.slow
@pytest.mark.parametrize("feed", ["resident", "copied", "preloaded"])
def test_an_opencl_run_continues_on_the_same_device_with_the_same_kernels(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, feed: str
) -> None:
    pocl = shared_pocl(tmp_path_factory)
    case = bind("decoder-1m", SMALL["decoder-1m"], backend="opencl")
    words = ["--feed", feed, "--checkpoint", tmp_path / "checkpoint", "--checkpoint-s", 0]
    words += ["--window-ms", 0.001]
    expected = run_records(lower(case, 1), tmp_path, pocl, *words, "--steps", 6)[-1]
    assert expected["line"] == "done", expected
    records = run_records(lower(case, 1), tmp_path, pocl, *words, "--steps", 6)
    assert "resume" in {each["line"] for each in records}
    assert records[-1]["digest"] == expected["digest"]
    fault = run_records(lower(case, 1), tmp_path, pocl, *words, "--kernel", "naive")[-1]
    assert (fault["code"], "OpenCL device" in fault["text"]) == ("bad_checkpoint", True)
