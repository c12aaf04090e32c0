"""Run a command as root of a new user namespace, with its own mounts, processes and network.

There the command may register an emulator for programs of another processor (binfmt_misc), which
the rest of the computer does not see. Usage: user_namespace.py COMMAND WORD..
"""

import ctypes
import os
import signal
import sys
from pathlib import Path

# CLONE_NEWUSER, NEWNS, NEWNET, NEWUTS and NEWPID
NAMESPACES = 0x10000000 | 0x20000 | 0x40000000 | 0x4000000 | 0x20000000
PARENT_DEATH_SIGNAL = 1


def main() -> None:
    """Enter the namespaces, and wait for the command."""
    libc = ctypes.CDLL(None, use_errno=True)
    outside = os.getpid()
    entered, mapped = os.pipe(), os.pipe()
    if os.fork() == 0:  # still outside: only from there the users can be mapped
        os.read(entered[0], 1)
        for name in ("uid_map", "gid_map"):
            Path(f"/proc/{outside}/{name}").write_text("0 0 65536")
        os.write(mapped[1], b"x")
        os._exit(0)
    if libc.unshare(NAMESPACES) != 0:
        sys.exit(f"unshare: {os.strerror(ctypes.get_errno())}")
    os.write(entered[1], b"x")
    os.read(mapped[0], 1)
    os.setgid(0)
    os.setuid(0)
    child = os.fork()
    if child == 0:
        libc.prctl(PARENT_DEATH_SIGNAL, signal.SIGKILL)
        os.execv(sys.argv[1], sys.argv[1:])
    os.waitpid(child, 0)


main()
