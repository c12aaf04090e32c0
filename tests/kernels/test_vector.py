"""The functions of eight lanes (kernels/engine/cpu/vector.h) are as exact as their comments say.

They are compiled here, with the compiler that builds the runner.
"""

import ctypes
import subprocess
import sys
from collections.abc import Callable
from math import erf
from pathlib import Path

import numpy as np
import pytest

pytestmark = pytest.mark.slow

CPU = Path(__file__).parents[2] / "kernels" / "engine" / "cpu"
COUNT = 1 << 18
NAMES = ("exp", "log", "tanh", "sigmoid", "erf")
SOURCE = '#include "vector.h"\n' + "".join(
    f"void {name}_all(const float *x, float *y, long count) {{\n"
    f"    for (long i = 0; i < count; i += 8) store8(y + i, {name}8(load8(x + i)));\n}}\n"
    for name in NAMES
)
Function = Callable[[np.ndarray], np.ndarray]


@pytest.fixture(scope="module")
def functions(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, np.ndarray], np.ndarray]:
    pytest.importorskip("ziglang")
    folder = tmp_path_factory.mktemp("vector")
    (folder / "all.c").write_text(SOURCE)
    words = ["cc", "-std=c11", "-O2", "-mcpu=x86_64_v3", "-shared", "-fPIC", "-I", str(CPU)]
    command = [sys.executable, "-m", "ziglang", *words, str(folder / "all.c"), "-o"]
    subprocess.run([*command, str(folder / "all.so")], check=True)
    library = ctypes.CDLL(str(folder / "all.so"))

    def run(name: str, x: np.ndarray) -> np.ndarray:
        x, y = np.ascontiguousarray(x, np.float32), np.empty(len(x), np.float32)
        pointers = (ctypes.c_void_p(each.ctypes.data) for each in (x, y))
        library[f"{name}_all"](*pointers, ctypes.c_long(len(x)))
        return y

    return run


def both_signs(low: float, high: float) -> np.ndarray:
    """Draw values of both signs, spread evenly over the powers of two."""
    chance = np.random.default_rng(3)
    sizes: np.ndarray = np.exp(chance.uniform(np.log(low), np.log(high), COUNT))
    return np.asarray(sizes * chance.choice([-1.0, 1.0], COUNT))


@pytest.mark.parametrize(
    ("name", "truth", "x", "ulps"),
    [
        ("exp", np.exp, np.linspace(-87.0, 88.7, COUNT), 1.5),
        ("log", np.log, np.abs(both_signs(1e-37, 1e38)), 2.5),
        ("log", np.log, np.linspace(0.5, 2.0, COUNT), 2.5),
        ("tanh", np.tanh, both_signs(1e-6, 20.0), 2.5),
        ("sigmoid", lambda x: 1 / (1 + np.exp(-x)), both_signs(1e-6, 80.0), 2.5),
        ("erf", np.vectorize(erf), both_signs(1e-6, 6.0), 3.0),
    ],
)
def test_a_function_is_as_exact_as_its_comment_says(
    functions: Callable[[str, np.ndarray], np.ndarray],
    name: str,
    truth: Function,
    x: np.ndarray,
    ulps: float,
) -> None:
    x = x.astype(np.float32)
    expected = truth(x.astype(np.float64))
    unit = np.spacing(np.abs(expected).astype(np.float32)).astype(np.float64)
    assert ulps > (np.abs(functions(name, x) - expected) / unit).max()


def test_the_ends_of_the_range_are_correct(
    functions: Callable[[str, np.ndarray], np.ndarray],
) -> None:
    ends = np.array([-np.inf, -1e30, 0, 0, 0, 0, 1e30, np.inf])
    assert [0, 0, 1, 1, 1, 1, np.inf, np.inf] == functions("exp", ends).tolist()
    assert functions("tanh", ends).tolist() == [-1, -1, 0, 0, 0, 0, 1, 1]
    assert functions("sigmoid", ends).tolist() == [0, 0, 0.5, 0.5, 0.5, 0.5, 1, 1]
    assert functions("erf", ends).tolist() == [-1, -1, 0, 0, 0, 0, 1, 1]
    assert [-np.inf, np.inf] == functions("log", np.array([0.0] + 7 * [np.inf])).tolist()[:2]


@pytest.mark.parametrize("name", NAMES)
def test_nan_stays_nan(functions: Callable[[str, np.ndarray], np.ndarray], name: str) -> None:
    assert np.isnan(functions(name, np.full(8, np.nan))).all()
