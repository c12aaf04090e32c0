"""The first process of a witness: mounts its file systems, runs adbd, and moves its sensors.

It runs in its own namespaces and imports nothing of the project. Signals: HUP ends adbd, which
is started again; USR1 ends adbd and everything else on the phone; TERM switches the phone off.
"""

import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

SU_PORT = 5999
PATH = "/tmp/bin:/system/bin:/vendor/bin"
RESTART_S = 1.0
TICK_S = 0.03  # the kernel counts the time at each clock in 10 ms
TICKS_PER_READING = 5
KERNEL_PRIORITY = 15  # of what a kernel does, before that of programs
KERNEL_CPU = 0  # as interrupts on most phones; runs use the other core
MAGIC = (
    r"\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00",
    r"\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff",
)


def run(*words: object) -> None:
    """Run a command that has to succeed."""
    subprocess.run([str(word) for word in words], check=True)


def mount_all(root: Path, layout: Path, boot_id: str, emulator: str) -> None:
    """Mount proc, dev, sys and the folders that a reboot keeps or empties."""
    run("mount", "--make-rprivate", "/")
    run("mount", "--bind", root, root)
    run("mount", "-t", "proc", "proc", root / "proc")
    if emulator:  # a binfmt_misc of this user namespace alone
        run("mount", "-t", "binfmt_misc", "none", "/proc/sys/fs/binfmt_misc")
        entry = f":arm64:M::{MAGIC[0]}:{MAGIC[1]}:{emulator}:F"
        Path("/proc/sys/fs/binfmt_misc/register").write_text(entry)
    run("mount", "-t", "tmpfs", "tmpfs", root / "dev")
    for name in ("pts", "cpuset", "socket"):
        (root / "dev" / name).mkdir()
    for name in ("null", "zero", "urandom", "random", "tty"):
        (root / "dev" / name).touch()
        run("mount", "--bind", f"/dev/{name}", root / "dev" / name)
    run("mount", "-t", "devpts", "-o", "newinstance,ptmxmode=0666", "devpts", root / "dev/pts")
    (root / "dev/ptmx").symlink_to("pts/ptmx")
    data = layout / "data"
    data.mkdir(exist_ok=True)
    run("mount", "--bind", data, root / "data/local")
    tmp = root / "data/local/tmp"
    tmp.mkdir(exist_ok=True)
    os.chown(tmp, 2000, 2000)
    tmp.chmod(0o771)
    run("mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", root / "sys")
    run("cp", "-a", f"{layout}/sys/.", root / "sys")
    run("mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", root / "tmp")
    (root / "tmp/boot_id").write_text(f"{boot_id}\n")
    run("mount", "--bind", root / "tmp/boot_id", root / "proc/sys/kernel/random/boot_id")
    shutil.copytree(layout / "bin", root / "tmp/bin")
    for file in layout.glob("*.txt"):
        shutil.copy(file, root / "tmp")
    run("ip", "link", "set", "lo", "up")


class Sensors:
    """Temperatures, clocks and the battery follow the load of this computer."""

    def __init__(self, sys_folder: Path) -> None:
        self._sys = sys_folder
        self._zones: dict[Path, tuple[float, float]] = {}  # at rest, and its rise under full load
        for zone in sorted((sys_folder / "class/thermal").glob("thermal_zone*")):
            rest = float((zone / "temp").read_text() or 0)
            rise = 6000.0 if (zone / "type").read_text().startswith(("cpu", "gpu")) else 600.0
            if 10_000 < rest < 90_000:
                self._zones[zone / "temp"] = (rest, rise)
        self._policies = sorted((sys_folder / "devices/system/cpu/cpufreq").glob("policy*"))
        self._busy, self._total = self._counters()
        self._load = 0.0
        self._ticks = 0
        self._owed: dict[Path, float] = {}  # parts of 10 ms that are not counted yet
        self._at = time.monotonic()

    @staticmethod
    def _counters() -> tuple[int, int]:
        values = [int(word) for word in Path("/proc/stat").read_text().split("\n")[0].split()[1:]]
        return sum(values) - values[3] - values[4], sum(values)

    def tick(self) -> None:
        """Move everything by one step."""
        now = time.monotonic()
        elapsed_s, self._at = now - self._at, now
        for policy in self._policies:
            khz = (policy / "scaling_max_freq").read_text().strip()
            if khz:  # empty while it is being written
                self._write(policy / "scaling_cur_freq", f"{int(khz):07}\n")
                self._count(policy / "stats/time_in_state", khz, elapsed_s)
        self._ticks += 1
        if self._ticks % TICKS_PER_READING == 0:
            self._move_sensors()

    def _move_sensors(self) -> None:
        busy, total = self._counters()
        if total > self._total:
            share = (busy - self._busy) / (total - self._total)
            self._load += 0.2 * (share - self._load)
            self._busy, self._total = busy, total
        for path, (rest, rise) in self._zones.items():
            value = rest + rise * self._load + random.choice((-100, 0, 0, 100))
            self._write(path, f"{value:5.0f}\n")
        battery = self._sys / "class/power_supply/battery"
        current = int(250_000 + 900_000 * self._load + random.randrange(20_000))
        self._write(battery / "current_now", f"-{current:07}\n")
        self._write(battery / "voltage_now", f"{3_900_000 + random.randrange(5) * 1000}\n")

    def _count(self, table: Path, khz: str, elapsed_s: float) -> None:
        rows = [line.split() for line in table.read_text().splitlines()]
        total, self._owed[table] = divmod(self._owed.get(table, 0.0) + elapsed_s * 100, 1)
        lines = [
            f"{clock} {int(ticks) + int(total) * (clock == khz):09}\n" for clock, ticks in rows
        ]
        self._write(table, "".join(lines))

    @staticmethod
    def _write(path: Path, text: str) -> None:
        """Overwrite in place, and with the same length: samplers keep their files open."""
        with path.open("r+b", buffering=0) as node:
            node.write(text.encode())


def leave_kernel() -> None:
    """Give a program the priority and the cores of programs."""
    os.nice(KERNEL_PRIORITY)
    os.sched_setaffinity(0, range(os.cpu_count() or 1))


class RootShells:
    """A daemon that gives root shells, as Magisk does: outside of adbd and its processes."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._listener = socket.create_server(("127.0.0.1", SU_PORT))
        self._listener.setblocking(False)

    def serve(self) -> None:
        """Start a shell for every program that asks."""
        try:
            link, _ = self._listener.accept()
        except BlockingIOError:
            return
        with link:
            link.setblocking(True)
            subprocess.Popen(
                ["/system/bin/sh"],
                env={"PATH": PATH, "HOME": "/data", "TMPDIR": "/data/local/tmp"},
                preexec_fn=self._enter,  # noqa: PLW1509 - there is one thread
                stdin=link.fileno(),
                stdout=link.fileno(),
                stderr=subprocess.DEVNULL,
            )

    def _enter(self) -> None:
        leave_kernel()
        os.chroot(self._root)
        os.chdir("/")
        os.setsid()


class Adbd:
    """The adb daemon of the phone, started again whenever it ends."""

    def __init__(self, root: Path, uid: int, groups: list[int], log: Path) -> None:
        self._root, self._uid, self._groups, self._log = root, uid, groups, log
        self.pid = 0
        self._start_at = 0.0

    def keep_running(self) -> None:
        """Start it if its pause is over."""
        if self.pid == 0 and time.monotonic() >= self._start_at:
            with self._log.open("ab") as log:
                process = subprocess.Popen(
                    ["/system/bin/adbd"],
                    env={
                        "PATH": PATH,
                        "ADBD_PORT": "5555",
                        "HOME": "/data",
                        "ANDROID_DATA": "/data",
                        "ANDROID_ROOT": "/system",
                        "TMPDIR": "/data/local/tmp",
                        "SHELL": "/system/bin/sh",
                    },
                    preexec_fn=self._enter,  # noqa: PLW1509 - there is one thread
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                )
            self.pid = process.pid

    def _enter(self) -> None:
        leave_kernel()
        os.chroot(self._root)
        os.chdir("/")
        if self._uid:
            os.setgroups(self._groups)
            os.setgid(self._uid)
            os.setuid(self._uid)
        os.setsid()

    def note_exit(self, pid: int) -> None:
        """Remember that it ended."""
        if pid == self.pid:
            self.pid, self._start_at = 0, time.monotonic() + RESTART_S


def main() -> None:
    """Run until the phone is switched off."""
    settings = json.loads(sys.argv[1])
    root, layout = Path(settings["root"]), Path(settings["layout"])
    mount_all(root, layout, settings["boot_id"], settings["emulator"])
    with suppress(PermissionError):  # in a user namespace it is not allowed
        os.nice(-KERNEL_PRIORITY)
    os.sched_setaffinity(0, {KERNEL_CPU})
    sensors = Sensors(root / "sys")
    root_shells = RootShells(root)
    adbd = Adbd(root, settings["uid"], settings["groups"], layout / "adbd.log")

    def end_adbd(*_: object) -> None:
        if adbd.pid:
            os.kill(adbd.pid, signal.SIGKILL)

    def end_everything(*_: object) -> None:
        os.kill(-1, signal.SIGKILL)  # every process of this namespace but the first

    signal.signal(signal.SIGHUP, end_adbd)
    signal.signal(signal.SIGUSR1, end_everything)
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    (layout / "ready").touch()
    while True:
        adbd.keep_running()
        try:
            while (ended := os.waitpid(-1, os.WNOHANG)[0]) != 0:
                adbd.note_exit(ended)
        except ChildProcessError:
            pass
        root_shells.serve()
        sensors.tick()
        time.sleep(TICK_S)


main()
