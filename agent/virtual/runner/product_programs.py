"""The programs of matrix products that a runner would build, from the kernels on the phone.

The table holds what the runner builds each kernel with. Nothing is compiled here, but the digest
is that of the files which were pushed.
"""

from collections.abc import Iterable, Sequence
from functools import lru_cache

from agent.virtual.files.file_tree import FileTree, error_text
from agent.virtual.physics.step_timing import SimulatedOp
from agent.virtual.runner.runner_contract import RunnerExit, RunnerFailure, RunnerRecord

# File and parameters of each variant, as runners build it without a tuning file.
PRODUCT_KERNELS: dict[str, tuple[str, dict[str, str]]] = {
    "naive": ("sgemm_1_naive.cl", {}),
    "vector": ("sgemm_2_vector.cl", {}),
    "tiled": ("sgemm_3_tiled.cl", {"TILE": "16"}),
    "tiled_vector": ("sgemm_4_tiled_vector.cl", {"TILE": "16"}),
    "direct": ("sgemm_5_direct.cl", {"MR": "4", "NR": "16"}),
    "dots": ("sgemm_6_dots.cl", {"MR": "3", "NC": "4"}),
    "packed": ("sgemm_7_packed.cl", {"MR": "6", "NR": "16", "PANELS": "4", "PACK_A": "1"}),
}
USUAL_KERNEL = "tiled_vector"  # of a GPU, where nothing was tuned
_COMMON = "sgemm_common.cl"
_TRANSPOSES = {"forward": "0 1", "weight_gradient": "1 0"}  # by the end of an operation's name
_GROUP_PARAMS = ("GX", "GY")  # of a launch, not of a program
_FACTOR, _MASK = 0x9E3779B97F4A7C15, (1 << 64) - 1


def product_programs(
    tree: FileTree,
    folder: str,
    uid: int,
    ops: Iterable[SimulatedOp],
    kernel: str,
    tuned: Sequence[Sequence[str]],
) -> list[RunnerRecord]:
    """Return the records of the programs that the products of a plan need.

    `tuned` has the words of a tuning file's records, after their first.
    """
    products = [op.name.rpartition(".")[2] for op in ops if op.kind == "matmul"]
    transposes = dict.fromkeys(_TRANSPOSES.get(name, "0 0") for name in products)
    return [_program(tree, folder, uid, pair.split(" "), kernel, tuned) for pair in transposes]


def _program(
    tree: FileTree,
    folder: str,
    uid: int,
    transposes: Sequence[str],
    kernel: str,
    tuned: Sequence[Sequence[str]],
) -> RunnerRecord:
    variant, given = (USUAL_KERNEL if kernel == "tuned" else kernel), dict[str, str]()
    fitting = [words for words in tuned if list(words[3:5]) == list(transposes)]
    if kernel == "tuned" and fitting:
        variant = fitting[0][5]
        given = {name: value for name, _, value in (word.partition("=") for word in fitting[0][6:])}
    file, defaults = PRODUCT_KERNELS[variant]
    defines = dict(zip(("TA", "TB"), transposes, strict=True)) | defaults | given
    options = [f"-D{name}={value}" for name, value in defines.items() if name not in _GROUP_PARAMS]
    content = [_read(tree, f"{folder}/{name}", uid) for name in ("common.cl", _COMMON, file)]
    return {
        "line": "program",
        "files": f"{_COMMON} {file}",
        "options": " ".join(("-w", *options)),
        "digest": f"{_digest(tuple(content)):x}",
    }


def _read(tree: FileTree, path: str, uid: int) -> bytes:
    try:
        return tree.read(path, uid)
    except OSError as error:
        text = f"cannot read the kernels in {path.rpartition('/')[0]}: {error_text(error)}"
        raise RunnerFailure(RunnerExit.BAD_PLAN, text) from None


@lru_cache(maxsize=64)
def _digest(contents: tuple[bytes, ...]) -> int:
    """Hash files as the runner does: words of eight bytes, then the bytes that are left."""
    digest = 0
    for content in contents:
        whole = len(content) // 8 * 8
        words = [int.from_bytes(content[at : at + 8], "little") for at in range(0, whole, 8)]
        for word in (*words, *content[whole:]):
            digest = (digest ^ word) * _FACTOR & _MASK
            digest ^= digest >> 29
    return digest
