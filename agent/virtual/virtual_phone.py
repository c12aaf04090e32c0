"""One virtual phone: profile, model clock, SoC, processes, files and framework state.

This module knows nothing of ADB; callbacks tell the server when the phone goes down.
"""

import random
import time
import uuid
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from agent.virtual.boot_state import boot_properties, boot_settings
from agent.virtual.event_journal import EventJournal, JournalEvent
from agent.virtual.facts_layout import add_missing_nodes, apply_layout
from agent.virtual.files.bus_nodes import add_bus_nodes
from agent.virtual.files.cgroup_nodes import add_cgroup_nodes
from agent.virtual.files.cpu_nodes import add_cpu_nodes
from agent.virtual.files.file_nodes import (
    ROOT,
    SHELL,
    SymbolicLink,
    constant_node,
    directory_node,
    live_node,
    live_number_node,
)
from agent.virtual.files.file_tree import FileTree
from agent.virtual.files.gpu_nodes import add_gpu_nodes
from agent.virtual.files.power_nodes import add_power_nodes
from agent.virtual.files.proc_nodes import ProcSources, add_proc_nodes
from agent.virtual.files.rail_nodes import add_rail_nodes
from agent.virtual.files.selinux import deny_to_shell
from agent.virtual.files.thermal_nodes import add_thermal_nodes
from agent.virtual.native.native_folder import NativeFolder, host_properties
from agent.virtual.opencl_driver import OpenCLDriver
from agent.virtual.phone_clock import PhoneClock
from agent.virtual.physics.phone_noise import DEFAULT_UNREST, Unrest, draw_noise
from agent.virtual.physics.soc import Soc
from agent.virtual.process_table import Process, ProcessTable
from agent.virtual.profiles import PhoneProfile

if TYPE_CHECKING:
    from agent.virtual.mischief.injector import PhoneInjector

# Storage of a phone; its files live in this process's memory.
STORAGE_BYTES = 512 * 1024 * 1024
_LINK_MODE = 0o120777
_PANEL = "/sys/class/backlight/panel0-backlight"


@dataclass(frozen=True, slots=True)
class RunnerClaims:
    """How the records of a runner with false output differ from what it did."""

    time_share: float = 1.0  # of the true step times
    step_factor: float = 1.0  # claimed steps per true step
    drop_every: int = 0  # every n-th window is not reported; 0: none
    tick_ns: int = 0  # of the clock that times the steps; 0: as the phone's
    loss: tuple[float, float] | None = None  # first and last


class VirtualPhone:
    """A phone; it is switched on as soon as it exists."""

    def __init__(
        self,
        profile: PhoneProfile,
        unit: int = 1,
        speed: float = 1.0,
        seed: int = 0,
        serial: str | None = None,
        journal: Path | None = None,
        native: bool = False,
    ) -> None:
        self.profile = profile
        self.serial = serial or f"{'NATIVE' if native else profile.serial_prefix}{unit:04d}"
        # Real programs only know the host's clock.
        self.clock = PhoneClock(1.0 if native else speed)
        self.native = NativeFolder(lambda: self.properties) if native else None
        self.journal = EventJournal(journal, self.serial, self.clock.current_time)
        self._seed = f"{seed}:{self.serial}"
        self._created_at = time.time()
        self._finished_runs: Counter[str] = Counter()  # by the digest of their plan
        # The first unit of a model is nominal; the others differ as real units of one model do.
        unit_rng = self._rng("unit")
        self.soc = Soc(
            profile,
            self.clock,
            seed=self._seed,
            speed_spread=1.0 if unit == 1 else unit_rng.gauss(1.0, 0.006),
            heat_spread=1.0 if unit == 1 else unit_rng.gauss(1.0, 0.03),
        )
        if unit > 1:
            self.soc.battery.cycles = unit_rng.randrange(20, 700)
        self.set_unrest(DEFAULT_UNREST)
        self.opencl = OpenCLDriver(profile.gpu)
        self.claims = RunnerClaims()
        self.touched_at = 0.0  # when a person last used the phone, in seconds since its boot
        self.lit_brightness: int | None = None  # of a screen that a person switched on
        self.is_awake = False  # as in a drawer, until a key event wakes it
        self.slept_at = 0.0
        self.refuses_adb = False  # settings and key events, as phones of several vendors do
        self.refuses_root = False  # as Magisk does until somebody taps Grant
        self.wake_locks: set[str] = set()
        self.log: list[str] = []  # what `logcat` prints of lmkd
        self.soc.is_service_running = lambda name: (
            self.properties.get(f"init.svc.{name}") == "running"
        )
        all_cores = sum(1 << cpu for cluster in profile.cluster for cpu in cluster.cpus)
        self.processes = ProcessTable(all_cores, lambda: self.clock.now)
        self.soc.on_hotplug = lambda: self.processes.leave_offline_cores(
            sum(1 << cpu for cpu in self.soc.online_cpus())
        )
        self.tree = FileTree(
            self.wall_time, self.catch_up, self._journal_sysfs_write, STORAGE_BYTES
        )
        self.mischief: PhoneInjector | None = None
        self.tree.on_change = self.journal.write
        self.processes.on_change = self._journal_process
        self.adbd_uid = SHELL
        self.on_reboot: Callable[[str], None] | None = None
        self.on_adbd_restart: Callable[[], None] | None = None
        self.battery_overrides: dict[str, str] = {}
        self.current_op: Callable[[], str] = str  # name of the operation that a run executes now
        self._booted_at = -self._rng("boot").uniform(900.0, 40_000.0)
        idle_j = profile.heat.idle_w * self.uptime()
        self.soc.change(lambda: self.soc.rails_j.update(board=idle_j))
        self.rail_baseline: tuple[float, dict[str, int]] | None = None  # of `delta` dumps
        self._add_files()
        self._boot()

    # -- time

    def catch_up(self) -> None:
        """Let everything happen that is due, before something is read."""
        self.clock.catch_up()
        self.soc.update()

    def uptime(self) -> float:
        """Return CLOCK_BOOTTIME in seconds."""
        return self.clock.now - self._booted_at

    def uptime_ns(self) -> int:
        return round(self.uptime() * 1e9)

    def shift_clock(self, seconds: float) -> None:
        """Let CLOCK_BOOTTIME jump, which no sound kernel does."""
        self._booted_at -= seconds

    def wall_time(self) -> float:
        """Return the phone's wall clock. It is correct here; that of real phones often is not."""
        return self._created_at + self.clock.now if self.clock.is_event_time else time.time()

    # -- random numbers

    def rng_for_run(self, plan_digest: str) -> random.Random:
        """Return the generator of the next run of a plan; its n-th run always gets the same."""
        return self._rng(f"run {plan_digest} {self._finished_runs[plan_digest]}")

    def note_finished_run(self, plan_digest: str) -> None:
        """Count a run that was measured to its end."""
        self._finished_runs[plan_digest] += 1

    def set_unrest(self, unrest: Unrest) -> None:
        """Decide how the times of this phone scatter, and what it does in the background."""
        self.unrest = unrest
        # A property of the phone: another seed gives it other runs.
        self.noise = draw_noise(unrest.noise, random.Random(f"{self.serial}:noise"))

    # -- memory

    def mem_available_kb(self) -> int:
        """Return MemAvailable."""
        used_kb = sum(process.rss_kb for process in self.processes.all() if process.rss_kb > 4096)
        return max(self.profile.memory.available_kb - used_kb, 0)

    def note_low_memory_kill(self, process: Process) -> None:
        """Write to the log of the phone that lmkd kills a process."""
        argv = process.argv[:8]
        self.journal.write(JournalEvent.LOW_MEMORY_KILL, pid=process.pid, argv=argv)
        score = f"oom_score_adj -950 to free {process.rss_kb}kB rss, 0kB swap"
        line = f"I lowmemorykiller: Kill '{process.name}' ({process.pid}), uid 2000, {score}"
        self.log.append(f"{line}; reason: low watermark is breached and swap is low")

    # -- power

    def reboot(self, mode: str = "") -> None:
        """Go down; the server brings the phone back with `finish_reboot`."""
        self.journal.write(JournalEvent.REBOOT, mode=mode)
        self.processes.kill_all()
        if self.native is not None:
            self.native.kill_all()
        if self.on_reboot is not None:
            self.on_reboot(mode)

    def finish_reboot(self) -> None:
        """Boot again: files are kept, kernel settings are reset."""
        self._booted_at = self.clock.catch_up()

        def reset() -> None:
            for cluster in self.soc.clusters:
                cluster.reset(self.profile.kernel.governor)
            if self.soc.gpu is not None:
                self.soc.gpu.reset()
            self.soc.battery.charging_allowed = True
            self.soc.rails_j.clear()

        self.soc.change(reset)
        self._boot()

    def restart_adbd(self, as_root: bool) -> str:
        """Handle `adb root` and `adb unroot`; return adbd's answer."""
        if as_root and self.properties["ro.debuggable"] != "1":
            return "adbd cannot run as root in production builds\n"
        if as_root == (self.adbd_uid == ROOT):
            return "adbd is already running as root\n" if as_root else "adbd not running as root\n"
        self.adbd_uid = ROOT if as_root else SHELL
        self.properties["service.adb.root"] = str(int(as_root))
        self.journal.write(JournalEvent.ADBD_RESTART, uid=self.adbd_uid)
        if self.on_adbd_restart is not None:
            self.on_adbd_restart()
        return f"restarting adbd as {'root' if as_root else 'non root'}\n"

    def set_service(self, name: str, running: bool) -> None:
        """Start or stop a service of init."""
        key = f"init.svc.{name}"
        if key not in self.properties:
            return
        self.properties[key] = "running" if running else "stopped"
        (self.processes.start_service if running else self.processes.stop_service)(name)
        self.journal.write(JournalEvent.INIT_SERVICE, name=name, running=running)

    def set_framework_mode(self, name: str, on: bool) -> None:
        """Set a framework state that no setting shows."""
        self.framework_modes[name] = on
        self.journal.write(JournalEvent.FRAMEWORK_MODE, name=name, on=on)

    def close(self) -> None:
        """Switch the phone off permanently."""
        self.processes.kill_all()
        if self.native is not None:
            self.native.close()
        self.clock.stop()
        self.journal.write(JournalEvent.POWER_OFF)
        self.journal.close()

    # -- internals

    def _rng(self, purpose: str) -> random.Random:
        return random.Random(f"{self._seed}:{purpose}")

    def _boot(self) -> None:
        self.boot_id = str(uuid.uuid4())
        self.properties = boot_properties(self.profile, self.serial)
        self.settings = boot_settings()
        self.battery_overrides.clear()
        self.is_awake = False
        self.wake_locks.clear()
        self.framework_modes = {"doze": True, "data_saver": False, "dexopt": True}
        self.adbd_uid = SHELL
        self.processes.boot(self.profile.services)
        if self.profile.layout is not None:
            for cluster in self.soc.clusters:
                cluster.online -= {*self.profile.layout.offline}
        if self.native is not None:
            self.properties |= host_properties()
            self.native.boot(self.boot_id)
        self.journal.write(JournalEvent.BOOT, boot_id=self.boot_id, profile=self.profile.id)

    def _add_files(self) -> None:
        tree = self.tree
        tree.add_node("/dev/null", live_node(str, _discard, 0o666))
        tree.add_node("/data", directory_node(0o771, 1000, 1000))
        tree.add_node("/data/local", directory_node(0o751))
        tree.add_node("/data/local/tmp", directory_node(0o771, SHELL, SHELL))
        tree.add_node("/storage/self/primary", directory_node(0o771, SHELL, 1015))
        tree.add_node("/storage/self/primary/Download", directory_node(0o771, SHELL, 1015))
        tree.add_node("/sdcard", SymbolicLink(_LINK_MODE, target="/storage/self/primary"))
        tree.add_node("/system/build.prop", constant_node("# see getprop\n"))
        add_cpu_nodes(tree, self.soc)
        add_thermal_nodes(tree, self.soc)
        add_power_nodes(tree, self.soc)
        add_gpu_nodes(tree, self.soc)
        add_bus_nodes(tree, self.soc)
        add_rail_nodes(tree, self.soc)
        tree.add_node(f"{_PANEL}/brightness", live_number_node(self._brightness))
        tree.add_node(f"{_PANEL}/max_brightness", constant_node("255\n"))
        for name, change in (
            ("wake_lock", self.wake_locks.add),
            ("wake_unlock", self.wake_locks.discard),
        ):
            node = live_node(lambda: " ".join(sorted(self.wake_locks)) + "\n", change, 0o660)
            tree.add_node(f"/sys/power/{name}", node)
        sources = ProcSources(
            self.soc, self.processes, self.uptime, lambda: self.boot_id, self.mem_available_kb
        )
        add_proc_nodes(tree, sources)
        add_cgroup_nodes(tree, self.soc, self.processes)
        add_missing_nodes(tree, self.profile.nodes)
        if self.profile.layout is not None:
            apply_layout(tree, self.profile.layout)
        elif not self.profile.rooted:
            deny_to_shell(tree, self.profile.soc, self.profile.sdk)

    def _brightness(self) -> int:
        text = self.settings["system"].get("screen_brightness", "0") if self.is_awake else "0"
        return self.lit_brightness or (int(text) if text.isdecimal() else 0)

    def _journal_process(self, event: JournalEvent, process: Process) -> None:
        if event is JournalEvent.PROCESS_STOP:
            self.journal.write(event, pid=process.pid, status=process.status)
            return
        clocks = {f"policy{cluster.cpus[0]}": cluster.clock_khz for cluster in self.soc.clusters}
        self.journal.write(
            event,
            pid=process.pid,
            parent=process.parent,
            session=process.session,
            uid=process.uid,
            argv=process.argv[:20],
            mask=f"{process.mask:x}",
            clocks=clocks,
        )

    def _journal_sysfs_write(
        self, path: str, old: str, new: str, text: str, uid: int, error: str | None
    ) -> None:
        facts = {"error": error} if error else {}
        self.journal.write(
            JournalEvent.SYSFS_WRITE, path=path, old=old, new=new, text=text, uid=uid, **facts
        )


def _discard(text: str) -> None:
    """Accept and drop anything, as /dev/null does."""
