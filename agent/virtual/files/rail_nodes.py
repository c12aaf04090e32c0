"""Power meters on the board: Pixels count the energy of a rail, Tegra boards report its power."""

from functools import partial
from math import fsum

from agent.virtual.files.file_nodes import constant_node, live_node, live_number_node
from agent.virtual.files.file_tree import FileTree
from agent.virtual.physics.soc import Soc

_ODPM = "/sys/bus/iio/devices"
# Two chips with eight channels each, as a Pixel 6 enables them: rail, subsystem, and the parts of
# the physics that it feeds. The shares are guessed. The names are those that a Pixel 6 printed, in
# android.googlesource.com/platform/frameworks/av: media/libaaudio/scripts/measure_device_power.py
_ODPM_RAILS: dict[str, tuple[tuple[str, str, dict[str, float]], ...]] = {
    "s2mpg12-odpm": (
        ("S10M_VDD_TPU", "TPU", {"other": 0.02}),
        ("VSYS_PWR_MODEM", "Modem", {"other": 0.12}),
        ("VSYS_PWR_RFFE", "Cellular", {"other": 0.02}),
        ("S2M_VDD_CPUCL2", "CPU(BIG)", {"prime": 1.0}),
        ("S3M_VDD_CPUCL1", "CPU(MID)", {"big": 1.0}),
        ("S4M_VDD_CPUCL0", "CPU(LITTLE)", {"little": 1.0}),
        ("S5M_VDD_INT", "INT", {"other": 0.30}),
        ("S1M_VDD_MIF", "MIF", {"memory": 0.40}),
    ),
    "s2mpg13-odpm": (
        ("VSYS_PWR_WLAN_BT", "WLAN", {"other": 0.10}),
        ("L2S_VDD_AOC_RET", "AOC", {"other": 0.01}),
        ("S9S_VDD_AOC", "AOC", {"other": 0.06}),
        ("S5S_VDDQ_MEM", "DDR", {"memory": 0.20}),
        ("S10S_VDD2L", "DDR", {"memory": 0.15}),
        ("S4S_VDD2H_MEM", "DDR", {"memory": 0.25}),
        ("S2S_VDD_G3D", "GPU", {"gpu": 1.0}),
        ("VSYS_PWR_DISPLAY", "Display", {"other": 0.34}),
    ),
}
_INA3221 = "/sys/bus/i2c/drivers/ina3221x"
_INA3221_S = 2.2e-3  # its conversion of current and voltage, as it is set after power-on
_INA3221_RAILS = {
    "0-0040/iio:device0": (("VDD_SYS_GPU", ("gpu",)),),
    "0-0041/iio:device1": (
        ("VDD_IN", ("board",)),
        ("VDD_SYS_CPU", ("little", "big", "prime")),
        ("VDD_SYS_DDR", ("memory",)),
    ),
}


def add_rail_nodes(tree: FileTree, soc: Soc) -> None:
    """Add the meters to the tree, if the board has any."""
    if soc.profile.rails == "odpm":
        for number, chip in enumerate(_ODPM_RAILS):
            folder = f"{_ODPM}/iio:device{number}"
            tree.add_node(f"{folder}/name", constant_node(f"{chip}\n"))
            tree.add_node(f"{folder}/energy_value", live_node(partial(_odpm_text, soc, chip)))
    elif soc.profile.rails == "ina3221":
        for folder, rails in _INA3221_RAILS.items():
            for number, (name, parts) in enumerate(rails):
                tree.add_node(f"{_INA3221}/{folder}/rail_name_{number}", constant_node(f"{name}\n"))
                node = live_number_node(partial(_milliwatts, soc, parts))
                tree.add_node(f"{_INA3221}/{folder}/in_power{number}_input", node)


def odpm_energies_uj(soc: Soc) -> dict[tuple[str, str], int]:
    """Return the energy of every rail of a Pixel since boot, by rail and subsystem."""
    energies = {chip: _chip_energies_uj(soc, chip) for chip in _ODPM_RAILS}
    return {rail: microjoules for chip in energies.values() for rail, microjoules in chip.items()}


def _chip_energies_uj(soc: Soc, chip: str) -> dict[tuple[str, str], int]:
    soc.update()
    parts = soc.rail_energies_j()
    board = parts.pop("board", 0.0)
    parts["other"] = max(board - fsum(parts.values()), 0.0)
    return {
        (rail, subsystem): int(
            1e6 * fsum(share * parts.get(part, 0.0) for part, share in shares.items())
        )
        for rail, subsystem, shares in _ODPM_RAILS[chip]
    }


def _odpm_text(soc: Soc, chip: str) -> str:
    energies = _chip_energies_uj(soc, chip)
    now_ms = int(soc.clock.now * 1000)
    rows = [
        f"CH{number}(T={now_ms})[{rail}], {microjoules}\n"
        for number, ((rail, _), microjoules) in enumerate(energies.items())
    ]
    return f"t={now_ms}\n{''.join(rows)}"


def _milliwatts(soc: Soc, parts: tuple[str, ...]) -> int:
    soc.update()
    rail_watts = soc.rails_w(_INA3221_S)
    return round(1000 * fsum(rail_watts.get(part, 0.0) for part in parts))
