"""Designs of cores: CoreMark per MHz, which orders them by size.

measured: the median over the curves of this project. guessed: from the gains that Arm published
for the step from the design before.
"""

from typing import NamedTuple


class CoreDesign(NamedTuple):
    """One design."""

    coremark_per_mhz: float
    is_measured: bool = True


CORE_DESIGNS = {
    "Cortex-A7": CoreDesign(2.9, False),
    "Cortex-A15": CoreDesign(4.0, False),
    "Cortex-A35": CoreDesign(2.9, False),
    "Cortex-A53": CoreDesign(3.25),
    "Cortex-A55": CoreDesign(3.71),
    "Cortex-A57": CoreDesign(4.2, False),
    "Cortex-A72": CoreDesign(4.9, False),
    "Cortex-A73": CoreDesign(5.25),
    "Cortex-A75": CoreDesign(6.22),
    "Cortex-A76": CoreDesign(7.79),
    "Cortex-A77": CoreDesign(8.45),
    "Cortex-A78": CoreDesign(9.10),
    "Cortex-A510": CoreDesign(4.73),
    "Cortex-A520": CoreDesign(4.69),
    "Cortex-A710": CoreDesign(9.1, False),
    "Cortex-A715": CoreDesign(8.66),
    "Cortex-A720": CoreDesign(8.88),
    "Cortex-X1": CoreDesign(9.29),
    "Cortex-X2": CoreDesign(10.0, False),
    "Cortex-X3": CoreDesign(10.73),
    "Cortex-X4": CoreDesign(10.66),
    "Cortex-A725": CoreDesign(9.3, False),
    "Cortex-X925": CoreDesign(11.5, False),
    "Denver 2": CoreDesign(5.5, False),
    "Exynos M1": CoreDesign(5.0, False),
    "Exynos M3": CoreDesign(6.5, False),
    "Exynos M4": CoreDesign(7.5, False),
    "Firestorm": CoreDesign(11.0, False),
    "Icestorm": CoreDesign(7.0, False),
    "Krait": CoreDesign(3.6, False),
    "Kryo": CoreDesign(5.0, False),
    "Oryon M": CoreDesign(9.5, False),
    "Oryon L": CoreDesign(11.5, False),
}
