"""The private folder behind a native phone: paths of the phone become paths below it.

What runs there is never root: where we are, it becomes nobody. Whatever was started dies with the
phone, detached or not, found by a mark in its environment.
"""

import os
import platform
import posixpath
import re
import shutil
import signal
import stat
import tempfile
import uuid
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from agent.virtual.files.cpu_nodes import cpu_list
from agent.virtual.native.stubs import STUB, STUB_NAMES
from agent.virtual.native.vendor import vendor_environment

_NOBODY = 65534
_MARK = "FARMHAND_NATIVE_PHONE"
_ABIS = {"x86_64": "x86_64", "aarch64": "arm64-v8a", "arm64": "arm64-v8a"}
# Where a path of the phone begins: at the start of a word, of a value or of a quoted text.
_PHONE_PATH = re.compile(
    rb"(?<![\w./~-])/(?=(?:data|sdcard|storage|sys|system|vendor|dev/cpuset)(?:[/\s'\";:)&|<>]|$))"
)
_BOOT_ID = b"/proc/sys/kernel/random/boot_id"


def host_cpus() -> list[int]:
    """The cores of this host that its processes may use."""
    return sorted(os.sched_getaffinity(0))


def host_properties() -> dict[str, str]:
    """What getprop says of a phone that is this host: no maker's name over another's numbers."""
    return {
        "ro.product.cpu.abi": host_abi(),
        "ro.product.cpu.abilist": host_abi(),
        "ro.product.manufacturer": "Native",
        "ro.product.brand": "native",
        "ro.product.model": platform.machine(),
        "ro.product.marketname": "",
        "ro.config.marketing_name": "",
        "ro.soc.model": _processor(),
    }


def _processor() -> str:
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                return value.strip()[:60]
    return platform.machine()


def host_abi() -> str:
    """What getprop says of this host's processor."""
    return _ABIS.get(platform.machine(), platform.machine())


class NativeHome:
    """One phone's folder, the user that lives in it, and what runs there."""

    def __init__(self, properties: Callable[[], dict[str, str]]) -> None:
        self.root = Path(tempfile.mkdtemp(prefix="farmhand-native-"))
        self.mark = uuid.uuid4().hex
        self.user = _NOBODY if os.geteuid() == 0 else None
        self._properties = properties
        self.root.chmod(0o755)
        for folder in ("data/local/tmp", "sdcard/Download", "storage", "system/bin", "vendor"):
            (self.root / folder).mkdir(parents=True)
        self._plant_cores()
        stub = self.root / "system" / "bin" / "stub"
        stub.write_text(STUB.replace("@ROOT@", str(self.root)))
        stub.chmod(0o755)
        for name in STUB_NAMES:
            (self.root / "system" / "bin" / name).symlink_to("stub")
        (self.root / "system" / "bin" / "sh").symlink_to("/bin/sh")
        for folder in ("data", "data/local", "data/local/tmp", "sdcard", "sdcard/Download"):
            self.give(self.root / folder)

    def boot(self, boot_id: str) -> None:
        """As after power-on: a new boot id, fresh properties, nothing running."""
        self.kill_all()
        (self.root / "system" / "boot_id").write_text(f"{boot_id}\n")
        rows = [f"{key}={value}\n" for key, value in sorted(self._properties().items())]
        (self.root / "system" / "build.prop").write_text("".join(rows))
        self.settings_folder.mkdir(exist_ok=True)
        self.give(self.settings_folder)

    @property
    def settings_folder(self) -> Path:
        return self.root / "data" / "settings"

    def close(self) -> None:
        """Nothing is left, neither processes nor files."""
        self.kill_all()
        shutil.rmtree(self.root, ignore_errors=True)

    def give(self, path: Path) -> None:
        """Let the phone's user own a file."""
        if self.user is not None:
            os.chown(path, self.user, self.user, follow_symlinks=False)

    # -- paths

    def inward(self, text: bytes) -> bytes:
        """A script with the phone's paths turned into ours."""
        base = str(self.root).encode()
        text = text.replace(_BOOT_ID, base + b"/system/boot_id")
        return _PHONE_PATH.sub(base + b"/", text)

    def outward(self, text: bytes) -> bytes:
        """What was printed, with our paths turned back."""
        base = str(self.root).encode()
        return text.replace(base, b"") if base in text else text

    def host_path(self, path: str) -> Path:
        """Where a path of the phone lies; never outside the folder."""
        inside = posixpath.normpath("/" + path).lstrip("/")
        found = self.root / inside
        parent = found.parent.resolve()
        if not parent.is_relative_to(self.root.resolve()):
            raise PermissionError(f"{path} leads out of the phone")
        return found

    # -- processes

    def environment(self) -> dict[str, str]:
        return {
            "PATH": f"{self.root}/system/bin:/usr/bin:/bin",
            "HOME": str(self.root / "data" / "local" / "tmp"),
            "TMPDIR": str(self.root / "data" / "local" / "tmp"),
            "EXTERNAL_STORAGE": str(self.root / "sdcard"),
            "ANDROID_DATA": str(self.root / "data"),
            "LC_ALL": "C",
            _MARK: self.mark,
            **vendor_environment(),
        }

    def kill_all(self) -> None:
        """End everything that carries the phone's mark."""
        wanted = f"{_MARK}={self.mark}".encode()
        for folder in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if wanted in (folder / "environ").read_bytes().split(b"\0"):
                    os.kill(int(folder.name), signal.SIGKILL)

    def _plant_cores(self) -> None:
        """Cores, and nothing about their clocks: a computer's are no phone's."""
        cpu = self.root / "sys" / "devices" / "system" / "cpu"
        cpu.mkdir(parents=True)
        cores = host_cpus()
        for name in ("online", "possible", "present"):
            (cpu / name).write_text(cpu_list(cores) + "\n")
        for number in cores:
            (cpu / f"cpu{number}").mkdir()
        for name in ("thermal", "power_supply"):
            (self.root / "sys" / "class" / name).mkdir(parents=True)


def mode_bits(mode: int) -> int:
    """Permissions that a pushed file may have here."""
    return stat.S_IMODE(mode) & 0o777
