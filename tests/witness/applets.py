"""Which commands Android 6 to 16 offer in their shell, and which commands a shell line needs.

The names by release are facts of AOSP's list of shell utilities, toolbox and toybox together:
https://android.googlesource.com/platform/system/core/+/refs/heads/main/shell_and_utilities/README.md
It was read up to Android 12; later releases are taken to keep these names.
"""

from collections.abc import Iterator
from typing import Any

from agent.virtual.shell.shell_parser import parse
from agent.virtual.shell.syntax_tree import ShellWord, SimpleCommand, SubstitutionPart, TextPart

RELEASES = range(6, 17)
ANDROID_6 = """
acpi basename blockdev bzcat cal cat chcon chgrp chmod chown chroot cksum clear cmp comm cp cpio cut
date dd df dirname dmesg dos2unix du echo env expand expr fallocate false find free getenforce
getevent getprop grep groups head hostname hwclock id ifconfig iftop inotifyd insmod ioctl ionice
kill ln load_policy log logname losetup ls lsmod lsof lsusb md5sum mkdir mknod mkswap mktemp modinfo
more mount mountpoint mv nandread netstat newfs_msdos nice nl nohup od paste patch pgrep pidof pkill
pmap printenv printf prlimit ps pwd readlink realpath renice restorecon rm rmdir rmmod route runcon
sed sendevent seq setenforce setprop setsid sha1sum sleep sort split start stat stop strings swapoff
swapon sync sysctl tac tail tar taskset tee time timeout top touch tr true truncate umount uname
uniq unix2dos uptime usleep vmstat watchprops wc which whoami xargs yes
"""
ADDED = {
    7: "base64 flock iorenice killall tty ulimit xxd",
    8: "bunzip2 bzip2 chrt diff file gunzip gzip lspci microcom mkfifo modprobe sha224sum "
    "sha256sum sha384sum sha512sum uudecode uuencode zcat",
    9: "awk fmt stty",
    10: "bc blkid chattr egrep fgrep freeramdisk fsfreeze getconf getfattr help iconv install "
    "iotop lsattr makedevs nc netcat nproc nsenter ping ping6 pivot_root prlimit pwdx rev rfkill "
    "setfattr traceroute traceroute6 tunctl unlink unshare uuidgen vconfig watch",
    11: "devmem fsync getopt readelf vi",
    12: "[ blkdiscard rtcwake test",
}
REMOVED = {7: "watchprops", 8: "iftop ioctl nandread prlimit route"}
# Of mksh as Android builds it, and of the framework, which has them in every release.
BUILTINS = {
    *(".", ":", "[", "break", "cd", "command", "continue", "echo", "eval", "exec", "exit"),
    *("export", "false", "kill", "let", "print", "printf", "pwd", "read", "return", "set"),
    *("shift", "test", "trap", "true", "typeset", "ulimit", "umask", "unset", "wait"),
}
FRAMEWORK = {"cmd", "dumpsys", "pm", "settings", "sh", "start", "stop"}
LAUNCHERS = {"exec": 0, "setsid": 0, "nohup": 0, "taskset": 1}  # words before the command


def commands_of(release: int) -> set[str]:
    """The commands of a release."""
    names = set(ANDROID_6.split())
    for number in range(7, release + 1):
        names -= set(REMOVED.get(number, "").split())
        names |= set(ADDED.get(number, "").split())
    return names | BUILTINS | FRAMEWORK


def needed_commands(line: str) -> Iterator[tuple[str, bool]]:
    """Every command that a line calls, and whether the line continues without it."""
    yield from _walk(parse(line), False)


def _walk(node: Any, optional: bool) -> Iterator[tuple[str, bool]]:
    """Walk over the syntax tree; what stands before || is optional."""
    if isinstance(node, SimpleCommand):
        yield from _of_words([_text(word) for word in node.words], optional)
    if isinstance(node, tuple | list):
        for item in node:
            yield from _walk(item, optional)
    elif hasattr(node, "first") and hasattr(node, "rest"):
        alternatives = any(operator == "||" for operator, _ in node.rest)
        yield from _walk(node.first, optional or alternatives)
        yield from _walk(tuple(pipeline for _, pipeline in node.rest), optional)
    elif isinstance(node, SubstitutionPart):
        yield from _walk(node.body, optional)
    elif hasattr(node, "__slots__"):
        for name in node.__slots__:
            yield from _walk(getattr(node, name), optional)


def _of_words(words: list[str | None], optional: bool) -> Iterator[tuple[str, bool]]:
    name, *rest = words or [None]
    if name is None or "/" in name:
        return  # computed, or a program of the farm by its path
    yield name, optional
    if name in LAUNCHERS:
        yield from _of_words(rest[LAUNCHERS[name] :], optional)
    elif name == "sh" and rest[:1] == ["-c"] and len(rest) > 1 and rest[1] is not None:
        script = rest[1]
        yield from _walk(parse(script), optional)
        if '"$@"' in script:  # after $0, and after one more if the script shifts it away
            yield from _of_words(rest[4 if "shift" in script else 3 :], optional)
        if '"$5"' in script:  # the digest tool of a push
            yield from _of_words(rest[7:8], optional)


def _text(word: ShellWord) -> str | None:
    """A word without expansions; None for others."""
    parts = [part.value if isinstance(part, TextPart) else None for part in word.parts]
    return None if None in parts else "".join(part for part in parts if part is not None)
