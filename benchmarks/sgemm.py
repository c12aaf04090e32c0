"""Compare our float32 matrix product with PyTorch, MNN and numpy in one run.

.venv/bin/python -m benchmarks.sgemm [--sizes 128 256 512] [--threads 1 2] [--json FILE]

Prints GFLOP/s of square products: 2 n^3 divided by the fastest time. Each product is first compared
with double precision. The last column is ours divided by the best of the others. The time of MNN
includes the construction of an expression, because its Python API multiplies only that way. A star
marks a row that was measured on a busy machine.
"""

import argparse
import json
import sys
from typing import Any

from benchmarks.peers.engine_comparison import (
    QUIET_SHARE,
    Engine,
    PeerProcess,
    RunnerEngine,
    geometric_mean,
    load_average,
    parse_options,
    time_engines,
)
from workloads.basic_steps import MatmulStep

SIZES = (32, 64, 96, 128, 192, 256, 384, 512, 768, 1024)
PEERS = ("torch", "mnn", "numpy")
SUMMARY_SIZE_MIN = 128  # the target for our speed applies from this size on


def measure(n: int, threads: int, options: argparse.Namespace) -> dict[str, Any]:
    """Time all engines on one size."""
    engines: list[Engine] = [
        RunnerEngine(options.runner, MatmulStep(n, n, n), threads, options.cpu)
    ]
    description = {"kind": "sgemm", "n": n}
    try:
        for peer in PEERS:
            engines.append(PeerProcess(peer, options.peers, description, threads, options.cpu))
        for engine in engines:
            engine.turn(0.0)
        results = time_engines(engines, options.rounds, options.seconds, options.patience)
    finally:
        for engine in engines:
            engine.close()
    speeds = {name: 2e-6 * n**3 / times.fastest_ms for name, times in results.items()}
    best_peer = max(speed for name, speed in speeds.items() if name != "ours")
    busy = max(min(times.busy) for times in results.values())
    ratio = speeds["ours"] / best_peer
    return {"n": n, "threads": threads, "gflops": speeds, "ratio": ratio, "busy": busy}


def main() -> None:
    """Measure all sizes and print each as soon as it is known."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sizes", nargs="+", type=int, default=list(SIZES))
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    options = parse_options(parser, seconds=0.5)
    print(f"load {load_average()}; GFLOP/s; {options.rounds} rounds of {options.seconds:g} s")
    print("   n thr     ours    torch      mnn    numpy     x best")
    rows = []
    for threads in options.threads:
        for n in options.sizes:
            row = measure(n, threads, options)
            rows.append(row)
            speeds = " ".join(f"{row['gflops'][name]:8.1f}" for name in ("ours", *PEERS))
            star = "*" if row["busy"] > QUIET_SHARE else " "
            print(f"{n:>4} {threads:>3} {speeds} {row['ratio']:9.2f}x {star}", flush=True)
    for threads in options.threads:
        large = [row for row in rows if row["threads"] == threads and row["n"] >= SUMMARY_SIZE_MIN]
        if large:
            mean = geometric_mean([row["ratio"] for row in large])
            worst = min(large, key=lambda row: row["ratio"])
            text = f"{mean:.2f}x in geometric mean, worst {worst['ratio']:.2f}x at {worst['n']}"
            print(f"{threads} thread{'s' * (threads > 1)}, from {SUMMARY_SIZE_MIN}: {text}")
    print(f"load {load_average()}")
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
