"""Output that is cut, endless or hostile: bounded, and harmless behind the agent's door."""

import struct
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.phone.phone import Command
from agent.phone.probe import probe
from agent.virtual.mischief.output_kinds import NASTY
from kernels.manifest import runner_for
from tests.virtual.host import AdbHost, read_exactly
from tests.virtual.plans import HOME
from tests.virtual.trouble import Bench, a_bench
from workloads.fault import FarmError, ShellFailed
from workloads.text import safe_text


@pytest.fixture
def bench(host: AdbHost, tmp_path: Path) -> Iterator[Bench]:
    with a_bench(host, tmp_path) as made:
        yield made


def test_truncated_output_ends_as_if_all_were_well(bench: Bench) -> None:
    bench.at.put(f"{HOME}/x", b"0123456789" * 10)
    bench.mischief.add("truncated", command=f"cat {HOME}/x", bytes=15)
    assert (0, "012345678901234", "") == bench.at.run(f"cat {HOME}/x")
    assert bench.door().pull(f"{HOME}/x", 1000) == b"012345678901234"
    bench.mischief.clear()
    assert len(bench.at.out(f"cat {HOME}/x")) == 100


def test_endless_output_is_cut_off_by_the_door(bench: Bench) -> None:
    """As it is made only when it is taken, it costs neither side its memory."""
    bench.at.put(f"{HOME}/x", b"begins ")
    bench.mischief.add("endless", command=f"cat {HOME}/x")
    door = bench.door()
    began = time.monotonic()
    with pytest.raises(ShellFailed, match="more than"):
        door.pull(f"{HOME}/x", 5_000_000)
    assert time.monotonic() - began < 10
    assert door.shell(["echo", "next"]).text == "next\n"


def test_two_gigabytes_are_only_promised(bench: Bench) -> None:
    bench.mischief.add("endless", command="cat /dev/null", bytes=2_000_000_000)
    with bench.host.dial(bench.address, "exec:cat /dev/null") as stream:
        assert len(read_exactly(stream, 1_000_000)) == 1_000_000
    assert bench.at.out("echo alive") == "alive"


@pytest.mark.parametrize("what", sorted(NASTY))
def test_hostile_output_comes_out_harmless(bench: Bench, what: str) -> None:
    bench.mischief.add("hostile", command="*", what=what)
    door = bench.door()
    try:
        answers = door.batch([Command(["cat", "/proc/uptime"]), Command(["getprop", "ro.x"])])
    except FarmError as error:
        text = str(error)
    else:
        text = "".join(safe_text(answer.text) for answer in answers)
    assert text.isprintable()
    with pytest.raises(FarmError):
        probe(bench.door(), runner_for)


def test_hostile_names_are_listed_and_taken_back(bench: Bench) -> None:
    folder = "/storage/self/primary/Download"
    bench.mischief.add("hostile_names")
    names = listed(bench, folder)
    assert b"../../evil" in names
    assert b"\xff\xfe" in names
    assert b"\x1b[31mred" in names
    bench.mischief.clear()
    assert listed(bench, folder) == [b".", b".."]


def listed(bench: Bench, folder: str) -> list[bytes]:
    """The names that the sync service gives."""
    names = []
    with bench.host.dial(bench.address, "sync:") as stream:
        stream.sendall(b"LIST" + struct.pack("<I", len(folder)) + folder.encode())
        while True:
            word, *_, length = struct.unpack("<4sIIII", read_exactly(stream, 20))
            if word == b"DONE":
                return names
            names.append(read_exactly(stream, length))
