"""Times every variant of the matrix product; writes the table of docs: matrix-products.md.

    python -m benchmarks.opencl_variants [--device NUMBER|TEXT] [--sizes 128,256,512] [--write]

The variants take turns; the least wall time of each counts, packing and launching included.
"""

import argparse
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from kernels.harness.launch_timing import measure_peaks
from kernels.harness.matmul_bench import MatmulRow, bench_matmul
from kernels.harness.matmul_variants import VARIANTS
from kernels.harness.opencl_device import Device, choose_device

PAGE = Path(__file__).resolve().parents[1] / "docs" / "explanation" / "matrix-products.md"
_BLOCK = re.compile(r"(<!-- measured -->\n).*?(<!-- end -->)", re.DOTALL)
_SOURCES = "../../kernels/opencl"


def measured_table(device: Device, rows: Sequence[MatmulRow]) -> str:
    """Return device, provenance and speeds as Markdown."""
    facts, largest = device.facts, rows[-1]
    load = max(row.load for row in rows)
    heads = ["file", "what it does", *(f"n = {row.shape.n}" for row in rows), "of naive"]
    lines = [
        f"Device: {facts.name} ({facts.kind}), driver {facts.platform} {facts.driver}. "
        f"Source: `host`, so this says nothing about a phone's GPU. GFLOP/s by wall time, "
        f"{datetime.now(UTC):%Y-%m-%d}, load {load:.1f}; peak "
        f"{measure_peaks(device).gflops:.0f}; numpy at n = {largest.shape.n} "
        f"{largest.numpy_gflops:.0f}. The last column compares at n = {largest.shape.n}.",
        "",
        f"| {' | '.join(heads)} |",
        f"|{'---|' * len(heads)}",
    ]
    for name, variant in VARIANTS.items():
        if name not in largest.times:
            continue
        speeds = [f"{row.gflops(name):.1f}" for row in rows]
        ratio = f"{largest.gflops(name) / largest.gflops('naive'):.1f} x"
        file = f"[`{variant.file}`]({_SOURCES}/{variant.file})"
        lines.append(f"| {' | '.join([file, variant.text, *speeds, ratio])} |")
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
    table = measured_table(device, bench_matmul(device, sizes, options.rounds, options.launches))
    print(table)
    if options.write:
        page = PAGE.read_text()
        PAGE.write_text(_BLOCK.sub(lambda found: f"{found[1]}{table}{found[2]}", page))


if __name__ == "__main__":
    main()
