"""Lets PoCL build kernels for a processor that is newer than the compiler inside PoCL.

PyPI's PoCL is of 2022. On an AMD processor of family 26 (Zen 5, 2024) or later it asks its own
compiler for the processor "generic", which that compiler does not accept, so that no kernel builds.
PoCL has no setting for the name. Therefore its library is changed in one place: it uses the newest
name that its compiler knows. Later processors of AMD have the instructions of earlier ones.
"""

import os
import re
from contextlib import suppress
from functools import cache
from pathlib import Path

_NEWEST_KNOWN, _NEWEST_KNOWN_FAMILY = b"znver3", 25
_CPUINFO = Path("/proc/cpuinfo")
# pocl_get_llvm_cpu_name() of version 3.0: push rbp; push rbx; sub rsp, 8; call getHostCPUName; test
# rdx, rdx; je FALLBACK; mov rbp, rax; mov rbx, rdx; lea rdi, [rdx + 1]; call malloc; ... ret;
# FALLBACK: mov edi, 8; mov ebx, 7; lea rbp, "generic"; jmp to the call of malloc.
_ASKS_LLVM = re.compile(
    rb"(\x55\x53\x48\x83\xec\x08)\xe8.{4}\x48\x85\xd2\x74\x30\x48\x89\xc5\x48\x89\xd3"
    rb"\x48\x8d\x7a\x01(\xe8.{37})\xbf\x08\0\0\0\xbb\x07\0\0\0(?=\x48\x8d\x2d.{4}\xeb\xc7)",
    re.DOTALL,
)
# lea rbp, FALLBACK; mov ebx, 6; mov edi, 7; a nop of three bytes; and the name at FALLBACK.
_NAMES_IT = bytes.fromhex("48 8d 2d 33 00 00 00 bb 06 00 00 00 bf 07 00 00 00 0f 1f 00")
_NAME_BYTES = 10


@cache
def name_processor(library: Path) -> None:
    """Change PoCL's library if this processor needs it; without the permission, leave it."""
    with suppress(OSError):
        if not is_unknown_processor(_CPUINFO.read_text()):
            return
        content = library.read_bytes()
        changed = with_known_processor(content)
        if changed != content:  # replaced as a whole: other processes may have it open
            written = library.with_name(f"{library.name}.{os.getpid()}")
            written.write_bytes(changed)
            written.chmod(library.stat().st_mode)
            written.replace(library)


def is_unknown_processor(cpuinfo: str) -> bool:
    """Whether PoCL's compiler has no name for the processor of this /proc/cpuinfo."""
    family = re.search(r"^cpu family\s*:\s*(\d{1,4})$", cpuinfo, re.MULTILINE)
    is_amd = re.search(r"^vendor_id\s*:\s*AuthenticAMD$", cpuinfo, re.MULTILINE) is not None
    return is_amd and family is not None and int(family[1]) > _NEWEST_KNOWN_FAMILY


def with_known_processor(library: bytes) -> bytes:
    """The library with the change; as it was if it is another version, or was changed before."""
    name = _NEWEST_KNOWN.ljust(_NAME_BYTES, b"\0")
    return _ASKS_LLVM.sub(lambda found: found[1] + _NAMES_IT + found[2] + name, library, count=1)
