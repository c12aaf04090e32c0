"""CLBlast's product on the same device and queue, untuned and tuned, if pyclblast is installed.

    python -m benchmarks.opencl_clblast --results FILE [--sizes 128,512] [--seconds 60]

CLBlast's own tuners need a build of CLBlast; here random parameters of its two kernels (direct for
small products, indirect for large ones) are tried for a while, and the fastest correct ones are
kept. Building one takes seconds, so the search is a separate command, which continues from its
results file.
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

from kernels.autotuner import MatmulShape
from kernels.harness.opencl_device import Device, choose_device

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


def operands(shape: MatmulShape) -> tuple[np.ndarray, np.ndarray]:
    """Draw A and B."""
    generator = np.random.default_rng(1)
    a = generator.random((shape.m, shape.k), np.float32)
    b = generator.random((shape.k, shape.n), np.float32)
    return a - np.float32(0.5), b - np.float32(0.5)


def clblast_product(device: Device, a: np.ndarray, b: np.ndarray) -> Run | None:
    """Return a square product by CLBlast with its present parameters; None without CLBlast."""
    try:
        import pyclblast
        import pyopencl as cl
        import pyopencl.array as arrays
    except ImportError:
        return None
    queue: Any = cl.CommandQueue(device.context)
    left, right = arrays.to_device(queue, a), arrays.to_device(queue, b)
    out = arrays.zeros(queue, (a.shape[0], b.shape[1]), np.float32)
    n = a.shape[0]

    def run() -> None:
        pyclblast.gemm(queue, n, n, n, left, right, out, a_ld=n, b_ld=n, c_ld=n)
        queue.finish()

    run()
    if not np.allclose(out.get(), a @ b, atol=1e-3):
        raise ArithmeticError("CLBlast is wrong with these parameters")
    return run


def tuned_product(device: Device, a: np.ndarray, b: np.ndarray, results: Path) -> tuple[Run, str]:
    """Return the same with the parameters found for the nearest size, and their description."""
    n, found = a.shape[0], json.loads(results.read_text())
    nearest = min(found, key=lambda size: max(int(size) / n, n / int(size)))
    one = found[nearest]
    _override(device, one["kernel"], one["params"])
    run = clblast_product(device, a, b)
    assert run is not None
    return run, f"{one['kernel']}, the best of {one['tried']} for {nearest}"


def search(device: Device, n: int, seconds: float, results: Path) -> None:
    """Try parameters for a product of this size, and add the fastest to the results."""
    found = json.loads(results.read_text()) if results.exists() else {}
    one = found.get(str(n), {"tried": 0, "seconds": float("inf")})
    a, b = operands(MatmulShape(n, n, n))
    generator, deadline = random.Random(one["tried"]), time.monotonic() + seconds
    while time.monotonic() < deadline:
        kernel, params = _draw(generator, direct=generator.random() < 0.5)
        took = _time(device, a, b, kernel, params)
        one["tried"] += 1
        if took < one["seconds"]:
            one |= {"seconds": took, "kernel": kernel, "params": params}
            print(f"n = {n}: {2e-9 * n**3 / took:.1f} GFLOPS, {kernel} {params}", flush=True)
        results.write_text(json.dumps(found | {str(n): one}, indent=1))


def _draw(generator: random.Random, direct: bool) -> tuple[str, dict[str, int]]:
    """Draw parameters until they satisfy CLBlast's constraints."""
    space, fits = (_DIRECT, _direct_fits) if direct else (_INDIRECT, _indirect_fits)
    while True:
        params = {name: generator.choice(values) for name, values in space.items()}
        if fits(params):
            return "direct" if direct else "indirect", params


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
    """Tell whether the items of a group load both tiles in equal parts."""
    shares = [items // side for side in (rows, columns) if items % side == 0]
    return len(shares) == 2 and all(share > 0 and deep % share == 0 for share in shares)


def _override(device: Device, kernel: str, params: dict[str, int]) -> None:
    import pyclblast

    raw: Any = device._raw
    least = 1 << 20 if kernel == "direct" else 1  # the size from which the indirect kernel is used
    pyclblast.override_parameters(raw, "GemmRoutine", FLOAT, {"XGEMM_MIN_INDIRECT_SIZE": least})
    name = "XgemmDirect" if kernel == "direct" else "Xgemm"
    pyclblast.override_parameters(raw, name, FLOAT, params)


def _time(
    device: Device, a: np.ndarray, b: np.ndarray, kernel: str, params: dict[str, int]
) -> float:
    """Return the least of three short turns; infinity for parameters that fail or are wrong."""
    try:
        _override(device, kernel, params)
        run = clblast_product(device, a, b)
    except (RuntimeError, ArithmeticError):
        return float("inf")
    assert run is not None
    best = float("inf")
    for _ in range(3):
        start = time.perf_counter()
        for _ in range(5):
            run()
        best = min(best, (time.perf_counter() - start) / 5)
    return best


def main() -> None:
    """Search for a while."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="0")
    parser.add_argument("--sizes", default="128,512")
    parser.add_argument("--seconds", type=float, default=60.0, help="Search this long per size.")
    parser.add_argument("--results", type=Path, required=True)
    options = parser.parse_args()
    if find_spec("pyclblast") is None:
        raise SystemExit("pyclblast is not installed; it needs CLBlast's library and a compiler")
    for n in map(int, options.sizes.split(",")):
        search(choose_device(options.device), n, options.seconds, options.results)


if __name__ == "__main__":
    main()
