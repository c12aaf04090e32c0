"""The private directory of a native phone, and the user and processes in it.

Paths of the phone become paths below the directory; its /sys shows nodes of this computer. Programs
never run as root: if this process is root, they run without privileges. Everything that was started
ends with the phone, detached or not; it is found by a variable in its environment.
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

from agent.virtual.files.cpu_nodes import format_cpu_list
from agent.virtual.native.android_stubs import STUB, STUB_NAMES
from agent.virtual.native.host_nodes import board_name, board_processor, sysfs_root
from agent.virtual.native.node_view import NodeView
from agent.virtual.native.opencl_library import opencl_environment
from kernels.pocl import LINKER_VARIABLE

_NOBODY = 65534
# Also read by the runner (kernels/runner/runner.h): where it is set, figures are the host's.
_PHONE_ID_VARIABLE = "FARM_NATIVE_PHONE"
_ABIS = {"x86_64": "x86_64", "aarch64": "arm64-v8a", "arm64": "arm64-v8a"}
# A path of the phone starts a word, a value or a quoted text.
_PHONE_PATH = re.compile(
    rb"(?<![\w./~-])/(?=(?:data|sdcard|storage|sys|system|vendor|dev/cpuset)(?:[/\s'\";:)&|<>]|$))"
)
_BOOT_ID = b"/proc/sys/kernel/random/boot_id"


def host_cpus() -> list[int]:
    """Return the cores that processes of this host may use."""
    return sorted(os.sched_getaffinity(0))


def host_properties() -> dict[str, str]:
    """Return the properties of a phone that is this host, so that no phone's name appears over its
    figures.
    """
    sysfs = sysfs_root()
    return {
        "ro.product.cpu.abi": host_abi(),
        "ro.product.cpu.abilist": host_abi(),
        "ro.product.manufacturer": "Native",
        "ro.product.brand": "native",
        "ro.product.model": board_name(sysfs) or platform.machine(),
        "ro.product.marketname": "",
        "ro.config.marketing_name": "",
        "ro.build.version.release": "",  # a computer has no version of Android
        "ro.soc.model": board_processor(sysfs) or _processor_name(),
        "security.perf_harden": "",  # nor this switch of Android's kernel
    }


def _processor_name() -> str:
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                return value.strip()[:60]
    return platform.machine()


def host_abi() -> str:
    """Return the Android name of this host's processor architecture."""
    return _ABIS.get(platform.machine(), platform.machine())


class NativeFolder:
    """One phone's directory, the user that owns it, and the processes in it."""

    def __init__(self, properties: Callable[[], dict[str, str]]) -> None:
        # Programs of the phone run as another user, and a lab may have a mask for private files.
        os.umask(0o022)
        self.root = Path(tempfile.mkdtemp(prefix="farmhand-native-"))
        self.phone_id = uuid.uuid4().hex
        self.uid = _NOBODY if os.geteuid() == 0 else None
        self._properties = properties
        self.root.chmod(0o755)
        for folder in ("data/local/tmp", "sdcard/Download", "storage", "system/bin", "vendor"):
            (self.root / folder).mkdir(parents=True)
        self.nodes = NodeView(self.root / "sys", sysfs_root(), self.uid)
        stub = self.root / "system" / "bin" / "stub"
        stub.write_text(STUB.replace("@ROOT@", str(self.root)))
        stub.chmod(0o755)
        for name in STUB_NAMES:
            (self.root / "system" / "bin" / name).symlink_to("stub")
        (self.root / "system" / "bin" / "sh").symlink_to("/bin/sh")
        for folder in ("data", "data/local", "data/local/tmp", "sdcard", "sdcard/Download"):
            self.give_to_phone_user(self.root / folder)

    def boot(self, boot_id: str) -> None:
        """Reset as after power-on: a new boot id, new properties and nodes, no processes."""
        self.kill_all()
        self.nodes.build()
        self._add_cores()
        (self.root / "system" / "boot_id").write_text(f"{boot_id}\n")
        rows = [f"{key}={value}\n" for key, value in sorted(self._properties().items())]
        (self.root / "system" / "build.prop").write_text("".join(rows))
        self.settings_folder.mkdir(exist_ok=True)
        self.give_to_phone_user(self.settings_folder)

    @property
    def settings_folder(self) -> Path:
        return self.root / "data" / "settings"

    def close(self) -> None:
        """Kill all processes, restore all nodes and delete all files."""
        self.kill_all()
        self.nodes.close()
        shutil.rmtree(self.root, ignore_errors=True)

    def give_to_phone_user(self, path: Path) -> None:
        """Make the phone's user the owner of a file."""
        if self.uid is not None:
            os.chown(path, self.uid, self.uid, follow_symlinks=False)

    # -- paths

    def to_host_paths(self, text: bytes) -> bytes:
        """Replace the phone's paths in a script by host paths."""
        root = str(self.root).encode()
        text = text.replace(_BOOT_ID, root + b"/system/boot_id")
        return _PHONE_PATH.sub(root + b"/", text)

    def to_phone_paths(self, text: bytes) -> tuple[bytes, bytes]:
        """Replace host paths in output by the phone's paths; return the text and its rest.

        The rest may be the beginning of a host path: it belongs before the next piece of output.
        """
        root = str(self.root).encode()
        text = text.replace(root, b"") if root in text else text
        for length in range(min(len(root) - 1, len(text)), 0, -1):
            if text.endswith(root[:length]):
                return text[:-length], text[-length:]
        return text, b""

    def host_path(self, path: str) -> Path:
        """Return the host path of a phone's path; it never lies outside the directory."""
        relative = posixpath.normpath("/" + path).lstrip("/")
        host_path = self.root / relative
        parent = host_path.parent.resolve()
        if not parent.is_relative_to(self.root.resolve()):
            raise PermissionError(f"{path} is outside the phone's directory")
        return host_path

    # -- processes

    def environment(self) -> dict[str, str]:
        opencl = opencl_environment()
        linker = opencl.pop(LINKER_VARIABLE, "")
        path = f"{self.root}/system/bin:/usr/bin:/bin"
        return {
            "PATH": f"{path}:{linker}" if linker else path,
            "HOME": str(self.root / "data" / "local" / "tmp"),
            "TMPDIR": str(self.root / "data" / "local" / "tmp"),
            "EXTERNAL_STORAGE": str(self.root / "sdcard"),
            "ANDROID_DATA": str(self.root / "data"),
            "LC_ALL": "C",
            _PHONE_ID_VARIABLE: self.phone_id,
            **opencl,
        }

    def kill_all(self) -> None:
        """Kill every process with the phone's id in its environment."""
        phone_variable = f"{_PHONE_ID_VARIABLE}={self.phone_id}".encode()
        for folder in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if phone_variable in (folder / "environ").read_bytes().split(b"\0"):
                    os.kill(int(folder.name), signal.SIGKILL)

    def _add_cores(self) -> None:
        """Add the cores that programs of the phone may use."""
        cpu = self.root / "sys" / "devices" / "system" / "cpu"
        cores = host_cpus()
        for number in cores:
            (cpu / f"cpu{number}").mkdir(parents=True, exist_ok=True)
        for name in ("online", "possible", "present"):
            (cpu / name).write_text(format_cpu_list(cores) + "\n")
        for name in ("thermal", "power_supply"):
            (self.root / "sys" / "class" / name).mkdir(parents=True, exist_ok=True)


def mode_bits(mode: int) -> int:
    """Return the permissions that a pushed file may have here."""
    return stat.S_IMODE(mode) & 0o777
