"""Kernel nodes of Linux boards and laptops as folders, and a small kernel that keeps them alive.

Names, steps and units are facts of these machines; each board cites its sources. Temperatures and
powers are invented: they follow the clocks, so that a pinned board is warmer and draws more.
"""

import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from shutil import rmtree

CPU = "devices/system/cpu"
POLICY = f"{CPU}/cpufreq/policy{{}}"
TICK_S = 0.02
TICKS_PER_S = 100
REST_C, PINNED_RISE_C, WARMING_S = 36.0, 12.0, 3.0
IDLE_W, PINNED_W = 3.0, 9.0
RAPL_RESTARTS_AT_UJ = 262_143_328_850


@dataclass
class Policy:
    """A cpufreq policy, and the time that it spent at each clock."""

    folder: str
    ticks: dict[int, float] = field(default_factory=dict)


class Board:
    """The folder of a machine's kernel nodes."""

    def __init__(self, sysfs: Path) -> None:
        self.sysfs = sysfs
        self.policies: list[Policy] = []
        self.thermometers: list[str] = []  # nodes in thousandths of a degree
        self.meters: list[Callable[[float, float], None]] = []  # called with watts and seconds
        self._files: dict[str, int] = {}

    def add(self, path: str, text: str | int, mode: int = 0o644) -> Path:
        """Add a node."""
        file = self.sysfs / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{text}\n")
        self._files[path] = os.open(file, os.O_WRONLY)
        file.chmod(mode)
        return file

    def read(self, path: str) -> str:
        return (self.sysfs / path).read_text().strip()

    def set(self, path: str, value: int | str) -> None:
        """Change the value of a node in place, as a kernel does: readers keep their files open."""
        content = f"{value}\n".encode()
        os.pwrite(self._files[path], content, 0)
        os.ftruncate(self._files[path], len(content))

    def close(self) -> None:
        for file in self._files.values():
            os.close(file)
        rmtree(self.sysfs, ignore_errors=True)

    def add_policy(
        self, number: int, cpus: Sequence[int], ladder_khz: Sequence[int], governors: str
    ) -> None:
        folder = POLICY.format(number)
        self.add(f"{folder}/related_cpus", " ".join(map(str, cpus)), 0o444)
        self.add(f"{folder}/scaling_available_frequencies", " ".join(map(str, ladder_khz)), 0o444)
        self.add(f"{folder}/stats/time_in_state", "", 0o444)
        self._add_clock(folder, ladder_khz[0], ladder_khz[-1], governors)

    def add_stepless_policy(self, number: int, lowest: int, base: int, highest: int) -> None:
        folder = POLICY.format(number)
        self.add(f"{folder}/related_cpus", number, 0o444)
        self.add(f"{folder}/scaling_driver", "intel_pstate", 0o444)
        self.add(f"{folder}/base_frequency", base, 0o444)
        self._add_clock(folder, lowest, highest, "performance powersave")

    def _add_clock(self, folder: str, lowest: int, highest: int, governors: str) -> None:
        self.add(f"{folder}/cpuinfo_min_freq", lowest, 0o444)
        self.add(f"{folder}/cpuinfo_max_freq", highest, 0o444)
        self.add(f"{folder}/scaling_min_freq", lowest)
        self.add(f"{folder}/scaling_max_freq", highest)
        self.add(f"{folder}/scaling_governor", governors.rsplit(maxsplit=1)[-1])
        self.add(f"{folder}/scaling_available_governors", governors, 0o444)
        # A kernel changes the clock before a write of a limit returns.
        (self.sysfs / folder / "scaling_cur_freq").symlink_to("scaling_max_freq")
        self.policies.append(Policy(folder))

    def add_zone(self, number: int, name: str, temp_mc: int | None = None) -> None:
        """Add a thermal zone behind a link, as in every real /sys; without a value it is alive."""
        target = f"devices/virtual/thermal/thermal_zone{number}"
        self.add(f"{target}/type", name, 0o444)
        self.add(f"{target}/temp", 40_000 if temp_mc is None else temp_mc, 0o444)
        link = self.sysfs / f"class/thermal/thermal_zone{number}"
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(f"../../{target}")
        if temp_mc is None:
            self.thermometers.append(f"{target}/temp")

    def add_power_node(self, path: str, share: float, milli: Callable[[float], float]) -> None:
        """Add a node that shows a share of the board's power, in its own unit."""
        self.add(path, 0, 0o444)
        self.meters.append(lambda watts, _: self.set(path, round(milli(share * watts))))

    def limits(self) -> list[list[str]]:
        """Governor and limits of every policy."""
        names = ("scaling_governor", "scaling_min_freq", "scaling_max_freq")
        return [[self.read(f"{at.folder}/{name}") for name in names] for at in self.policies]


class SmallKernel(threading.Thread):
    """Lets clocks, temperatures and meters of a board follow its limits."""

    def __init__(self, board: Board) -> None:
        super().__init__(daemon=True)
        self._board = board
        self._stop_requested = threading.Event()
        self._temp_c = REST_C

    def run(self) -> None:
        before = time.monotonic()
        rounds = 0
        while not self._stop_requested.wait(TICK_S):
            now = time.monotonic()
            with suppress(ValueError):  # a limit is being written
                self.step(now - before, rounds)
            before, rounds = now, rounds + 1

    def step(self, seconds: float, rounds: int) -> None:
        pinned = [self._follow_limits(policy, seconds) for policy in self._board.policies]
        target_c = REST_C + PINNED_RISE_C * any(pinned)
        self._temp_c += (target_c - self._temp_c) * min(1.0, seconds / WARMING_S)
        noise_c = 0.1 * (rounds % 2)
        for path in self._board.thermometers:
            self._board.set(path, round(1000 * (self._temp_c + noise_c)))
        for show in self._board.meters:
            show((PINNED_W if any(pinned) else IDLE_W) + noise_c, seconds)

    def _follow_limits(self, policy: Policy, seconds: float) -> bool:
        board, folder = self._board, policy.folder
        lowest, highest = (int(board.read(f"{folder}/scaling_{at}_freq")) for at in ("min", "max"))
        policy.ticks[highest] = policy.ticks.get(highest, 0.0) + seconds * TICKS_PER_S
        if (board.sysfs / folder / "stats").exists():
            rows = (f"{khz} {round(ticks)}" for khz, ticks in sorted(policy.ticks.items()))
            board.set(f"{folder}/stats/time_in_state", "\n".join(rows))
        return lowest == highest

    def stop(self) -> None:
        self._stop_requested.set()
        self.join()


def jetson_tx2(board: Board) -> None:
    """NVIDIA Jetson TX2, L4T 28 to 32: a kernel 4.4 or 4.9 with the driver ina3221x.

    Zones, rails (0-0040 and 0-0041) and paths: the header tx2_sysfs_power.h and jtop/core/power.py
    of rbonghi/jetson_stats; zone PMIC-Die always shows 100 degrees. Clocks: 345.6 to 2035.2 MHz in
    steps of 153.6 MHz. GPU: jtop/core/gpu.py; `load` is in tenths of a percent.
    """
    board.add("firmware/devicetree/base/model", "quill")
    board.add("firmware/devicetree/base/compatible", "nvidia,quill\0nvidia,tegra186")
    ladder = range(345_600, 2_035_201, 153_600)
    governors = "interactive conservative ondemand userspace powersave performance schedutil"
    board.add_policy(0, (0, 3, 4, 5), ladder, governors)
    board.add_policy(1, (1, 2), ladder, governors)
    zones = ("BCPU-therm", "MCPU-therm", "GPU-therm", "PLL-therm", "AO-therm", "Tboard_tegra")
    for number, name in enumerate(zones):
        board.add_zone(number, name)
    board.add_zone(6, "PMIC-Die", 100_000)
    board.add("class/thermal/cooling_device0/type", "cpufreq-cpu0", 0o444)
    board.add("class/thermal/cooling_device0/cur_state", 0)
    meter = "bus/i2c/drivers/ina3221x"
    rails = {
        "0-0040/iio:device0": (("VDD_SYS_GPU", 0.1), ("VDD_SYS_SOC", 0.1), ("VDD_4V0_WIFI", 0.0)),
        "0-0041/iio:device1": (("VDD_IN", 1.0), ("VDD_SYS_CPU", 0.5), ("VDD_SYS_DDR", 0.2)),
    }
    for folder, names in rails.items():
        for number, (name, share) in enumerate(names):
            board.add(f"{meter}/{folder}/rail_name_{number}", name, 0o444)
            node = f"{meter}/{folder}/in_power{number}_input"
            board.add_power_node(node, share, lambda watts: 1000 * watts)
    gpu = "class/devfreq/17000000.gp10b"
    steps = range(114_750_000, 1_300_500_001, 102_000_000)
    _add_jetson_gpu(board, gpu, [*steps, 1_300_500_000])


def jetson_orin(board: Board) -> None:
    """NVIDIA Jetson Orin Nano, JetPack 6: rails as hwmon, GPU as 17000000.gpu.

    Rails and their order: the device tree of the module (VDD_IN, VDD_CPU_GPU_CV, VDD_SOC) and
    Documentation/hwmon/ina3221.rst of the kernel (in[123]_input in mV, curr[123]_input in mA; in7
    is a sum). Zones: what its owners print from /sys/devices/virtual/thermal. Clocks: 115.2 to
    1984 MHz.
    """
    board.add("firmware/devicetree/base/model", "NVIDIA Jetson Orin Nano Developer Kit\0")
    board.add("firmware/devicetree/base/compatible", "nvidia,p3768-0000\0nvidia,tegra234\0")
    ladder = [*range(115_200, 1_958_401, 76_800), 1_984_000]
    governors = "conservative ondemand userspace powersave performance schedutil"
    board.add_policy(0, (0, 1, 2, 3), ladder, governors)
    board.add_policy(4, (4, 5), ladder, governors)
    for number, name in enumerate(("cpu-thermal", "gpu-thermal", "soc0-thermal", "tj-thermal")):
        board.add_zone(number, name)
    board.add("class/hwmon/hwmon1/name", "ina3221", 0o444)
    rails = (("VDD_IN", 1.0), ("VDD_CPU_GPU_CV", 0.5), ("VDD_SOC", 0.2))
    for number, (label, share) in enumerate(rails, 1):
        board.add(f"class/hwmon/hwmon1/in{number}_label", label, 0o444)
        board.add(f"class/hwmon/hwmon1/in{number}_input", 5000, 0o444)
        node = f"class/hwmon/hwmon1/curr{number}_input"
        board.add_power_node(node, share, lambda watts: 1000 * watts / 5.0)
    board.add("class/hwmon/hwmon1/in7_label", "sum of shunt voltages", 0o444)
    _add_jetson_gpu(
        board, "class/devfreq/17000000.gpu", range(306_000_000, 918_000_001, 102_000_000)
    )


def _add_jetson_gpu(board: Board, folder: str, steps_hz: Sequence[int]) -> None:
    board.add(f"{folder}/available_frequencies", " ".join(map(str, steps_hz)), 0o444)
    board.add(f"{folder}/available_governors", "nvhost_podgov userspace performance", 0o444)
    board.add(f"{folder}/governor", "nvhost_podgov")
    board.add(f"{folder}/min_freq", steps_hz[0])
    board.add(f"{folder}/max_freq", steps_hz[-1])
    (board.sysfs / folder / "cur_freq").symlink_to("min_freq")
    board.add(f"{folder}/device/load", 250, 0o444)


def raspberry_pi_4(board: Board) -> None:
    """Raspberry Pi 4 Model B with Raspberry Pi OS.

    Clocks: drivers/cpufreq/raspberrypi-cpufreq.c makes steps of 100 MHz, from 600 to 1500 MHz. It
    has one zone, no power meter and no GPU in devfreq. get_throttled: the documentation of
    `vcgencmd get_throttled`, bit 0 to 3 for the present and 16 to 19 since the boot.
    """
    board.add("firmware/devicetree/base/model", "Raspberry Pi 4 Model B Rev 1.4\0")
    board.add("firmware/devicetree/base/compatible", "raspberrypi,4-model-b\0brcm,bcm2711\0")
    ladder = range(600_000, 1_500_001, 100_000)
    board.add_policy(
        0, (0, 1, 2, 3), ladder, "conservative userspace powersave performance ondemand"
    )
    board.add_zone(0, "cpu-thermal")
    board.add("class/hwmon/hwmon0/name", "cpu_thermal", 0o444)
    board.add("class/hwmon/hwmon0/temp1_input", 41_000, 0o444)
    board.add("class/hwmon/hwmon1/name", "rpi_volt", 0o444)
    board.add("class/thermal/cooling_device0/type", "cpufreq-cpu0", 0o444)
    board.add("class/thermal/cooling_device0/cur_state", 0)
    board.add("devices/platform/soc/soc:firmware/get_throttled", "50000", 0o444)


def laptop(board: Board) -> None:
    """A laptop with a hybrid processor of Intel, on mains, without its second threads.

    RAPL: Documentation/power/powercap/powercap.rst; energy_uj is 0400 since the fix of
    CVE-2020-8694 and starts again at max_energy_range_uj. Clocks: intel_pstate has base_frequency
    and no list of steps (Documentation/admin-guide/pm/intel_pstate.rst). Zones and BAT0: as ACPI
    shows them.
    """
    board.add_stepless_policy(0, 400_000, 1_800_000, 4_700_000)
    board.add_stepless_policy(1, 400_000, 1_300_000, 3_500_000)
    for cpu, kind in ((0, "cpu_core"), (1, "cpu_atom")):
        board.add(f"devices/{kind}/cpus", cpu, 0o444)
        board.add(f"{CPU}/cpu{cpu}/topology/thread_siblings_list", cpu, 0o444)
    board.add_zone(0, "INT3400 Thermal", 20_000)
    board.add_zone(1, "acpitz", 27_800)
    board.add_zone(2, "x86_pkg_temp")
    board.add("class/hwmon/hwmon5/name", "coretemp", 0o444)
    board.add("class/hwmon/hwmon5/temp1_label", "Package id 0", 0o444)
    board.add("class/hwmon/hwmon5/temp1_input", 41_000, 0o444)
    add_rapl(board)
    battery: dict[str, str | int] = {
        "type": "Battery",
        "scope": "System",
        "status": "Not charging",
        "capacity": 80,
        "voltage_now": 12_000_000,
        "current_now": 0,
        "charge_full_design": 4_500_000,
    }
    for name, value in battery.items():
        board.add(f"class/power_supply/BAT0/{name}", value, 0o444)
    board.add("class/power_supply/AC/type", "Mains", 0o444)
    board.add("class/power_supply/AC/online", 1, 0o444)
    board.add("class/power_supply/hidpp_battery_0/type", "Battery", 0o444)
    board.add("class/power_supply/hidpp_battery_0/scope", "Device", 0o444)


def add_rapl(board: Board) -> None:
    """Add the counters of a package and of its cores; the package's is about to start again."""
    for zone, name, share, count_uj in (
        ("intel-rapl:0", "package-0", 1.0, RAPL_RESTARTS_AT_UJ - 15_000_000),
        ("intel-rapl:0:0", "core", 0.5, 1_000_000),
    ):
        folder = f"class/powercap/{zone}"
        board.add(f"{folder}/name", name, 0o444)
        board.add(f"{folder}/max_energy_range_uj", RAPL_RESTARTS_AT_UJ, 0o444)
        board.add(f"{folder}/energy_uj", count_uj, 0o400)
        board.meters.append(_Counter(board, f"{folder}/energy_uj", share, count_uj).count)


@dataclass
class _Counter:
    board: Board
    path: str
    share: float
    count_uj: int

    def count(self, watts: float, seconds: float) -> None:
        grown_uj = self.count_uj + round(self.share * watts * seconds * 1e6)
        self.count_uj = grown_uj % RAPL_RESTARTS_AT_UJ
        self.board.set(self.path, self.count_uj)


@contextmanager
def live_board(build: Callable[[Board], None]) -> Iterator[Board]:
    """Build a board in a folder that every user may read, and keep its nodes alive."""
    folder = Path(tempfile.mkdtemp(prefix="farmhand-sysfs-"))
    folder.chmod(0o755)
    board = Board(folder)
    build(board)
    kernel = SmallKernel(board)
    kernel.step(0.0, 0)
    kernel.start()
    try:
        yield board
    finally:
        kernel.stop()
        board.close()
