"""Our single-precision matrix product beside those of PyTorch, MNN and numpy, in one run.

.venv/bin/python -m benchmarks.sgemm [--sizes 128 256 512] [--threads 1 2] [--json FILE]

GFLOP/s of square products, 2 n^3 by the fastest time; every product is checked against double
precision first. The last column is ours by the better of all others. MNN's time includes building
an expression, which is how its Python multiplies. A star marks a row taken on a busy machine.
"""

import argparse
import json
import sys
from typing import Any

from benchmarks.peers.contest import (
    QUIET_SHARE,
    Engine,
    Ours,
    PeerProcess,
    geometric_mean,
    load,
    read_words,
    take_turns,
)
from workloads.sgemm import Product

SIZES = (32, 64, 96, 128, 192, 256, 384, 512, 768, 1024)
PEERS = ("torch", "mnn", "numpy")
LARGE = 128  # from here on, what is asked of ours is asked of it


def measure(n: int, threads: int, asked: argparse.Namespace) -> dict[str, Any]:
    """Let all engines take their turns at one size."""
    engines: list[Engine] = [Ours(asked.runner, Product(n, n, n), threads, asked.cpu)]
    description = {"kind": "sgemm", "n": n}
    try:
        for peer in PEERS:
            engines.append(PeerProcess(peer, asked.peers, description, threads, asked.cpu))
        for engine in engines:
            engine.turn(0.0)
        standings = take_turns(engines, asked.rounds, asked.seconds, asked.patience)
    finally:
        for engine in engines:
            engine.close()
    speeds = {name: 2e-6 * n**3 / standing.best_ms for name, standing in standings.items()}
    better = max(speed for name, speed in speeds.items() if name != "ours")
    busy = max(min(standing.busy) for standing in standings.values())
    ratio = speeds["ours"] / better
    return {"n": n, "threads": threads, "gflops": speeds, "ratio": ratio, "busy": busy}


def main() -> None:
    """Measure, and print while it goes on."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sizes", nargs="+", type=int, default=list(SIZES))
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    asked = read_words(parser, seconds=0.5)
    print(f"load {load()}; GFLOP/s; {asked.rounds} rounds of {asked.seconds:g} s")
    print("   n thr     ours    torch      mnn    numpy   x better")
    rows = []
    for threads in asked.threads:
        for n in asked.sizes:
            row = measure(n, threads, asked)
            rows.append(row)
            speeds = " ".join(f"{row['gflops'][name]:8.1f}" for name in ("ours", *PEERS))
            star = "*" if row["busy"] > QUIET_SHARE else " "
            print(f"{n:>4} {threads:>3} {speeds} {row['ratio']:9.2f}x {star}", flush=True)
    for threads in asked.threads:
        large = [row for row in rows if row["threads"] == threads and row["n"] >= LARGE]
        if large:
            mean = geometric_mean([row["ratio"] for row in large])
            worst = min(large, key=lambda row: row["ratio"])
            where = f"worst {worst['ratio']:.2f}x at {worst['n']}"
            print(f"{threads} thread{'s' * (threads > 1)}, from {LARGE}: {mean:.2f}x, {where}")
    print(f"load {load()}")
    if asked.json:
        asked.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
