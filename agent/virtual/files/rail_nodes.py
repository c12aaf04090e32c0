"""Power meters on the board: Pixels count the energy of a rail, Tegra boards report its power."""

from functools import partial

from agent.virtual.files.file_nodes import constant_node, live_node, live_number_node
from agent.virtual.files.file_tree import FileTree
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


def add_rail_nodes(tree: FileTree, soc: Soc) -> None:
    """Add the meters to the tree, if the board has any."""
    if soc.profile.rails == "odpm":
        tree.add_node(f"{_ODPM}/name", constant_node("s2mpg12-odpm\n"))
        tree.add_node(f"{_ODPM}/energy_value", live_node(lambda: _odpm_text(soc)))
    elif soc.profile.rails == "ina3221":
        for folder, rails in _INA3221_RAILS.items():
            for number, (name, parts) in enumerate(rails):
                tree.add_node(f"{_INA3221}/{folder}/rail_name_{number}", constant_node(f"{name}\n"))
                node = live_number_node(partial(_milliwatts, soc, parts))
                tree.add_node(f"{_INA3221}/{folder}/in_power{number}_input", node)


def _odpm_text(soc: Soc) -> str:
    soc.update()
    now_ms = int(soc.model_clock.now * 1000)
    rows = [
        f"CH{number}(T={now_ms})[{name}], {int(soc.rails_j.get(part, 0.0) * 1e6)}\n"
        for number, (name, part) in enumerate(_ODPM_RAILS.items())
    ]
    return f"t={now_ms}\n{''.join(rows)}"


def _milliwatts(soc: Soc, parts: tuple[str, ...]) -> int:
    soc.update()
    rail_watts = soc.rails_w()
    return round(1000 * sum(rail_watts.get(part, 0.0) for part in parts))
