"""Times every variant of the matrix product; writes the table of docs: matrix-products.md.

    python -m benchmarks.opencl_variants [--device NUMBER|TEXT] [--sizes 128,256,512] [--write]

The variants take turns; the least wall time of each counts, packing and launching included.
"""

import argparse
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from kernels.autotuner import MatmulShape
from kernels.harness.launch_timing import load_average, measure_peaks, time_in_turns
from kernels.harness.matmul_check import variants_for
from kernels.harness.matmul_variants import VARIANTS, operands, prepare_matmul
from kernels.harness.opencl_device import Device, choose_device

PAGE = Path(__file__).resolve().parents[1] / "docs" / "explanation" / "matrix-products.md"
TRANSPOSED = ("dots",)  # variants for a transposed B are measured with one
_BLOCK = re.compile(r"(<!-- measured -->\n).*?(<!-- end -->)", re.DOTALL)
_SOURCES = "../../kernels/opencl"
Speeds = dict[str, float]  # GFLOP/s by variant


def time_variants(device: Device, n: int, rounds: int, launches: int) -> Speeds:
    """Time all variants that the device has on square products, in turns."""
    prepared, flops = {}, 2 * n**3
    for variant in variants_for(device):
        shape = MatmulShape(n, n, n, transposed_b=variant.name in TRANSPOSED)
        prepared[variant.name] = prepare_matmul(device, shape, variant, *operands(shape, n))[1]
    times = time_in_turns(device, prepared, rounds, launches)
    return {name: flops / time.wall_s / 1e9 for name, time in times.items()}


def measured_table(device: Device, speeds: Mapping[int, Speeds], load: float) -> str:
    """Return device, provenance and speeds as Markdown."""
    facts, largest = device.facts, max(speeds)
    heads = ["file", "what it does", *(f"n = {n}" for n in speeds), "times naive"]
    lines = [
        f"Device: {facts.name} ({facts.kind}), driver {facts.platform} {facts.driver}. "
        "Source: `host`; the speed of a phone's GPU is not known from it.",
        f"GFLOP/s by wall time, {datetime.now(UTC):%Y-%m-%d}, load {load:.1f}; "
        f"the measured peak is {measure_peaks(device).gflops:.0f}. The last column is for "
        f"n = {largest}; {', '.join(TRANSPOSED)} is measured with a transposed B.",
        "",
        f"| {' | '.join(heads)} |",
        f"|{'---|' * len(heads)}",
    ]
    for name, variant in VARIANTS.items():
        if name in speeds[largest]:
            ratio = speeds[largest][name] / speeds[largest]["naive"]
            cells = [f"[`{variant.file}`]({_SOURCES}/{variant.file})", variant.text]
            cells += [*(f"{speeds[n][name]:.1f}" for n in speeds), f"{ratio:.1f}"]
            lines.append(f"| {' | '.join(cells)} |")
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
    load = load_average()
    speeds = {n: time_variants(device, n, options.rounds, options.launches) for n in sizes}
    table = measured_table(device, speeds, max(load, load_average()))
    print(table)
    if options.write:
        page = PAGE.read_text()
        PAGE.write_text(_BLOCK.sub(lambda found: f"{found[1]}{table}{found[2]}", page))


if __name__ == "__main__":
    main()
