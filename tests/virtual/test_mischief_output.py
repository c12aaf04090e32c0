"""Truncated, endless and hostile output: bounded by the agent, and harmless."""

import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.phone.probe import probe
from agent.phone.shell_command import ShellCommand
from agent.virtual.mischief.output_faults import HOSTILE_OUTPUTS
from kernels.runner_builds import runner_for
from tests.virtual.adb_host import AdbHost, read_exactly
from tests.virtual.injection_bench import InjectionBench, start_bench
from tests.virtual.sample_plans import HOME
from workloads.protocol.faults import FarmError, ShellFailed
from workloads.text import safe_text


@pytest.fixture
def bench(host: AdbHost, tmp_path: Path) -> Iterator[InjectionBench]:
    with start_bench(host, tmp_path) as bench:
        yield bench


def test_truncated_output_ends_without_an_error(bench: InjectionBench) -> None:
    bench.adb_phone.put(f"{HOME}/x", b"0123456789" * 10)
    bench.mischief.add("truncated", command=f"cat {HOME}/x", bytes=15)
    assert bench.adb_phone.run(f"cat {HOME}/x") == (0, "012345678901234", "")
    assert bench.agent_phone().pull(f"{HOME}/x", 1000) == b"012345678901234"
    bench.mischief.clear()
    assert len(bench.adb_phone.out(f"cat {HOME}/x")) == 100


def test_endless_output_is_limited_by_the_agent(bench: InjectionBench) -> None:
    """Endless output is generated as it is read, so it costs neither side memory."""
    bench.adb_phone.put(f"{HOME}/x", b"begins ")
    bench.mischief.add("endless", command=f"cat {HOME}/x")
    agent_phone = bench.agent_phone()
    with pytest.raises(ShellFailed, match="more than"):
        agent_phone.pull(f"{HOME}/x", 5_000_000)
    assert agent_phone.shell(["echo", "next"]).text == "next\n"


def test_a_file_of_two_gigabytes_is_refused_by_its_size(bench: InjectionBench) -> None:
    bench.mischief.add("endless", command="cat /dev/null", bytes=2_000_000_000)
    with bench.host.open_service(bench.address, "exec:cat /dev/null") as stream:
        assert len(read_exactly(stream, 1_000_000)) == 1_000_000
    assert bench.adb_phone.out("echo alive") == "alive"


@pytest.mark.parametrize("what", sorted(HOSTILE_OUTPUTS))
def test_hostile_output_is_escaped(bench: InjectionBench, what: str) -> None:
    bench.mischief.add("hostile", command="*", what=what)
    agent_phone = bench.agent_phone()
    try:
        answers = agent_phone.shell_batch(
            [ShellCommand(["cat", "/proc/uptime"]), ShellCommand(["getprop", "ro.x"])]
        )
    except FarmError as error:
        text = str(error)
    else:
        text = "".join(safe_text(answer.text) for answer in answers)
    assert text.isprintable()
    with pytest.raises(FarmError):
        probe(bench.agent_phone(), runner_for)


def test_hostile_file_names_are_listed_and_removed_again(bench: InjectionBench) -> None:
    folder = "/storage/self/primary/Download"
    bench.mischief.add("hostile_names")
    names = listed(bench, folder)
    assert b"../../evil" in names
    assert b"\xff\xfe" in names
    assert b"\x1b[31mred" in names
    bench.mischief.clear()
    assert listed(bench, folder) == [b".", b".."]


def listed(bench: InjectionBench, folder: str) -> list[bytes]:
    """Return the names that the sync service lists."""
    names = []
    with bench.host.open_service(bench.address, "sync:") as stream:
        stream.sendall(b"LIST" + struct.pack("<I", len(folder)) + folder.encode())
        while True:
            word, *_, length = struct.unpack("<4sIIII", read_exactly(stream, 20))
            if word == b"DONE":
                return names
            names.append(read_exactly(stream, length))
