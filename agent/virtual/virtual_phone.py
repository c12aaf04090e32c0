"""One virtual phone: profile, time, silicon, processes, files and what it remembers.

It knows nothing of ADB; whoever serves it is told when it goes down and comes back.
"""

import random
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from agent.virtual.files.cgroup_nodes import plant_cgroup_nodes
from agent.virtual.files.cpu_nodes import plant_cpu_nodes
from agent.virtual.files.gpu_nodes import plant_gpu_nodes
from agent.virtual.files.nodes import ROOT, SHELL, constant, folder, live
from agent.virtual.files.nodes import Link as FileLink
from agent.virtual.files.power_nodes import plant_power_nodes
from agent.virtual.files.proc_nodes import ProcSources, plant_proc_nodes
from agent.virtual.files.rail_nodes import plant_rail_nodes
from agent.virtual.files.seals import seal
from agent.virtual.files.thermal_nodes import plant_thermal_nodes
from agent.virtual.files.tree import FileTree
from agent.virtual.journal import Journal
from agent.virtual.logs import LogBuffer
from agent.virtual.native.home import NativeHome, host_properties
from agent.virtual.network import Network
from agent.virtual.physics.soc import Soc
from agent.virtual.processes import Process, ProcessTable
from agent.virtual.profiles import Profile
from agent.virtual.properties import boot_properties, boot_settings
from agent.virtual.timeline import Timeline

if TYPE_CHECKING:
    from agent.virtual.mischief.imp import Imp

# What a phone may hold in files; it lives in our memory.
STORAGE_BYTES = 512 * 1024 * 1024
_LINK_MODE = 0o120777


class Phone:
    """A phone that is switched on from the moment it exists."""

    def __init__(
        self,
        profile: Profile,
        unit: int = 1,
        speed: float = 1.0,
        seed: int = 0,
        serial: str | None = None,
        journal: Path | None = None,
        native: bool = False,
    ) -> None:
        self.profile = profile
        self.serial = serial or f"{'NATIVE' if native else profile.serial_prefix}{unit:04d}"
        # Real programs know no other clock than ours.
        self.timeline = Timeline(1.0 if native else speed)
        self.native = NativeHome(lambda: self.properties) if native else None
        self.journal = Journal(journal, self.serial, self.timeline.peek)
        self._seed = f"{seed}:{self.serial}"
        self._dice_given = 0
        # The first of its kind is nominal; its siblings differ as units of one model do.
        spread = self._dice("unit")
        self.soc = Soc(
            profile,
            self.timeline,
            seed=self._seed,
            speed_spread=1.0 if unit == 1 else spread.gauss(1.0, 0.006),
            heat_spread=1.0 if unit == 1 else spread.gauss(1.0, 0.03),
        )
        self.soc.service_runs = lambda name: self.properties.get(f"init.svc.{name}") == "running"
        all_cores = sum(1 << cpu for cluster in profile.cluster for cpu in cluster.cpus)
        self.processes = ProcessTable(all_cores, lambda: self.timeline.now)
        self.tree = FileTree(self.wall, self.timeline.catch_up, self._sysfs_written, STORAGE_BYTES)
        self.mischief: Imp | None = None
        self.tree.witness = self.journal.write
        self.processes.witness = self._process_changed
        self.network = Network()
        self.log = LogBuffer(self.wall)
        self.adbd_uid = SHELL
        self.on_reboot: Callable[[str], None] | None = None
        self.on_adbd_restart: Callable[[], None] | None = None
        self.framework_battery: dict[str, str] = {}
        self._booted_at = -self._dice("boot").uniform(900.0, 40_000.0)
        self._plant_files()
        self._boot()

    # -- time

    def uptime(self) -> float:
        """CLOCK_BOOTTIME in seconds."""
        return self.timeline.now - self._booted_at

    def uptime_ns(self) -> int:
        return round(self.uptime() * 1e9)

    def wall(self) -> float:
        """The phone's wall clock; it is right, which real ones often are not."""
        return time.time()

    # -- chance

    def dice_for_run(self) -> random.Random:
        """A run's own noise: the same for the n-th run of a seed, whatever the runs before did."""
        self._dice_given += 1
        return self._dice(f"run {self._dice_given}")

    # -- memory

    def free_kb(self) -> int:
        """What MemAvailable says."""
        used = sum(process.rss_kb for process in self.processes.all() if process.rss_kb > 4096)
        return max(self.profile.memory.available_kb - used, 0)

    # -- power

    def reboot(self, mode: str = "") -> None:
        """Go down; whoever serves the phone brings it back with `boot_again`."""
        self.journal.write("reboot", mode=mode)
        self.processes.kill_all()
        if self.native is not None:
            self.native.kill_all()
        if self.on_reboot is not None:
            self.on_reboot(mode)

    def boot_again(self) -> None:
        """Come up as after power-on: files stay, settings of the kernel do not."""
        self._booted_at = self.timeline.catch_up()

        def reset() -> None:
            for cluster in self.soc.clusters:
                cluster.reset(self.profile.kernel.governor)
            self.soc.battery.charging_allowed = True

        self.soc.change(reset)
        self._boot()

    def restart_adbd(self, as_root: bool) -> str:
        """adb root and adb unroot; what adbd says to it."""
        if as_root and self.properties["ro.debuggable"] != "1":
            return "adbd cannot run as root in production builds\n"
        if as_root == (self.adbd_uid == ROOT):
            return "adbd is already running as root\n" if as_root else "adbd not running as root\n"
        self.adbd_uid = ROOT if as_root else SHELL
        self.properties["service.adb.root"] = str(int(as_root))
        self.journal.write("adbd", uid=self.adbd_uid)
        if self.on_adbd_restart is not None:
            self.on_adbd_restart()
        return f"restarting adbd as {'root' if as_root else 'non root'}\n"

    def set_service(self, name: str, running: bool) -> None:
        """start and stop: init's services, by name with or without `vendor.`."""
        key = f"init.svc.{name}"
        if key not in self.properties:
            return
        self.properties[key] = "running" if running else "stopped"
        (self.processes.start_service if running else self.processes.stop_service)(name)
        self.journal.write("service", name=name, running=running)

    def set_mode(self, name: str, on: bool) -> None:
        """A state of the framework that no setting shows."""
        self.modes[name] = on
        self.journal.write("mode", name=name, on=on)

    def close(self) -> None:
        """Switch the phone off for good."""
        self.processes.kill_all()
        if self.native is not None:
            self.native.close()
        self.timeline.stop()
        self.journal.write("off")
        self.journal.close()

    # -- inside

    def _dice(self, purpose: str) -> random.Random:
        return random.Random(f"{self._seed}:{purpose}")

    def _boot(self) -> None:
        self.boot_id = str(uuid.uuid4())
        self.properties = boot_properties(self.profile, self.serial)
        self.settings = boot_settings()
        self.framework_battery.clear()
        self.modes = {"doze": True, "data_saver": False, "dexopt": True}
        self.adbd_uid = SHELL
        self.network.reset()
        self.log.clear()
        self.log.write("I", "init", "Boot completed")
        self.processes.boot(self.profile.services)
        if self.native is not None:
            self.properties |= host_properties()
            self.native.boot(self.boot_id)
        self.journal.write("boot", boot_id=self.boot_id, profile=self.profile.id)

    def _plant_files(self) -> None:
        tree = self.tree
        tree.put("/dev/null", live(str, _swallow, 0o666))
        tree.put("/data", folder(0o771, 1000, 1000))
        tree.put("/data/local", folder(0o751))
        tree.put("/data/local/tmp", folder(0o771, SHELL, SHELL))
        tree.put("/storage/self/primary", folder(0o771, SHELL, 1015))
        tree.put("/storage/self/primary/Download", folder(0o771, SHELL, 1015))
        tree.put("/sdcard", FileLink(_LINK_MODE, target="/storage/self/primary"))
        tree.put("/system/build.prop", constant("# see getprop\n"))
        plant_cpu_nodes(tree, self.soc)
        plant_thermal_nodes(tree, self.soc)
        plant_power_nodes(tree, self.soc)
        plant_gpu_nodes(tree, self.soc)
        plant_rail_nodes(tree, self.soc)
        sources = ProcSources(
            self.soc, self.processes, self.uptime, lambda: self.boot_id, self.free_kb
        )
        plant_proc_nodes(tree, sources)
        plant_cgroup_nodes(tree, self.soc, self.processes)
        if not self.profile.rooted:
            seal(tree)

    def _process_changed(self, event: str, process: Process) -> None:
        if event == "process_stop":
            self.journal.write(event, pid=process.pid, status=process.status)
            return
        clocks = {f"policy{each.cpus[0]}": each.clock_khz for each in self.soc.clusters}
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

    def _sysfs_written(
        self, path: str, old: str, new: str, text: str, uid: int, fault: str | None
    ) -> None:
        facts = {"fault": fault} if fault else {}
        self.journal.write("sysfs", path=path, old=old, new=new, text=text, uid=uid, **facts)


def _swallow(text: str) -> None:
    """Take anything, keep nothing."""
