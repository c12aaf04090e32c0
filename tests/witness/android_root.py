"""The root folder of a witness: AOSP's adbd, mksh and toybox from Debian 13's packages.

The packages are unpacked into a separate folder; the packages of this computer stay as they
are. Root is needed, because the parts run in namespaces with their own mounts.
"""

import os
import re
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path

RELEASE = "trixie"
PARTS = ("adbd", "mksh", "toybox")
NOT_NEEDED = re.compile(r"debconf|cdebconf|gcc-.*-base|perl|libdebconf|install-info")
PROGRAMS = ("unshare", "nsenter", "apt-get", "apt-cache", "dpkg-deb", "ip", "mount")
# Names that Android's toybox does not offer, or that a phone without root lacks.
NOT_ON_A_PHONE = {"su", "login", "passwd", "httpd", "host"}
SHELL_UID = 2000
# Groups of the shell user (https://source.android.com/docs/core/permissions/filesystem).
SHELL_GROUPS = (1004, 1007, 1011, 1015, 3001, 3002, 3003, 3006, 3009, 3011)


class PartMissing(Exception):
    """A part of the witness cannot be had on this computer."""


def check_computer() -> None:
    """Raise PartMissing if this computer cannot run a witness at all."""
    if os.geteuid() != 0:
        raise PartMissing("root is missing: the witness mounts file systems")
    for program in PROGRAMS:
        if shutil.which(program) is None:
            raise PartMissing(f"the program {program} is missing")
    done = subprocess.run(
        ["unshare", "-m", "-n", "-u", "-p", "-f", "true"], capture_output=True, check=False
    )
    if done.returncode != 0:
        raise PartMissing("namespaces are missing: unshare is not allowed here")


def build_root(architecture: str = "amd64") -> Path:
    """Build the root once per computer, and return it."""
    check_computer()
    folder = Path(tempfile.gettempdir()) / f"farmhand-witness-{architecture}"
    ready = folder / "ready"
    if not ready.exists():
        shutil.rmtree(folder, ignore_errors=True)
        download_packages(folder / "apt", PARTS, architecture)
        root = folder / "root"
        for package in (folder / "apt" / "debs").glob("*.deb"):
            subprocess.run(["dpkg-deb", "-x", package, root], check=True)
        _arrange(root)
        ready.touch()
    return folder / "root"


def download_packages(work: Path, names: tuple[str, ...], architecture: str) -> None:
    """Download packages of Debian 13 and all that they depend on to work/debs."""
    for part in ("etc", "lists/partial", "cache/archives/partial", "debs"):
        (work / part).mkdir(parents=True, exist_ok=True)
    (work / "status").touch()
    _write_sources(work / "etc")
    settings = {
        "Dir::Etc::sourcelist": "/dev/null",
        "Dir::Etc::sourceparts": work / "etc",
        "Dir::State::lists": work / "lists",
        "Dir::Cache": work / "cache",
        "Dir::State::status": work / "status",
        "APT::Architecture": architecture,
        "APT::Architectures": architecture,
        "Acquire::Languages": "none",
        "APT::Sandbox::User": "root",
    }
    options = [word for name, value in settings.items() for word in ("-o", f"{name}={value}")]
    _run_apt(["apt-get", *options, "-q", "update"], work)
    without = [f"--no-{kind}" for kind in ("recommends", "suggests", "conflicts", "breaks")]
    without += ["--no-replaces", "--no-enhances"]
    listed = _run_apt(["apt-cache", *options, "depends", "--recurse", *without, *names], work)
    wanted = {line.partition(":")[0] for line in listed.splitlines() if re.match("[a-z0-9]", line)}
    packages = sorted(name for name in wanted if not NOT_NEEDED.match(name))
    _run_apt(["apt-get", *options, "-q", "download", *packages], work / "debs")


def _write_sources(folder: Path) -> None:
    """Use the package servers of this computer, with the release's name changed."""
    release = dict(
        line.split("=", 1)
        for line in Path("/etc/os-release").read_text().splitlines()
        if "=" in line
    )
    codename = shlex.split(release.get("VERSION_CODENAME", ""))
    for source in ("/etc/apt/sources.list.d/debian.sources", "/etc/apt/sources.list"):
        file = Path(source)
        if codename and file.exists() and file.read_text().strip():
            name = "witness.sources" if file.suffix == ".sources" else "witness.list"
            (folder / name).write_text(file.read_text().replace(codename[0], RELEASE))
            return
    raise PartMissing("Debian's package sources are missing")


def _run_apt(command: list[str], folder: Path) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["it printed nothing"])[-1]
        raise PartMissing(f"Debian 13's packages are missing: {command[0]}: {last}")
    return done.stdout


def _arrange(root: Path) -> None:
    """Arrange the unpacked packages like Android: /system/bin with sh, toybox and adbd."""
    for name in ("lib", "lib64", "sbin", "bin"):
        if (root / "usr" / name).exists() and not (root / name).exists():
            (root / name).symlink_to(f"usr/{name}")
    folders = ("system/bin", "data/local/tmp", "data/misc/adb", "proc", "sys", "dev", "tmp")
    for name in (*folders, "vendor/bin", "apex", "root"):
        (root / name).mkdir(parents=True, exist_ok=True)
    system = root / "system/bin"
    shutil.copy2(root / "usr/bin/mksh", system / "sh")
    shutil.copy2(root / "usr/bin/toybox", system / "toybox")
    shutil.copy2(root / "usr/lib/android-sdk/platform-tools/adbd", system / "adbd")
    for name in ("sh", "mksh", "lksh", "rmksh", "rlksh", "mksh-static", "toybox"):
        (root / "usr/bin" / name).unlink(missing_ok=True)
    (root / "usr/bin/sh").symlink_to("/system/bin/sh")  # Debian's adbd starts /bin/sh
    users = {"root": 0, "system": 1000, "shell": SHELL_UID}
    lines = [f"{name}:x:{uid}:{uid}::/data:/system/bin/sh\n" for name, uid in users.items()]
    (root / "etc/passwd").write_text("".join(lines))
    groups = {0, 1000, SHELL_UID, *SHELL_GROUPS}
    (root / "etc/group").write_text("".join(f"g{gid}:x:{gid}:\n" for gid in sorted(groups)))
    (root / "etc/shells").write_text("/system/bin/sh\n")


def find_emulator() -> Path:
    """Fetch the emulator of arm64 programs, once per computer."""
    check_computer()
    folder = Path(tempfile.gettempdir()) / "farmhand-witness-emulator"
    emulator = folder / "usr/bin/qemu-aarch64"
    if not emulator.exists():
        download_packages(folder / "apt", ("qemu-user",), "amd64")
        for package in (folder / "apt" / "debs").glob("qemu-user_*.deb"):
            subprocess.run(["dpkg-deb", "-x", package, folder], check=True)
    if not emulator.exists():
        raise PartMissing("the emulator qemu-aarch64 is missing in Debian's package qemu-user")
    return emulator


def link_applets(root: Path, emulator: Path | None = None) -> None:
    """Link the applets of toybox that phones have, as /system/bin does."""
    toybox = root / "system/bin/toybox"
    command = ["chroot", str(root), "/system/bin/toybox"]
    if emulator is not None:
        command = [str(emulator), "-L", str(root), str(toybox)]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    for name in set(listed) - NOT_ON_A_PHONE:
        link = root / "system/bin" / name
        if not link.exists():
            link.symlink_to("toybox")
