"""Times every variant of the matrix product; writes the table of docs: matrix-products.md.

    python -m benchmarks.opencl_variants [--device NUMBER|TEXT] [--sizes 128,256,512] [--write]

The variants take turns; the least wall time of each counts, packing and launching included.
"""

import argparse
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.peers.engine_comparison import load_average
from kernels.autotuner import MatmulShape
from kernels.harness.local_runner import LocalRunner, open_runner
from kernels.harness.matmul_bench import VARIANTS, VariantTime, time_products
from kernels.harness.opencl_device import Device, choose_device

PAGE = Path(__file__).resolve().parents[1] / "docs" / "explanation" / "matrix-products.md"
TRANSPOSED = ("dots",)  # variants for a transposed B are measured with one
_BLOCK = re.compile(r"(<!-- measured -->\n).*?(<!-- end -->)", re.DOTALL)
_SOURCES = "../../kernels/opencl"
Times = dict[str, VariantTime]


def time_variants(runner: LocalRunner, n: int, rounds: int, launches: int) -> Times:
    """Time all variants on square products, in turns."""
    times: Times = {}
    for transposed in (False, True):
        names = {name: name for name in VARIANTS if (name in TRANSPOSED) is transposed}
        shape = MatmulShape(n, n, n, transposed_b=transposed)
        times |= time_products(runner, shape, names, rounds, launches)
    return times


def measured_table(device: Device, times: Mapping[int, Times], load: str) -> str:
    """Return device, provenance and speeds as Markdown."""
    facts, largest = device.facts, max(times)
    heads = ["file", "what it does", *(f"n = {n}" for n in times), "times naive", "built with"]
    lines = [
        f"Device: {facts.name} ({facts.kind}), driver {facts.platform} {facts.driver}. "
        "Source: `host`; the speed of a phone's GPU is not known from it.",
        f"GFLOP/s by wall time, {datetime.now(UTC):%Y-%m-%d}, load {load}. 'times naive' "
        f"is for n = {largest}; {', '.join(TRANSPOSED)} is measured with a transposed B.",
        "",
        f"| {' | '.join(heads)} |",
        f"|{'---|' * len(heads)}",
    ]
    for name, text in VARIANTS.items():
        built = times[largest][name]
        file = built.files.split(" ")[-1]
        ratio = times[largest]["naive"].wall_s / built.wall_s
        cells = [f"[`{file}`]({_SOURCES}/{file})", text]
        cells += [f"{times[n][name].gflops(MatmulShape(n, n, n)):.1f}" for n in times]
        lines.append(f"| {' | '.join([*cells, f'{ratio:.1f}', f'`{built.options}`'])} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Print the table, and write it to its page if asked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="0")
    parser.add_argument("--sizes", default="128,256,512")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--launches", type=int, default=5, help="Launch at least this many times.")
    parser.add_argument("--write", action="store_true", help="Replace the table in the page.")
    options = parser.parse_args()
    device = choose_device(options.device)
    sizes = [int(size) for size in options.sizes.split(",")]
    with open_runner(device.facts.identity) as runner:
        times = {n: time_variants(runner, n, options.rounds, options.launches) for n in sizes}
    table = measured_table(device, times, load_average())
    print(table)
    if options.write:
        page = PAGE.read_text()
        PAGE.write_text(_BLOCK.sub(lambda found: f"{found[1]}{table}{found[2]}", page))


if __name__ == "__main__":
    main()
