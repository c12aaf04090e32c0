"""The memory of a running process: anonymous, file-backed, swapped, and on the GPU.

The peak of the resident set alone misleads: pages of files can be dropped at any time, and swapped
pages and the memory of the GPU are not in it.
"""

import re
from typing import NamedTuple

from agent.phone.phone_driver import Phone
from agent.phone.shell_command import ShellCommand

_ROLLUP = re.compile(r"^(Rss|Anonymous|Swap):\s+(\d{1,12}) kB$", re.MULTILINE)
_LOG = ("logcat", "-d", "-t", "400", "-s", "lowmemorykiller:V", "lmkd:V")


class ProcessMemory(NamedTuple):
    """In MB; None where the phone does not show it."""

    anonymous_mb: float | None = None
    file_mb: float | None = None
    own_swap_mb: float | None = None
    gpu_memory_mb: float | None = None


NO_MEMORY = ProcessMemory()


def read_process_memory(phone: Phone, pid: int) -> ProcessMemory:
    """Read it in one round trip; the driver's own account is for root, Android's for everybody."""
    commands = [
        ShellCommand(["cat", f"/proc/{pid}/smaps_rollup"]),
        ShellCommand(["cat", f"/sys/class/kgsl/kgsl/proc/{pid}/gpumem_mapped"]),
        ShellCommand(["dumpsys", "gpu", "--gpumem"]),
    ]
    rollup, kgsl, dump = (result.text for result in phone.shell_batch(commands))
    return parse_process_memory(pid, rollup, kgsl, dump)


def parse_process_memory(pid: int, rollup: str, kgsl: str = "", dump: str = "") -> ProcessMemory:
    """Parse smaps_rollup, the node of Adreno's driver, and `dumpsys gpu --gpumem`."""
    kb = {name: int(number) for name, number in _ROLLUP.findall(rollup)}
    found = re.search(rf"^Proc {pid} total: (\d{{1,15}})$", dump, re.MULTILINE)
    gpu = kgsl.strip() if re.fullmatch(r"\d{1,15}", kgsl.strip(), re.ASCII) else ""
    gpu = found[1] if found else gpu
    is_complete = {"Rss", "Anonymous"} <= kb.keys()
    return ProcessMemory(
        anonymous_mb=kb["Anonymous"] / 1024 if is_complete else None,
        file_mb=max(kb["Rss"] - kb["Anonymous"], 0) / 1024 if is_complete else None,
        own_swap_mb=kb["Swap"] / 1024 if "Swap" in kb else None,
        gpu_memory_mb=int(gpu) / 2**20 if gpu else None,
    )


def low_memory_kill(phone: Phone, pid: int | None) -> str:
    """What Android's low-memory killer wrote when it killed a process; empty if it did not."""
    text = phone.shell(_LOG).text
    found = re.search(rf"Kill '[^'\n]{{1,80}}' \({pid}\)[^\n]{{0,160}}", text)
    return found[0] if found else ""
