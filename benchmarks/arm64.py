"""Analyse the hot loops of the shipped arm64 binary with LLVM's machine-code analyser.

.venv/bin/python -m benchmarks.arm64 [--llvm FOLDER] [--install]

No phone is needed and nothing is timed: the analyser simulates a core's issue ports and latencies,
with all data in the nearest cache. A core counts only if LLVM has its own scheduling model for it:
older versions use that of the Cortex-A57 for the Neoverse cores. The loops are found by the symbols
of a second build, whose code must equal that of the shipped binary byte by byte.

The peak is what the model allows for multiply-adds alone. LLVM's model of the Cortex-A55 is more
generous than the core, so its row is followed by one of published issue rules.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from kernels.build import BIN, TARGETS, build

CACHE = Path(__file__).resolve().parents[1] / ".cache" / "llvm"
PACKAGES = ("llvm-19", "libllvm19")  # of Debian 12 and 13
BINARY = "runner-arm64-bionic"
TURNS = 200  # of a loop, so that its beginning does not count


class Core(NamedTuple):
    """A core of LLVM, the name its own model's resources begin with, and the share to reach."""

    cpu: str
    model: str
    stands_for: str
    goal: float


CORES = (
    Core("cortex-a55", "CortexA55", "Cortex-A55, in order", 0.70),
    Core("neoverse-n1", "N1", "Cortex-A76 to A78", 0.85),
    Core("neoverse-v1", "V1", "Cortex-X1", 0.85),
)


class HotLoop(NamedTuple):
    """A loop of a function: the one with most multiply-adds, with or without an instruction."""

    name: str
    function: str
    contains: str = ""
    lacks: str = ""
    is_product: bool = False  # an inner product loop, which has to reach the goal


LOOPS = (
    HotLoop("product, attention", "compute_6_rows", lacks="ldrsw", is_product=True),
    HotLoop("convolution", "compute_6_rows", contains="ldrsw", is_product=True),
    HotLoop("thin product", "gemm_serial"),
    HotLoop("depthwise", "convolve_rows"),
    HotLoop("depthwise weights", "weight_part"),
)


class Llvm:
    """LLVM's programs in one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        libraries = [CACHE / "usr/lib" / name for name in ("x86_64-linux-gnu", "aarch64-linux-gnu")]
        self._environment = os.environ | {"LD_LIBRARY_PATH": ":".join(map(str, libraries))}

    def run(self, program: str, words: Sequence[str | Path], text: str | None = None) -> str:
        """Run a program and return what it printed."""
        done = subprocess.run(
            [self.folder / program, *words],
            input=text,
            capture_output=True,
            text=True,
            check=False,
            env=self._environment,
        )
        if done.returncode != 0:
            raise SystemExit(f"{program} failed: {done.stderr.strip()}")
        return done.stdout


def find_llvm(folder: Path | None, install: bool) -> Llvm:
    """Find LLVM's programs: the given folder, those of the cache, or an installed version."""
    unpacked = CACHE / "usr/lib/llvm-19/bin"
    if folder is None and install and not unpacked.exists():
        unpack_llvm()
    installed = sorted(Path("/usr/lib").glob("llvm-*/bin"), key=lambda path: _version(path.parent))
    for place in (folder, unpacked, *reversed(installed)):
        if place is not None and (place / "llvm-mca").exists():
            return Llvm(place)
    raise SystemExit("llvm-mca is missing; use --install, or name its folder with --llvm")


def _version(path: Path) -> int:
    return int(path.name.partition("-")[2].partition(".")[0] or 0)


def unpack_llvm() -> None:
    """Unpack Debian's LLVM into the cache; no root is needed, and nothing is installed."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as downloads:
        try:
            subprocess.run(["apt-get", "-q", "download", *PACKAGES], cwd=downloads, check=True)
            for package in Path(downloads).glob("*.deb"):
                subprocess.run(["dpkg-deb", "-x", package, CACHE], check=True)
        except (OSError, subprocess.CalledProcessError) as error:
            shutil.rmtree(CACHE)
            raise SystemExit(
                "Debian's LLVM cannot be downloaded; name a folder of LLVM 17 or newer with --llvm"
            ) from error


# ---- loops ----


class Instruction(NamedTuple):
    """One line of a disassembly."""

    address: int
    text: str


_LINE = re.compile(r"^\s*([0-9a-f]+):\s+(\S.*)$")
_BRANCH = re.compile(r"^(?:b\.\w+|b|cbn?z|tbn?z)\s(?:.*,\s*)?(?:0x)?([0-9a-f]+)(?:\s|$)")
_PRODUCT = re.compile(r"^fm(?:la|ls)\s+v\d+\.4s")
LANES = 4


def parse_disassembly(text: str) -> list[Instruction]:
    """Read the lines of llvm-objdump, without its comments."""
    found = filter(None, map(_LINE.match, text.splitlines()))
    return [Instruction(int(line[1], 16), re.sub(r"\s*<.*>$", "", line[2])) for line in found]


def innermost_loops(code: Sequence[Instruction]) -> list[list[Instruction]]:
    """Return the loops that contain no other loop."""
    spans = set()
    for instruction in code:
        branch = _BRANCH.match(instruction.text)
        if branch and code[0].address <= int(branch[1], 16) <= instruction.address:
            spans.add((int(branch[1], 16), instruction.address))
    inner = [
        (first, last)
        for first, last in sorted(spans)
        if not any((a, b) != (first, last) and first <= a and b <= last for a, b in spans)
    ]
    return [[line for line in code if first <= line.address <= last] for first, last in inner]


def count_products(loop: Sequence[Instruction]) -> int:
    """Count the instructions that multiply and add four values."""
    return sum(bool(_PRODUCT.match(line.text)) for line in loop)


def choose_loop(hot: HotLoop, code: Sequence[Instruction]) -> list[Instruction]:
    """Return the loop with most multiply-adds among those that match."""
    fitting = [
        loop
        for loop in innermost_loops(code)
        if (not hot.contains or any(line.text.startswith(hot.contains) for line in loop))
        and not (hot.lacks and any(line.text.startswith(hot.lacks) for line in loop))
    ]
    best = max(fitting, key=count_products, default=[])
    if not count_products(best):
        raise SystemExit(f"{hot.function} has no loop with multiply-adds for '{hot.name}'")
    return best


def read_functions(llvm: Llvm, names: set[str]) -> dict[str, list[Instruction]]:
    """Disassemble functions of the shipped binary."""
    target = next(target for target in TARGETS if target.file == BINARY)
    with tempfile.TemporaryDirectory() as scratch:
        named = build(target, Path(scratch), symbols=True)
        if _code(llvm, named, Path(scratch)) != _code(llvm, BIN / BINARY, Path(scratch)):
            raise SystemExit(
                f"kernels/bin/{BINARY} is not of these sources; build it with kernels.build"
            )
        listed = llvm.run("llvm-nm", ["--print-size", named])
    functions = {}
    for line in listed.splitlines():
        parts = line.split()
        if len(parts) == 4 and parts[3] in names:
            first, size = int(parts[0], 16), int(parts[1], 16)
            words = ["-d", "--no-show-raw-insn", f"--start-address={first}"]
            words += [f"--stop-address={first + size}", str(BIN / BINARY)]
            functions[parts[3]] = parse_disassembly(llvm.run("llvm-objdump", words))
    if missing := names - functions.keys():
        raise SystemExit(f"the binary has no function {', '.join(sorted(missing))}")
    return functions


def _code(llvm: Llvm, binary: Path, scratch: Path) -> bytes:
    section = scratch / "text"
    llvm.run("llvm-objcopy", [f"--dump-section=.text={section}", binary, "/dev/null"])
    return section.read_bytes()


# ---- analysis ----


# What the units of the models are, by the beginning of their names.
UNITS = {"V": "multiply-add units", "FPMAC": "multiply-add units", "L": "load units"}


@dataclass(frozen=True)
class Analysis:
    """What the analyser says about one turn of a loop."""

    cycles: float
    issue_cycles: float  # at least, by the number of micro-operations
    unit_cycles: dict[str, float]  # at least, by the units of one kind
    products: int

    @property
    def per_cycle(self) -> float:
        """Multiply-adds per cycle."""
        return self.products * LANES / self.cycles

    @property
    def limit(self) -> str:
        """What the cycles are spent on."""
        unit, needed = max(self.unit_cycles.items(), key=lambda item: item[1])
        if max(needed, self.issue_cycles) < 0.85 * self.cycles:
            return "latency"
        if needed < self.issue_cycles:
            return "issue width"
        return next((name for start, name in UNITS.items() if unit.startswith(start)), unit)


def model_name(resources: Sequence[str]) -> str:
    """Return the name that all resources of a scheduling model begin with."""
    return resources[0].partition("Unit")[0]


def analyse(llvm: Llvm, core: Core, lines: Sequence[str]) -> Analysis:
    """Simulate a loop on a core; refuse a model that is not the core's own."""
    words = ["-mtriple=aarch64", f"-mcpu={core.cpu}", f"-iterations={TURNS}", "-json"]
    # A number after the last line: the analyser takes no branch, so the loop needs no label.
    answer = json.loads(llvm.run("llvm-mca", words, "\n".join(lines) + "\n"))
    resources = [name.split(".")[0] for name in answer["TargetInfo"]["Resources"]]
    if model_name(resources) != core.model:
        raise SystemExit(
            f"this LLVM has no own model for {core.cpu}, but uses that of "
            f"{model_name(resources)}; use LLVM 17 or newer"
        )
    return summarise(answer["CodeRegions"][0], resources, _count(lines))


def _count(lines: Sequence[str]) -> int:
    return sum(bool(_PRODUCT.match(line)) for line in lines)


def summarise(region: dict[str, Any], resources: Sequence[str], products: int) -> Analysis:
    """Reduce the analyser's answer to one turn of the loop."""
    summary = region["SummaryView"]
    usage: dict[str, list[float]] = defaultdict(list)
    for row in region["ResourcePressureView"]["ResourcePressureInfo"]:
        if row["InstructionIndex"] == len(region["Instructions"]):  # the sum
            usage[resources[row["ResourceIndex"]]].append(row["ResourceUsage"])
    return Analysis(
        cycles=summary["TotalCycles"] / TURNS,
        issue_cycles=summary["TotaluOps"] / TURNS / summary["DispatchWidth"],
        unit_cycles={name.partition("Unit")[2]: max(each) for name, each in usage.items()},
        products=products,
    )


def peak(llvm: Llvm, core: Core) -> float:
    """Return the multiply-adds per cycle of independent multiply-adds alone."""
    alone = [f"fmla v{n}.4s, v30.4s, v31.s[0]" for n in range(24)]
    return analyse(llvm, core, alone).per_cycle


PUBLISHED_PEAK = 4.0


def by_published_rules(lines: Sequence[str]) -> float:
    """Return the multiply-adds per cycle of a Cortex-A55 by issue rules that others measured.

    One 128-bit multiply-add is issued per cycle, paired with at most one other instruction; a
    128-bit load takes two cycles alone, a pair of them four
    (https://github.com/Tencent/ncnn/blob/master/docs/developer-guide/arm-a53-a55-dual-issue.md).
    Latencies are not counted, so this is an upper bound.
    """
    products = _count(lines)
    loads = sum(bool(re.match(r"ldu?r\s+q", line)) for line in lines)
    pairs = sum(bool(re.match(r"ldp\s+q", line)) for line in lines)
    others = len(lines) - products - loads - pairs
    cycles = products + 2 * loads + 4 * pairs + max(0, others - products) / 2
    return products * LANES / cycles


def main(words: Sequence[str] | None = None) -> int:
    """Print a row for every loop and core; return 1 if a product loop misses its goal."""
    parser = argparse.ArgumentParser(description="Analyse the hot loops of the arm64 binary.")
    parser.add_argument("--llvm", type=Path, help="Use the programs of this folder.")
    parser.add_argument("--install", action="store_true", help="Unpack Debian's LLVM into .cache.")
    options = parser.parse_args(words)
    llvm = find_llvm(options.llvm, options.install)
    version = re.search(r"version (\S+)", llvm.run("llvm-mca", ["--version"]))
    print(f"{BINARY}, LLVM {version[1] if version else 'unknown'}")
    functions = read_functions(llvm, {hot.function for hot in LOOPS})
    peaks = {core: peak(llvm, core) for core in CORES}
    print("| loop | core | model | multiply-adds per cycle | peak | share | limited by |")
    print("|---|---|---|---|---|---|---|")
    missed = 0
    for hot in LOOPS:
        lines = [line.text for line in choose_loop(hot, functions[hot.function])]
        for core in CORES:
            found = analyse(llvm, core, lines)
            share = found.per_cycle / peaks[core]
            missed += hot.is_product and share < core.goal
            print(
                f"| {hot.name} | {core.stands_for} | {core.model} | {found.per_cycle:.1f} "
                f"| {peaks[core]:.0f} | {share:.0%} | {found.limit} |"
            )
        rate = by_published_rules(lines)
        print(
            f"| {hot.name} | Cortex-A55, in order | published rules | {rate:.1f} "
            f"| {PUBLISHED_PEAK:.0f} | {rate / PUBLISHED_PEAK:.0%} | issue rules |"
        )
    goals = ", ".join(f"{core.model} {core.goal:.0%}" for core in CORES)
    print(f"goals of the product loops: {goals}; {'missed' if missed else 'reached'}")
    return int(missed > 0)


if __name__ == "__main__":
    raise SystemExit(main())
