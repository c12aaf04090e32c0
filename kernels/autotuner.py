"""The autotuner: finds the fastest matmul variant and its parameters for a shape on a device.

The search has no device: a caller times candidates for it, through pyopencl on this computer or
through the runner on a phone. It starts from the default parameters of each variant and from the
winners of other shapes, and changes one parameter at a time; the best few then compete again. The
result is a text file that the runner reads too (kernels/runner/runner.h). It is valid for one
device, one driver and one version of the kernels.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from itertools import product
from math import prod
from pathlib import Path

from workloads.protocol.base import digest_of_bytes
from workloads.protocol.faults import BadFile
from workloads.text import safe_text

FORMAT = "farmhand-tuned 2"
COMMON_FILE = "sgemm_common.cl"  # built in front of the file of each variant
BYTES_MAX = 256 * 1024
FINALISTS = 3
_EXPLORED_VARIANTS = 2  # variants whose parameters are varied
_FAILED = float("inf")

Params = Mapping[str, int]


@dataclass(frozen=True)
class MatmulShape:
    """A product C = op(A) op(B): C is m x n, the depth is k."""

    m: int
    n: int
    k: int
    transposed_a: bool = False
    transposed_b: bool = False

    @property
    def flops(self) -> int:
        """Floating-point operations; a multiply-add counts as two."""
        return 2 * self.m * self.n * self.k

    @property
    def letters(self) -> str:
        """NN, NT, TN or TT."""
        flags = (self.transposed_a, self.transposed_b)
        return "".join("T" if transposed else "N" for transposed in flags)

    @property
    def candidate_prefix(self) -> str:
        """M N K TA TB, as in the files of the runner."""
        return f"{self.m} {self.n} {self.k} {int(self.transposed_a)} {int(self.transposed_b)}"

    @property
    def label(self) -> str:
        """Sizes and transposes, e.g. 512x512x512 NT."""
        return f"{self.m}x{self.n}x{self.k} {self.letters}"


@dataclass(frozen=True)
class MatmulCandidate:
    """A variant with its parameters."""

    variant: str
    params: tuple[tuple[str, int], ...]

    @classmethod
    def of(cls, variant: str, params: Params) -> "MatmulCandidate":
        """Sort the parameters, so that their order does not matter."""
        return cls(variant, tuple(sorted(params.items())))

    @property
    def label(self) -> str:
        """VARIANT NAME=VALUE ..., as in a tuning file."""
        return " ".join((self.variant, *(f"{name}={value}" for name, value in self.params)))


@dataclass(frozen=True)
class OpenCLLimits:
    """What an OpenCL device has room for."""

    local_bytes: int
    max_group: int


@dataclass(frozen=True)
class TunedMatmul:
    """The winner for one shape."""

    shape: MatmulShape
    candidate: MatmulCandidate
    gflops: float
    tried: int


# Parameters per variant: the default first, then the other values to try.
SEARCH_SPACE: dict[str, dict[str, tuple[int, ...]]] = {
    "direct": {
        "MR": (4, 6, 8),
        "NR": (16, 8),
        "DEEP": (1, 2),
        "WIDE": (8, 4),
        "GX": (1, 8),
        "GY": (1, 8),
    },
    "packed": {
        "MR": (6, 4, 8),
        "NR": (16, 8, 24),
        "PANELS": (4, 1, 16),
        "PACK_A": (0, 1),
        "DEEP": (1, 2),
        "WIDE": (8, 4),
        "GX": (1, 8),
        "GY": (1, 8),
    },
    "dots": {
        "MR": (3, 2, 4),
        "NC": (4, 3),
        "DEEP": (1, 2),
        "WIDE": (8, 4),
        "GX": (1, 8),
        "GY": (1, 8),
    },
    "tiled_vector": {"TILE": (16, 8, 32)},
    "vector": {},
}
# Seconds per candidate; a candidate that could not be launched is absent.
CandidateTimer = Callable[[Sequence[MatmulCandidate], int], Mapping[MatmulCandidate, float]]


def all_candidates(shape: MatmulShape, limits: OpenCLLimits) -> list[MatmulCandidate]:
    """List every candidate for a shape that a device has room for."""
    return [
        MatmulCandidate.of(variant, dict(zip(space, values, strict=True)))
        for variant, space in SEARCH_SPACE.items()
        if _suits(variant, shape)
        for values in product(*space.values())
        if fits(variant, dict(zip(space, values, strict=True)), limits)
    ]


def search(
    shape: MatmulShape,
    limits: OpenCLLimits,
    timer: CandidateTimer,
    in_time: Callable[[], bool] = lambda: True,
    known: Iterable[TunedMatmul] = (),
) -> tuple[MatmulCandidate, float, int]:
    """Return the fastest candidate, its seconds, and how many were tried.

    `known` are winners for other shapes on this device; they are tried first. The search stops
    early once `in_time` returns False.
    """
    times: dict[MatmulCandidate, float] = {}

    def measure(wanted: Sequence[MatmulCandidate]) -> None:
        fresh = [candidate for candidate in wanted if candidate not in times]
        times.update(dict.fromkeys(fresh, _FAILED) | dict(timer(fresh, 1)))

    start = dict.fromkeys((*map(_default, SEARCH_SPACE), *(winner.candidate for winner in known)))
    measure([one for one in start if _suits(one.variant, shape) and _is_valid(one, limits)])
    variants = sorted(
        {one.variant for one in times}, key=lambda name: min(_of(name, times).values())
    )
    for variant in variants[:_EXPLORED_VARIANTS]:
        for _ in range(2):  # a second pass starts from the best of the first
            for name in SEARCH_SPACE[variant]:
                if in_time():
                    measure(list(_neighbours(_fastest(_of(variant, times)), name, limits)))
    finalists = sorted(times, key=times.__getitem__)[:FINALISTS]
    last = timer([one for one in finalists if times[one] < _FAILED], 3)
    if not last:
        raise BadFile(f"no candidate could be launched for {shape.label}")
    winner = _fastest(last)
    return winner, last[winner], len(times)


def fits(variant: str, params: Params, limits: OpenCLLimits) -> bool:
    """Tell whether a device has room for a tile of both matrices and for a work group."""
    side = params.get("TILE", 0)
    group = max(side * side // 4, params.get("GX", 1) * params.get("GY", 1))
    return 2 * 4 * side * side <= limits.local_bytes and group <= limits.max_group


def _is_valid(candidate: MatmulCandidate, limits: OpenCLLimits) -> bool:
    """Tell whether a candidate has every parameter of its variant and fits the device."""
    params, space = dict(candidate.params), SEARCH_SPACE[candidate.variant]
    return set(params) == set(space) and fits(candidate.variant, params, limits)


def _suits(variant: str, shape: MatmulShape) -> bool:
    """Tell whether a variant can be fast: dots only with a transposed B, direct only without."""
    if variant == "dots":
        return shape.transposed_b
    return not (variant == "direct" and shape.transposed_b)


def _default(variant: str) -> MatmulCandidate:
    space = SEARCH_SPACE[variant]
    return MatmulCandidate.of(variant, {name: values[0] for name, values in space.items()})


def _of(variant: str, times: Mapping[MatmulCandidate, float]) -> dict[MatmulCandidate, float]:
    return {one: seconds for one, seconds in times.items() if one.variant == variant}


def _fastest(times: Mapping[MatmulCandidate, float]) -> MatmulCandidate:
    return min(times, key=times.__getitem__)


def _neighbours(
    candidate: MatmulCandidate, name: str, limits: OpenCLLimits
) -> Iterator[MatmulCandidate]:
    """Yield the same candidate with every value of one parameter."""
    for value in SEARCH_SPACE[candidate.variant][name]:
        params = dict(candidate.params) | {name: value}
        if fits(candidate.variant, params, limits):
            yield MatmulCandidate.of(candidate.variant, params)


def nearest(winners: Sequence[TunedMatmul], shape: MatmulShape) -> MatmulCandidate | None:
    """Return the winner for the shape that is nearest in size, among the same transposes."""

    def distance(winner: TunedMatmul) -> float:
        pairs = zip(_sides(winner.shape), _sides(shape), strict=True)
        return prod(max(one, other) / min(one, other) for one, other in pairs)

    similar = [winner for winner in winners if winner.shape.letters == shape.letters]
    return min(similar, key=distance).candidate if similar else None


def _sides(shape: MatmulShape) -> tuple[int, int, int]:
    return shape.m, shape.n, shape.k


# ---- the tuning file ----


@cache
def kernels_digest() -> str:
    """Hash the kernels that are tuned."""
    folder = (files("kernels") / "opencl").iterdir()
    used = ("common.", "sgemm_")
    sources = sorted((file.name, file) for file in folder if file.name.startswith(used))
    return digest_of_bytes(b"".join(file.read_bytes() for _, file in sources))


@dataclass(frozen=True)
class OpenCLIdentity:
    """The OpenCL device and driver that a tuning file is for."""

    name: str
    version: str
    driver: str

    @property
    def label(self) -> str:
        """Device and driver."""
        return f"{self.name} with driver {self.driver}"


def tuned_text(device: OpenCLIdentity, winners: Sequence[TunedMatmul]) -> str:
    """Format a tuning file; measured values are comments."""
    lines = [
        FORMAT,
        f"device {device.name}\t{device.version}\t{device.driver}",
        f"kernels {kernels_digest()}",
    ]
    for winner in winners:
        lines.append(f"# {winner.gflops:.2f} GFLOPS, the best of {winner.tried}")
        lines.append(f"sgemm {winner.shape.candidate_prefix} {winner.candidate.label}")
    return "\n".join(lines) + "\n"


def read_tuned(path: Path, device: OpenCLIdentity) -> list[TunedMatmul]:
    """Read the winners for this device, driver and these kernels; refuse any other file."""
    try:
        if path.stat().st_size > BYTES_MAX:
            raise ValueError(f"more than {BYTES_MAX >> 10} KB")
        owner, digest, winners = parse_tuned(path.read_text())
    except (OSError, ValueError) as error:
        raise BadFile(f"{path} is not a tuning file: {safe_text(error, 200)}") from None
    if owner != device:
        raise BadFile(f"{path} was tuned for {owner.label}, not for {device.label}; tune again")
    if digest != kernels_digest():
        raise BadFile(f"{path} was tuned for another version of the kernels; tune again")
    return winners


def parse_tuned(text: str) -> tuple[OpenCLIdentity, str, list[TunedMatmul]]:
    """Parse device, kernels digest and winners of a tuning file; ValueError: malformed."""
    first, *rest = text.splitlines() or [""]
    if first != FORMAT:
        raise ValueError(f"it does not begin with '{FORMAT}'")
    head = dict(line.partition(" ")[::2] for line in rest[:2])
    owner = head.get("device", "").split("\t")
    if len(owner) != 3 or "kernels" not in head:
        raise ValueError("device or kernels are missing")
    winners: list[TunedMatmul] = []
    gflops, tried = 0.0, 0
    for number, line in enumerate(rest[2:], start=4):
        words = line.split()
        if words[:1] == ["#"] and len(words) == 7:
            gflops, tried = float(words[1]), int(words[6])
        elif words[:1] == ["sgemm"]:
            winners.append(TunedMatmul(*_parse_record(words[1:], number), gflops, tried))
    return OpenCLIdentity(*owner), head["kernels"], winners


def _parse_record(words: Sequence[str], number: int) -> tuple[MatmulShape, MatmulCandidate]:
    """Parse M N K TA TB VARIANT [NAME=VALUE ...]."""
    try:
        m, n, k, ta, tb = (int(word) for word in words[:5])
        params = {name: int(value) for name, _, value in (w.partition("=") for w in words[6:])}
        if words[5] not in SEARCH_SPACE:
            raise ValueError
        return MatmulShape(m, n, k, bool(ta), bool(tb)), MatmulCandidate.of(words[5], params)
    except (ValueError, IndexError):
        text = safe_text(" ".join(words), 60)
        raise ValueError(f"line {number} is not a record: {text}") from None
