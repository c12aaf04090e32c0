"""The tuner: which way to multiply, with which numbers, is fastest for a shape on a device.

The search knows no device: whoever has one times candidates for it, this computer through pyopencl
or a phone through its runner. It starts from each way's usual numbers, and from what was best for
other shapes, and changes one at a time; the best few then run against each other. What it finds is
a text file, which the runner reads too (kernels/runner/runner.h), and holds for one device, one
driver and one state of the kernels.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from itertools import product
from math import prod
from pathlib import Path

from workloads.fault import BadFile
from workloads.noun import digest_of_bytes
from workloads.text import safe_text

FORMAT = "farmhand-tuned 2"
FILE = "sgemm.cl"
BYTES_MAX = 256 * 1024
FINALISTS = 3
_EXPLORED = 2  # ways whose numbers are looked into

Numbers = Mapping[str, int]


@dataclass(frozen=True)
class Shape:
    """A product C = op(A) op(B): C is m x n, the depth is k."""

    m: int
    n: int
    k: int
    transposed_a: bool = False
    transposed_b: bool = False

    @property
    def flops(self) -> int:
        """A multiply-add is two."""
        return 2 * self.m * self.n * self.k

    @property
    def letters(self) -> str:
        """NN, NT, TN or TT."""
        return "".join("T" if turned else "N" for turned in (self.transposed_a, self.transposed_b))

    @property
    def label(self) -> str:
        """512x512x512 NT."""
        return f"{self.m}x{self.n}x{self.k} {self.letters}"


@dataclass(frozen=True)
class Candidate:
    """A way with its numbers."""

    way: str
    numbers: tuple[tuple[str, int], ...]

    @classmethod
    def of(cls, way: str, numbers: Numbers) -> "Candidate":
        """The same numbers make the same candidate, in whatever order."""
        return cls(way, tuple(sorted(numbers.items())))

    @property
    def label(self) -> str:
        """As it is written: WAY NAME=VALUE ..."""
        return " ".join((self.way, *(f"{name}={value}" for name, value in self.numbers)))


@dataclass(frozen=True)
class Limits:
    """What a device has room for."""

    local_bytes: int
    max_group: int
    images: bool


@dataclass(frozen=True)
class Tuned:
    """The winner for one shape."""

    shape: Shape
    candidate: Candidate
    gflops: float
    tried: int


# Per way: the numbers to begin with first, and what else is worth a look.
SPACE: dict[str, dict[str, tuple[int, ...]]] = {
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
        "STRIPS": (4, 1, 16),
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
    "image": {"MR": (8, 4), "GX": (8, 16), "GY": (1, 8)},
    "vector": {},
}
Timer = Callable[[Sequence[Candidate], int], Mapping[Candidate, float]]  # seconds; absent: failed


def everything(shape: Shape, limits: Limits) -> list[Candidate]:
    """Every candidate for a shape that a device can hold."""
    return [
        Candidate.of(way, dict(zip(space, values, strict=True)))
        for way, space in SPACE.items()
        if _suits(way, shape)
        for values in product(*space.values())
        if fits(way, dict(zip(space, values, strict=True)), limits)
    ]


def search(
    shape: Shape,
    limits: Limits,
    timed: Timer,
    in_time: Callable[[], bool] = lambda: True,
    known: Iterable[Tuned] = (),
) -> tuple[Candidate, float, int]:
    """The fastest candidate, its seconds, and how many were tried; it ends early when told to.

    What is `known` to be best for other shapes on this device is looked at first.
    """
    seen: dict[Candidate, float] = {}

    def look(wanted: Sequence[Candidate]) -> None:
        fresh = [each for each in wanted if each not in seen]
        seen.update({each: float("inf") for each in fresh} | dict(timed(fresh, 1)))

    begin = dict.fromkeys((*map(_usual, SPACE), *(each.candidate for each in known)))
    look([each for each in begin if _suits(each.way, shape) and _is_whole(each, limits)])
    ways = sorted({each.way for each in seen}, key=lambda way: min(_of(way, seen).values()))
    for way in ways[:_EXPLORED]:
        for _ in range(2):  # once more from where the first round ended
            for name in SPACE[way]:
                if in_time():
                    look(list(_beside(_best(_of(way, seen)), name, limits)))
    finalists = sorted(seen, key=seen.__getitem__)[:FINALISTS]
    last = timed([each for each in finalists if seen[each] < float("inf")], 3)
    if not last:
        raise BadFile(f"nothing could be launched for {shape.label}")
    winner = min(last, key=last.__getitem__)
    return winner, last[winner], len(seen)


def fits(way: str, numbers: Numbers, limits: Limits) -> bool:
    """Whether a device has room: both matrices have a tile, and a group its items."""
    side = numbers.get("TILE", 0)
    group = max(side * side // 4, numbers.get("GX", 1) * numbers.get("GY", 1))
    room = 2 * 4 * side * side <= limits.local_bytes and group <= limits.max_group
    return room and (limits.images or way != "image")


def _is_whole(candidate: Candidate, limits: Limits) -> bool:
    """Whether it has every number of its way, and a device room for it."""
    numbers = dict(candidate.numbers)
    return set(numbers) == set(SPACE[candidate.way]) and fits(candidate.way, numbers, limits)


def _suits(way: str, shape: Shape) -> bool:
    """Rows along rows are for B transposed alone, tiles of B for B as it is."""
    return shape.transposed_b if way == "dots" else not (way == "direct" and shape.transposed_b)


def _first(way: str) -> dict[str, int]:
    return {name: values[0] for name, values in SPACE[way].items()}


def _usual(way: str) -> Candidate:
    return Candidate.of(way, _first(way))


def _of(way: str, seen: Mapping[Candidate, float]) -> dict[Candidate, float]:
    return {each: time for each, time in seen.items() if each.way == way}


def _best(seen: Mapping[Candidate, float]) -> Candidate:
    return min(seen, key=seen.__getitem__)


def _beside(candidate: Candidate, name: str, limits: Limits) -> Iterator[Candidate]:
    """The same with another value for one number."""
    for value in SPACE[candidate.way][name]:
        numbers = dict(candidate.numbers) | {name: value}
        if fits(candidate.way, numbers, limits):
            yield Candidate.of(candidate.way, numbers)


def nearest(found: Sequence[Tuned], shape: Shape) -> Candidate | None:
    """What is best for the product of the same transposes that is nearest in size."""

    def apart(tuned: Tuned) -> float:
        pairs = zip(_sides(tuned.shape), _sides(shape), strict=True)
        return prod(max(one, other) / min(one, other) for one, other in pairs)

    like = [tuned for tuned in found if tuned.shape.letters == shape.letters]
    return min(like, key=apart).candidate if like else None


def _sides(shape: Shape) -> tuple[int, int, int]:
    return shape.m, shape.n, shape.k


# -- the file


@cache
def kernels_digest() -> str:
    """The identity of the kernels that are tuned."""
    return digest_of_bytes((files("kernels") / "opencl" / FILE).read_bytes())


@dataclass(frozen=True)
class TunedFor:
    """Whom a tuning file is for."""

    name: str
    version: str
    driver: str

    @property
    def label(self) -> str:
        """In words."""
        return f"{self.name} with driver {self.driver}"


def tuned_text(device: TunedFor, found: Sequence[Tuned]) -> str:
    """A tuning file; what was measured stands in comments."""
    lines = [
        FORMAT,
        f"device {device.name}\t{device.version}\t{device.driver}",
        f"kernels {kernels_digest()}",
    ]
    for tuned in found:
        shape = tuned.shape
        turned = f"{int(shape.transposed_a)} {int(shape.transposed_b)}"
        lines.append(f"# {tuned.gflops:.2f} GFLOPS, the best of {tuned.tried}")
        lines.append(f"sgemm {shape.m} {shape.n} {shape.k} {turned} {tuned.candidate.label}")
    return "\n".join(lines) + "\n"


def read_tuned(path: Path, device: TunedFor) -> list[Tuned]:
    """What was kept for this device, driver and kernels; anything else is refused."""
    try:
        if path.stat().st_size > BYTES_MAX:
            raise ValueError(f"more than {BYTES_MAX >> 10} KB")
        text = path.read_text()
        owner, digest, found = parse_tuned(text)
    except (OSError, ValueError) as error:
        raise BadFile(f"{path} is no tuning file: {safe_text(error, 200)}") from None
    if owner != device:
        raise BadFile(f"{path} was tuned for {owner.label}, not for {device.label}; tune again")
    if digest != kernels_digest():
        raise BadFile(f"{path} was tuned for other kernels than these; tune again")
    return found


def parse_tuned(text: str) -> tuple[TunedFor, str, list[Tuned]]:
    """A tuning file's device, kernels and winners; ValueError says what breaks the form."""
    first, *rest = text.splitlines() or [""]
    if first != FORMAT:
        raise ValueError(f"it does not begin with '{FORMAT}'")
    said = dict(line.partition(" ")[::2] for line in rest[:2])
    owner = said.get("device", "").split("\t")
    if len(owner) != 3 or "kernels" not in said:
        raise ValueError("device or kernels are missing")
    found: list[Tuned] = []
    gflops, tried = 0.0, 0
    for number, line in enumerate(rest[2:], start=4):
        words = line.split()
        if words[:1] == ["#"] and len(words) == 7:
            gflops, tried = float(words[1]), int(words[6])
        elif words[:1] == ["sgemm"]:
            found.append(Tuned(*_record(words[1:], number), gflops, tried))
    return TunedFor(*owner), said["kernels"], found


def _record(words: Sequence[str], number: int) -> tuple[Shape, Candidate]:
    """M N K TA TB WAY [NAME=VALUE ...]."""
    try:
        m, n, k, ta, tb = (int(word) for word in words[:5])
        numbers = {name: int(value) for name, _, value in (w.partition("=") for w in words[6:])}
        if words[5] not in SPACE:
            raise ValueError
        return Shape(m, n, k, bool(ta), bool(tb)), Candidate.of(words[5], numbers)
    except (ValueError, IndexError):
        raise ValueError(f"line {number} is no record: {safe_text(' '.join(words), 60)}") from None
