"""Meters on the board: Pixels count each rail's energy, Tegra boards tell its power."""

from functools import partial

from agent.virtual.files.nodes import constant, live, live_number
from agent.virtual.files.tree import FileTree
from agent.virtual.physics.soc import Soc

_ODPM = "/sys/bus/iio/devices/iio:device0"
_ODPM_RAILS = {
    "S4M_VDD_CPUCL0": "little",
    "S3M_VDD_CPUCL1": "big",
    "S2M_VDD_CPUCL2": "prime",
    "S1M_VDD_MIF": "memory",
    "S2S_VDD_G3D": "gpu",
}
_INA3221 = "/sys/bus/i2c/drivers/ina3221x"
_INA3221_RAILS = {
    "0-0040/iio:device0": (("VDD_SYS_GPU", ("gpu",)),),
    "0-0041/iio:device1": (
        ("VDD_IN", ("board",)),
        ("VDD_SYS_CPU", ("little", "big", "prime")),
        ("VDD_SYS_DDR", ("memory",)),
    ),
}


def plant_rail_nodes(tree: FileTree, soc: Soc) -> None:
    """Put the meters into the tree, where the board has any."""
    if soc.profile.rails == "odpm":
        tree.put(f"{_ODPM}/name", constant("s2mpg12-odpm\n"))
        tree.put(f"{_ODPM}/energy_value", live(lambda: _energies(soc)))
    elif soc.profile.rails == "ina3221":
        for folder, rails in _INA3221_RAILS.items():
            for number, (name, parts) in enumerate(rails):
                tree.put(f"{_INA3221}/{folder}/rail_name_{number}", constant(f"{name}\n"))
                node = live_number(partial(_milliwatts, soc, parts))
                tree.put(f"{_INA3221}/{folder}/in_power{number}_input", node)


def _energies(soc: Soc) -> str:
    soc.settle()
    moment = int(soc.timeline.now * 1000)
    rows = [
        f"CH{number}(T={moment})[{name}], {int(soc.rails_j.get(part, 0.0) * 1e6)}\n"
        for number, (name, part) in enumerate(_ODPM_RAILS.items())
    ]
    return f"t={moment}\n{''.join(rows)}"


def _milliwatts(soc: Soc, parts: tuple[str, ...]) -> int:
    soc.settle()
    drawn = soc.rails_w()
    return round(1000 * sum(drawn.get(part, 0.0) for part in parts))
