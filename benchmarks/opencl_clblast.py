"""CLBlast's product on the same device and queue, as it ships and tuned, where pyclblast is here.

    python -m benchmarks.opencl_clblast --keep FILE [--sizes 128,512] [--seconds 60]

CLBlast's own tuners want a build of it; here random parameters of its two ways (direct for small
products, indirect for large ones) are tried for a while, and the fastest that is right is kept. It
takes seconds to build one, so searching is a command of its own, which goes on where it ended.
"""

import argparse
import json
import random
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from kernels.harness.device import Device, choose_device
from kernels.harness.products import operands
from kernels.tuning import Shape

Run = Callable[[], None]
FLOAT = 32
_DIRECT = {
    "WGD": (8, 16, 32, 64),
    "MDIMCD": (1, 2, 4, 8, 16),
    "NDIMCD": (1, 2, 4, 8, 16),
    "MDIMAD": (1, 2, 4, 8, 16),
    "NDIMBD": (1, 2, 4, 8, 16),
    "KWID": (2, 8, 16),
    "VWMD": (1, 2, 4, 8),
    "VWND": (1, 2, 4, 8),
    "PADA": (0, 1),
    "PADB": (0, 1),
}
_INDIRECT = {
    "GEMMK": (0,),
    "KREG": (1,),
    "MWG": (16, 32, 64, 128),
    "NWG": (16, 32, 64, 128),
    "KWG": (16, 32),
    "MDIMC": (1, 2, 4, 8, 16),
    "NDIMC": (1, 2, 4, 8, 16),
    "MDIMA": (1, 2, 4, 8, 16),
    "NDIMB": (1, 2, 4, 8, 16),
    "KWI": (2, 8),
    "VWM": (1, 2, 4, 8),
    "VWN": (1, 2, 4, 8),
    "STRM": (0, 1),
    "STRN": (0, 1),
    "SA": (0, 1),
    "SB": (0, 1),
}


def clblast_product(device: Device, a: np.ndarray, b: np.ndarray) -> Run | None:
    """A square product by CLBlast with the parameters it has now, checked once; None without it."""
    try:
        import pyclblast
        import pyopencl.array as arrays
    except ImportError:
        return None
    queue: Any = device._queue
    left, right = arrays.to_device(queue, a), arrays.to_device(queue, b)
    out = arrays.zeros(queue, (a.shape[0], b.shape[1]), np.float32)
    n = a.shape[0]

    def run() -> None:
        pyclblast.gemm(queue, n, n, n, left, right, out, a_ld=n, b_ld=n, c_ld=n)

    run()
    if not np.allclose(out.get(), a @ b, atol=1e-3):
        raise ArithmeticError("CLBlast is wrong with these parameters")
    return run


def tuned_product(device: Device, a: np.ndarray, b: np.ndarray, kept: Path) -> tuple[Run, str]:
    """The same with the parameters that were found for the nearest size, and which those are."""
    n, found = a.shape[0], json.loads(kept.read_text())
    nearest = min(found, key=lambda size: max(int(size) / n, n / int(size)))
    one = found[nearest]
    _override(device, one["way"], one["numbers"])
    run = clblast_product(device, a, b)
    assert run is not None
    return run, f"{one['way']}, the best of {one['tried']} for {nearest}"


def look_for(device: Device, n: int, seconds: float, kept: Path) -> None:
    """Try parameters for a product of this size, and keep the fastest beside what is known."""
    found = json.loads(kept.read_text()) if kept.exists() else {}
    one = found.get(str(n), {"tried": 0, "seconds": float("inf")})
    a, b = operands(Shape(n, n, n), seed=1)
    dice, until = random.Random(one["tried"]), time.monotonic() + seconds
    while time.monotonic() < until:
        way, numbers = _draw(dice, direct=dice.random() < 0.5)
        took = _time(device, a, b, way, numbers)
        one["tried"] += 1
        if took < one["seconds"]:
            one |= {"seconds": took, "way": way, "numbers": numbers}
            print(f"n = {n}: {2e-9 * n**3 / took:.1f} GFLOPS, {way} {numbers}", flush=True)
        kept.write_text(json.dumps(found | {str(n): one}, indent=1))


def _draw(dice: random.Random, direct: bool) -> tuple[str, dict[str, int]]:
    """Parameters that hang together (CLBlast's own constraints), by trial and error."""
    space, fits = (_DIRECT, _direct_fits) if direct else (_INDIRECT, _indirect_fits)
    while True:
        numbers = {name: dice.choice(values) for name, values in space.items()}
        if fits(numbers):
            return "direct" if direct else "indirect", numbers


def _direct_fits(at: dict[str, int]) -> bool:
    items = at["MDIMCD"] * at["NDIMCD"]
    steps = (
        at["KWID"],
        at["MDIMCD"] * at["VWMD"],
        at["NDIMCD"] * at["VWND"],
        at["MDIMAD"] * at["VWMD"],
        at["NDIMBD"] * at["VWND"],
    )
    return _divide(items, at["MDIMAD"], at["NDIMBD"], at["WGD"]) and all(
        at["WGD"] % step == 0 for step in steps
    )


def _indirect_fits(at: dict[str, int]) -> bool:
    items = at["MDIMC"] * at["NDIMC"]
    down = all(at["MWG"] % (at[name] * at["VWM"]) == 0 for name in ("MDIMC", "MDIMA"))
    across = all(at["NWG"] % (at[name] * at["VWN"]) == 0 for name in ("NDIMC", "NDIMB"))
    return down and across and _divide(items, at["MDIMA"], at["NDIMB"], at["KWG"])


def _divide(items: int, rows: int, columns: int, deep: int) -> bool:
    """Whether the items of a group share the fetching of both tiles evenly."""
    shares = [items // side for side in (rows, columns) if items % side == 0]
    return len(shares) == 2 and all(share > 0 and deep % share == 0 for share in shares)


def _override(device: Device, way: str, numbers: dict[str, int]) -> None:
    import pyclblast

    raw: Any = device._raw
    least = 1 << 20 if way == "direct" else 1  # from what size on the indirect way is taken
    pyclblast.override_parameters(raw, "GemmRoutine", FLOAT, {"XGEMM_MIN_INDIRECT_SIZE": least})
    kernel = "XgemmDirect" if way == "direct" else "Xgemm"
    pyclblast.override_parameters(raw, kernel, FLOAT, numbers)


def _time(device: Device, a: np.ndarray, b: np.ndarray, way: str, numbers: dict[str, int]) -> float:
    """The least of three short turns; parameters that fail or are wrong take for ever."""
    try:
        _override(device, way, numbers)
        run = clblast_product(device, a, b)
    except (RuntimeError, ArithmeticError):
        return float("inf")
    assert run is not None
    best = float("inf")
    for _ in range(3):
        device.finish()
        began = time.perf_counter()
        for _ in range(5):
            run()
        device.finish()
        best = min(best, (time.perf_counter() - began) / 5)
    return best


def main() -> None:
    """Search for a while."""
    words = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    words.add_argument("--device", default="0")
    words.add_argument("--sizes", default="128,512")
    words.add_argument("--seconds", type=float, default=60.0, help="a size")
    words.add_argument("--keep", type=Path, required=True)
    given = words.parse_args()
    if find_spec("pyclblast") is None:
        raise SystemExit("pyclblast is not installed; it needs CLBlast's library and a compiler")
    for n in map(int, given.sizes.split(",")):
        look_for(choose_device(given.device), n, given.seconds, given.keep)


if __name__ == "__main__":
    main()
